package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
)

// Repair makes a damaged log whole: what can be read stays under its sequence numbers, what cannot
// becomes a hole that readers are told of. Segments under the names of others get their own back.
// The damaged files, and whatever stands in the place of a segment and is none, stay beside the log
// with the ending ".damaged", or ".damaged.2" and so on. It returns what Verify found.
func Repair(dir FS) (Summary, error) { return RepairKnown(dir, Extent{}) }

// RepairKnown is Repair for who knows what the log held: what was durable is damaged where it
// cannot be read, although nothing in the log says that it was.
func RepairKnown(dir FS, known Extent) (Summary, error) {
	if dir == nil {
		return Summary{}, errNoDir
	}
	lock, err := dir.Lock()
	if err != nil {
		return Summary{}, fmt.Errorf("repair log: %w", err)
	}
	defer lock.Close()
	if err := finishRepair(dir); err != nil {
		return Summary{}, fmt.Errorf("repair log: %w", err)
	}
	if known, err = known.withSaid(dir); err != nil {
		return Summary{}, fmt.Errorf("repair log: %w", err)
	}
	found, err := verifyTo(dir, known.Last)
	if err != nil || found.Clean() {
		return found, err
	}
	id, err := dismiss(dir)
	if err == nil {
		err = dismissStrays(dir, known.Last)
	}
	if err == nil {
		err = straighten(dir)
	}
	if err != nil {
		return found, fmt.Errorf("repair log: %w", err)
	}
	if err := repairSegments(dir, id, known.Last); err != nil {
		return found, fmt.Errorf("repair log: %w", err)
	}
	return found, nil
}

// dismiss sets the segments of other logs aside, and returns the identity of this one; zero if
// nothing tells it any more, so that its owner may.
func dismiss(dir FS) ([16]byte, error) {
	heads, err := readHeads(dir)
	id, foreign := identify(heads, [16]byte{})
	for _, h := range foreign {
		if err != nil {
			break
		}
		err = takeOut(dir, h)
	}
	return id, err
}

// takeOut sets a segment aside that does not belong to the log. An index that came with it would
// tell of a segment that is gone.
func takeOut(dir FS, h head) error {
	x, salt, err := readIndex(dir, h.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if x != nil && salt == h.salt {
		if err := dir.Remove(indexName(h.name)); err != nil {
			return err
		}
	}
	_, err = setAside(dir, segmentName(h.name), damagedSuffix)
	return err
}

// dismissStrays sets strays aside. known is the last record that somebody knows to be durable.
func dismissStrays(dir FS, known uint64) error {
	heads, err := readHeads(dir)
	if err != nil {
		return err
	}
	strays, err := straysAmong(dir, heads, known)
	for _, h := range slices.Backward(strays) {
		if err != nil {
			break
		}
		_, err = setAside(dir, segmentName(h.name), damagedSuffix)
	}
	return err
}

// straysAmong finds what has the name of a segment, and by nothing else was ever one of this log:
// nothing can be read of it, no index tells of it, and the log has no place for it, for the one
// before it is whole and ends elsewhere, or the log says that it keeps none as old. A number in a
// name does not make records that are lost. Where known says that there was a record as high as the
// name, it was.
func straysAmong(dir FS, heads []head, known uint64) (strays []head, err error) {
	if !slices.ContainsFunc(heads, func(h head) bool { return !h.ok }) {
		return nil, nil
	}
	kept, err := keptFirst(dir, heads)
	if err != nil {
		return nil, err
	}
	before := -1 // of the heads, the last one that is a segment; -1: where that ends is not known
	for i, h := range heads {
		if h.ok {
			before = i
			continue
		}
		stray := false
		switch {
		case h.name < kept:
			stray, err = isUntraced(dir, h.name)
		case before >= 0 && heads[before].base == heads[before].name:
			stray, err = isStray(dir, heads[before].name, h.name, known)
		}
		if err != nil {
			return nil, err
		}
		if stray {
			strays = append(strays, h)
		} else {
			before = -1
		}
	}
	return strays, nil
}

// isUntraced reports whether no index tells of a segment of that base.
func isUntraced(dir FS, base uint64) (bool, error) {
	_, err := readTrace(dir, base, false)
	if errors.Is(err, errNoTrace) {
		return true, nil
	}
	return false, err
}

// isStray reports whether the log has no place for a segment of that base behind the one before it.
func isStray(dir FS, before, base, known uint64) (bool, error) {
	if none, err := isUntraced(dir, base); !none {
		return false, err
	}
	s := newSummary()
	if err := s.segment(dir, before, 0); err != nil {
		return false, err
	}
	end := s.next
	switch tr, err := readTrace(dir, before, true); {
	case err == nil: // it may have been cut
		end = max(end, tr.last+1)
	case !errors.Is(err, errNoTrace):
		return false, err
	}
	return len(s.Problems) == 0 && end != base && (base < end || base > known+1), nil
}

// verifyTo is Verify for who knows up to where the log was durable. Of what is cut behind its end
// the next opening says what is gone.
func verifyTo(dir FS, durable uint64) (Summary, error) {
	s := newSummary()
	s.known = durable
	err := s.verify(dir, Extent{})
	return s, err
}

// part sets segments aside that begin within the one before them, and returns what is wrong then.
func part(dir FS, durable uint64) (s Summary, err error) {
	for {
		if s, err = verifyTo(dir, durable); err != nil {
			return s, err
		}
		i := slices.IndexFunc(s.Problems, func(p Problem) bool { return p.within })
		if i < 0 {
			return s, nil
		}
		base, _ := segmentBase(s.Problems[i].Segment)
		h, err := readHead(dir, base)
		if err == nil {
			err = takeOut(dir, h)
		}
		if err != nil {
			return s, err
		}
	}
}

// repairSegments rebuilds the segments that are damaged.
func repairSegments(dir FS, id [16]byte, durable uint64) error {
	s, err := part(dir, durable)
	if err != nil {
		return err
	}
	// the one that reaches the highest record known to have been durable, by the name of the
	// segment
	hurt := map[string]Problem{}
	for _, p := range s.Problems {
		if !p.Harmless {
			if was, ok := hurt[p.Segment]; !ok || was.To < p.To {
				hurt[p.Segment] = p
			}
		}
	}
	found, err := findTraces(dir, nil)
	if err != nil {
		return err
	}
	err = eachSegment(found.bases, func(base, next uint64) error {
		p, ok := hurt[segmentName(base)]
		if !ok {
			return nil
		}
		if next > 0 {
			p.To, p.AtMost = next-1, false
		}
		if err := rebuild(dir, id, base, next, p.To, p.AtMost); err != nil {
			return fmt.Errorf("%s: %w", segmentName(base), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := found.forget(dir); err != nil {
		return err
	}
	return dir.Sync()
}

// straighten gives segments their names back that stand under those of others, as their headers
// say. Each goes to its name with the ending ".moved" first, so that none replaces another; see
// finishRepair.
func straighten(dir FS) error {
	heads, err := readHeads(dir)
	if err != nil {
		return err
	}
	names, err := dir.List()
	if err != nil {
		return err
	}
	own := map[uint64]bool{} // segments that are under their own names, or will be
	for _, name := range names {
		if base, ok := movedBase(name); ok {
			if own[base], err = isMoved(dir, base); err != nil {
				return err
			}
		}
	}
	says := map[uint64]bool{}
	for _, h := range heads {
		own[h.name] = own[h.name] || h.ok && h.base == h.name
		says[h.base] = says[h.base] || h.ok
	}
	for _, h := range heads { // nothing can be read of it, and what belongs here is elsewhere
		if !h.ok && (says[h.name] || own[h.name]) {
			if _, err := setAside(dir, segmentName(h.name), damagedSuffix); err != nil {
				return err
			}
		}
	}
	for _, h := range heads {
		switch {
		case !h.ok || h.base == h.name:
		case own[h.base]: // a copy: the place is free for its own
			_, err = setAside(dir, segmentName(h.name), damagedSuffix)
		default:
			own[h.base] = true
			err = move(dir, segmentName(h.name), h.base)
		}
		if err != nil {
			return err
		}
	}
	if err := dir.Sync(); err != nil {
		return err
	}
	return finishRepair(dir)
}

// rebuild writes the whole records of a segment into a new one, with holes up to last where there
// are none. next is the base of the segment behind it, 0 if it is the last. atMost says that the
// last ones may never have been.
func rebuild(dir FS, id [16]byte, base, next, last uint64, atMost bool) error {
	name := segmentName(base)
	sc, size, err := salvage(dir, base)
	if err != nil {
		return err
	}
	if f, ok := sc.f.(File); ok {
		defer f.Close()
	}
	untold, err := hasUntold(dir, sc.header)
	if err != nil {
		return err
	}
	h := sc.header
	h.version, h.log, h.salt = version, id, rand.Uint32()
	h.flags |= flagRepaired
	out := &rebuilt{header: h, next: base, untold: untold, buf: make([]byte, 0, 1<<20)}
	if out.file, err = dir.Create(name + partSuffix); err != nil {
		return err
	}
	defer out.file.Close()
	err = out.take(sc, size, next)
	if err == nil && out.next <= last {
		flags := uint64(holeGivenUp)
		if atMost {
			flags |= holeAtMost
		}
		err = out.hole(last, flags)
	}
	if err == nil {
		err = out.flush()
	}
	if err == nil {
		err = out.finish(size)
	}
	if err = errors.Join(err, out.err); err == nil && out.gaveUp {
		err = markUntold(dir, h)
	}
	if err != nil {
		return err
	}
	// It is whole: from here on finishRepair gives it its name, should this be cut short.
	if err := move(dir, name+partSuffix, base); err != nil {
		return err
	}
	if _, err := setAside(dir, name, damagedSuffix); err != nil {
		return err
	}
	if err := dir.Rename(name+movedSuffix, name); err != nil {
		return err
	}
	return removeIndex(dir, base) // last: it serves salvage
}

// salvage opens what stands in the place of a segment for a search of whole frames. Where both
// headers are gone, the index has the salt; without it, or in what is no file, nothing can be
// believed.
func salvage(dir FS, base uint64) (*scanner, int64, error) {
	none := &scanner{f: strings.NewReader(""), header: header{base: base, salt: rand.Uint32()}}
	f, size, err := openSegment(dir, base)
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		return none, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	sc, err := newScanner(f, base)
	if err == nil {
		return sc, size, nil
	}
	if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) {
		return nil, 0, errors.Join(err, f.Close())
	}
	none.f = f
	switch x, salt, err := readIndex(dir, base); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, 0, errors.Join(err, f.Close())
	case x != nil:
		none.salt = salt
	}
	return none, size, nil
}

// rebuilt is a segment that Repair writes.
type rebuilt struct {
	header
	file    File
	off     int64
	next    uint64 // sequence of the next frame
	buf     []byte
	records int
	time    int64 // the highest of the batch
	untold  bool  // what an earlier repair gave up in the segment has not been told
	gaveUp  bool  // there are holes that have not been told
	err     error
}

// take adds the whole frames of a segment in the order of their sequences, each once. A disk may
// have written a part of a segment in the place of another one: what comes too early must not cost
// what is behind it. What is of the next segment stays there.
func (o *rebuilt) take(sc *scanner, size int64, next uint64) error {
	type place struct {
		seq uint64
		off int64
	}
	var places []place
	err := sc.search(headerBytes, size, func(off int64, f rawFrame) bool {
		if f.kind != kindCommit && f.seq <= maxSequence && (next == 0 || f.seq < next) {
			places = append(places, place{f.seq, off})
		}
		return true
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	w := window{f: sc.f, size: size}
	for _, p := range places {
		if p.seq < o.next {
			continue
		}
		b, err := w.at(p.off, frameHeader)
		if err == nil {
			b, err = w.at(p.off, min(frameWants(b), int(size-p.off)))
		}
		if err != nil {
			return err
		}
		f, ok := decodeFrame(b, sc.salt)
		if !ok || f.seq != p.seq { // the disk says something else now: it is no more than damaged
			continue
		}
		if err := o.add(f); err != nil {
			return err
		}
	}
	return nil
}

func (o *rebuilt) add(f rawFrame) error {
	switch {
	case f.kind == kindHole:
		// Its sequences may begin behind damage that took the frames before it.
		if from := holeFrom(f); from > o.next && from <= f.seq {
			if err := o.hole(from-1, holeGivenUp); err != nil {
				return err
			}
		}
		flags := holeFlags(f) & holeUnsynced
		if o.untold { // else somebody was told
			flags |= holeFlags(f) & (holeGivenUp | holeAtMost)
		}
		return o.hole(f.seq, flags)
	case f.seq > o.next:
		if err := o.hole(f.seq-1, holeGivenUp); err != nil {
			return err
		}
	}
	if err := o.room(frameLen(len(f.data))); err != nil {
		return err
	}
	o.buf = appendFrame(o.buf, o.salt, f.kind, f.stream, f.seq, f.time, f.data)
	if o.records == 0 || f.time > o.time {
		o.time = f.time
	}
	o.next = f.seq + 1
	o.records++
	return nil
}

func (o *rebuilt) hole(to, flags uint64) error {
	if err := o.room(holeBytes); err != nil {
		return err
	}
	o.buf = appendHole(o.buf, o.salt, o.next, to, o.time, flags)
	o.next = to + 1
	o.gaveUp = o.gaveUp || flags&holeGivenUp != 0
	return nil
}

func (o *rebuilt) room(n int) error {
	if len(o.buf)+n+commitBytes <= cap(o.buf) {
		return nil
	}
	if err := o.flush(); err != nil {
		return err
	}
	if n+commitBytes > cap(o.buf) {
		o.buf = make([]byte, 0, n+commitBytes)
	}
	return nil
}

// flush writes the batch so far; the durable sequence it carries makes later damage known as such.
func (o *rebuilt) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if o.off == 0 {
		o.off = headerBytes
		if o.err = writeAll(o.file, o.encode(), 0); o.err != nil {
			return o.err
		}
	}
	b := appendCommit(o.buf, o.header, o.next-1, o.time, o.records, len(o.buf), o.next-1, digestOf(o.buf))
	if o.err = writeAll(o.file, b, o.off); o.err != nil {
		return o.err
	}
	o.off += int64(len(b))
	o.buf, o.records = o.buf[:0], 0
	return nil
}

// finish fills the file up to its old size and makes it durable.
func (o *rebuilt) finish(size int64) error {
	if o.off == 0 {
		o.off = headerBytes
		if err := writeAll(o.file, o.encode(), 0); err != nil {
			return err
		}
	}
	if o.off < size {
		if err := zero(o.file, o.off, size, nil); err != nil {
			return err
		}
	}
	return o.file.Sync()
}
