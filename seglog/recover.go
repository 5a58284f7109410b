package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errNoRoom is the log's own finding that a segment would not fit.
var errNoRoom = fmt.Errorf("no room for another segment: %w", syscall.ENOSPC)

// Recovery says what was found when a log was opened.
type Recovery struct {
	Clean    bool     // the log had been closed in order, or is new
	First    uint64   // oldest sequence kept
	Last     uint64   // last sequence kept
	CutBytes int64    // bytes of a torn tail that were cut
	CutAt    string   // segment and offset of the cut, "" if there was none
	Torn     []string // later segments that were set aside because the one before them was torn
}

// CorruptError is damage in a part of the log that had been durable.
type CorruptError struct {
	Segment string // file name
	Offset  int64  // of the first byte that is wrong, as far as that can be told
	What    string
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s; `log verify` lists all damage, `log repair` keeps what is whole",
		e.Segment, e.Offset, e.What)
}

// recover finds the end of the log and makes it ready for appending.
func (l *Log) recover() error {
	bases, err := l.tidy()
	if err != nil {
		return err
	}
	if len(bases) == 0 {
		return l.create()
	}
	heads := make([]header, len(bases))
	for i, base := range bases {
		if heads[i], err = readHeader(l.cfg.FS, base); err != nil {
			return err
		}
		l.shelf.id = max(l.shelf.id, heads[i].id)
	}
	// What the last header knows to be durable needs no look; it begins in the segment that holds the record after that.
	from := len(bases) - 1
	for from > 0 && bases[from] > heads[len(heads)-1].durable+1 {
		from--
	}
	for _, base := range bases[:from] {
		l.shelf.old = append(l.shelf.old, l.describe(base))
	}
	l.recovered.First = bases[0]
	for i := from; i < len(bases); i++ {
		var durable uint64 // what later segments know to be durable
		if i+1 < len(bases) {
			durable = heads[len(heads)-1].durable
		}
		seg, torn, err := l.reopen(bases[i], durable)
		if err != nil {
			return err
		}
		if i+1 < len(bases) && !torn && seg.last+1 == bases[i+1] {
			l.shelf.old = append(l.shelf.old, seg.sealed())
			if err := seg.file.Close(); err != nil {
				return err
			}
			continue
		}
		for _, base := range bases[i+1:] {
			name := segmentName(base)
			l.recovered.Torn = append(l.recovered.Torn, name)
			if err := l.cfg.FS.Rename(name, name+tornSuffix); err != nil {
				return err
			}
		}
		l.use(seg)
		break
	}
	l.next = l.seg.last + 1
	l.stored, l.durable = l.seg.last, l.seg.last
	l.recovered.Last = l.seg.last
	l.syncedAt = time.Now()
	return l.cfg.FS.Sync()
}

// tidy removes what a crash left half done and returns the bases of the segments, in order.
func (l *Log) tidy() (bases []uint64, err error) {
	if err := finishRepair(l.cfg.FS); err != nil {
		return nil, err
	}
	names, err := l.cfg.FS.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if base, ok := segmentBase(name); ok {
			bases = append(bases, base)
		} else if strings.HasSuffix(name, spareSuffix) || strings.HasSuffix(name, partSuffix) {
			if err := l.cfg.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// create makes the first segment of a new log, zeros and all, so that the first sync is as fast as later ones.
func (l *Log) create() error {
	l.shelf.cfg = l.cfg
	if err := l.shelf.hasRoom(1); err != nil {
		return err
	}
	l.shelf.makeSpare()
	seg, err := l.begin(1, 0)
	if err != nil {
		return err
	}
	l.use(seg)
	l.next, l.recovered = 1, Recovery{Clean: true, First: 1}
	l.syncedAt = time.Now()
	return nil
}

// describe reads the extent of a sealed segment, by its index where that is good.
func (l *Log) describe(base uint64) sealed {
	s := sealed{base: base, bytes: l.cfg.SegmentBytes}
	if f, err := l.cfg.FS.Open(segmentName(base)); err == nil {
		if n, err := f.Size(); err == nil {
			s.bytes = n
		}
		_ = f.Close()
	}
	if ix, err := loadIndex(l.cfg.FS, base); err == nil {
		s.last, s.lastTime = ix.last, ix.maxTime()
	}
	return s
}

// reopen scans a segment to its end and cuts a torn tail. durable is what later segments know to be durable.
func (l *Log) reopen(base, durable uint64) (s *segment, torn bool, err error) {
	f, err := l.cfg.FS.Open(segmentName(base))
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	size, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	sc, err := newScanner(f, base)
	if err != nil {
		return nil, false, err
	}
	s = &segment{header: sc.header, file: f, size: max(size, l.cfg.SegmentBytes), last: base - 1, index: &index{}, grows: size < l.cfg.SegmentBytes}
	clean := true
	for {
		b, err := sc.batch()
		if err != nil {
			break
		}
		if b.records > 0 {
			s.index.add(b.off, b.first, b.lastTime)
			s.last, s.lastTime = b.last, b.lastTime
		}
		clean = b.records == 0
	}
	s.off = sc.off
	if sc.readErr != nil {
		return nil, false, fmt.Errorf("read %s at %d: %w", s.name(), sc.off, sc.readErr)
	}
	// Beyond the last whole batch lie zeros, old records under another salt, or a batch that was cut off. It is damage
	// when something later knows that what should be here was durable.
	later, frames, err := sc.laterDurable(size)
	if err != nil {
		return nil, false, err
	}
	if max(later, durable) > s.last {
		return nil, false, &CorruptError{s.name(), sc.off + sc.bad, fmt.Sprintf("record %d and what follows was durable and cannot be read", s.last+1)}
	}
	l.recovered.Clean = clean && s.last >= s.base
	end, err := lastNonZero(f, s.off, size)
	if err != nil {
		return nil, false, err
	}
	if end > s.off {
		if frames {
			torn = true
			l.recovered.CutBytes += end - s.off
			l.recovered.CutAt = fmt.Sprintf("%s at %d", s.name(), s.off)
		}
		// A record of the batch that was cut may be whole: it must not come to life behind a later one.
		if err := zero(f, s.off, end, nil); err != nil {
			return nil, false, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, false, fmt.Errorf("sync of %s: %w", s.name(), err)
	}
	return s, torn, nil
}

// lastNonZero returns the offset behind the last byte other than zero in [off, size), or off.
func lastNonZero(f io.ReaderAt, off, size int64) (int64, error) {
	end := off
	buf := make([]byte, 256<<10)
	for at := off; at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				end = at + int64(i) + 1
				break
			}
		}
		at += int64(n)
		if err == io.EOF || n == 0 {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return end, nil
}

func readHeader(dir FS, base uint64) (header, error) {
	f, err := dir.Open(segmentName(base))
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		return header{}, err
	}
	return sc.header, nil
}
