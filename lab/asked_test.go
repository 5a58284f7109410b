package lab

import (
	"strings"
	"testing"
	"time"
)

// TestTooFewValues: a claim that asks for a percentile of turns that were too short for one says
// that, and not that a contestant is missing.
func TestTooFewValues(t *testing.T) {
	a, b := &Contestant{Name: "a"}, &Contestant{Name: "b"}
	figure := Summarise("", make([]float64, 8))
	has := func(metrics ...Metric) map[string]Figure {
		m := map[string]Figure{}
		for _, one := range metrics {
			m[one.name] = figure
		}
		return m
	}
	e := &Experiment{Name: "test", Claims: []Claim{{
		Needs: "both",
		Judge: func(v View) (Verdict, bool) {
			r, ok := v.Ratio(a, b, nil, LatencyP999)
			return AtMost(r, 2, ""), ok
		},
	}}}
	for _, c := range []struct {
		of   map[string]Figure
		want string
		why  string
	}{
		{
			has(LatencyP50), TooFewValues,
			"99.9 % of b at n=1 takes 5000 in a turn. `tallywheel lab run test --full --out lab-results-test`",
		},
		{has(NsPerOp), "", "not measured: both"}, // it has no latency
		{nil, "", "not measured: both"},
	} {
		r := ExperimentResult{Rows: []Row{
			{Contestant: "a", Metrics: has(LatencyP50, LatencyP999)},
			{Contestant: "b", Params: Params{"n": "1"}, Metrics: c.of},
		}}
		got := e.judge(View{&r}, Quick())[0]
		if got.Verdict != NotMeasurable || got.Reason != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%+v, want %q", got, c.why)
		}
	}
}

// TestTurnsThatMustBeLong: a cell whose turns must be long has its time first, and the others share
// what it leaves; where there is none, they are as short as turns get.
func TestTurnsThatMustBeLong(t *testing.T) {
	long, short := Params{"long": "1"}, Params{"long": "0"}
	e := &Experiment{Turn: 2 * time.Second, Least: func(cell Params) time.Duration {
		return time.Duration(cell.Int("long")) * time.Second
	}}
	running := []*cellOf{{cell: long}, {cell: short}, {cell: short}}
	for _, c := range []struct{ round, overhead, long, short time.Duration }{
		{9000 * time.Millisecond, 0, 2 * time.Second, 2 * time.Second}, // as long as it asks for
		{4500 * time.Millisecond, 0, 1500 * time.Millisecond, 1500 * time.Millisecond},
		{2000 * time.Millisecond, 0, time.Second, 500 * time.Millisecond},
		{2000 * time.Millisecond, 100 * time.Millisecond, time.Second, 350 * time.Millisecond},
		{1000 * time.Millisecond, 0, time.Second, shortestTurn},
	} {
		length := (&Bench{}).turnLengths(e, c.overhead, running, c.round*MinRounds*10/9)
		gotLong, gotShort := length(long).Round(time.Millisecond), length(short).Round(time.Millisecond)
		if gotLong != c.long || gotShort != c.short {
			t.Errorf("%v a round, %v each besides: %v and %v, want %v and %v", c.round, c.overhead, gotLong, gotShort,
				c.long, c.short)
		}
	}
}

// TestApart: two that are at most so far apart are found by the differences of each round, with a
// band between.
func TestApart(t *testing.T) {
	a, b := &Contestant{Name: "a"}, &Contestant{Name: "b"}
	for _, c := range []struct {
		by   float64
		want string
	}{{2, Reproduced}, {-2, Reproduced}, {30, NotReproduced}, {-30, NotReproduced}, {10, NotMeasurable}} {
		var x, y []float64
		for i := range 8 {
			base := 50 + 10*float64(i) // what the machine does to both
			x, y = append(x, base+c.by+float64(i%2)/2-0.25), append(y, base)
		}
		row := func(c *Contestant, v []float64) Row {
			return Row{Contestant: c.Name, Metrics: map[string]Figure{LatencyP50.name: Summarise("µs", v)}}
		}
		r := ExperimentResult{Rows: []Row{row(a, x), row(b, y)}}
		got, ok := View{&r}.ApartAtMost(a, b, nil, LatencyP50, 10, "")
		if !ok || got.Verdict != c.want {
			t.Errorf("%.0f µs apart: %+v, want %s", c.by, got, c.want)
		}
	}
}
