package probe

import (
	"math"
	"testing"
	"time"
)

// TestQuantile: a bound is never below what was seen, and never beyond the last bucket that has
// something.
func TestQuantile(t *testing.T) {
	top := make([]uint64, 64)
	top[63] = 1
	three := Histogram{Count: 3, Log2Ns: []uint64{1, 0, 1, 1, 0, 0}}
	for _, c := range []struct {
		h    Histogram
		q    float64
		want time.Duration
	}{
		{three, 0, 2},
		{three, 0.34, 8},
		{three, 0.5, 8},
		{three, 0.999, 16},
		{three, 1, 16},
		{three, 2, 16},
		{three, -1, 2},
		{three, math.NaN(), 2},
		{three, math.Inf(1), 16},
		{Histogram{Count: 1, Log2Ns: top}, 1, math.MaxInt64},
		{Histogram{Count: 1, Log2Ns: top}, 0.5, math.MaxInt64},
		{Histogram{Count: 1, Log2Ns: top[1:]}, 0.5, math.MaxInt64}, // 2^63 is one more than that
		{Histogram{Count: 1, Log2Ns: top[2:]}, 0.5, 1 << 62},
		{Histogram{}, 1, 0},
	} {
		if got := c.h.Quantile(c.q); got != c.want {
			t.Errorf("quantile %v of %v: %d, want %d", c.q, c.h.Log2Ns, got, c.want)
		}
	}
}
