package recorder

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
)

// spill is what has run over from a backlog, with `overflow: spill`. Behind the backlog's front
// stand, in order:
//
//	extents   what is in the file
//	out       what is being written there, or could not be yet
//	tail      what came last
//
// All of it belongs to whoever holds the lane's lock. The file belongs to the goroutine of
// lane.runOver, which is there while something is in it, or to be. It is in a call of the file
// without the lock: meanwhile nothing goes past what it reads or writes.
//
// The front has a quarter of the source's buffer, out and tail the rest: room for what is
// classified in one go while a write is under way. See docs/design/2026-11-26-spill.md.
type spill struct {
	dir     string
	most    int64         // bytes of the file
	reserve int64         // of the disk, that it leaves free
	log     *slog.Logger  // the source's
	begin   func()        // begins the goroutine
	woken   chan struct{} // has a signal when there may be something to do

	// when the journal was told of a write that failed last; zero: none since one that did not; of
	// the goroutine
	failed time.Time
	lost   time.Time // … of frames that cannot be read back

	buffer  int
	extents []extent
	end     int64 // of the newest extent
	bytes   int   // of the frames in the file
	runs    int   // of numbers, of all extents
	out     queue
	tail    queue
	writing bool   // out is being written
	slow    bool   // the goroutine has been in a call of the file for longer than spillPatience
	cause   string // why the file takes no more; "": it does
	going   bool   // the goroutine is there
	calls   int    // of the file that are over
	life    int    // how often all was abandoned: what the goroutine does for a life before is for nothing
}

// extent is frames that were written at once.
type extent struct {
	at     int64 // in the file
	n      int   // bytes there
	frames int
	bytes  int // of frames alone
	sum    uint32
	// the numbers of the frames, should they not come back; nil: they have none, or too many runs
	runs []numberRun
}

// Causes of frames that are dropped though there is a file for them.
const (
	causeSpillFull   = "spill_full"   // it had its size, or its disk was full
	causeSpillSlow   = "spill_slow"   // it was slower than the line
	causeSpillFailed = "spill_failed" // it could not be written, or what was in it could not be read
)

const (
	// spillRetry is the time between two tries to write.
	spillRetry = time.Second
	// maxSpillRuns is how many runs of numbers are kept of what is in the file: 1.5 MiB.
	maxSpillRuns = 64 << 10
	// spillBurst is what is classified in one go, at most: 64 KiB, or of datagrams 128 KiB.
	spillBurst = 128 << 10
)

// spillPatience is how long the reading stops, at most, for a call of the file. Tests on a real
// file have more: the machine may be busy.
var spillPatience = 50 * time.Millisecond

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// spillFile is where frames run over to.
type spillFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// room is how many bytes the disk may still give.
	room() (int64, error)
}

// openSpill makes the file of a spill in a folder. Scenarios have another one.
var openSpill = newSpillFile

// namelessFile has no name, so that it goes with the process, or with Close where the system
// removes no file that is open.
type namelessFile struct {
	*os.File
	dir   string
	named bool
}

func newSpillFile(dir string) (spillFile, error) {
	f, err := os.CreateTemp(dir, "tallywheel-spill-*")
	if err != nil {
		return nil, err
	}
	return &namelessFile{f, dir, os.Remove(f.Name()) != nil}, nil
}

func (f *namelessFile) room() (int64, error) { return sys.FreeBytes(f.dir) }

func (f *namelessFile) Close() error {
	err := f.File.Close()
	if f.named {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// newSpill is what a source's frames run over into; nil: they do not.
func newSpill(cfg config.Source) *spill {
	if cfg.Overflow != config.OverflowSpill {
		return nil
	}
	c := cfg.Spill
	return &spill{
		dir: c.Path, most: int64(c.Max), log: slog.New(slog.DiscardHandler), woken: make(chan struct{}, 1),
		buffer: int(cfg.Buffer),
	}
}

func (s *spill) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// stands reports whether anything does behind the front.
func (s *spill) stands() bool { return len(s.extents) > 0 || s.out.frames > 0 || s.tail.frames > 0 }

// takes reports whether a frame of n bytes has its place here, and not in the front.
func (s *spill) takes(front *queue, n int) bool {
	return s.stands() || front.size()+queueHeader+n > s.buffer/4
}

// room is what out and tail may hold.
func (s *spill) room() int { return s.buffer - s.buffer/4 }

// isCrowded reports whether the reading should stop for the moment that a write takes: a sender who
// waits for room sends faster than any file takes. A file that is slow is not waited for.
func (s *spill) isCrowded() bool {
	return s.going && !s.slow && s.cause == "" && s.out.bytes+s.tail.bytes > s.room()-spillBurst
}

// refuses says why there is no room for a frame of n bytes; "": there is.
func (s *spill) refuses(front *queue, n int) (cause string) {
	switch {
	case !s.takes(front, n), s.out.bytes+s.tail.bytes+n <= s.room():
		return ""
	case s.cause != "":
		return s.cause
	}
	return causeSpillSlow
}

// push takes in a frame that has its place here.
func (s *spill) push(at int64, offset uint64, data []byte) {
	s.tail.push(at, offset, data)
	if s.tail.size() < s.buffer/4 {
		return
	}
	if !s.going {
		s.going = true
		s.begin()
	}
	s.wake()
}

// promote brings what stands first to the front, which is empty, if it is in memory.
func (s *spill) promote(front *queue) {
	if len(s.extents) > 0 || s.writing {
		return
	}
	if s.out.frames > 0 {
		front.take(&s.out)
	} else {
		front.take(&s.tail)
	}
	s.wake() // nothing may be left to be done
}

// left notes that a frame has left the front.
func (s *spill) left(front *queue) {
	if len(s.extents) > 0 && s.isLow(front) {
		s.wake()
	}
}

// isLow reports whether the front should have more.
func (s *spill) isLow(front *queue) bool { return front.size() <= s.buffer/8 }

// abandon forgets all.
func (s *spill) abandon() {
	s.extents, s.end, s.bytes, s.runs = nil, 0, 0, 0
	s.out, s.tail, s.writing, s.cause = queue{}, queue{}, false, ""
	s.life++
	s.wake()
}

// place is where n bytes may be written; false: nowhere now. The file is a ring of extents, each in
// one piece.
func (s *spill) place(n int) (at int64, ok bool) {
	if len(s.extents) == 0 {
		return 0, int64(n) <= s.most
	}
	first := s.extents[0].at
	switch {
	case s.end <= first:
		return s.end, s.end+int64(n) <= first
	case s.end+int64(n) <= s.most:
		return s.end, true
	}
	return 0, int64(n) <= first
}

// spillStep is what the goroutine does next.
type spillStep int

const (
	spillWaits spillStep = iota
	spillBrings
	spillWrites
	spillEnds
)

// next says what is to be done. at is where out is to be written.
func (s *spill) next(front *queue, mayWrite bool) (step spillStep, at int64) {
	if len(s.extents) > 0 && s.isLow(front) {
		return spillBrings, 0
	}
	if !s.stands() {
		s.going, s.cause = false, ""
		return spillEnds, 0
	}
	if s.out.frames == 0 && s.tail.size() >= s.buffer/4 {
		s.out.take(&s.tail)
	}
	if s.out.frames == 0 || !mayWrite {
		return spillWaits, 0
	}
	at, ok := s.place(s.out.size())
	if !ok {
		s.cause = causeSpillFull
		return spillWaits, 0
	}
	s.writing = true
	return spillWrites, at
}

// wrote notes what became of a write.
func (s *spill) wrote(e extent, err error) {
	s.writing = false
	switch {
	case errors.Is(err, errNoRoom):
		s.cause = causeSpillFull
	case err != nil:
		s.cause = causeSpillFailed
	default:
		s.cause = ""
		if s.runs+len(e.runs) > maxSpillRuns {
			e.runs = nil
		}
		s.extents, s.runs = append(s.extents, e), s.runs+len(e.runs)
		s.end, s.bytes = e.at+int64(e.n), s.bytes+e.bytes
		s.out = queue{buf: s.out.buf[:0]}
	}
}

// spiller is what the goroutine of a spill has for itself.
type spiller struct {
	s     *spill
	file  spillFile // nil: it is not open
	size  int64     // of the file
	retry time.Time // nothing is written before
	spare queue
}

// runOver is the goroutine of a spill. Frames that it brings back go to the log at once.
func (l *lane) runOver() {
	o := &l.out
	s := o.backlog.over
	w := spiller{s: s}
	for {
		l.mu.Lock()
		life, call := s.life, s.calls
		step, at := s.next(&o.backlog.front, !time.Now().Before(w.retry))
		out := &s.out
		writes := queue{buf: out.encoded(), frames: out.frames, bytes: out.bytes} // stays as it is meanwhile
		e := extent{at: at, n: len(writes.buf), frames: out.frames, bytes: out.bytes}
		switch step {
		case spillBrings:
			e = s.extents[0]
		case spillWaits:
			l.goOn() // nobody waits for that
		}
		l.mu.Unlock()
		switch step {
		case spillEnds:
			w.close()
			return
		case spillWaits:
			w.wait()
		case spillWrites:
			late := l.lateSpill(s, call)
			e.sum, e.runs = crc32.Checksum(writes.buf, castagnoli), o.runsOf(writes)
			err := w.write(writes.buf, at)
			late.Stop()
			l.spilled(life, func() { s.wrote(e, err) })
		case spillBrings:
			late := l.lateSpill(s, call)
			err := w.read(e)
			late.Stop()
			l.spilled(life, func() { o.brought(e, &w.spare, err) })
		}
	}
}

// lateSpill has the reading go on where a call of the file takes too long, unless that is stopped.
func (l *lane) lateSpill(s *spill, call int) *time.Timer {
	return time.AfterFunc(spillPatience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.calls == call {
			s.slow = true
			l.goOn()
		}
	})
}

// spilled posts what became of a call of the file, unless all was abandoned meanwhile, and offers
// the log what has come to the front by that.
func (l *lane) spilled(life int, post func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.out.backlog.over
	s.slow = false
	s.calls++
	if s.life != life {
		return
	}
	l.in.book.At(time.Now().UnixNano())
	post()
	l.out.drain()
	l.goOn()
}

// brought takes the oldest extent out of the file: its frames come to the front, or are lost.
func (o *outlet) brought(e extent, frames *queue, err error) {
	b := &o.backlog
	s := b.over
	s.extents = s.extents[1:]
	s.bytes, s.runs = s.bytes-e.bytes, s.runs-len(e.runs)
	if err == nil {
		b.front.take(frames)
		return
	}
	b.frames, b.bytes = b.frames-e.frames, b.bytes-e.bytes
	o.book.Drop(causeSpillFailed, uint64(e.frames))
	for _, r := range e.runs {
		o.dropped.addRun(r.of, ledger.Gap{From: r.from, To: r.to, Dropped: true}, o.book)
	}
	if e.runs != nil {
		o.filled.dropRuns(e.runs)
	} else {
		o.filled.forget(o.book) // nobody knows which of them are gone
	}
}

// awaitsFile reports whether what the log is to get next is in a file.
func (l *lane) awaitsFile() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.backlog.frames > 0 && l.out.backlog.front.frames == 0
}

// wait waits until there may be something to do, or a write may be tried again.
func (w *spiller) wait() {
	var retry <-chan time.Time
	if d := time.Until(w.retry); d > 0 {
		again := time.NewTimer(d)
		defer again.Stop()
		retry = again.C
	}
	select {
	case <-w.s.woken:
	case <-retry:
	}
}

func (w *spiller) close() {
	if w.file != nil {
		if err := w.file.Close(); err != nil {
			w.s.log.Warn("close the file of what ran over", "error", err)
		}
	}
}

// errNoRoom says that a write would take what the disk is to have left.
var errNoRoom = errors.New("the disk is full")

// write writes frames to the file, which it opens where need be.
func (w *spiller) write(encoded []byte, at int64) error {
	err := w.tryWrite(encoded, at)
	now := time.Now()
	switch {
	case err == nil && !w.s.failed.IsZero():
		w.s.failed = time.Time{}
		w.s.log.Info("frames run over into their file again")
	case err != nil:
		w.retry = now.Add(spillRetry)
		if now.Sub(w.s.failed) >= tellPause {
			w.s.failed = now
			w.s.log.Warn("frames that run over cannot be written: what `buffer` does not hold is dropped; make room, see to the disk, or name "+
				"another folder by spill.path", "path", w.s.dir, "error", err)
		}
	}
	return err
}

func (w *spiller) tryWrite(encoded []byte, at int64) error {
	if w.file == nil {
		f, err := openSpill(w.s.dir)
		if err != nil {
			return err
		}
		w.file = f
	}
	end := at + int64(len(encoded))
	if room, err := w.file.room(); err == nil && end > w.size && room < end-w.size+w.s.reserve {
		return fmt.Errorf("%w: %s are free, and %s are to stay so", errNoRoom, config.Size(room),
			config.Size(w.s.reserve))
	}
	_, err := w.file.WriteAt(encoded, at)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", errNoRoom, err)
	case err == nil:
		w.size = max(w.size, end)
	}
	return err
}

// read brings the frames of an extent to spare.
func (w *spiller) read(e extent) error {
	w.spare = queue{buf: append(w.spare.buf[:0], make([]byte, e.n)...), frames: e.frames, bytes: e.bytes}
	_, err := w.file.ReadAt(w.spare.buf, e.at)
	if err == nil && crc32.Checksum(w.spare.buf, castagnoli) != e.sum {
		err = errors.New("it is not what was written")
	}
	if now := time.Now(); err != nil && now.Sub(w.s.lost) >= tellPause {
		w.s.lost = now
		w.s.log.Warn("frames that had run over cannot be read back, and are dropped", "path", w.s.dir, "frames",
			e.frames, "error", err)
	}
	return err
}
