package seglog

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// One flipped bit anywhere: Verify names segment and place, Repair keeps all that the bit did not
// touch.
func TestFlippedBits(t *testing.T) {
	const records = 400
	build := func() *fault.Dir {
		d := fault.New()
		l := open(t, small(faulty{d}, SyncAlways))
		for n := range uint64(records) {
			if _, err := l.Append(3, int64(n+1), payload(n+1)); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, l)
		return d
	}
	pristine := build()
	names, _ := pristine.List()
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, segmentSuffix) })
	rng := rand.New(rand.NewPCG(8, 8))
	for try := range 150 {
		d := pristine.Crash(0) // everything is synced: a plain copy
		name := names[rng.IntN(len(names))]
		used, _ := lastNonZero(bytes.NewReader(d.Bytes(name)), 0, 32<<10)
		off := rng.Int64N(used)
		if try%10 == 0 {
			off = rng.Int64N(headerBytes)
		}
		if err := d.Flip(name, off, uint(rng.Uint32())); err != nil {
			t.Fatal(err)
		}
		s, err := Verify(faulty{d})
		if err != nil || s.Clean() || s.Problems[0].Segment != name {
			t.Fatalf("%s at %d: Verify gives %+v, %v", name, off, s, err)
		}
		if p := s.Problems[0].Offset; p > off || off-p > 512 {
			t.Errorf("%s at %d: reported at %d", name, off, p)
		}
		// a repair may be cut short, and is done again
		w := watched{faulty: faulty{d}, cuts: new(cuts), rng: rng, every: 1 + try%3, most: 2}
		if _, err := Repair(w); err != nil {
			t.Fatalf("%s at %d: Repair: %v", name, off, err)
		}
		for _, c := range w.states {
			if _, err := Repair(faulty{c.dir}); err != nil {
				t.Fatalf("%s at %d: Repair after a cut: %v", name, off, err)
			}
		}
		for _, c := range append(w.states, cut{dir: d}) {
			if s, err := Verify(faulty{c.dir}); err != nil || !s.Clean() {
				t.Fatalf("%s at %d: after Repair: %+v, %v", name, off, s, err)
			}
			l := openRepaired(t, small(faulty{c.dir}, SyncAlways))
			lost := records - countReadable(t, l.NewReader(0))
			if named := missingOf(l.Recovered()); named != uint64(lost) {
				t.Errorf("%s at %d: %d records are named, %d are lost", name, off, named, lost)
			}
			if lost > 1 {
				t.Errorf("%s at %d: %d records lost by one bit", name, off, lost)
			}
			closeLog(t, l)
		}
	}
}

func countReadable(t *testing.T, r *Reader) (n int) {
	t.Helper()
	defer r.Close()
	for {
		rec, err := r.Next()
		var gap *GapError
		switch {
		case err == io.EOF:
			return n
		case errors.As(err, &gap):
		case err != nil:
			t.Fatal(err)
		default:
			if !bytes.Equal(rec.Data, payload(rec.Seq)) {
				t.Fatalf("record %d carries something else", rec.Seq)
			}
			n++
		}
	}
}

func TestDamageBeforeTheTailStopsOpen(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	for n := range uint64(20) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	if err := d.Flip(segmentName(1), headerBytes+40, 0); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if _, err := Open(small(faulty{d}, SyncAlways)); !errors.As(err, &corrupt) || corrupt.Segment != segmentName(1) {
		t.Errorf("Open gives %v, want a CorruptError", err)
	}
}
