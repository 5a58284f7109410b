package lab

import "testing"

// TestReasonsHaveSides: a reason that speaks against a claim does not explain that it holds, and
// one for it not that it does not; the reader is told so. A goal's reason is for it.
func TestReasonsHaveSides(t *testing.T) {
	const why = "Nobody does that."
	for _, c := range []struct {
		got, want string
	}{
		{Holds(true, "", "").IfNot(why).Why, otherwise + why},
		{Holds(false, "", "").IfNot(why).Why, why},
		{Holds(true, "", "so").IfNot(why).Why, "so"},
		{Holds(false, "", "so").IfNot(why).Why, why},
		{NotHere("a board").IfNot(why).Why, "a board"},
		{Holds(true, "", why).Why, why},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for _, source := range []Source{Goal("≤ 1"), SerialArticle.Says("1", "1")} {
		for _, ifNot := range []string{"", "A reason of its own."} {
			e := Experiment{Claims: []Claim{{Claim: "It is so.", Source: source, Judge: func(View) (Verdict, bool) {
				v := Holds(false, "", why)
				if ifNot != "" {
					v = v.IfNot(ifNot)
				}
				return v, true
			}}}}
			want := why
			switch {
			case ifNot != "":
				want = ifNot
			case !source.published():
				want = otherwise + why
			}
			if got := e.judge(View{&ExperimentResult{}}, Quick())[0].Why; got != want {
				t.Errorf("%v: %q, want %q", source, got, want)
			}
		}
	}
}

// TestFiguresHaveNoExponent: a bound of 20 ms reads so, and not 2e+04 µs.
func TestFiguresHaveNoExponent(t *testing.T) {
	v := viewOf(map[string][]float64{LatencyMax.name: {21_000, 21_100, 21_200, 21_300, 21_400, 21_500, 21_600, 98_040}})
	got, _ := v.AtMost(who("a"), nil, LatencyMax, 20_000, "")
	if got.Needed != "≤ 20000 µs" || got.Here != "21350 µs (21000–98040)" {
		t.Errorf("needed %s, here %s", got.Needed, got.Here)
	}
	if got, _ := v.Sometimes(who("a"), nil, LatencyMax, 20_000, ""); got.Here != "at most 98040 µs in 8 rounds, more than 20000 µs in 8 of them" {
		t.Error(got.Here)
	}
}

// TestNeverOfNothing: a level of 0 has no ratio, and is a level all the same.
func TestNeverOfNothing(t *testing.T) {
	for want, rounds := range map[string][]float64{
		Reproduced: {0, 0, 0, 0, 0, 0, 0, 0}, NotReproduced: {1, 2, 1, 1, 2, 1, 1, 1},
		NotMeasurable: {0, 0, 1, 0, 0, 0, 1, 0},
	} {
		v := viewOf(map[string][]float64{DescriptorDrift.name: rounds})
		if got, ok := v.Never(who("a"), nil, DescriptorDrift, 0, ""); !ok || got.Verdict != want {
			t.Errorf("%v: %+v, want %s", rounds, got, want)
		}
	}
}

// TestAnswersHaveReasons: what a contestant found out, by yes or no, is explained by a reason for
// that; where there is none for it, the reader is told that it was not expected.
func TestAnswersHaveReasons(t *testing.T) {
	p := SerialArticle.Claims(1, "1", "It is so.", "1")
	for _, c := range []struct{ ifSo, ifNot, yes, no string }{
		{"It is there.", "It is not there.", "It is there.", "It is not there."},
		{"It is there.", "", "It is there.", otherwise + "It is there."},
		{"", "It is not there.", otherwise + "It is not there.", "It is not there."},
	} {
		for answer, want := range map[float64]string{1: c.yes, 0: c.no} {
			v := viewOf(map[string][]float64{Answer.name: {answer}})
			if got, ok := p.Asked(who("a"), c.ifSo, c.ifNot).Judge(v); !ok || got.Why != want {
				t.Errorf("%q, %q, answer %v: %q, want %q", c.ifSo, c.ifNot, answer, got.Why, want)
			}
		}
	}
}

// TestLacks: that a compiler does not find what a contestant uses bears out that it is not there.
func TestLacks(t *testing.T) {
	p := SerialArticle.Claims(1, "1", "It is not there.", "1")
	c := who("a")
	for want, row := range map[string]Row{
		Reproduced:    {Contestant: c.Name, NotRun: "go: ./main.go:5: undefined: unix.Statx_t"},
		NotReproduced: {Contestant: c.Name, Metrics: map[string]Figure{Answer.name: Summarise("", []float64{0})}},
		NotMeasurable: {Contestant: c.Name, NotRun: "no go (go.dev/dl)"},
	} {
		v, ok := p.Lacks(c, "It is there since 2018.").Judge(View{&ExperimentResult{Rows: []Row{row}}})
		if !ok || v.Verdict != want {
			t.Errorf("%+v (%v), want %s", v, ok, want)
		}
	}
}
