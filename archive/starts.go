package archive

import (
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// historyTail is how much of a history LastStarts reads, in bytes: at least its last line.
const historyTail = 16 << 20

// LastStarts reads the sheets of the last n starts that have ended on the log in dir, the newest
// first, each whole (EachWhole). more says that there are older ones. A line that cannot be read is
// passed over; the error tells of it, and what could be read is good.
func LastStarts(dir string, n int) (starts []StartSheet, more bool, err error) {
	f, err := OpenHistory(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false, err
	}
	tail := io.NewSectionReader(f, max(0, size-historyTail), min(size, historyTail))
	if size > historyTail {
		more = true
		if err := skipLine(tail); err != nil {
			return nil, more, err
		}
	}
	err = EachWhole(tail, func(s StartSheet) error {
		if s.Folded != nil {
			more = true
			return nil
		}
		if starts = append(starts, s); len(starts) > n {
			starts, more = slices.Delete(starts, 0, 1), true
		}
		return nil
	})
	slices.Reverse(starts)
	return starts, more, err
}

// EachWhole reads a history as EachStart does, with the parts of a start in one with it: what
// sources had lost that left is in the account of their source. Parts of a start that has not ended
// come as one, which is a part.
func EachWhole(r io.Reader, f func(StartSheet) error) error {
	var parts *StartSheet
	var stopped error
	tell := func(s StartSheet) error {
		stopped = f(s)
		return stopped
	}
	err := EachStart(r, func(s StartSheet) error {
		s.gather(s.Sheet.Leaving)
		s.Sheet.Leaving = nil
		switch {
		case parts == nil || s.End == causeCut:
		case parts.isPartOf(&s):
			s.gather(parts.Sheet.Ports)
			parts = nil
		default:
			if err := tell(*parts); err != nil {
				return err
			}
			parts = nil
		}
		if s.Part && s.Sheet.Since != 0 {
			parts = &s
			return nil
		}
		return tell(s)
	})
	if parts != nil && stopped == nil {
		err = errors.Join(err, f(*parts))
	}
	return err
}

// gather takes in earlier accounts of sources of the start.
func (s *StartSheet) gather(earlier []ledger.Port) {
	for i := range earlier {
		earlier[i].LastLoss = s.Sheet.NotLater(earlier[i].LastLoss)
		at := slices.IndexFunc(s.Sheet.Ports, func(p ledger.Port) bool { return p.ID == earlier[i].ID })
		if at < 0 {
			s.Sheet.Ports = append(s.Sheet.Ports, earlier[i])
			continue
		}
		s.Sheet.Ports[at] = s.Sheet.Ports[at].Join(&earlier[i])
	}
}
