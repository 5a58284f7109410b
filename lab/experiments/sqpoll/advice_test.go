package sqpoll

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// measured is results in which SQPOLL has so many times the requests and the CPU time, with chance
// of some percent, and others had so much of the machine.
func measured(rate, cpu, others float64) lab.View {
	row := func(c *lab.Contestant, rate, cpu float64) lab.Row {
		around := func(x float64) lab.Figure {
			var all []float64
			for _, chance := range []float64{0.97, 1.02, 0.99, 1.01, 1.03, 0.98, 1, 1.005} {
				all = append(all, x*chance)
			}
			return lab.Summarise("", all)
		}
		figures := map[string]lab.Figure{
			lab.OpsPerSecond.String(): around(rate), lab.CPUPerOp.String(): around(cpu),
			lab.Others.String(): around(others),
		}
		return lab.Row{Contestant: c.Name, Params: many, Metrics: figures}
	}
	base := row(without, 1, 1)
	for _, m := range []lab.Metric{lab.OpsPerSecond, lab.CPUPerOp} { // its chance is another
		samples := base.Metrics[m.String()].Samples
		for i := range len(samples) / 2 {
			k := len(samples) - 1 - i
			samples[i], samples[k] = samples[k], samples[i]
		}
	}
	return lab.View{ExperimentResult: &lab.ExperimentResult{Rows: []lab.Row{base, row(ms2, rate, cpu)}}}
}

// TestAdvice: it says what was found, and advises against nothing that is not worse.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		rate, cpu, others float64
		want, not         string
	}{
		{1, 1, 0, "no difference to the rate above", "CPU"},
		{1, 1.5, 0, "takes 1.5", "Leave"},
		{1.3, 1, 0, "30 % more requests", "CPU"},
		{0.7, 2, 0, "Leave SQPOLL off here: 0.7", "brings"},
	} {
		got := advice(measured(c.rate, c.cpu, c.others))
		if !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for _, others := range []float64{30, 90} {
		if got := advice(measured(0.7, 2, others)); got != "" {
			t.Errorf("others have %.0f %% of the machine: %q", others, got)
		}
	}
}
