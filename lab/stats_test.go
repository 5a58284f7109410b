package lab

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestMedianIntervalHoldsTheMedian: of intervals of so many random values, at least 95 % hold the
// true median, if there are enough of them.
func TestMedianIntervalHoldsTheMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 7, 9, 12, 21, 40} {
		const trials = 4000
		held := 0
		for range trials {
			v := make([]float64, n)
			for i := range v {
				v[i] = math.Exp(rng.NormFloat64()) // a skewed distribution whose median is 1
			}
			if f := Summarise("", v); f.Lo <= 1 && 1 <= f.Hi {
				held++
			}
		}
		if share := float64(held) / trials; share < 0.945 {
			t.Errorf("%d values: the interval holds the median in %.1f %% of the trials", n, 100*share)
		}
	}
	if lo, hi := medianInterval(12); lo != 2 || hi != 9 {
		t.Errorf("of 12 values the 95 %% interval is that of ranks %d to %d, want 2 to 9 (tables of order statistics)",
			lo, hi)
	}
	if lo, hi := medianInterval(5); lo != 0 || hi != 4 {
		t.Errorf("of 5 values: ranks %d to %d, want all", lo, hi)
	}
}

// TestCollections: what a server says of its collections is counted, and how long it stood still at
// the begin and the end of each; what is not such a line is left out.
func TestCollections(t *testing.T) {
	m := Metrics{}
	m.collections("gc 1 @0.004s 4%: 0.25+1.3+0.5 ms clock, 0.04+0.2/1.0/2.2+0.1 ms cpu, 3->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"a server's own line\ngc 2 @0.009s 5%: broken\ngc 3 @1s 1%: 0.25+9+1 ms clock, …\n")
	if m[GCCycles.name] != 2 || m[GCPause.name] != 2000 || m[GCPauseMean.name] != 500 {
		t.Errorf("%v, want 2 collections and 2000 µs, in pauses of 500", m)
	}
}

// TestErrorBound: the upper limits of Poisson's distribution, by its tables, and no step where it
// is taken for normal.
func TestErrorBound(t *testing.T) {
	for lost, want := range map[float64]float64{0: 2.996, 1: 4.744, 2: 6.296, 10: 16.96} {
		if got := errorBound(lost, 1); math.Abs(got-want) > 0.005 {
			t.Errorf("%.0f lost: at most %.3f, want %.3f", lost, got, want)
		}
	}
	if a, b := errorBound(manyLost, 1), errorBound(manyLost+1, 1); b < a-3 || b > a+3 {
		t.Errorf("%d lost: at most %.1f; one more: %.1f", manyLost, a, b)
	}
	if got := errorBound(0, 1e6); math.Abs(got-2.996e-6) > 1e-8 {
		t.Errorf("none of a million: %g", got)
	}
}

// TestUpTo: what is shown of a bound is not below it.
func TestUpTo(t *testing.T) {
	for bound, want := range map[float64]string{
		0.1323: "1.4e-01", 3.0 / 2700: "1.2e-03", 0.1: "1.0e-01", 0.13: "1.3e-01", 3e-6: "3.0e-06", 9.91e-5: "1.0e-04",
		2.5: "2.5e+00", 0: "0",
	} {
		if got := UpTo(bound); got != want {
			t.Errorf("up to %v is shown as %s, want %s", bound, got, want)
		}
	}
}
