package seglog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// walked is what a reader of either direction says, until it ends; gaps as GapErrors.
func walked(t *testing.T, next func() (Record, error)) (all []string, damage *CorruptError) {
	t.Helper()
	for {
		rec, err := next()
		var gap *GapError
		switch {
		case err == io.EOF:
			return all, nil
		case errors.As(err, &damage):
			return all, damage
		case errors.As(err, &gap):
			all = append(all, gap.Error())
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, fmt.Sprintf("%d %d %d %x", rec.Seq, rec.Time, rec.Stream, rec.Data))
		}
	}
}

// From any place on, the way down has what the way up has, also where a segment is gone.
func TestReverseIsTheWayUp(t *testing.T) {
	for _, gone := range []bool{false, true} {
		d := severalSegments(t, 300, true)
		if bases := segmentsOf(t, d); gone {
			if len(bases) < 3 {
				t.Fatalf("%d segments, want 3 at least", len(bases))
			}
			if err := d.Remove(segmentName(bases[1])); err != nil {
				t.Fatal(err)
			}
		}
		up := NewReader(faulty{d}, 0)
		want, _ := walked(t, up.Next)
		up.Close()
		slices.Reverse(want)
		for _, before := range []uint64{0, 301, 1 << 40, 1, 2} {
			down := NewReverse(faulty{d}, before)
			got, damage := walked(t, down.Next)
			want := want
			if before == 1 || before == 2 {
				want = want[uint64(len(want))+1-before:]
			}
			if damage != nil || !slices.Equal(got, want) {
				t.Errorf("segment gone: %v, before %d: %d entries, %v; want %d", gone, before, len(got), damage,
					len(want))
			}
			down.Close()
		}
	}
}

// A segment is read in stretches, so a reader holds some of it, never all: also one that is written
// to, and one whose index is gone.
func TestReverseHoldsAStretch(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncNever)
	cfg.SegmentBytes = 4 << 20
	l := open(t, cfg)
	const n, size = 4000, 2000
	for i := range int64(n) {
		if _, err := l.Append(0, i, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	walk := func(what string, r *Reverse) {
		t.Helper()
		defer r.Close()
		for seq := uint64(n); ; seq-- {
			rec, err := r.Next()
			if err == io.EOF && seq == 0 {
				return
			}
			if err != nil || rec.Seq != seq || len(rec.Data) != size {
				t.Fatalf("%s: record %d of %d bytes, %v; want %d", what, rec.Seq, len(rec.Data), err, seq)
			}
			if have := len(r.data); have > 2*indexEvery {
				t.Fatalf("%s: %d bytes are held", what, have)
			}
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	walk("the log", l.NewReverse(0))
	closeLog(t, l)
	walk("the folder", NewReverse(faulty{d}, 0))
	for _, base := range segmentsOf(t, d) {
		if err := d.Remove(indexName(base)); err != nil {
			t.Fatal(err)
		}
	}
	walk("without an index", NewReverse(faulty{d}, 0))
}

// Damage ends the way down, behind the records that came after it, and those before it are found
// from there.
func TestReverseStopsAtDamage(t *testing.T) {
	d := severalSegments(t, 300, true)
	bases := segmentsOf(t, d)
	middle := bases[len(bases)/2]
	if err := d.Flip(segmentName(middle), headerBytes+frameHeader, 1); err != nil {
		t.Fatal(err)
	}
	down := NewReverse(faulty{d}, 0)
	defer down.Close()
	got, damage := walked(t, down.Next)
	if damage == nil || damage.Segment != segmentName(middle) || len(got) == 0 {
		t.Fatalf("%d records, %v; want damage in %s", len(got), damage, segmentName(middle))
	}
	before := NewReverse(faulty{d}, middle)
	defer before.Close()
	got, damage = walked(t, before.Next)
	if damage != nil || uint64(len(got)) != middle-1 {
		t.Errorf("%d records before the damage, %v; want %d", len(got), damage, middle-1)
	}
}
