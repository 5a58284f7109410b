package seglog

import (
	"strings"
	"testing"
)

// asked counts what is asked of the files of segments.
type asked struct {
	faulty
	opens, reads *int
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
	var opens, reads int
	d := asked{faulty{severalSegments(t, 3000, true)}, &opens, &reads}
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
