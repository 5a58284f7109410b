package seglog

import (
	"runtime"
	"testing"
)

// Verify keeps its memory from segment to segment: a log of many small ones costs no more than the
// same records in a few.
func TestVerifyKeepsItsMemory(t *testing.T) {
	d := severalSegments(t, 3000, true)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := Verify(faulty{d})
	runtime.ReadMemStats(&after)
	if err != nil || !s.Clean() || s.Segments < 20 {
		t.Fatalf("%+v, %v; want 20 whole segments at least", s, err)
	}
	if bytes := (after.TotalAlloc - before.TotalAlloc) / uint64(s.Segments); bytes > 128<<10 {
		t.Errorf("%d KiB of memory for each of %d segments of 32 KiB, want less than 128", bytes>>10, s.Segments)
	}
}
