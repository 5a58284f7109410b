package lab

import (
	"math"
	"strings"
	"testing"
)

// viewOf is a view of one contestant, a, whose rounds had these figures.
func viewOf(figures map[string][]float64) View {
	row := Row{Contestant: "a", Metrics: map[string]Figure{}}
	for name, samples := range figures {
		row.Metrics[name] = Summarise(Describe(name).Unit, samples)
	}
	return View{&ExperimentResult{Rows: []Row{row}}}
}

// TestLevels: a claim of a figure by itself is judged as one of a ratio is, and shown in its unit.
func TestLevels(t *testing.T) {
	v := viewOf(map[string][]float64{LatencyP99.name: {10, 11, 10, 12, 11, 10, 11, 10}})
	for level, want := range map[float64]string{13: Reproduced, 11: NotMeasurable, 9: NotReproduced} {
		got, ok := v.AtMost(who("a"), nil, LatencyP99, level, "")
		if !ok || got.Verdict != want || !strings.HasPrefix(got.Needed, "≤ ") || !strings.HasSuffix(got.Needed, " µs") {
			t.Errorf("at most %v: %+v, want %s", level, got, want)
		}
	}
	for level, want := range map[float64]string{9: Reproduced, 11: NotMeasurable, 13: NotReproduced} {
		if got, ok := v.AtLeast(who("a"), nil, LatencyP99, level, ""); !ok || got.Verdict != want {
			t.Errorf("at least %v: %+v, want %s", level, got, want)
		}
	}
	if _, ok := v.AtMost(who("b"), nil, LatencyP99, 1, ""); ok {
		t.Error("judged what was not measured")
	}
}

// TestNever: the largest of all rounds decides, not a median of them; what few rounds do refutes
// nothing, and confirms nothing; what most of them do refutes it.
func TestNever(t *testing.T) {
	for _, c := range []struct {
		rounds        []float64
		want, because string
	}{
		{[]float64{3, 4, 3, 4, 3, 4, 3, 12}, Reproduced, ""},
		{[]float64{3, 4, 3, 4, 3, 4, 3, 30}, NotMeasurable, TooNoisy},
		{[]float64{3, 4, 3, 4, 3, 4, 13, 30}, NotMeasurable, TooNoisy},
		{[]float64{13, 14, 13, 14, 13, 14, 12, 12}, NotMeasurable, TooNoisy},
		{[]float64{13, 14, 13, 14, 13, 14, 13, 12}, NotReproduced, ""}, // 7 of 8
		{[]float64{13, 14, 13, 14, 13, 14, 13, 14, 13, 3, 3, 3}, NotMeasurable, TooNoisy},
		{[]float64{13, 14, 13, 14, 13, 14, 13, 14, 13, 14, 3, 3}, NotReproduced, ""}, // 10 of 12
		{[]float64{13, 14, 13, 14, 13, 14, 13, 30}, NotReproduced, ""},
		{[]float64{3, 4, 3, 4, 3, 4, 3}, NotMeasurable, TooFewRounds},
		{[]float64{0, 0, 0, 0, 0, 0, 0, 0}, Reproduced, ""},
	} {
		v := viewOf(map[string][]float64{LatencyMax.name: c.rounds})
		got, ok := v.Never(who("a"), nil, LatencyMax, 12, "")
		if !ok || got.Verdict != c.want || got.Reason != c.because {
			t.Errorf("%v: %+v, want %s (%s)", c.rounds, got, c.want, c.because)
		}
	}
}

// TestRates: what was lost in all rounds decides; too few say nothing.
func TestRates(t *testing.T) {
	sent := []float64{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}
	for _, c := range []struct {
		lost          []float64
		most          float64
		want, because string
	}{
		{[]float64{0, 0, 0, 0, 0, 0, 0, 0}, 0.001, Reproduced, ""},
		{[]float64{0, 0, 0, 0, 0, 0, 0, 0}, 0.0001, NotMeasurable, TooFewRounds},
		{[]float64{0, 0, 0, 3, 0, 0, 0, 0}, 0.01, Reproduced, ""},
		{[]float64{20, 20, 20, 20, 20, 20, 20, 20}, 0.01, NotReproduced, ""},
		{[]float64{0, 0, 0, 0, 160, 0, 0, 0}, 0.01, NotMeasurable, TooFewRounds}, // one burst
		{[]float64{10, 10, 10, 10, 10, 10, 10, 10}, 0.01, NotMeasurable, TooFewRounds},
		{[]float64{0, 90, 0, 90, 0, 90, 0, 90}, 0.01, NotMeasurable, TooFewRounds}, // four
		{[]float64{0, 90, 0, 90, 0, 90, 0, 90}, 0.5, Reproduced, ""},
	} {
		v := viewOf(map[string][]float64{LostFrames.name: c.lost, SentFrames.name: sent})
		got, ok := v.RateAtMost(who("a"), nil, LostFrames, SentFrames, c.most, "")
		if !ok || got.Verdict != c.want || got.Reason != c.because {
			t.Errorf("%v of which %v may be: %+v, want %s (%s)", c.lost, c.most, got, c.want, c.because)
		}
	}
}

// TestPoisson: against tables of the exact interval (Garwood, 1936).
func TestPoisson(t *testing.T) {
	for _, c := range []struct{ events, wrong, lo, hi float64 }{
		{0, 0.05, 0, 2.996},
		{0, 0.005, 0, 5.298},
		{1, 0.025, 0.0253, 5.572},
		{10, 0.025, 4.795, 18.39},
		{10, 0.005, 3.717, 21.40},
		{100, 0.025, 81.36, 121.6},
	} {
		lo, hi := poisson(c.events, c.wrong)
		if math.Abs(lo-c.lo) > 0.001*max(1, c.lo) || math.Abs(hi-c.hi) > 0.001*c.hi {
			t.Errorf("%v events at %v: %.4f to %.4f, want %v to %v", c.events, c.wrong, lo, hi, c.lo, c.hi)
		}
	}
	if lo, hi := poisson(10_000, 0.005); math.Abs(lo-9742) > 3 || math.Abs(hi-10258) > 3 {
		t.Errorf("10,000 events: %v to %v", lo, hi)
	}
}
