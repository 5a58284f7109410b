package seglog

import (
	"errors"
	"io"
	"testing"
)

// TestSkip reads on behind damage: each sequence is a record, or is passed over, and all damaged
// places are told.
func TestSkip(t *testing.T) {
	d := severalSegments(t, 3000, true)
	bases, err := segmentBases(faulty{d})
	if err != nil || len(bases) < 6 {
		t.Fatalf("%d segments, %v", len(bases), err)
	}
	flip(t, d, segmentName(bases[1]), headerBytes+500)
	flip(t, d, segmentName(bases[3]), 20) // both copies of the header
	flip(t, d, segmentName(bases[3]), headerCopy+20)
	r := NewReader(faulty{d}, 0)
	defer r.Close()
	next, damaged, passed := uint64(1), 0, uint64(0)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if damage := (*CorruptError)(nil); errors.As(err, &damage) {
			damaged++
			gap, err := r.Skip()
			if err != nil || gap.From != next {
				t.Fatalf("after %v: Skip: %+v, %v; want from %d", damage, gap, err, next)
			}
			next, passed = gap.To+1, passed+gap.To+1-gap.From
			continue
		}
		if err != nil || rec.Seq != next {
			t.Fatalf("record %d, %v; want %d", rec.Seq, err, next)
		}
		next++
	}
	if damaged != 2 || next != 3001 || passed == 0 || passed > bases[4]-bases[3]+bases[2]-bases[1] {
		t.Errorf("%d damaged places, %d records passed over, up to %d", damaged, passed, next-1)
	}
}
