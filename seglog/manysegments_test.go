package seglog

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// asked counts what is asked of the files of segments, and for their names.
type asked struct {
	faulty
	opens, reads, lists *int
}

func (d asked) List() ([]string, error) {
	*d.lists++
	return d.faulty.List()
}

func (d asked) Open(name string) (File, error) {
	f, err := d.faulty.Open(name)
	if err != nil || !strings.HasSuffix(name, segmentSuffix) {
		return f, err
	}
	*d.opens++
	return askedFile{f, d.reads}, nil
}

type askedFile struct {
	File
	reads *int
}

func (f askedFile) ReadAt(b []byte, at int64) (int, error) {
	*f.reads++
	return f.File.ReadAt(b, at)
}

// TestReadingManySegments counts what a segment costs a reader beside its records: it is opened
// once, read at once where it is small, and looked at once more before the next, for its file may
// have been given to a new one.
func TestReadingManySegments(t *testing.T) {
	var opens, reads, lists int
	d := asked{faulty{severalSegments(t, 3000, true)}, &opens, &reads, &lists}
	bases, err := segmentBases(d)
	if err != nil || len(bases) < 20 {
		t.Fatalf("%d segments, %v", len(bases), err)
	}
	if missing, records := holds(t, NewReader(d, 0), 3000); len(missing) > 0 || records != 3000 {
		t.Fatalf("%d records, missing %v", records, missing)
	}
	if most := len(bases) + 2; opens > most {
		t.Errorf("%d segments were opened %d times, want %d at most", len(bases), opens, most)
	}
	if most := 2*len(bases) + 10; reads > most {
		t.Errorf("%d segments were read by %d calls, want %d at most", len(bases), reads, most)
	}
}

// TestReadingManySegmentsBackward counts the listings of the directory, each of which costs as much
// as there are segments: there was one for each segment.
func TestReadingManySegmentsBackward(t *testing.T) {
	var opens, reads, lists int
	d := asked{faulty{severalSegments(t, 3000, true)}, &opens, &reads, &lists}
	bases := segmentsOf(t, d.Dir)
	r := NewReverse(d, 0)
	defer r.Close()
	for want := uint64(3000); want > 0; want-- {
		if rec, err := r.Next(); err != nil || rec.Seq != want {
			t.Fatalf("%d, %v; want %d", rec.Seq, err, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
	if lists > 4 || len(bases) < 20 {
		t.Errorf("%d segments were listed %d times", len(bases), lists)
	}
}

// A segment that somebody takes away under the way down is a gap, and not its end.
func TestSegmentGoesUnderTheWayDown(t *testing.T) {
	d := severalSegments(t, 3000, true)
	bases := segmentsOf(t, d)
	r := NewReverse(faulty{d}, 0)
	defer r.Close()
	if rec, err := r.Next(); err != nil || rec.Seq != 3000 {
		t.Fatal(rec.Seq, err)
	}
	gone := bases[len(bases)/2]
	for _, name := range []string{segmentName(gone), indexName(gone)} {
		if err := d.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	said, damage := walked(t, r.Next)
	want := fmt.Sprintf("records %d to %d", gone, bases[len(bases)/2+1]-1)
	if damage != nil || !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) ||
		!strings.HasPrefix(said[len(said)-1], "1 ") {
		t.Errorf("%v, %d said, the last %q; want a gap: %s", damage, len(said), said[len(said)-1], want)
	}
}
