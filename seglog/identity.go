package seglog

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// Identity is that of the log in a directory; zero as long as it has no segment of version 2.
func Identity(dir FS) ([16]byte, error) {
	heads, err := readHeads(dir)
	id, _ := identify(heads, [16]byte{})
	return id, err
}

// newIdentity makes the identity of a log: the owner's, if that knows one.
func newIdentity(known [16]byte) (id [16]byte) {
	if known == id {
		rand.Read(id[:]) // it never fails
		return id
	}
	return known
}

// head is the header of the file under a segment's name.
type head struct {
	header
	name uint64 // the base that the name says
	size int64  // of the file; -1 if it is none
	ok   bool   // there is a header; else the name is all that is known
	// what its index file says; nil: there is none that is its own
	index *index
	zeros bool // … and zeros stand where the last batch that it leads to began
}

// readHeads reads the headers of all segments, by the order of their names.
func readHeads(dir FS) ([]head, error) {
	bases, err := segmentBases(dir)
	if err != nil {
		return nil, err
	}
	heads := make([]head, 0, len(bases))
	for _, base := range bases {
		h, err := readHead(dir, base)
		if errors.Is(err, fs.ErrNotExist) { // removed since the listing
			continue
		}
		if err != nil {
			return nil, err
		}
		heads = append(heads, h)
	}
	return heads, nil
}

// readHead reads the header of the file under a segment's name, whatever segment it is.
func readHead(dir FS, base uint64) (head, error) {
	h := head{name: base, size: -1}
	f, size, err := openSegment(dir, base)
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	defer f.Close()
	h.size = size
	b := make([]byte, headerBytes)
	if n, err := f.ReadAt(b, 0); n < len(b) && err != io.EOF {
		return h, fmt.Errorf("read header of %s: %w", segmentName(base), err)
	}
	for _, b := range [][]byte{b, b[headerCopy:]} {
		if h.header, err = decodeHeader(b); err == nil || errors.Is(err, ErrVersion) {
			break
		}
	}
	if h.ok = err == nil; errors.Is(err, ErrVersion) {
		return h, fmt.Errorf("%s: %w", segmentName(base), err)
	}
	if h.ok {
		h.findEnd(dir, f)
	}
	return h, nil
}

// identify finds which log the segments belong to: the one that is known, else the one of most of
// them, the oldest if there are several. foreign are those of others, which came into the directory
// by mistake. Segments of version 1 do not tell.
func identify(heads []head, known [16]byte) (id [16]byte, foreign []head) {
	none, count := [16]byte{}, map[[16]byte]int{}
	for _, h := range heads {
		if h.ok && h.log != none {
			count[h.log]++
		}
	}
	if id = known; id == none {
		for _, h := range heads {
			if count[h.log] > count[id] {
				id = h.log
			}
		}
	}
	for _, h := range heads {
		if count[h.log] > 0 && h.log != id {
			foreign = append(foreign, h)
		}
	}
	return id, foreign
}

// skips reports whether the segment is known not to have followed the one that begins with base:
// there was another between the two.
func (h head) skips(base uint64) bool { return h.prior.kind != hashNone && h.prior.base != base }

// refuseNewer returns ErrVersion where a newer program has written the end of the log, before
// anything is changed.
func refuseNewer(dir FS) error {
	bases, err := segmentBases(dir)
	if err != nil || len(bases) == 0 {
		return err
	}
	_, err = readHead(dir, bases[len(bases)-1])
	return err
}

func isAmong(heads []head, base uint64) bool {
	return slices.ContainsFunc(heads, func(h head) bool { return h.name == base })
}

// foreignTo says that a segment belongs to another log than id.
func (h head) foreignTo(id [16]byte) *CorruptError {
	return &CorruptError{
		segmentName(h.name), 64,
		fmt.Sprintf("it belongs to another log: %x, this one is %x", h.log, id),
	}
}

// recognize finds the identity of the log and refuses what does not belong to it.
func (l *Log) recognize(heads []head) error {
	id, foreign := identify(heads, l.cfg.Identity)
	if len(foreign) > 0 {
		if first, _ := identify(heads, [16]byte{}); first != id && l.cfg.Identity == id {
			return fmt.Errorf("%w: it is %x, expected is %x", ErrOther, first, id)
		}
		return foreign[0].foreignTo(id)
	}
	if l.identity = id; id == [16]byte{} {
		l.identity = newIdentity(l.cfg.Identity)
	}
	return nil
}

// stale reports whether a segment cannot be gone on with: it is of version 1, or a repair did not
// know the identity of the log.
func (l *Log) stale(s *segment) bool { return s.version != version || s.log != l.identity }

// upgrade ends the use of a segment that is stale. One with records gets a successor, as soon as
// there is room for that: see write. One without gets a header of version 2 in its place.
func (l *Log) upgrade() error {
	s := l.seg
	if s.absent {
		return nil
	}
	if s.last >= s.base {
		if !l.stale(s) {
			return nil
		}
		if err := l.rotate(s.last+1, s.last); err != nil && !passes(err) {
			return err
		}
		return nil
	}
	h := s.header
	if l.stale(s) {
		h.version, h.log = version, l.identity
	}
	want, got := h.encode(), make([]byte, headerBytes)
	if n, err := s.file.ReadAt(got, 0); n < len(got) && err != io.EOF {
		return fmt.Errorf("read header of %s: %w", s.name(), err)
	}
	if bytes.Equal(got, want) { // else it is of version 1, or a cut came when it was written here
		return nil
	}
	if err := writeSync(s.file, want, 0); err != nil {
		return fmt.Errorf("write header of %s: %w", s.name(), err)
	}
	s.header, s.chain = h, chainFrom(h)
	return nil
}
