package seglog

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

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
	said     *durability     // says beside the segments how many that were
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
	counts := early && s.said.evict(o.last-o.base+1, first) // at once: it may be killed before this is
	if err := s.remove(indexName(o.base)); err != nil {     // before the segment: see traces
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
	s.evicting = s.evicting || early
	if counts {
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
	if now, before, _ := s.pressure(); now && s.hasRoom(2) == nil {
		s.mu.Lock()
		s.evicting = s.evicted > before // meanwhile
		s.mu.Unlock()
	}
}

// pressure says whether the disk takes records that retention would keep, how many it took, and how
// many in the life of the log.
func (s *shelf) pressure() (now bool, evicted, ever uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicting, s.evicted, s.said.ever.Load()
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
