package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// What a repair gives up, the next opening names. A hole in the middle of a log cannot say whether
// anybody was told of it, so a mark stands beside the segment until its owner was: an empty file
// whose name has the base and the salt of what the repair wrote. It is durable before the segment
// has its name, and a mark whose segment has another salt, or is not there, says nothing.

func untoldName(base uint64, salt uint32) string {
	return fmt.Sprintf("%020d.%08x%s", base, salt, untoldSuffix)
}

// untoldBase is the segment that a mark is of; ok is false where the name is not that of a mark.
func untoldBase(name string) (base uint64, salt uint32, ok bool) {
	if _, err := fmt.Sscanf(name, "%020d.%08x", &base, &salt); err != nil {
		return 0, 0, false
	}
	_, segment := segmentBase(segmentName(base))
	return base, salt, segment && name == untoldName(base, salt)
}

// markUntold makes the mark of a segment, and makes it durable.
func markUntold(dir FS, h header) error {
	f, err := dir.Create(untoldName(h.base, h.salt))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return dir.Sync()
}

// hasUntold reports whether the holes of a repair in that segment have not been told.
func hasUntold(dir FS, h header) (bool, error) {
	names, err := dir.List()
	return slices.Contains(names, untoldName(h.base, h.salt)), err
}

// findUntold returns what repairs gave up and nobody was told of, in the order of the log, and all
// marks.
func findUntold(dir FS) (gone []Missing, marks []string, err error) {
	names, err := dir.List()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		base, salt, ok := untoldBase(name)
		if !ok {
			continue
		}
		marks = append(marks, name)
		if !slices.Contains(names, segmentName(base)) {
			continue
		}
		m, err := givenUp(dir, base, salt)
		if err != nil {
			return nil, nil, err
		}
		gone = append(gone, m...)
	}
	slices.SortFunc(gone, byFrom)
	return gone, marks, nil
}

// givenUp is what the last repair gave up in a segment, if that still has the salt.
func givenUp(dir FS, base uint64, salt uint32) (gone []Missing, err error) {
	f, size, err := openSegment(dir, base)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil || sc.salt != salt {
		return nil, err
	}
	err = sc.search(headerBytes, size, func(_ int64, fr rawFrame) bool {
		if flags := holeFlags(fr); fr.kind == kindHole && flags&holeGivenUp != 0 {
			gone = append(gone, Missing{
				From: holeFrom(fr), To: fr.seq, AtMost: flags&holeAtMost != 0,
				What: "a repair could not read it in " + segmentName(base),
			})
		}
		return true
	})
	return gone, err
}

// forgetUntold removes marks: their owner was told. One that stays is told of again.
func forgetUntold(dir FS, marks []string) error {
	for _, name := range marks {
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(marks) > 0 {
		_ = dir.Sync()
	}
	return nil
}

func byFrom(a, b Missing) int { return cmp.Compare(a.From, b.From) }
