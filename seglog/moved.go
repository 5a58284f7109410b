package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A repair gives a whole segment the ending ".moved", until its name is free.

// movedBase is the base of the segment that a file of that name should be.
func movedBase(name string) (base uint64, ok bool) {
	name, moved := strings.CutSuffix(name, movedSuffix)
	if !moved {
		return 0, false
	}
	return segmentBase(name)
}

// move gives a segment of that base the ending ".moved". What stands there keeps its bytes.
func move(dir FS, from string, base uint64) error {
	to := segmentName(base) + movedSuffix
	names, err := dir.List()
	if err == nil && slices.Contains(names, to) {
		_, err = setAside(dir, to, damagedSuffix)
	}
	if err != nil {
		return err
	}
	return dir.Rename(from, to)
}

// isMoved reports whether the file of that base with the ending ".moved" is a segment of the log,
// as a repair leaves one. A file of somebody else's can have such a name, too: it is left alone.
func isMoved(dir FS, base uint64) (bool, error) {
	name := segmentName(base) + movedSuffix
	f, err := dir.Open(name)
	switch {
	case errors.Is(err, errNoFile), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrPermission):
		return false, fmt.Errorf("%w: it may be a segment that a repair has left: see to it that this user may read it", err)
	case err != nil:
		return false, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	heads, err := readHeads(dir)
	if err != nil {
		return false, err
	}
	id, _ := identify(heads, [16]byte{})
	none := [16]byte{}
	return sc.log == id || sc.log == none || id == none, nil
}

// finishRepair gives segments their names where a cut came in the middle of a repair: those with
// the ending ".moved" are whole, and what was damaged has been set aside before. Where it has not,
// the repair begins anew.
func finishRepair(dir FS) error {
	names, err := dir.List()
	if err != nil {
		return err
	}
	done := false
	for _, from := range names {
		base, ok := movedBase(from)
		if !ok || slices.Contains(names, segmentName(base)) {
			continue
		}
		if is, err := isMoved(dir, base); err != nil {
			return err
		} else if !is {
			continue
		}
		if err := dir.Rename(from, segmentName(base)); err != nil {
			return err
		}
		done = true
	}
	if !done {
		return nil
	}
	return dir.Sync()
}
