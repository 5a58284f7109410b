package seglog

import (
	"errors"
	"fmt"

	"github.com/tallywheel/tallywheel/proof"
)

// goOnWith makes the log go on in a new segment, which begins with a hole for what is gone. Where
// there is no room for it, it is absent until the first batch finds some.
func (l *Log) goOnWith(base, durable uint64, gone Missing) error {
	err := l.shelf.hasRoom(1)
	if err == nil {
		l.shelf.makeSpare()
		var seg *segment
		if seg, err = l.begin(base, durable, gone); err == nil {
			l.use(seg)
			return nil
		}
	}
	if isFull(err) {
		l.use(absentSegment(base, gone, l.identity))
		return nil
	}
	return err
}

// passCut takes a segment that ends where sc does, the last one with records, to behind a cut that
// was written behind: somebody cut the file while the log was open, the next batches went to their
// places in it, and zeros stand before them. It reports whether that is so. later is up to where
// something knows that the log was durable; then the rest of the segment is to hold all of that.
func (s *segment) passCut(sc *scanner, size int64, later uint64, end *ending) (bool, error) {
	off, next := int64(0), uint64(0)
	err := sc.search(sc.off+sc.bad, size, func(at int64, f rawFrame) bool {
		if off, next = at, f.seq; f.kind == kindHole {
			next = holeFrom(f)
		}
		return false
	})
	if err != nil || sc.version < 2 || off < s.off+commitBytes || next <= s.last {
		return false, err
	}
	// Zeros may stand there by the data of a record, too; but then no whole batch begins behind
	// them.
	var b, zeros [commitBytes]byte
	if n, err := s.file.ReadAt(b[:], off-commitBytes); n < len(b) || b != zeros {
		return false, err
	}
	sc.seek(off, next)
	whole := *s
	rest, err := whole.scan(sc)
	if err != nil {
		return false, err
	}
	known, frames, err := sc.laterDurable(size)
	if err != nil || max(known, later) > whole.last || whole.last < next {
		return false, err
	}
	rest.size, rest.frames, rest.durable = size, frames, max(end.durable, rest.durable)
	*s, *end = whole, rest
	return true, nil
}

// passDamage passes damage that is a cut; else it is an error.
func (s *segment) passDamage(sc *scanner, later uint64, end *ending) error {
	at, next := sc.off+sc.bad, s.last+1
	passed, err := s.passCut(sc, end.size, later, end)
	if err == nil && !passed {
		err = &CorruptError{s.name(), at, fmt.Sprintf("record %d and what follows was durable and cannot be read", next)}
	}
	return err
}

// leaveCut leaves a segment that passCut has passed as it is, made durable, for whoever repairs it,
// and goes on in a new one, unless an earlier opening has begun that. What was cut is told as
// damage, as it is while the log is open.
func (l *Log) leaveCut(s *segment, end ending, behind []head, found traces) (whole bool, err error) {
	if len(behind) > 0 && behind[0].name != s.last+1 {
		what := fmt.Sprintf("%s reaches up to record %d", s.name(), s.last)
		return false, &CorruptError{segmentName(behind[0].name), 0, what}
	}
	if end.durable < s.last {
		if err := s.renew(end.durable + 1); err != nil {
			return false, fmt.Errorf("write %s again: %w", s.name(), err)
		}
	}
	if err := s.file.Sync(); err != nil {
		return false, fmt.Errorf("sync of %s: %w", s.name(), err)
	}
	l.suspect(s.base)
	if len(behind) == 0 {
		if err := l.goOnBehind(s, end, found); err != nil || l.seg.absent {
			return false, err
		}
		l.giveIndex(s.index, s.header, s.last)
		return false, nil
	}
	l.giveIndex(s.index, s.header, s.last)
	l.shelf.old = append(l.shelf.old, s.sealed())
	return true, s.file.Close()
}

// hasHead reports whether a segment has a head: then it was sealed, another stood behind it, and
// whatever is added to it now is not what its head says.
func (l *Log) hasHead(s *segment) (found bool) {
	_, _, err := eachHead(l.cfg.FS, func(_ int64, h proof.Head) {
		found = found || h.First == s.base && h.Salt == s.salt
	})
	return found && err == nil
}

// goOnBehind leaves the last segment as it is, and goes on in a new one.
func (l *Log) goOnBehind(s *segment, end ending, found traces) error {
	var gone Missing
	_, to, atMost := l.reach(s, end, found)
	to = max(to, l.cfg.Expect.Given) // what is behind a segment that was sealed is gone with one
	if to > s.last {
		gone = s.gone(s.last+1, to, atMost)
		l.recovered.Missing = append(l.recovered.Missing, gone)
	}
	l.shelf.old = append(l.shelf.old, s.sealed())
	l.seg = s // the new one has the sum of its chain
	return errors.Join(l.goOnWith(s.last+1, max(s.last, gone.To), gone), s.file.Close())
}
