package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	made   *proof.Segment       // makes its head from what is written; nil: the head is not asked for, or made by reading
}

func (s *segment) name() string { return segmentName(s.base) }

// absentSegment is the first segment of a log before there is room for it. It begins with a hole
// for what is gone.
func absentSegment(base uint64, gone Missing, log [16]byte) *segment {
	return &segment{
		header: header{version: version, base: base, log: log}, file: noFile{}, off: headerBytes, last: max(base-1, gone.To),
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
		if err := s.index.save(l.cfg.FS, s.header, s.last, false); errors.Is(err, errNoFile) { // else it can be made again
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
	if dropped { // for good: a cut would bring back a segment that was never synced, and recovery would end the log there
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
			version: version, id: l.shelf.nextID(), base: base, durable: durable, created: time.Now().UnixNano(), salt: rand.Uint32(),
			log: l.identity,
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
		_, err = s.complete(nil, gone.To, gone.To, durable, gone.AtMost)
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

// shelf holds the sealed segments and makes the next one ready in the background.
type shelf struct {
	cfg      Config
	mu       sync.Mutex      // guards what follows
	id       uint64          // of the last segment begun
	old      []sealedSegment // by base
	next     []string        // spare files, filled with zeros or with old records, ready for use
	left     []error         // what stood in the place of a file of the log's and is none: not told yet
	growing  bool            // the segment in use grows
	evicting bool            // DropOldest: the disk has been full, and has no room for two segments since
	evicted  uint64          // records that were removed for that
	holding  bool            // the oldest segment is beyond a limit, and Config.Hold keeps it
	kept     kept            // the log's word for its first record; zero: it has none
	proving  bool            // retention waits for the heads of segments: see prover
	proven   uint64          // last record of the last segment that needs no head any more

	inPlace    func() error // of the log
	work, quit chan struct{}
	done       sync.WaitGroup
}

func (s *shelf) start(inPlace func() error) {
	s.inPlace = inPlace
	s.work, s.quit = make(chan struct{}, 1), make(chan struct{})
	s.done.Add(1)
	go s.tend()
	signal(s.work)
}

func (s *shelf) stop() {
	close(s.quit)
	s.done.Wait()
}

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
		s.tellLeft()
		if s.inPlace() != nil { // what is under the names now is not this log's
			continue
		}
		for s.overdue() && s.recycleOldest(false) {
		}
		s.relax()
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

// recycleOldest takes the oldest segment out of the log and keeps its file as a spare, or removes
// it when there is one. early says that retention would keep it, and that the disk is full.
func (s *shelf) recycleOldest(early bool) bool {
	s.mu.Lock()
	spare, ok := s.dropOldest(len(s.next) == 0, early)
	s.mu.Unlock()
	if spare == "" {
		return ok
	}
	// Its old name is gone for good before it gets another header: a cut would else leave a segment
	// under the name of another.
	if err := s.cfg.FS.Sync(); err != nil {
		_ = s.cfg.FS.Remove(spare)
		return ok
	}
	s.putSpare(spare)
	return ok
}

// dropOldest takes the oldest segment out of the log and reports whether there was one. keep says
// to make a spare of its file if it has the size, early what it says to recycleOldest. mu is held.
func (s *shelf) dropOldest(keep, early bool) (spare string, ok bool) {
	if len(s.old) == 0 {
		return "", false
	}
	o, first := s.old[0], s.old[0].last+1
	if len(s.old) > 1 {
		first = s.old[1].base
	}
	if err := s.keepFrom(first); err != nil {
		return "", false
	}
	if err := s.remove(indexName(o.base)); err != nil { // before the segment: see traces
		return "", false
	}
	err := errShared
	if keep && o.bytes == s.cfg.SegmentBytes {
		s.id++
		spare = spareName(s.id)
		err = s.cfg.FS.Rename(segmentName(o.base), spare)
	}
	if err != nil {
		spare = ""
	}
	if errors.Is(err, errShared) || errors.Is(err, errNoFile) { // it is not to be written over
		err = s.remove(segmentName(o.base))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if early {
		s.evicting = true
		s.evicted += o.last - o.base + 1
	}
	s.old = s.old[1:]
	return spare, true
}

// remove takes a file of the log's out of the folder. What stands in its place and is none stays
// there. mu is held.
func (s *shelf) remove(name string) error {
	err := s.cfg.FS.Remove(name)
	if errors.Is(err, errNoFile) {
		s.note(err)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// giveWay frees room for a segment that cannot grow, and reports whether it did: the spare goes
// first, then, where that is the policy, the oldest segment. It is one file at a time, for the room
// may come late, while a reader has the file open.
func (s *shelf) giveWay() bool {
	if name, ok := s.takeSpare(); ok {
		return s.cfg.FS.Remove(name) == nil
	}
	if s.cfg.OnFull != DropOldest {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.dropOldest(false, true)
	return ok
}

// relax notes that the disk has room again. What one segment has given up for the next is none.
func (s *shelf) relax() {
	if now, before := s.pressure(); now && s.hasRoom(2) == nil {
		s.mu.Lock()
		s.evicting = s.evicted > before // meanwhile
		s.mu.Unlock()
	}
}

// pressure says whether the disk takes records that retention would keep, and how many it took.
func (s *shelf) pressure() (now bool, evicted uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicting, s.evicted
}

// makeSpare fills a file with zeros and syncs it. Failing leaves no spare: the log then extends a
// file as it goes.
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
			s.putSpare(spare)
			return
		}
	}
	_ = s.cfg.FS.Remove(name)
}

var errStopped = errors.New("stopped")

// zero writes zeros from off to end, until quit (which may be nil) is closed.
func zero(f File, off, end int64, quit <-chan struct{}) error {
	chunk := make([]byte, max(0, min(1<<20, end-off)))
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

func (s *shelf) putSpare(name string) {
	s.mu.Lock()
	s.next = append(s.next, name)
	s.mu.Unlock()
}

// mostLeft is how many of shelf.left are kept.
const mostLeft = 16

// leave notes what stands in the place of a spare file and is none. It stays where it is, and no
// other file gets its number.
func (s *shelf) leave(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, _, _ := strings.Cut(name, ".")
	if id, err := strconv.ParseUint(number, 10, 63); err == nil {
		s.id = max(s.id, id)
	}
	s.note(err)
}

// note has an error told soon. mu is held.
func (s *shelf) note(err error) {
	if len(s.left) < mostLeft {
		s.left = append(s.left, err)
	}
}

// tellLeft tells what was left where it is, once each.
func (s *shelf) tellLeft() {
	s.mu.Lock()
	left := s.left
	s.left = nil
	s.mu.Unlock()
	if s.cfg.OnLeft == nil {
		return
	}
	for _, err := range left {
		s.cfg.OnLeft(err)
	}
}

func (s *shelf) nextID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id++
	return s.id
}

func (s *shelf) push(o sealedSegment) {
	s.mu.Lock()
	s.old = append(s.old, o)
	if late := len(s.old) - 1 - proveLate; late >= 0 { // its memory is bounded: whoever is so late reads
		s.old[late].made = nil
	}
	s.mu.Unlock()
	signal(s.work)
}

// sealed lists the sealed segments, by base.
func (s *shelf) sealed() []sealedSegment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.old)
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
