package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// dismissCut sets segments aside that are cut off within their header, or hold nothing but zeros:
// nothing can be read of them. It leaves traces of what was in them, and returns the others. Strays
// go, too, and leave none.
func (l *Log) dismissCut() (whole []head, err error) {
	dir := l.cfg.FS
	heads, err := readHeads(dir)
	if err != nil {
		return nil, err
	}
	strays, err := straysAmong(dir, heads, l.cfg.Expect.Last)
	if err != nil {
		return nil, err
	}
	var cut []head
	for _, h := range heads {
		is, err := isCut(dir, h)
		if err != nil {
			return nil, err
		}
		if is || isAmong(strays, h.name) {
			cut = append(cut, h)
		} else {
			whole = append(whole, h)
		}
	}
	id, _ := identify(whole, l.cfg.Identity)
	none := [16]byte{}
	for _, h := range slices.Backward(cut) { // the newest first: a kill leaves no gap between two segments
		if id == none && h.ok { // only this one says which log it is
			id = h.log
			l.identity = id
		}
		if !isAmong(strays, h.name) && (!h.ok || h.log == none || h.log == id) { // else it came from elsewhere
			if err := leaveTrace(dir, h); err != nil {
				return nil, err
			}
		}
		name, err := setAside(dir, segmentName(h.name), damagedSuffix)
		if err != nil {
			return nil, err
		}
		l.recovered.Damaged = append(l.recovered.Damaged, name)
	}
	if len(whole) > 0 {
		err = l.clearIndex(whole[len(whole)-1].name)
	}
	return whole, err
}

// clearIndex sets aside what stands in the place of the newest segment's index and is no file: the
// log goes on in that segment, and its index is made again.
func (l *Log) clearIndex(base uint64) error {
	aside, err := clearPlace(l.cfg.FS, indexName(base))
	if aside != nil {
		l.shelf.mu.Lock()
		defer l.shelf.mu.Unlock()
		l.shelf.note(aside)
	}
	return err
}

// clearPlace sets aside what stands in the place of a file of the log's and is none; aside tells of
// it. What is wrong with a file shows to who needs it.
func clearPlace(dir FS, name string) (aside, err error) {
	f, err := dir.Open(name)
	if err == nil {
		return nil, f.Close()
	}
	if !errors.Is(err, errNoFile) {
		return nil, nil
	}
	to, asideErr := setAside(dir, name, damagedSuffix)
	if asideErr != nil {
		return nil, asideErr
	}
	return fmt.Errorf("%w: it is named %s now", err, to), nil
}

// removeIndex removes the index of a segment; what stands in its place and is no file is set aside.
func removeIndex(dir FS, base uint64) error {
	err := dir.Remove(indexName(base))
	switch {
	case errors.Is(err, errNoFile):
		_, err = setAside(dir, indexName(base), damagedSuffix)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// isCut reports whether a segment ends within its header, or holds nothing but zeros, as a file
// system may leave it after a power cut.
func isCut(dir FS, h head) (bool, error) {
	if h.ok || h.size < headerBytes {
		return 0 <= h.size && h.size < headerBytes, nil // what is no file in a segment's place is left to a repair
	}
	f, _, err := openSegment(dir, h.name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	used, err := lastNonZero(f, 0, h.size)
	return err == nil && used == 0, err
}

// leaveTrace sees to it that an index tells of a segment that leaves the log: its own, or one that
// knows no more than that it was there.
func leaveTrace(dir FS, h head) error {
	_, err := readTrace(dir, h.name, false)
	if !errors.Is(err, errNoTrace) {
		return err
	}
	if err := removeIndex(dir, h.name); err != nil {
		return err
	}
	mark := h.header
	mark.base = h.name
	return (&index{}).save(dir, mark, h.name-1, true)
}

// setAside takes a file out of the log, under a name that nothing has: its own with that suffix,
// and a number behind that where need be. It returns the name.
func setAside(dir FS, name, suffix string) (to string, err error) {
	if to, err = nameAside(dir, name, suffix); err != nil {
		return "", err
	}
	return to, dir.Rename(name, to)
}

// nameAside is the name that setAside gives.
func nameAside(dir FS, name, suffix string) (to string, err error) {
	names, err := dir.List()
	if err != nil {
		return "", err
	}
	to = name + suffix
	for n := 2; slices.Contains(names, to); n++ {
		to = fmt.Sprintf("%s%s.%d", name, suffix, n)
	}
	return to, nil
}

// standForTorn has a hole stand for the numbers in segments that were set aside, which had not been
// durable, once they are: with it they would not follow the torn one.
func (l *Log) standForTorn(s *segment, end ending, behind []head) error {
	if len(behind) == 0 {
		return nil
	}
	given := max(l.cfg.Expect.Given, behind[len(behind)-1].name-1)
	if given <= s.last {
		return nil
	}
	err := l.cfg.FS.Sync()
	if err == nil {
		_, l.recovered.Unsynced, err = s.complete(nil, 0, 0, given, end.durable, false)
	}
	if err == nil {
		err = s.file.Sync()
	}
	return err
}

// dismissTorn keeps segments out of the log that follow a torn one, and removes the index of that
// one: it is written to again.
func (l *Log) dismissTorn(s *segment, end ending, behind []head) error {
	remove := func(base uint64) error {
		if err := l.cfg.FS.Remove(indexName(base)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := remove(s.base); err != nil {
		return err
	}
	for _, h := range slices.Backward(behind) { // the newest first: a cut leaves no gap between two segments
		if err := remove(h.name); err != nil {
			return err
		}
		name, err := setAside(l.cfg.FS, segmentName(h.name), tornSuffix)
		if err != nil {
			return err
		}
		l.recovered.Torn = append(l.recovered.Torn, name)
	}
	slices.Reverse(l.recovered.Torn)
	return l.standForTorn(s, end, behind)
}
