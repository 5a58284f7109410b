package hist

import (
	"testing"
	"time"
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
	if s.N != 101 || s.P50 < 50_000 || s.P50 > 52_000 || s.Max < 59_000_000 {
		t.Errorf("summary %+v; want 101 values, p50 near 51 ms, max 60 s", s)
	}
	h.Turn()
	n, sum, buckets := h.Cumulative()
	if h.Last().N != 0 || n != 101 || sum < 7200 || buckets[0.1] != 100 || buckets[0.01] != 10 {
		t.Errorf("all time: %d values, %v s, %v", n, sum, buckets)
	}
}
