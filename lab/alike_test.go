package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestAdviceSaysWhatDoesNotDiffer: medians that stand side by side are compared behind them, but
// for those that the advice has compared itself, and what was counted once.
func TestAdviceSaysWhatDoesNotDiffer(t *testing.T) {
	a, b, c := who("a"), who("b"), who("c")
	row := func(name string, ns []float64, calls float64) Row {
		return Row{Contestant: name, Metrics: map[string]Figure{
			NsPerOp.name: Summarise("ns", ns), SyscallsPerOp.name: Summarise("", []float64{calls}),
		}}
	}
	v := View{&ExperimentResult{Rows: []Row{
		row("a", []float64{20, 21, 20, 21, 20, 21, 20, 21}, 1),
		row("b", []float64{10, 11, 12, 11, 10, 11, 10, 13}, 2),
		row("c", []float64{11, 10, 11, 12, 11, 10, 11, 10}, 3),
	}}}
	const alike = " No difference was measured between b and c in time an operation."
	for _, compares := range []bool{false, true} {
		e := Experiment{Advice: func(v View) string {
			m, _ := v.Medians(nil, NsPerOp, a, b, c)
			_, _ = v.Medians(nil, SyscallsPerOp, a, b, c)
			text := fmt.Sprintf("%.0f, %.0f, %.0f", m[0], m[1], m[2])
			if compares {
				r, _ := v.Ratio(b, c, nil, NsPerOp)
				text += ": " + r.Tell("more", "less")
			}
			return text
		}}
		got := e.advise(v)
		if strings.HasSuffix(got, alike) == compares || strings.Contains(got, "a and") {
			t.Errorf("%v: %q", compares, got)
		}
	}
}
