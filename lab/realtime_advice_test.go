package lab_test

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestRealTimeAdviceIsComputed: what is recommended is better in the rounds that the advice cites;
// where nothing differs, it has figures alone.
func TestRealTimeAdviceIsComputed(t *testing.T) {
	type figures map[lab.Metric]float64
	warm, checked := lab.Params{"cache": "warm"}, lab.Params{"constants": "checked"}
	computed, compiled := lab.Params{"constants": "computed"}, lab.Params{"constants": "compiled"}
	type row struct {
		who  string
		cell lab.Params
		figures
	}
	constants := func(start float64) []row {
		var all []row
		for _, who := range []string{"go", "rust"} {
			all = append(all, row{who, computed, figures{lab.ConstantsP50: 9000, lab.LatencyP50: 1000}},
				row{who, checked, figures{lab.ConstantsP50: 500}},
				row{who, compiled, figures{lab.ConstantsP50: 50, lab.LatencyP50: start}})
		}
		return all
	}
	memory := func(arena float64) []row {
		of := func(lacking float64) figures {
			return figures{lab.FragmentationPercent: lacking, lab.SimulatedHours: 100}
		}
		return []row{
			{"go/heap", nil, of(40)},
			{"c/malloc", nil, of(30)},
			{"go/arena", nil, of(arena)},
			{"go/arena with pointers", nil, of(arena)},
		}
	}
	starts := func(cgo float64) []row {
		return []row{
			{"go, static", warm, figures{lab.LatencyP50: 1000}},
			{"go, cgo", warm, figures{lab.LatencyP50: cgo}},
			{"c, static", warm, figures{lab.LatencyP50: 300}},
		}
	}
	switches := func(locked float64) []row {
		return []row{
			{"go/goroutine", nil, figures{lab.NsPerOp: 200}},
			{"go/locked goroutine", nil, figures{lab.NsPerOp: locked}},
			{"c/futex", nil, figures{lab.NsPerOp: 1500}},
		}
	}
	for _, c := range []struct {
		experiment, recommends string
		better, alike          []row
	}{
		{"rt-start", "CGO_ENABLED=0", starts(1500), starts(1000)},
		{"rt-switch", "Lock none", switches(4000), switches(200)},
		{"rt-memory", "take an arena", memory(0), memory(40)},
		{"rt-const", ": take them.", constants(800), constants(1000)},
	} {
		advice := func(rows []row) string {
			r := lab.ExperimentResult{Rounds: 8}
			for _, row := range rows {
				m := map[string]lab.Figure{}
				for metric, v := range row.figures {
					m[metric.String()] = lab.Summarise("", eightOf(v))
				}
				r.Rows = append(r.Rows, lab.Row{Contestant: row.who, Params: row.cell, Metrics: m})
			}
			return experiment(t, c.experiment).Advice(lab.View{ExperimentResult: &r})
		}
		if got := advice(c.better); !strings.Contains(got, c.recommends) {
			t.Errorf("%s: %q where it is better", c.experiment, got)
		}
		if got := advice(c.alike); got == "" || strings.Contains(got, c.recommends) {
			t.Errorf("%s: %q where nothing differs", c.experiment, got)
		}
	}
}

// TestOneRoundMakesNoAdvice: the longest wait of one round, which may be the machine's, does not
// set one way apart from another; what most rounds have does.
func TestOneRoundMakesNoAdvice(t *testing.T) {
	among, large := lab.Params{"iterations": "10000", "others": "4"}, lab.Params{"heap_MB": "64"}
	for _, c := range []struct {
		experiment string
		cell       lab.Params
		who        []string
	}{
		{"rt-preempt", nil, []string{"computing", "computing, yields each 100 µs", "computing, ticks in a cell"}},
		{"rt-wcet", among, []string{"yields, GOMAXPROCS=1", "holds, GOMAXPROCS=1"}},
		{"rt-stw", large, []string{"garbage", "garbage beside tight loops"}},
	} {
		advice := func(first []float64) string {
			r := lab.ExperimentResult{Rounds: 8}
			for i, who := range c.who {
				longest := eightOf(100)
				if i == 0 {
					longest = first
				}
				r.Rows = append(r.Rows, rowOf(who, c.cell,
					rounds{lab.LatencyMax: longest, lab.LatencyP50: eightOf(10)}))
			}
			return experiment(t, c.experiment).Advice(lab.View{ExperimentResult: &r})
		}
		if got := advice(eightOf(100, 90_000)); !strings.Contains(got, "100 µs at the median, 90000 in the worst of 8 rounds") ||
			!strings.Contains(got, "100 µs (no difference") {
			t.Errorf("%s, one long round: %q", c.experiment, got)
		}
		if got := advice(eightOf(90_000)); !strings.Contains(got, "100 µs (0.00×)") {
			t.Errorf("%s, long rounds: %q", c.experiment, got)
		}
	}
}
