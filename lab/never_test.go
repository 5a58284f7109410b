package lab

import "testing"

// TestNeverOfNone: that nothing failed can be judged, and so can figures below 0, which have no
// ratio to a level.
func TestNeverOfNone(t *testing.T) {
	for _, c := range []struct {
		level  float64
		rounds []float64
		want   string
	}{
		{0, []float64{0, 0, 0, 0, 0, 0, 0, 0}, Reproduced},
		{0, []float64{0, 0, 0, 2, 0, 0, 0, 0}, NotMeasurable},
		{0, []float64{0, 1, 0, 2, 0, 0, 0, 0}, NotMeasurable},
		{0, []float64{1, 1, 3, 2, 1, 1, 1, 1}, NotReproduced},
		{4, []float64{-3, 1, 0, 2, 0, 0, 0, 0}, Reproduced},
	} {
		v := viewOf(map[string][]float64{FailedPerEvent.name: c.rounds})
		if got, ok := v.Never(who("a"), nil, FailedPerEvent, c.level, ""); !ok || got.Verdict != c.want {
			t.Errorf("never more than %v of %v: %+v, want %s", c.level, c.rounds, got, c.want)
		}
	}
	if _, ok := viewOf(nil).Never(who("b"), nil, FailedPerEvent, 0, ""); ok {
		t.Error("judged what was not measured")
	}
}

// TestTell: only what is sure is said.
func TestTell(t *testing.T) {
	busy := Ratio{Median: 2, Lo: 1.9, Hi: 2.1, Rounds: make([]float64, 8), disturbed: "others"}
	quiet := busy
	quiet.disturbed = ""
	for want, r := range map[string]Ratio{
		"above":                      quiet,
		"below":                      {Median: 0.5, Lo: 0.4, Hi: 0.6, Rounds: make([]float64, 8)},
		"no difference above 10 %":   {Median: 1, Lo: 0.95, Hi: 1.1, Rounds: make([]float64, 8)},
		"no difference that is sure": busy,
	} {
		if got := r.Tell("above", "below"); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	if got := (Ratio{Median: 2, Lo: 1.9, Hi: 2.1, Rounds: make([]float64, 7)}).Tell("above", ""); got == "above" {
		t.Error("seven rounds are sure")
	}
}

// TestNoneIn: one case refutes that something never happens, in however few rounds; to bear it out
// takes enough of them.
func TestNoneIn(t *testing.T) {
	for _, c := range []struct {
		rounds int
		none   bool
		want   string
	}{
		{1, false, NotReproduced},
		{MinRounds - 1, true, NotMeasurable},
		{MinRounds, true, Reproduced},
		{MinRounds, false, NotReproduced},
	} {
		if v := NoneIn(c.rounds, c.none, "here", "why"); v.Verdict != c.want || v.Here != "here" {
			t.Errorf("%d rounds, none %v: %+v, want %s", c.rounds, c.none, v, c.want)
		}
	}
}
