package report

import (
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestVersus: a ratio is shown with the interval that decides whether the two differ.
func TestVersus(t *testing.T) {
	eight := func(v ...float64) []float64 { return append(v, v...) }
	ones := eight(1, 1, 1, 1)
	for _, c := range []struct {
		rounds []float64
		want   string
	}{
		{eight(1.2, 1.21, 1.22, 1.23), "1.21× (1.20–1.23)"},
		{eight(0.99, 1, 1.01, 1.02), "no difference above 2 %"},
		{eight(1, 1, 1, 1), "no difference above 0 %"},
		{eight(0.25, 1, 2, 4), "no difference that is sure"},
		{[]float64{1.1, 1.2, 1.3}, "1.20× (1.10–1.30), too few rounds"},
	} {
		r, ok := lab.Compare(c.rounds, ones[:len(c.rounds)])
		if got := versus(r); !ok || got != c.want {
			t.Errorf("%v is %q, want %q", c.rounds, got, c.want)
		}
	}
}

// TestChance: a report says how many of its comparisons would differ by chance. Those that are not
// sure enough to differ are none, and where there are none nothing is said.
func TestChance(t *testing.T) {
	row := func(name string, factor float64, n int) lab.Row {
		samples := make([]float64, n)
		for i := range samples {
			samples[i] = factor * float64(100+i)
		}
		return lab.Row{
			Contestant: name, Params: lab.Params{},
			Metrics: map[string]lab.Figure{"ns_per_op": lab.Summarise("ns", samples)},
		}
	}
	e := lab.ExperimentResult{Base: "base", Shown: []string{"ns_per_op"}, Rows: []lab.Row{
		row("base", 1, 8), row("alike", 1, 8), row("slower", 2, 8), row("few", 3, 3),
	}}
	r := &lab.Results{}
	if got := chance(r); got != "" {
		t.Errorf("of nothing it says %q", got)
	}
	for range 125 {
		r.Experiments = append(r.Experiments, e)
	}
	const want = "125 of 250 comparisons show a difference. Of so many between equals about 2 would, by chance alone: "
	if got := chance(r); got[:min(len(got), len(want))] != want {
		t.Errorf("it says %q", got)
	}
}
