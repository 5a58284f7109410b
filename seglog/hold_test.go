package seglog

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// Retention leaves what is held, however far the limits are passed, and says so; what is let go, it
// removes. What lies beside the log counts.
func TestRetentionHolds(t *testing.T) {
	dir, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var hold, beside atomic.Int64
	hold.Store(1)
	l, err := Open(Config{
		FS: dir, SegmentBytes: 1 << 20, KeepBytes: 3 << 20, MinFree: -1, BatchDelay: time.Millisecond,
		Hold:   func() uint64 { return uint64(hold.Load()) },
		Beside: beside.Load,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill := func() {
		for range 6 << 10 {
			if _, err := l.Append(1, 1, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	testenv.Until(t, time.Minute, "it says that it holds", func() bool { return l.Position().Held })
	if p := l.Position(); p.First != 1 || p.Bytes < 6<<20 {
		t.Fatalf("held from record 1 on, and it begins with %d", p.First)
	}
	if all, half := l.BytesAfter(0), l.BytesAfter(3<<10); all < 6<<20 || half < all*4/10 || half > all*6/10 ||
		l.BytesAfter(6<<10) != 0 {
		t.Errorf("%d bytes, half of them are %d", all, half)
	}
	hold.Store(3 << 10)
	fill()
	testenv.Until(t, time.Minute, "what is let go goes", func() bool { return l.Position().First > 1 })
	if p := l.Position(); p.First > 3<<10 {
		t.Errorf("record %d is held, and the log begins with %d", 3<<10, p.First)
	}
	hold.Store(1 << 40)
	beside.Store(1 << 30)
	fill()
	testenv.Until(t, time.Minute, "all sealed ones make room for what is beside", func() bool {
		p := l.Position()
		return !p.Held && p.First > 17<<10
	})
}
