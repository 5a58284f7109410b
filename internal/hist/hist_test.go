package hist

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

func TestWindowsAndTotals(t *testing.T) {
	h := New()
	for i := 1; i <= 100; i++ {
		h.Record(time.Duration(i)*time.Millisecond, 1)
	}
	h.Record(2*time.Hour, 1)
	if s := h.Last(); s.N != 0 {
		t.Errorf("the window is not over, yet it says %+v", s)
	}
	h.Turn()
	s := h.Last()
	if s.N != 101 || s.P50 < 50_500 || s.P50 > 51_500 || s.Max != 60_000_000 {
		t.Errorf("summary %+v; want 101 values, p50 near 51 ms, max 60 s", s)
	}
	h.Turn()
	n, sum, buckets := h.Cumulative()
	if h.Last() != (Summary{}) || n != 101 || sum < 7200 || buckets[0.1] != 100 || buckets[0.01] != 10 {
		t.Errorf("all time: %d values, %v s, %v", n, sum, buckets)
	}
}

// Quantiles of any durations are within 0.8 % of the true ones, or a microsecond; a window has
// nothing of the one before.
func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	h := New()
	for range 300 {
		var all []int64
		scale := math.Pow(10, 1+6*r.Float64())
		for range 1 + r.IntN(2000) {
			us, n := min(int64(scale*r.ExpFloat64()), highest), 1+r.Int64N(3)
			h.Record(time.Duration(us)*time.Microsecond, n)
			for range n {
				all = append(all, max(us, 1))
			}
		}
		h.Turn()
		slices.Sort(all)
		s, n := h.Last(), len(all)
		if s.N != int64(n) || s.Max != all[n-1] {
			t.Fatalf("%+v of %d durations, the longest of %d µs", s, n, all[n-1])
		}
		for _, q := range []struct{ percent, got int64 }{{50, s.P50}, {99, s.P99}} {
			want := all[(int64(n)*q.percent+99)/100-1]
			if off := math.Abs(float64(q.got - want)); off > max(1, 0.008*float64(want)) {
				t.Fatalf("%d %% are within %d µs, it says %d", q.percent, want, q.got)
			}
		}
	}
}

// A cell that is full stays so, and each cell has its durations alone.
func TestCells(t *testing.T) {
	h := New()
	for range 3 {
		h.Record(time.Millisecond, math.MaxUint32)
	}
	if h.Turn(); h.Last().N != math.MaxUint32 {
		t.Errorf("a full cell says %d", h.Last().N)
	}
	for us := int64(1); us <= highest; us += 1 + us/1000 {
		if c := Cell(us); c >= allCells || us < 128 && Middle(c) != us || Cell(Middle(c)) != c {
			t.Fatalf("%d µs are in cell %d of %d, whose middle is %d", us, c, allCells, Middle(c))
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	lanes := make([]*Histogram, 256)
	for i := range lanes {
		lanes[i] = New()
	}
	for i := 0; b.Loop(); i++ {
		lanes[i%256].Record(time.Duration(20+i%30)*time.Millisecond, 1)
	}
}
