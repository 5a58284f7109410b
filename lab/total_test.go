package lab

import (
	"math"
	"testing"
)

// TestLossesAreSums: what is lost in a minority of rounds is in the row's figures, with the share
// and the bound of all rounds.
func TestLossesAreSums(t *testing.T) {
	c := &cellOf{c: &Contestant{Name: "a"}}
	for i := range 9 {
		m := Metrics{NsPerOp.name: 5, SentFrames.name: 1000, LostFrames.name: 0, LostPercent.name: 0}
		if i == 4 {
			m[LostFrames.name], m[LostPercent.name] = 90, 9
		}
		c.rounds = append(c.rounds, m)
	}
	row := c.row()
	for metric, want := range map[Metric]float64{SentFrames: 9000, LostFrames: 90, LostPercent: 1} {
		f := row.Metrics[metric.name]
		if f.Total == nil || *f.Total != want || len(f.Samples) != 9 {
			t.Errorf("%s: %+v, want %v in all", metric, f, want)
		}
	}
	if bound := row.Metrics[ErrorBound.name]; bound.Total != nil || math.Abs(bound.Median-0.0119) > 0.0002 {
		t.Errorf("the rate is at most %v, want 107 of 9000", bound.Median)
	}
	if f := row.Metrics[NsPerOp.name]; f.Total != nil {
		t.Errorf("what went well has a sum: %v", *f.Total)
	}
}
