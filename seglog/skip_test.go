package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
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

// TestNothingIsPassedOverBehindMisplacedFrames: a disk has written a late part of a segment over an
// early one. Readers pass over what stood there, and no other batch: they had believed a late
// commit frame, and passed over all up to its record. Verify names what they pass over, and no
// more, and a repair keeps what they read.
func TestNothingIsPassedOverBehindMisplacedFrames(t *testing.T) {
	pristine := fault.New()
	cfg := small(faulty{pristine}, SyncBatch)
	cfg.BatchDelay = 1 << 40
	l := open(t, cfg)
	const records = 600
	appendTens(t, l, records)
	closeLog(t, l)
	bases := segmentsOf(t, pristine)
	for seed := range uint64(200) {
		rng, d := rngFor(seed), pristine.Copy()
		base := bases[rng.IntN(len(bases))]
		b := d.Bytes(segmentName(base))
		frames, end := framesOf(t, b, base)
		late := 1 + rng.IntN(len(frames)-1)
		early := rng.IntN(late)
		n := int64(frames[late].size) // of one frame, or a block
		switch rng.IntN(4) {
		case 0: // the commit frame of one batch in the place of another's
			for frames[late].kind != kindCommit && late > 0 {
				late--
			}
			for early = rng.IntN(late + 1); frames[early].kind != kindCommit && early < late; {
				early++
			}
			n = int64(frames[late].size)
		case 1:
			n = 512
		case 2:
			n = int64(8 * (1 + rng.IntN(700)))
		}
		from, to := frames[late].off, frames[early].off
		n = min(n, end-from)
		copy(b[to:to+n], bytes.Clone(b[from:from+n]))
		put(t, d, segmentName(base), b)
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		may := map[uint64]bool{} // be passed over
		for i, first := 0, 0; i < len(frames); i++ {
			if frames[i].kind != kindCommit {
				continue
			}
			over := func(f placed) bool { return f.off < to+n && f.off+int64(f.size) > to }
			whole := frames[first : i+1]
			for _, f := range frames[first:i] {
				may[f.seq] = slices.ContainsFunc(whole, over)
			}
			first = i + 1
		}
		what := fmt.Sprintf("seed %d: %d bytes of %s from %d to %d", seed, n, segmentName(base), from, to)
		had := readAround(t, what, NewReader(faulty{d}, 0), records)
		s, err := Verify(faulty{d})
		if err != nil || s.Records != uint64(len(had)) {
			t.Errorf("%s: %d records are read, Verify counts %d, %v", what, len(had), s.Records, err)
		}
		for seq := uint64(1); seq <= records; seq++ {
			told := slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.From <= seq && seq <= p.To })
			if !had[seq] && !may[seq] || had[seq] == told {
				t.Fatalf("%s: record %d is read: %v, told by Verify: %v, hurt: %v; %+v", what, seq, had[seq], told, may[seq],
					s.Problems)
			}
		}
		if _, err := Repair(faulty{d}); err != nil {
			t.Fatal(err)
		}
		kept := readAround(t, what, NewReader(faulty{d}, 0), records)
		for seq := range had {
			if !kept[seq] {
				t.Fatalf("%s: record %d could be read before the repair", what, seq)
			}
		}
	}
}

// placed is a frame of a segment.
type placed struct {
	off  int64
	size int
	kind uint32
	seq  uint64
}

// framesOf lists the frames of a segment, and says where they end.
func framesOf(t *testing.T, b []byte, base uint64) (all []placed, end int64) {
	t.Helper()
	sc, err := newScanner(bytes.NewReader(b), base)
	if err != nil {
		t.Fatal(err)
	}
	err = sc.search(headerBytes, int64(len(b)), func(off int64, f rawFrame) bool {
		all = append(all, placed{off, f.size, f.kind, f.seq})
		end = off + int64(f.size)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, end
}

// readAround reads the whole log, and skips what is damaged. Each sequence is read, or told.
func readAround(t *testing.T, what string, r *Reader, last uint64) (had map[uint64]bool) {
	t.Helper()
	defer r.Close()
	had = map[uint64]bool{}
	for next := uint64(1); ; {
		rec, err := r.Next()
		if err == io.EOF {
			if err = r.End(); err == nil {
				if next != last+1 {
					t.Fatalf("%s: the log ends before record %d", what, next)
				}
				return had
			}
		}
		var gap *GapError
		if damage := (*CorruptError)(nil); errors.As(err, &damage) {
			gap, err = r.Skip()
			if err != nil {
				t.Fatalf("%s: Skip after %v: %v", what, damage, err)
			}
		}
		switch {
		case gap != nil || errors.As(err, &gap):
			if gap.From != next || gap.To+1 < gap.From {
				t.Fatalf("%s: %+v, want from %d", what, gap, next)
			}
			next = gap.To + 1
		case err != nil || rec.Seq != next || !bytes.Equal(rec.Data, payload(rec.Seq)):
			t.Fatalf("%s: record %d, %v; want %d", what, rec.Seq, err, next)
		default:
			had[next] = true
			next++
		}
	}
}
