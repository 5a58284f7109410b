package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Extent is what an owner knows of a log from elsewhere, its own books: that the records First to
// Last were in it and durable, and that none behind End was ever in it. 0 means that one of them is
// not known. First must not be given where retention may have gone on since, and End not where
// records may have been added.
//
// Stored is a record that was in the log, durable or not, on a machine that has gone on since: no
// power cut took it. Where the log ends before it, its end was removed or cut, and numbers behind
// it may have been given, too.
//
// Given is a record that was stored, durable or not, and a power cut may have taken it. Where the
// log ends before it, no number up to it is given again. Where a segment is gone, what was in it is
// missing up to there; else it is Recovery.Unsynced.
//
// Begun says that the log had a segment, and that nobody is known to have closed it: where no
// segment and no index is left, numbers behind all that is known may have been given.
type Extent struct {
	First, Last, End, Stored, Given uint64
	Begun                           bool
}

// stored is the last record that is known to have been there, if last was.
func (e Extent) stored(last uint64) uint64 { return max(last, e.Stored, e.Given) }

// most is up to where records may have been in a segment that is gone, and of which nothing is
// known but that it was behind the record last. Books that end before that are older than the log.
func (e Extent) most(last uint64, segmentBytes int64) uint64 {
	if e.End > 0 && e.End >= last {
		return e.End
	}
	return last + mostRecords(segmentBytes)
}

// Missing is a part of the log that had been durable and is gone.
type Missing struct {
	From, To uint64
	AtMost   bool   // To is the highest that can have been in what is gone; how much was is not known
	What     string // what is gone, as far as that can be told
}

// String says what is missing in a line.
func (m Missing) String() string {
	most := ""
	if m.AtMost {
		most = "at most "
	}
	return fmt.Sprintf("%s: %srecords %d to %d", m.What, most, m.From, m.To)
}

// trace is what an index tells of its segment, whether that is still there or not.
type trace struct {
	base, last uint64
	closed     bool // the log was closed in order, with this as its last segment; else another was begun behind it
}

// traces is what the names and the indexes of a directory tell of segments that are gone. Who takes
// a segment away in order removes its index first, and a segment gets its index when another is
// begun, or the log is closed. So an index without its segment, or an index of the last one that
// knows more, tells of a file that somebody else took or cut.
type traces struct {
	bases []uint64 // of the segments that are there, in order
	gone  []trace  // of segments that are not, in order
	tail  trace    // of the last one that is; its base is 0 if it has no index
	kept  []kept   // what logs say of their first record
}

// findTraces looks for traces in a directory. What is under the names of foreign segments is not
// there.
func findTraces(dir FS, foreign []head) (t traces, err error) {
	names, err := list(dir)
	if err != nil {
		return t, err
	}
	t.bases = slices.DeleteFunc(basesOf(names), func(base uint64) bool { return isAmong(foreign, base) })
	aside := map[uint64]bool{} // segments that were set aside are not gone
	for _, name := range names {
		if seg, _, ok := strings.Cut(name, tornSuffix); ok {
			if base, ok := segmentBase(seg); ok {
				aside[base] = true
			}
		}
		if k, ok := keptOf(name); ok {
			t.kept = append(t.kept, k)
		}
	}
	for _, name := range names {
		base, ok := indexBase(name)
		at, there := slices.BinarySearch(t.bases, base)
		if !ok || there && at < len(t.bases)-1 || aside[base] {
			continue
		}
		tr, err := readTrace(dir, base, there)
		switch {
		case errors.Is(err, errNoTrace), aside[tr.last+1]:
		case err != nil:
			return t, err
		case there:
			t.tail = tr
		default:
			t.gone = append(t.gone, tr)
		}
	}
	slices.SortFunc(t.gone, func(a, b trace) int { return int(int64(a.base - b.base)) })
	return t, nil
}

// errNoTrace: there is no index, or it does not belong to the segment.
var errNoTrace = errors.New("no trace")

// readTrace reads what an index tells. there says that its segment is there: the index must then
// belong to it.
func readTrace(dir FS, base uint64, there bool) (trace, error) {
	x, salt, err := readIndex(dir, base)
	if errors.Is(err, fs.ErrNotExist) || err == nil && x == nil {
		return trace{}, errNoTrace
	}
	if err != nil {
		return trace{}, err
	}
	if there {
		h, err := readHeader(dir, base)
		if corrupt := (*CorruptError)(nil); err != nil && !errors.As(err, &corrupt) {
			return trace{}, err
		}
		if err == nil && h.salt != salt {
			return trace{}, errNoTrace
		}
	}
	tr := trace{base: base, last: x.last}
	if n := len(x.entries); n > 0 {
		tr.closed = x.entries[n-1].first > x.last
	}
	return tr, nil
}

// end is the last sequence that was in the log, as far as traces and the owner know. more says that
// there was another segment behind it, of which nothing is known.
func (t traces) end(known Extent) (last uint64, more bool) {
	last = known.Last
	newest := t.tail
	for _, g := range t.gone {
		last = max(last, g.last)
		if len(t.bases) == 0 || g.base > t.bases[len(t.bases)-1] {
			newest = g
		}
	}
	if newest.base == 0 && len(t.bases) == 0 {
		return last, known.Begun || known.Stored > last
	}
	return max(last, newest.last), newest.base > 0 && !newest.closed
}

// first is where the segments that are gone begin.
func (t traces) first(known Extent) uint64 {
	if len(t.gone) > 0 {
		return t.gone[0].base
	}
	return max(1, known.First)
}

// mostRecords is how many records a segment of that size can hold at most.
func mostRecords(segmentBytes int64) uint64 { return uint64(segmentBytes / frameHeader) }

// head says what is missing before the first segment.
func (t traces) head(known Extent) []Missing {
	if len(t.bases) == 0 {
		return nil
	}
	first := t.bases[0]
	from := first
	if known.First > 0 {
		from = min(from, known.First)
	}
	for _, g := range t.gone {
		from = min(from, g.base)
	}
	if from == first {
		return nil
	}
	return []Missing{{From: from, To: first - 1, What: segmentName(from) + " is gone"}}
}

// forget removes the indexes that stand alone: what they told has been reported. The oldest goes
// last, for it says by itself where what is missing begins. What cannot be removed is an error only
// as long as it is as if nothing had been.
func (t traces) forget(dir FS) error {
	for _, g := range slices.Backward(t.gone) {
		if err := dir.Remove(indexName(g.base)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(t.gone) > 0 {
		_ = dir.Sync() // else it is told twice
	}
	return nil
}

// complete ends a segment whose end is missing: the records of part, the start of the batch that
// was cut, that had been durable are kept, up to last, and a hole stands for what had been behind
// them, up to to. Another one stands for what was stored behind those, and not durable, up to
// given. So their sequences are not given again. known is what something knows to be durable: what
// is written here is not, until it is synced.
func (s *segment) complete(part []rawFrame, last, to, given, known uint64, atMost bool) (m, unsynced Missing,
	err error,
) {
	part = wholeOf(part, s.last+1, last)
	next, size := s.last+1+uint64(len(part)), 0
	for _, f := range part {
		size += f.size
	}
	time := s.index.maxTime()
	buf := make([]byte, 0, size+2*holeBytes+commitBytes)
	for _, f := range part { // the same bytes at the same place: a cut now loses nothing
		buf = appendFrame(buf, s.salt, f.kind, f.stream, f.seq, f.time, f.data)
		time = max(time, f.time)
	}
	if next <= to {
		m = s.gone(next, to, atMost)
		buf = appendHole(buf, s.salt, m.From, m.To, time, m.flags())
	}
	if next = max(next, to+1); next <= given {
		unsynced = s.lostUnsynced(next, given)
		buf = appendHole(buf, s.salt, next, given, time, holeFound|holeUnsynced)
	}
	to = max(to, given)
	batch := len(buf)
	buf = appendCommit(buf, s.header, to, time, len(part), batch, known, digestOf(buf))
	if err := writeAll(s.file, buf, s.off); err != nil {
		return m, unsynced, fmt.Errorf("write to %s: %w", s.name(), err)
	}
	s.chain.add(buf[batch:])
	s.index.add(s.off, s.last+1, time)
	s.off += int64(len(buf))
	s.size, s.last = max(s.size, s.off+commitBytes), to
	return m, unsynced, nil
}

// wholeOf is what stays of part, the start of a batch that was cut: the frames next to last, as far
// as they stand one behind the other.
func wholeOf(part []rawFrame, next, last uint64) []rawFrame {
	for i, f := range part {
		if !f.counts() || f.seq != next || f.seq > last {
			return part[:i]
		}
		next++
	}
	return part
}

// gone says what is missing at the end of the segment.
func (s *segment) gone(from, to uint64, atMost bool) Missing {
	return Missing{
		From: from, To: to, AtMost: atMost,
		What: fmt.Sprintf("what followed in %s, or behind it, is gone", s.name()),
	}
}

// lostUnsynced says what is gone at the end of the segment that was stored, and not durable.
func (s *segment) lostUnsynced(from, to uint64) Missing {
	return Missing{From: from, To: to, What: fmt.Sprintf("what followed in %s had not been synced, and is gone", s.name())}
}

// goneIn is what a batch of the segment tells that the opening of a log found missing, and what had
// not been synced; the To is 0 where it tells nothing.
func (s *segment) goneIn(b batch) (m, unsynced Missing) {
	for _, f := range b.frames[max(0, len(b.frames)-2):] {
		switch flags := holeFlags(f); {
		case f.kind != kindHole || flags&holeFound == 0:
			m, unsynced = Missing{}, Missing{}
		case flags&holeUnsynced != 0:
			unsynced = s.lostUnsynced(holeFrom(f), f.seq)
		default:
			m = s.gone(holeFrom(f), f.seq, flags&holeAtMost != 0)
		}
	}
	return m, unsynced
}

// flags are those of the hole that stands for it.
func (m Missing) flags() uint64 {
	if m.AtMost {
		return holeFound | holeAtMost
	}
	return holeFound
}
