package seglog

import (
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// What is gone before the oldest record is told apart: what the log has removed by itself, and what
// somebody else has.
func TestBefore(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		d := fault.New()
		cfg := small(faulty{d}, SyncAlways)
		if keeps {
			cfg.KeepBytes = 5 * cfg.SegmentBytes
		}
		l := open(t, cfg)
		for n := uint64(0); n < 900 || keeps && l.Position().First == 1; n++ {
			if _, err := l.Append(0, int64(n+1), payload(n+1)); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, l)
		bases := segmentsOf(t, d)
		var want []GapError
		if keeps {
			want = []GapError{{1, bases[0] - 1, GapRemoved}}
		}
		if gone, err := Before(faulty{d}, Extent{}); err != nil || !slices.Equal(gone, want) {
			t.Errorf("keeps %v: %v, %v; want %v", keeps, gone, err, want)
		}
		if err := d.Remove(segmentName(bases[0])); err != nil {
			t.Fatal(err)
		}
		want = append(want, GapError{bases[0], bases[1] - 1, GapDamage})
		if gone, err := Before(faulty{d}, Extent{}); err != nil || !slices.Equal(gone, want) {
			t.Errorf("keeps %v, the first is gone: %v, %v; want %v", keeps, gone, err, want)
		}
		want[0].From = 2 // where a reader begins
		r := NewReader(faulty{d}, 2)
		for _, want := range want {
			if _, err := r.Next(); err == nil || err.Error() != want.Error() {
				t.Errorf("keeps %v: a reader says %v, want %v", keeps, err, &want)
			}
		}
		if rec, err := r.Next(); err != nil || rec.Seq != bases[1] {
			t.Errorf("keeps %v: then it reads record %d, %v; want %d", keeps, rec.Seq, err, bases[1])
		}
		r.Close()
	}
}

// A size is rounded so that what is free is never said to be enough where it is not.
func TestRoomAddsUp(t *testing.T) {
	e := noRoom{free: 2<<20 - 1, want: 1 << 20, reserve: 1 << 20}
	if got := e.Error(); got != "no room for another segment: 1.9 MiB of the disk are free, it takes 1.0 MiB beside the reserve of 1.0 MiB" {
		t.Error(got)
	}
	e = noRoom{free: 4096, want: 64<<10 + 1, reserve: 0}
	if got := e.Error(); got != "no room for another segment: 4 KiB of the disk are free, it takes 65 KiB beside the reserve of 0 KiB" {
		t.Error(got)
	}
}
