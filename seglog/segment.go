package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/proof"
)

// segment is the one that is written to. It belongs to whoever commits.
type segment struct {
	header
	file   File
	size   int64 // bytes of the file that may be written
	off    int64 // where the next batch goes
	last   uint64
	index  *index
	chain  chain                // hashes it for the next one
	tail   tail                 // what was written last
	grows  bool                 // it was begun without a spare: it takes room of the disk as it is written
	absent bool                 // there is no room for its file yet
	lacks  Missing              // of one that is absent: what it begins with
	same   func() (bool, error) // whether its name still stands for its file
	// makes its head from what is written; nil: the head is not asked for, or made by reading
	made *proof.Segment
}

func (s *segment) name() string { return segmentName(s.base) }

// absentSegment is the first segment of a log before there is room for it. It begins with a hole
// for what is gone.
func absentSegment(base uint64, gone Missing, log [16]byte) *segment {
	return &segment{
		header: header{version: version, base: base, log: log}, file: noFile{}, off: headerBytes,
		last:  max(base-1, gone.To),
		index: &index{}, absent: true, lacks: gone, same: func() (bool, error) { return true, nil },
	}
}

// noFile is the file of a segment that is absent.
type noFile struct{}

func (noFile) ReadAt([]byte, int64) (int, error)  { return 0, io.EOF }
func (noFile) WriteAt([]byte, int64) (int, error) { return 0, syscall.ENOSPC }
func (noFile) Sync() error                        { return nil }
func (noFile) Size() (int64, error)               { return 0, nil }
func (noFile) Close() error                       { return nil }

var (
	// errSync marks a failed sync, which must never be tried again.
	errSync = errors.New("sync failed")
	// errBegin marks a segment that could not be begun: no record was in it, and the next try makes
	// another file.
	errBegin = errors.New("begin segment")
)

// rotate seals the segment and begins the next one with the record base.
func (l *Log) rotate(base, durable uint64) error {
	if err := l.inPlace(); err != nil {
		return err
	}
	if l.seg.absent {
		next, err := l.begin(l.seg.base, l.seg.last, l.seg.lacks)
		if err == nil {
			l.use(next)
			_ = l.settle(l.found)
		}
		return err
	}
	next, err := l.begin(base, durable, Missing{})
	if err != nil {
		return err
	}
	if err := l.seal(false); err != nil {
		return errors.Join(err, next.file.Close())
	}
	if l.seg.intact(l.seg.off, l.seg.tail) != nil { // the next look of the watch is at another
		l.suspect(l.seg.base)
	}
	done := l.seg.sealed()
	if err := l.seg.file.Close(); err != nil {
		return errors.Join(err, next.file.Close())
	}
	l.shelf.push(done)
	l.use(next)
	signal(l.sealings)
	return nil
}

// use makes s the segment that is written to.
func (l *Log) use(s *segment) {
	l.mu.Lock()
	l.seg, l.salt, l.end, l.tail = s, s.salt, s.off, s.tail
	l.mu.Unlock()
	l.shelf.mu.Lock()
	l.shelf.growing = s.grows
	l.shelf.mu.Unlock()
}

// seal ends the writing of the segment: what it holds is durable, except under SyncNever, and its
// index is kept. clean marks the end of a log that was closed in order.
func (l *Log) seal(clean bool) error {
	s := l.seg
	if l.cfg.Sync == SyncNever && !clean {
		l.unsynced = append(l.unsynced, s.base)
	} else if err := l.syncAll(); err != nil {
		return err
	}
	if clean && s.off+commitBytes <= s.size && s.last >= s.base {
		// An empty batch that knows all before it to be durable: damage there is no torn tail from
		// now on.
		mark := appendCommit(make([]byte, 0, commitBytes), s.header, s.last, s.index.maxTime(), 0, 0, s.last, 0)
		if err := writeSync(s.file, mark, s.off); err != nil {
			return fmt.Errorf("write to %s: %w", s.name(), err)
		}
		s.index.close(s.off, s.last)
		s.off += commitBytes
		_ = s.index.save(l.cfg.FS, s.header, s.last, true) // it tells, should the segment be cut or removed: see traces
	}
	if !clean {
		// else it can be made again
		if err := s.index.save(l.cfg.FS, s.header, s.last, false); errors.Is(err, errNoFile) {
			l.shelf.mu.Lock()
			l.shelf.note(err)
			l.shelf.mu.Unlock()
		}
	}
	return nil
}

// syncAll makes all that was written durable: the segment, and those sealed before it without a
// sync.
func (l *Log) syncAll() error {
	dropped := false
	for _, base := range l.unsynced {
		f, err := l.cfg.FS.Open(segmentName(base))
		if errors.Is(err, fs.ErrNotExist) { // retention was faster
			dropped = true
			continue
		}
		if err != nil { // no sync has failed: it can be begun another time
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("%w: %s: %w", errSync, segmentName(base), err)
		}
	}
	// for good: a cut would bring back a segment that was never synced, and recovery would end the
	// log there
	if dropped {
		if err := l.cfg.FS.Sync(); err != nil {
			return err
		}
	}
	l.unsynced = l.unsynced[:0]
	if err := syncFile(l.seg.file); err != nil {
		return fmt.Errorf("%s: %w", l.seg.name(), err)
	}
	return nil
}

// begin makes the segment that holds base first: a spare one where there is one, else a new file.
// gone is what it has a hole for at its start; its To is 0 if there is none. Whatever goes wrong,
// it can be tried again.
func (l *Log) begin(base, durable uint64, gone Missing) (*segment, error) {
	spare, ok := l.shelf.takeSpare()
	for !ok {
		err := l.shelf.hasRoom(1)
		if err == nil {
			break
		}
		if l.cfg.OnFull != DropOldest || !l.shelf.recycleOldest(true) {
			return nil, fmt.Errorf("%w %s: %w", errBegin, segmentName(base), err)
		}
		spare, ok = l.shelf.takeSpare()
	}
	s, err := l.beginIn(spare, base, durable, gone)
	if isFull(err) && l.cfg.OnFull == DropOldest && l.shelf.recycleOldest(true) { // a quota is not seen before
		spare, _ = l.shelf.takeSpare()
		s, err = l.beginIn(spare, base, durable, gone)
	}
	if spare != "" && (errors.Is(err, errNoFile) || errors.Is(err, errShared)) { // another one, or none
		return l.begin(base, durable, gone)
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", errBegin, segmentName(base), err)
	}
	return s, nil
}

// beginIn is begin in the spare file of that name, in a new one if it is "".
func (l *Log) beginIn(spare string, base, durable uint64, gone Missing) (*segment, error) {
	s := &segment{
		last: base - 1,
		header: header{
			version: version, id: l.shelf.nextID(), base: base, durable: durable, created: time.Now().UnixNano(),
			salt: rand.Uint32(),
			log:  l.identity,
		},
		size: l.cfg.SegmentBytes, off: headerBytes, index: &index{}, grows: spare == "",
	}
	if l.seg != nil && !l.seg.absent {
		s.prior = l.seg.chain.sum(l.seg.base)
	}
	s.chain = chainFrom(s.header)
	if l.cfg.Proves && l.cfg.Sync != SyncNever {
		s.made = &proof.Segment{}
	}
	var err error
	if s.grows {
		spare = spareName(s.id)
		s.file, err = l.cfg.FS.Create(spare)
	} else if s.file, err = l.cfg.FS.Open(spare); errors.Is(err, errNoFile) {
		l.shelf.leave(spare, err)
	} else if errors.Is(err, errShared) { // its bytes are safe under the other name
		_ = l.cfg.FS.Remove(spare)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.shelf.putSpare(spare)
	}
	if err != nil {
		return nil, err
	}
	// The header, and the hole, are durable before the name, and the name before any record in it
	// is called durable.
	err = writeAll(s.file, s.encode(), 0)
	if err == nil && gone.To > 0 {
		_, _, err = s.complete(nil, gone.To, gone.To, 0, durable, gone.AtMost)
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		err = l.vacant(s.name())
	}
	if err == nil {
		err = l.cfg.FS.Rename(spare, s.name())
	}
	if err == nil {
		err = s.track(l.cfg.FS)
	}
	if err == nil {
		err = l.cfg.FS.Sync()
	}
	if err != nil {
		_ = s.file.Close()
		_ = l.cfg.FS.Remove(spare) // or every try on a full disk would leave one
		return nil, err
	}
	return s, nil
}

// vacant is an error when there is a segment of that name with records in it: somebody else wrote
// it, and it must not be lost. One without records was begun by this log, and the directory could
// not be synced.
func (l *Log) vacant(name string) error {
	f, err := l.cfg.FS.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	base, _ := segmentBase(name)
	sc, err := newScanner(f, base)
	if corrupt := (*CorruptError)(nil); err != nil && !errors.As(err, &corrupt) {
		return err
	}
	if err == nil && (sc.version < 2 || sc.log == l.identity) {
		if _, err := sc.batch(); err == errEnd {
			return sc.readErr
		}
	}
	return fmt.Errorf("another writer made %s: %w", name, errForeign)
}

func spareName(id uint64) string { return fmt.Sprintf("%020d%s", id, spareSuffix) }

// sealedSegment is a segment that is not written to any more.
type sealedSegment struct {
	base, last uint64
	time       int64 // the highest of its records
	bytes      int64 // size of the file: less than a segment's where it grew as it was written
	salt       uint32
	made       *proof.Segment // what is to become its head; nil: it was not made while the segment was written
}

func (s *segment) sealed() sealedSegment {
	bytes, err := s.file.Size()
	if err != nil {
		bytes = s.off // at least; the file is then never used again
	}
	return sealedSegment{s.base, s.last, s.index.maxTime(), bytes, s.salt, s.made}
}
