package seglog

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
)

// segmentBases lists the segments by the sequence of their first record.
func segmentBases(dir FS) ([]uint64, error) {
	names, err := list(dir)
	return basesOf(names), err
}

func basesOf(names []string) (bases []uint64) {
	for _, name := range names {
		if base, ok := segmentBase(name); ok {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases
}

// Segment is what a listing says of one file.
type Segment struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`   // size of the file
	First   uint64 `json:"first"`   // sequence of its first record
	Created int64  `json:"created"` // ns since 1970
}

// Segments lists the segments, the oldest first.
func Segments(dir FS) ([]Segment, error) {
	bases, err := segmentBases(dir)
	if err != nil {
		return nil, err
	}
	out := make([]Segment, 0, len(bases))
	for _, base := range bases {
		s := Segment{Name: segmentName(base), First: base}
		f, size, err := openSegment(dir, base)
		if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) { // verify says what it is
			out = append(out, s)
			continue
		}
		if errors.Is(err, fs.ErrNotExist) { // removed since the listing
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Bytes = size
		if sc, scErr := newScanner(f, base); scErr == nil {
			s.Created = sc.created
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Exists reports whether a directory holds a log, or what is left of one.
func Exists(dir FS) (bool, error) {
	names, err := list(dir)
	for _, name := range names {
		base, _, _ := strings.Cut(name, ".") // also what was set aside
		if _, ok := segmentBase(base + segmentSuffix); ok && !strings.HasSuffix(name, spareSuffix) {
			return true, err
		}
	}
	return false, err
}

// LastSequence is the sequence of the last committed record; 0 if there is none.
func LastSequence(dir FS) (uint64, error) {
	bases, err := segmentBases(dir)
	if err != nil || len(bases) == 0 {
		return 0, err
	}
	base := bases[len(bases)-1]
	x, err := loadIndex(dir, base)
	if err != nil {
		return 0, err
	}
	f, _, err := openSegment(dir, base)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		return 0, err
	}
	if e, ok := x.bySequence(math.MaxUint64); ok { // more may have come since
		sc.seek(e.off, e.first)
	}
	for err == nil {
		_, err = sc.batch()
	}
	return sc.next - 1, sc.readErr
}
