package seglog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// retained is a log that removes its oldest segments, and has done so, as a kill leaves it.
func retained(t *testing.T) (killed *fault.Dir, cfg Config) {
	t.Helper()
	d := fault.New()
	cfg = small(faulty{d}, SyncAlways)
	cfg.KeepBytes = 6 * cfg.SegmentBytes
	l := open(t, cfg)
	for n := range uint64(3000) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, time.Minute, "retention rests", func() bool {
		killed = d.Copy()
		names, err := killed.List()
		first := segmentsOf(t, killed)[0]
		return err == nil && first > 1 && slices.Contains(names, newKept(first, l.Identity()).name()) &&
			!l.shelf.overdue()
	})
	closeLog(t, l)
	return killed, cfg
}

// The oldest segment goes with its index, which leaves no trace of its own, where the log removes
// its oldest segments by itself: it is told from those, once, whatever the owner knows.
func TestOldestGoneBesideRetention(t *testing.T) {
	for _, expected := range []Extent{{}, {First: 1}} {
		d, cfg := retained(t)
		bases := segmentsOf(t, d)
		for _, harmed := range []bool{false, true, false} {
			want := "[]"
			if harmed {
				for _, name := range []string{segmentName(bases[0]), indexName(bases[0])} {
					if err := d.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
				want = fmt.Sprint([]Missing{{
					From: bases[0], To: bases[1] - 1,
					What: segmentName(bases[0]) + " is gone",
				}})
				if s, err := Verify(faulty{d}); err != nil || len(s.Problems) == 0 || s.Problems[0].From != bases[0] ||
					s.Problems[0].To != bases[1]-1 {
					t.Errorf("verify: %+v, %v; want that %d to %d are gone", s.Problems, err, bases[0], bases[1]-1)
				}
			}
			cfg.FS, cfg.Expect = faulty{d}, expected
			cfg.KeepBytes = 1 << 30 // what it has removed before is what counts
			l := openHarmed(t, cfg)
			if got := fmt.Sprint(l.Recovered().Missing); got != want {
				t.Errorf("expected %+v, harmed %v: %s is missing, want %s", expected, harmed, got, want)
			}
			closeLog(t, l)
		}
	}
}

// Retention that is cut off anywhere is no loss, and one name is left in the end.
func TestRetentionCutOffIsNoLoss(t *testing.T) {
	d, cfg := retained(t)
	cfg.FS = faulty{d}
	l := open(t, cfg)
	before := l.Position().First
	var cuts []*fault.Dir
	for l.shelf.recycleOldest(false) {
		for seed := range uint64(20) {
			cuts = append(cuts, d.Crash(seed))
		}
	}
	if l.Position().First == before {
		t.Error("nothing was removed")
	}
	closeLog(t, l)
	for n, d := range append(cuts, d) {
		cfg.FS = faulty{d}
		l := open(t, cfg)
		if r := l.Recovered(); len(r.Missing) > 0 {
			t.Errorf("cut %d: %v is missing", n, r.Missing)
		}
		names, err := d.List()
		all := slices.DeleteFunc(names, func(name string) bool { _, ok := keptOf(name); return !ok })
		if err != nil || len(all) != 1 {
			t.Errorf("cut %d: %v, %v; want one name", n, all, err)
		}
		closeLog(t, l)
	}
}
