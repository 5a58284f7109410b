package archive

import (
	"errors"
	"io"
	"io/fs"
	"slices"
)

// historyTail is how much of a history LastStarts reads, in bytes: at least its last line.
const historyTail = 16 << 20

// LastStarts reads the sheets of the last n starts that have ended on the log in dir, the newest
// first. more says that there are older ones. A line that cannot be read is passed over; the error
// tells of it, and what could be read is good.
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
	err = EachStart(tail, func(s StartSheet) error {
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
