package seglog

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// neverSynced is a log of several segments that was closed in order, or killed, without a sync that
// its segments know of.
func neverSynced(t *testing.T, closed bool) (d *fault.Dir, bases []uint64, last uint64) {
	t.Helper()
	d = fault.New()
	l := open(t, small(faulty{d}, SyncNever))
	for n := range uint64(1500) {
		if _, err := l.Append(0, int64(n+1), payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	killed := d.Copy()
	closeLog(t, l)
	if !closed {
		d = killed
	}
	if bases = segmentsOf(t, d); len(bases) < 3 {
		t.Fatalf("segments %v", bases)
	}
	return d, bases, 1500
}

// Frames behind the end of a segment, of a batch that went into the next one for example, were
// taken for a torn tail of the log: it lost all segments behind, though those went on where this
// one ends, and gave their sequences again.
func TestFramesBehindASealedSegment(t *testing.T) {
	for _, closed := range []bool{true, false} {
		for _, expect := range []bool{false, true} {
			for which := range 2 {
				for _, n := range []int64{40, 1000, 6000, 30000} {
					name := fmt.Sprintf("closed %v, expected %v, %d bytes behind segment %d", closed, expect, n, which)
					d, bases, last := neverSynced(t, closed)
					f, err := d.Open(segmentName(bases[which]))
					if err != nil {
						t.Fatal(err)
					}
					size, err := f.Size()
					if err != nil {
						t.Fatal(err)
					}
					b := make([]byte, min(n, size-headerBytes))
					if _, err := f.ReadAt(b, headerBytes); err != nil {
						t.Fatal(err)
					}
					if _, err := f.WriteAt(b, size); err != nil {
						t.Fatal(err)
					}
					cfg := small(faulty{d}, SyncNever)
					if expect {
						cfg.Expect = Extent{First: 1, Last: last, End: last}
					}
					l, err := Open(cfg)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					r := l.Recovered()
					if r.Last != last || len(r.Torn) > 0 || len(r.Missing) > 0 {
						t.Errorf("%s: %+v", name, r)
					}
					if seq, err := l.Append(0, 1, payload(last+1)); seq != last+1 || err != nil {
						t.Errorf("%s: append: %d, %v", name, seq, err)
					}
					closeLog(t, l)
					if gaps, n := holds(t, NewReader(faulty{d}, 1), last+1); len(gaps) > 0 || n != last+1 {
						t.Errorf("%s: %d records, %v", name, n, gaps)
					}
					// a whole commit frame of the last batch does not stand there by a crash
					if s, err := Verify(faulty{d}); err != nil || !s.Clean() && n <= 6000 {
						t.Errorf("%s: %+v, %v", name, s, err)
					}
				}
			}
		}
	}
}

// A log that was closed in order had all of it on the disk, whatever the policy: what cannot be
// read of an older segment then is damage, and no torn tail, for which all behind it went.
func TestDamageInALogThatWasClosed(t *testing.T) {
	for which := range 2 {
		d, bases, end := neverSynced(t, true)
		f, err := d.Open(segmentName(bases[which]))
		if err != nil {
			t.Fatal(err)
		}
		sc, err := newScanner(f, bases[which])
		if err != nil {
			t.Fatal(err)
		}
		var last batch
		for b, err := sc.batch(); err == nil; b, err = sc.batch() {
			last = b
		}
		flip(t, d, segmentName(bases[which]), last.off+frameHeader+2)
		if s, err := Verify(faulty{d}); err != nil || s.Clean() {
			t.Errorf("verify: %+v, %v; want damage", s, err)
		}
		l := open(t, small(faulty{d}, SyncNever))
		if r := l.Recovered(); r.Last != end || len(r.Torn) > 0 || r.CutBytes > 0 {
			t.Errorf("a batch of segment %d is damaged: %+v", which, r)
		}
		closeLog(t, l)
		if n := last.last - last.first + 1; readable(t, faulty{d}) != end-n {
			t.Errorf("%d records can be read, want all but %d", readable(t, faulty{d}), n)
		}
	}
}

// readable is how many records can be read of a log, past damage and gaps.
func readable(t *testing.T, dir FS) (n uint64) {
	t.Helper()
	r := NewReader(dir, 1)
	defer r.Close()
	for {
		_, err := r.Next()
		switch {
		case err == nil:
			n++
		case err == io.EOF:
			return n
		case errors.As(err, new(*GapError)):
		case errors.As(err, new(*CorruptError)):
			if _, err := r.Skip(); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal(err)
		}
	}
}
