package cell

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestAccountAgainstPlainSums: an account says of any wake-ups what one gets by keeping them all.
func TestAccountAgainstPlainSums(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(int64(MinPeriod), int64(time.Second)).Draw(t, "period"))
		lates := rapid.SliceOfN(rapid.Int64Range(0, int64(3*time.Second)), 1, 200).Draw(t, "late")
		a := NewAccount(period)
		release, missed := period, uint64(0)
		var late, gaps []float64
		last := time.Duration(-1)
		for i, l := range lates {
			woke := release + time.Duration(l)
			a.Woke(release, woke)
			late = append(late, float64(l))
			if last >= 0 {
				gaps = append(gaps, float64(woke-last))
			}
			last = woke
			next, skipped := a.Next(release, woke)
			if (next-release)%period != 0 || next <= woke || next-period > woke && skipped > 0 ||
				next != release+time.Duration(1+skipped)*period {
				t.Fatalf("%d: behind the release at %v, done at %v, comes %v", i, release, woke, next)
			}
			release, missed = next, missed+skipped
		}
		s := a.Stats()
		slices.Sort(late)
		n := len(late)
		if s.Cycles != uint64(n) || s.Missed != missed || s.Latency.Count != uint64(n) ||
			s.Latency.Min != time.Duration(late[0]) || s.Latency.Max != time.Duration(late[n-1]) {
			t.Fatalf("%+v of %v", s, late)
		}
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			want := late[max(int(math.Ceil(q*float64(n)))-1, 0)]
			if got := float64(s.Latency.Quantile(q)); math.Abs(got-want) > 0.008*want+1 {
				t.Fatalf("quantile %v is %v, want %v", q, got, want)
			}
		}
		cells := uint64(0)
		for _, n := range s.Latency.Cells() {
			cells += n
		}
		if cells != uint64(n) {
			t.Fatalf("%d in cells, of %d", cells, n)
		}
		// squares of s lose what is below a µs
		if want := stddev(gaps); math.Abs(float64(s.PeriodStddev)-want) > 1e-3*want+1e3 {
			t.Fatalf("standard deviation %v, want %v", s.PeriodStddev, time.Duration(want))
		}
	})
}

func stddev(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	mean, squares := sum/float64(len(v)), 0.0
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares / float64(len(v)-1))
}
