package seglog

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// hurtRecord turns a bit of a record.
func hurtRecord(t *testing.T, d *fault.Dir, seq uint64) {
	t.Helper()
	for _, base := range segmentsOf(t, d) {
		if at := bytes.Index(d.Bytes(segmentName(base)), payload(seq)); at >= 0 {
			flip(t, d, segmentName(base), int64(at))
			return
		}
	}
	t.Fatalf("record %d is in no segment", seq)
}

// whole reads until the log ends, or something cannot be read.
func whole(t *testing.T, next func() (Record, error), end func() error) (seqs []uint64, damaged bool) {
	t.Helper()
	for {
		rec, err := next()
		if err == io.EOF {
			if err = end(); err == nil {
				rec, err = next()
			}
		}
		var damage *CorruptError
		switch {
		case err == io.EOF:
			return seqs, false
		case errors.As(err, &damage):
			return seqs, true
		case err != nil:
			t.Fatal(err)
		}
		seqs = append(seqs, rec.Seq)
	}
}

// Damage hides what it hit, and nothing else. A reader begins at a place that the index knows,
// which may be before the damage: whoever asks for a record behind it gets that one, with all that
// follows, in either direction, from within the log and from outside, also in the newest segment.
func TestDamageHidesNothingBehindIt(t *testing.T) {
	const records = 300
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways)) // each record is a batch
	appendUpTo(t, l, records)
	bases := segmentsOf(t, d)
	hurt := []uint64{0, bases[1] + 5, bases[1] + 6, bases[1] + 20, l.seg.base + 3, records + 1}
	if len(bases) < 3 || l.seg.base != bases[len(bases)-1] || l.seg.base+10 > records {
		t.Fatalf("the segments begin with %v", bases)
	}
	for _, seq := range hurt[1 : len(hurt)-1] {
		hurtRecord(t, d, seq)
	}
	between := func(from, to uint64) (seqs []uint64) {
		for seq := from; seq < to; seq++ {
			seqs = append(seqs, seq)
		}
		return seqs
	}
	for from := uint64(1); from <= records; from++ {
		next, isHurt := slices.BinarySearch(hurt, from)
		up, down := between(from, hurt[next]), between(hurt[next-1]+1, from+1)
		if isHurt {
			up, down = nil, nil
		}
		slices.Reverse(down)
		for where, r := range map[string]*Reader{"within": l.NewReader(from), "outside": NewReader(faulty{d}, from)} {
			got, damaged := whole(t, r.Next, r.End)
			if last := hurt[next] > records; !slices.Equal(got, up) || damaged == last {
				t.Errorf("%s, from %d: %v, damage %v; want %v", where, from, got, damaged, up)
			}
			r.Close()
		}
		for where, r := range map[string]*Reverse{
			"within":  l.NewReverse(from + 1),
			"outside": NewReverse(faulty{d}, from+1),
		} {
			got, damaged := whole(t, r.Next, r.End)
			if first := next == 1 && !isHurt; !slices.Equal(got, down) || damaged == first {
				t.Errorf("%s, down from %d: %v, damage %v; want %v", where, from, got, damaged, down)
			}
			r.Close()
		}
	}
	closeLog(t, l)
}
