package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// segment is the one that is written to. It belongs to whoever commits.
type segment struct {
	header
	file     File
	size     int64 // bytes of the file that may be written
	off      int64 // where the next batch goes
	last     uint64
	lastTime int64
	index    *index
	grows    bool // it was begun without a spare: it takes room of the disk as it is written
}

func (s *segment) name() string { return segmentName(s.base) }

// errSync marks a failed sync, which must never be tried again.
var errSync = errors.New("sync failed")

// rotate seals the segment and begins the next one with the record base.
func (l *Log) rotate(base, durable uint64) error {
	next, err := l.begin(base, durable)
	if err != nil {
		return err
	}
	if err := l.seal(false); err != nil {
		return errors.Join(err, next.file.Close())
	}
	done := l.seg.sealed()
	if err := l.seg.file.Close(); err != nil {
		return errors.Join(err, next.file.Close())
	}
	l.shelf.push(done)
	l.use(next)
	return nil
}

// use makes s the segment that is written to.
func (l *Log) use(s *segment) {
	l.mu.Lock()
	l.seg, l.salt = s, s.salt
	l.mu.Unlock()
	l.shelf.mu.Lock()
	l.shelf.growing = s.grows
	l.shelf.mu.Unlock()
}

// seal ends the writing of the segment: what it holds is durable, except under SyncNever, and its index is kept.
// clean marks the end of a log that was closed in order.
func (l *Log) seal(clean bool) error {
	s := l.seg
	if l.cfg.Sync == SyncNever && !clean {
		l.unsynced = append(l.unsynced, s.base)
	} else if err := l.syncAll(); err != nil {
		return err
	}
	if clean && s.off+commitBytes <= s.size && s.last >= s.base {
		// An empty batch that knows all before it to be durable: damage there is no torn tail from now on.
		mark := appendCommit(make([]byte, 0, commitBytes), s.salt, s.last, s.lastTime, 0, 0, s.last)
		if err := writeSync(s.file, mark, s.off); err != nil {
			return fmt.Errorf("write to %s: %w", s.name(), err)
		}
		s.off += commitBytes
	}
	if !clean {
		_ = s.index.save(l.cfg.FS, s.header, s.last) // it can be made again
	}
	return nil
}

// syncAll makes all that was written durable: the segment, and those sealed before it without a sync.
func (l *Log) syncAll() error {
	for _, base := range l.unsynced {
		f, err := l.cfg.FS.Open(segmentName(base))
		if errors.Is(err, fs.ErrNotExist) { // retention was faster
			continue
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", errSync, segmentName(base), err)
		}
	}
	l.unsynced = l.unsynced[:0]
	if err := syncFile(l.seg.file); err != nil {
		return fmt.Errorf("%s: %w", l.seg.name(), err)
	}
	return nil
}

// begin makes the segment that holds base first: a spare one where there is one, else a new file.
func (l *Log) begin(base, durable uint64) (*segment, error) {
	s := &segment{
		header: header{id: l.shelf.nextID(), base: base, durable: durable, created: time.Now().UnixNano(), salt: rand.Uint32()},
		size:   l.cfg.SegmentBytes, off: headerBytes, index: &index{},
	}
	spare, ok := l.shelf.takeSpare()
	for !ok {
		err := l.shelf.hasRoom(1)
		if err == nil {
			break
		}
		if l.cfg.OnFull != DropOldest || !l.shelf.recycleOldest() {
			return nil, err
		}
		spare, ok = l.shelf.takeSpare()
	}
	var err error
	if ok {
		s.file, err = l.cfg.FS.Open(spare)
	} else {
		spare = spareName(s.id)
		s.file, err = l.cfg.FS.Create(spare)
	}
	if err != nil {
		return nil, err
	}
	s.grows = !ok
	// The header is durable before the name, and the name before any record in it is called durable.
	err = writeAll(s.file, s.encode(), 0)
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		err = l.cfg.FS.Rename(spare, s.name())
	}
	if err == nil {
		err = l.cfg.FS.Sync()
	}
	if err != nil {
		_ = s.file.Close()
		_ = l.cfg.FS.Remove(spare) // or every try on a full disk would leave one
		return nil, fmt.Errorf("begin segment %s: %w", s.name(), err)
	}
	return s, nil
}

func spareName(id uint64) string { return fmt.Sprintf("%020d%s", id, spareSuffix) }

// sealed is a segment that is not written to any more.
type sealed struct {
	base, last uint64
	lastTime   int64
	bytes      int64 // size of the file: less than a segment's where it grew as it was written
}

func (s *segment) sealed() sealed {
	bytes, err := s.file.Size()
	if err != nil {
		bytes = s.off // at least; the file is then never used again
	}
	return sealed{s.base, s.last, s.lastTime, bytes}
}

// shelf holds the sealed segments and makes the next one ready in the background.
type shelf struct {
	cfg     Config
	mu      sync.Mutex // guards what follows
	id      uint64     // of the last segment begun
	old     []sealed   // by base
	next    []string   // spare files, filled with zeros or with old records, ready for use
	growing bool       // the segment in use grows

	work, quit chan struct{}
	done       sync.WaitGroup
}

func (s *shelf) start(cfg Config) {
	s.cfg = cfg
	s.work, s.quit = make(chan struct{}, 1), make(chan struct{})
	s.done.Add(1)
	go s.tend()
	signal(s.work)
}

func (s *shelf) stop() {
	close(s.quit)
	s.done.Wait()
}

const retentionPeriod = 10 * time.Second // how often the age of segments is looked at

// tend applies retention and keeps one spare segment ready.
func (s *shelf) tend() {
	defer s.done.Done()
	tick := time.NewTicker(retentionPeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.work:
		case <-tick.C:
		}
		for s.overdue() && s.recycleOldest() {
		}
		s.mu.Lock()
		ready, segments := len(s.next) > 0, int64(1)
		if s.growing {
			segments = 2
		}
		s.mu.Unlock()
		if !ready && s.hasRoom(segments) == nil {
			s.makeSpare()
		}
	}
}

// overdue reports whether the oldest sealed segment is beyond a limit. The active segment and the spare count as whole.
func (s *shelf) overdue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.old) == 0 {
		return false
	}
	total := 2 * s.cfg.SegmentBytes
	for _, o := range s.old {
		total += o.bytes
	}
	return s.cfg.KeepBytes > 0 && total > s.cfg.KeepBytes ||
		s.cfg.KeepAge > 0 && time.Since(time.Unix(0, s.old[0].lastTime)) > s.cfg.KeepAge
}

// recycleOldest takes the oldest segment out of the log and keeps its file as a spare, or removes it when there is one.
func (s *shelf) recycleOldest() bool {
	s.mu.Lock()
	spare, ok := s.dropOldest(len(s.next) == 0)
	s.mu.Unlock()
	if spare == "" {
		return ok
	}
	// Its old name is gone for good before it gets another header: a cut would else leave a segment under the name of another.
	if err := s.cfg.FS.Sync(); err != nil {
		_ = s.cfg.FS.Remove(spare)
		return ok
	}
	s.mu.Lock()
	s.next = append(s.next, spare)
	s.mu.Unlock()
	return ok
}

// dropOldest takes the oldest segment out of the log and reports whether there was one. keep says to make a spare of its file if it has
// the size. mu is held.
func (s *shelf) dropOldest(keep bool) (spare string, ok bool) {
	if len(s.old) == 0 {
		return "", false
	}
	o := s.old[0]
	_ = s.cfg.FS.Remove(indexName(o.base)) // there may be none
	var err error
	if !keep || o.bytes != s.cfg.SegmentBytes {
		err = s.cfg.FS.Remove(segmentName(o.base))
	} else {
		s.id++
		spare = spareName(s.id)
		err = s.cfg.FS.Rename(segmentName(o.base), spare)
	}
	if err != nil {
		spare = ""
		if !errors.Is(err, fs.ErrNotExist) {
			return "", false
		}
	}
	s.old = s.old[1:]
	return spare, true
}

// giveWay frees room for a segment that cannot grow, and reports whether it did: the spare goes first, then, where that is the policy,
// the oldest segment. It is one file at a time, for the room may come late, while a reader has the file open.
func (s *shelf) giveWay() bool {
	if name, ok := s.takeSpare(); ok {
		return s.cfg.FS.Remove(name) == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.OnFull != DropOldest {
		return false
	}
	_, ok := s.dropOldest(false)
	return ok
}

// makeSpare fills a file with zeros and syncs it. Failing leaves no spare: the log then extends a file as it goes.
func (s *shelf) makeSpare() {
	name := spareName(s.nextID()) + partSuffix
	f, err := s.cfg.FS.Create(name)
	if err != nil {
		return
	}
	err = zero(f, 0, s.cfg.SegmentBytes, s.quit)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		spare := strings.TrimSuffix(name, partSuffix)
		if err = s.cfg.FS.Rename(name, spare); err == nil {
			s.mu.Lock()
			s.next = append(s.next, spare)
			s.mu.Unlock()
			return
		}
	}
	_ = s.cfg.FS.Remove(name)
}

var errStopped = errors.New("stopped")

// zero writes zeros from off to end, until quit (which may be nil) is closed.
func zero(f File, off, end int64, quit <-chan struct{}) error {
	chunk := make([]byte, min(1<<20, end-off))
	for off < end {
		select {
		case <-quit:
			return errStopped
		default:
		}
		n := min(int64(len(chunk)), end-off)
		if err := writeAll(f, chunk[:n], off); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// hasRoom is ErrDiskFull, in the form of the system's own error, when the disk cannot take that many more segments.
func (s *shelf) hasRoom(segments int64) error {
	free, err := s.cfg.FS.FreeBytes()
	if err != nil { // not known: the write will tell
		return nil
	}
	if free < segments*s.cfg.SegmentBytes+max(0, s.cfg.MinFree) {
		return errNoRoom
	}
	return nil
}

func (s *shelf) takeSpare() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.next) == 0 {
		return "", false
	}
	name := s.next[0]
	s.next = s.next[1:]
	return name, true
}

func (s *shelf) nextID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id++
	return s.id
}

func (s *shelf) push(o sealed) {
	s.mu.Lock()
	s.old = append(s.old, o)
	s.mu.Unlock()
	signal(s.work)
}

// extent is the first sequence and the bytes of the sealed segments; 0 if there are none.
func (s *shelf) extent() (first uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range slices.Backward(s.old) {
		first = o.base
		bytes += o.bytes
	}
	return first, bytes
}
