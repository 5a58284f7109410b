package lab

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestRoundsWithoutAMetric: a percentile that a round is too short for leaves the others in their
// places: those that are compared, and those that are written, are of the same round.
func TestRoundsWithoutAMetric(t *testing.T) {
	gappy, whole := &cellOf{c: &Contestant{Name: "gappy"}}, &cellOf{c: &Contestant{Name: "whole"}}
	for i := range 10 {
		x := float64(int(1) << i) // another in each round
		m := Metrics{NsPerOp.name: 1, LatencyP99.name: 2 * x}
		if i == 0 || i == 4 {
			delete(m, LatencyP99.name)
		}
		gappy.rounds = append(gappy.rounds, m)
		whole.rounds = append(whole.rounds, Metrics{NsPerOp.name: 1, LatencyP99.name: x})
	}
	r := ExperimentResult{Name: "test", Rows: []Row{gappy.row(), whole.row()}}
	v := View{&r}
	for _, order := range [][2]*Contestant{{gappy.c, whole.c}, {whole.c, gappy.c}} {
		got, ok := v.Ratio(order[0], order[1], nil, LatencyP99)
		if !ok || len(got.Rounds) != 8 || got.Lo != got.Hi || !got.Differ() {
			t.Errorf("%s to %s: %v of the rounds %v, want 2 in each of 8", order[0].Name, order[1].Name, got, got.Rounds)
		}
	}
	if f := r.Rows[0].Metrics[NsPerOp.name]; f.Rounds != nil {
		t.Errorf("numbers of rounds that all have the figure: %v", f.Rounds)
	}
	var text bytes.Buffer
	if err := (&Results{Experiments: []ExperimentResult{r}}).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "BenchmarkTest") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if want := "BenchmarkTest 1 1024 latency_us_p99 1 ns_per_op"; len(lines) != 20 || lines[9] != want ||
		strings.Contains(lines[4], "p99") {
		t.Errorf("%q; want the tenth to be %q, and no p99 in the fifth", lines, want)
	}
	if rows := (&Results{}).samples(&r, &r.Rows[0]); !slices.ContainsFunc(rows, func(s sampleRow) bool {
		return s.Metric == LatencyP99.name && s.Round == 10 && *s.Value == 1024
	}) {
		t.Errorf("the table lacks the percentile of round 10: %+v", rows)
	}
}
