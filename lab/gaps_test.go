package lab

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestRoundsThatLackAFigure: the interval holds whatever the rounds would have been that lack the
// figure, as slow ones lack percentiles; where they could be anything there is no verdict, and no
// advice.
func TestRoundsThatLackAFigure(t *testing.T) {
	for _, c := range []struct {
		rounds, lack int
		want, reason string
	}{
		{8, 0, Reproduced, ""},
		{12, 0, Reproduced, ""},
		{12, 1, NotMeasurable, TooFewValues},
		{12, 4, NotMeasurable, TooFewValues},
		{12, 5, NotMeasurable, TooFewRounds},
		{40, 2, Reproduced, ""},
		{40, 20, NotMeasurable, TooFewValues},
	} {
		all := slices.Repeat([]Metrics{{Wall.name: 1, LatencyP99.name: 5}}, c.rounds)
		for i := range c.lack {
			all[i] = Metrics{Wall.name: 1}
		}
		b := slices.Repeat([]Metrics{{Wall.name: 1, LatencyP99.name: 10}}, c.rounds)
		v := viewOfRounds(all, b)
		r, _ := v.Ratio(ofA, ofB, nil, LatencyP99)
		level, _ := v.AtMost(ofA, nil, LatencyP99, 8, "")
		apart, _ := v.ApartAtMost(ofA, ofB, nil, LatencyP99, 8, "")
		for kind, got := range map[string]Verdict{"ratio": AtMost(r, 0.8, ""), "level": level, "apart": apart} {
			if got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("%d of %d rounds lack it: by %s %s (%s)", c.lack, c.rounds, kind, got.Verdict, got.Why)
			}
		}
		if r.Sure() != (c.want == Reproduced) || v.Beats(ofA, ofB, nil, LatencyP99) != r.Sure() {
			t.Errorf("%d of %d rounds lack it: sure %v", c.lack, c.rounds, r.Sure())
		}
	}
	// of those that have it none is beyond; of the others each may be
	for lack, want := range map[int]string{0: Reproduced, 1: Reproduced, 2: NotMeasurable} {
		all := slices.Repeat([]Metrics{{Wall.name: 1, LatencyMax.name: 5}}, 12)
		for i := range lack {
			all[i] = Metrics{Wall.name: 1}
		}
		got, _ := viewOfRounds(all, all).Never(ofA, nil, LatencyMax, 8, "")
		if got.Verdict != want || want == NotMeasurable && got.Reason != TooFewValues {
			t.Errorf("%d of 12 rounds lack it: never is %+v", lack, got)
		}
	}
}

// TestWhoFailedIsNotBorneOut: of a contestant that failed in its ninth round, which has no figures
// therefore, the eight before bear out nothing; what they refute stays so.
func TestWhoFailedIsNotBorneOut(t *testing.T) {
	for level, want := range map[float64]string{8: NotMeasurable, 3: NotReproduced} {
		const failed = "failed in round 9: lost its disk"
		a := &cellOf{c: ofA, rounds: slices.Repeat([]Metrics{{LostFrames.name: 5}}, 8), notRun: failed}
		e := Experiment{Name: "test", Claims: []Claim{{Judge: func(v View) (Verdict, bool) {
			return v.Never(ofA, nil, LostFrames, level, "")
		}}}}
		got := e.judge(View{&ExperimentResult{Rows: []Row{a.row()}}}, Quick())[0]
		if got.Verdict != want || want == NotMeasurable && !strings.Contains(got.Why, "a "+failed) {
			t.Errorf("never more than %v: %+v, want %s", level, got, want)
		}
	}
}

// TestFiguresAreNumbers: a turn with a figure that is no number has failed: of such nothing can be
// judged, and no results could be written.
func TestFiguresAreNumbers(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if err := (Metrics{NsPerOp.name: x}).wrong(); err == nil {
			t.Errorf("%v is taken for a figure", x)
		}
	}
	m, err := parseResult([]byte("BenchmarkA 5 NaN ns/op\n"))
	if err == nil {
		err = m.wrong()
	}
	if err == nil {
		t.Errorf("%v is taken for figures", m)
	}
	if err := (Metrics{NsPerOp.name: 0, DescriptorLeak.name: -1}).wrong(); err != nil {
		t.Error(err)
	}
}
