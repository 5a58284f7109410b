package lab

import (
	"math/rand/v2"
	"testing"
)

// TestCompareRuns: the rounds of two runs, of noise of 2 %. 10 % are found, and two alike are told
// apart in at most 2 % of the trials; the interval holds the true ratio, so a difference that it
// leaves out would have been seen.
func TestCompareRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := func(n int, factor float64) (v []float64) {
		for range n {
			v = append(v, factor*(1+0.02*rng.NormFloat64()))
		}
		return v
	}
	const trials = 1000
	for _, n := range []int{5, 7, 15} {
		alike, found, held := 0, 0, 0
		for range trials {
			r, ok := CompareRuns(rounds(n, 1), rounds(n, 1))
			if !ok || r.Lo > 1 || r.Hi < 1 {
				alike++
			}
			r, _ = CompareRuns(rounds(n, 1.10), rounds(n, 1))
			if r.Lo > 1 {
				found++
			}
			if r.Lo <= 1.10 && 1.10 <= r.Hi {
				held++
			}
		}
		if alike > trials/50 || found < trials*9/10 || held < trials*98/100 {
			t.Errorf("%d rounds: of %d trials two alike differ in %d, 10 %% is found in %d, the interval holds it in %d",
				n, trials, alike, found, held)
		}
	}
	if _, ok := CompareRuns([]float64{1, 1, 1, 1}, []float64{9, 9, 9, 9}); ok {
		t.Error("four rounds are enough to tell")
	}
	if r, ok := CompareRuns([]float64{0, 0, 0, 0, 0}, []float64{0, 0, 0, 0, 0}); !ok || r.Lo != 1 || r.Hi != 1 {
		t.Errorf("nothing beside nothing: %+v", r)
	}
}

// TestOutside: against tables of the Mann-Whitney statistic, two-sided at 1 %; ours asks for a
// little more, 0.8 %.
func TestOutside(t *testing.T) {
	for _, c := range []struct{ n, m, want int }{{5, 5, 0}, {6, 6, 2}, {8, 8, 7}, {10, 10, 16}, {20, 20, 105}} {
		if got := outside(c.n, c.m); got > c.want || got < c.want-3 {
			t.Errorf("of %d and %d values %d may be of one sign, a table has %d", c.n, c.m, got, c.want)
		}
	}
	if a, b := outside(7, 12), outside(12, 7); a != b {
		t.Errorf("%d of 7 and 12, %d of 12 and 7", a, b)
	}
}
