package runtimetuning

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

// verdict judges a claim by figures, each of which is the same in eight rounds.
func verdict(t *testing.T, claim string, of map[*lab.Contestant]map[lab.Metric]float64) lab.Verdict {
	t.Helper()
	r := &lab.ExperimentResult{}
	for c, figures := range of {
		row := lab.Row{Contestant: c.Name, Params: lab.Params{"connections": "400"}, Metrics: map[string]lab.Figure{}}
		for m, x := range figures {
			row.Metrics[m.String()] = lab.Summarise("", []float64{x, x, x, x, x, x, x, x})
		}
		r.Rows = append(r.Rows, row)
	}
	for _, e := range lab.Experiments() {
		for _, c := range e.Claims {
			if e.Name == "runtime-tuning" && c.Claim == claim {
				v, ok := c.Judge(lab.View{ExperimentResult: r})
				if !ok {
					t.Fatalf("%q is not judged by %v", claim, of)
				}
				return v
			}
		}
	}
	t.Fatalf("nobody judges %q", claim)
	return lab.Verdict{}
}

// TestLatencyIsMeasured: the claim on the mean latency is judged by it, not by the rate.
func TestLatencyIsMeasured(t *testing.T) {
	figures := func(procs, off float64) map[*lab.Contestant]map[lab.Metric]float64 {
		return map[*lab.Contestant]map[lab.Metric]float64{
			asItIs:     {lab.OpsPerSecond: 1, lab.LatencyMean: 100},
			procs8:     {lab.OpsPerSecond: 1, lab.LatencyMean: procs},
			preemptOff: {lab.OpsPerSecond: 1, lab.LatencyMean: off},
		}
	}
	if v := verdict(t, claims.TuningLatency.Text, figures(86, 74)); v.Verdict != lab.Reproduced {
		t.Errorf("14 and 26 %% less: %+v", v)
	}
	if v := verdict(t, claims.TuningLatency.Text, figures(86, 100)); v.Verdict != lab.NotReproduced {
		t.Errorf("14 %% less, and no less: %+v", v)
	}
}

// TestPausesAreNotTheirSum: that there are more of them does not make each longer.
func TestPausesAreNotTheirSum(t *testing.T) {
	figures := func(sum, mean float64) map[*lab.Contestant]map[lab.Metric]float64 {
		return map[*lab.Contestant]map[lab.Metric]float64{
			asItIs:     {lab.GCCycles: 8, lab.GCPause: 160, lab.GCPauseMean: 10},
			preemptOff: {lab.GCCycles: 12, lab.GCPause: sum, lab.GCPauseMean: mean},
		}
	}
	if v := verdict(t, claims.TuningPauses.Text, figures(240, 10)); v.Verdict != lab.NotReproduced {
		t.Errorf("half as many more, no longer: %+v", v)
	}
	v := verdict(t, claims.TuningPauses.Text, figures(480, 20))
	if v.Verdict != lab.Reproduced || !strings.Contains(v.Here, "2.00×") {
		t.Errorf("half as many more, twice as long: %+v", v)
	}
}
