package seglog

import (
	"errors"

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
	if last, to := l.reach(s, end, found); to > s.last {
		gone = s.gone(s.last+1, to, to > last)
		l.recovered.Missing = append(l.recovered.Missing, gone)
	}
	l.shelf.old = append(l.shelf.old, s.sealed())
	l.seg = s // the new one has the sum of its chain
	return errors.Join(l.goOnWith(s.last+1, max(s.last, gone.To), gone), s.file.Close())
}
