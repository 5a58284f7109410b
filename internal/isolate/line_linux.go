package isolate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/serial"
)

// Times of a line.
const (
	firstRetry = 50 * time.Millisecond // behind a device that cannot be opened; then less and less often
	lastRetry  = 5 * time.Second
	countEach  = time.Second          // between two looks at the driver's counters
	fullLook   = 2 * time.Millisecond // between two looks at a full spool: a fast tty fills in 10 ms
)

// line is one source in the reader's process: it keeps the device open, and writes into the spool
// what comes, and what happens.
//
// Two goroutines use it: run, and while the device is read, the reader's own, by the methods of
// reader.Handler and reader.Sink. The spool's producer is under mu, which is held for a read at
// most.
type line struct {
	source string
	lane   Lane
	link   *Link
	log    *slog.Logger
	bell   *Bell
	read   reader.Reader
	spool  *spool.Spool
	stop   context.CancelFunc // run is to read what there is, and to end
	ctx    context.Context
	done   chan struct{} // closed by run

	closed chan error    // of reader.Handler, for run
	full   chan struct{} // the reader found no room, and pauses

	identity string
	told     map[uint32]uint64 // counters as they were written last

	mu       sync.Mutex
	producer *spool.Producer
	giveUp   time.Time // when run ends at the latest, once it is stopped
	leaves   bool      // … and another reader goes on with the device, which stays open
	last     int64     // when bytes came last, ns since 1970
	stuck    time.Time // since when there was no room; zero: there is some
}

func newLine(r *ports, source string, lane Lane, s *spool.Spool, p *spool.Producer) *line {
	l := &line{
		source: source, lane: lane, link: r.link, log: r.log.With("source", source), bell: r.bell, read: r.read, spool: s, producer: p,
		done: make(chan struct{}), closed: make(chan error, 1), full: make(chan struct{}, 1), told: map[uint32]uint64{},
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// end has the line read what there is, by a time at most, and returns when it has ended.
func (l *line) end(by time.Time) {
	l.mu.Lock()
	l.giveUp = by
	l.mu.Unlock()
	l.stop()
	<-l.done
}

// leave has the line end as if its process had been killed, but between two reads, and returns when
// it has.
func (l *line) leave(by time.Time) {
	l.mu.Lock()
	l.giveUp, l.leaves = by, true
	l.mu.Unlock()
	l.stop()
	<-l.done
}

func (l *line) isLeft() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaves
}

// run keeps the device open until the line ends. It begins with what the reader before has left.
func (l *line) run(before adoption) {
	defer close(l.done)
	p := l.goOn(before)
	var retry time.Duration
	for l.ctx.Err() == nil {
		if p == nil {
			var err error
			if p, err = l.open(); err != nil {
				l.absent(err)
				retry = max(firstRetry, min(2*retry, lastRetry))
				l.pause(retry + rand.N(retry/2))
				continue
			}
		}
		retry = 0
		err := l.serve(p)
		if errors.Is(err, errLeft) {
			return
		}
		if err != nil {
			l.gone(err)
		}
		l.forget(p)
		p = nil
	}
	if l.isLeft() {
		return
	}
	if p != nil { // it was adopted, and never read
		l.discard(p)
		l.forget(p)
	}
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Ended, B: uint64(now.Steady)})
}

// goOn takes over what the reader before has left, and writes down for how long nobody read it.
func (l *line) goOn(before adoption) *serial.Port {
	l.identity = before.Identity
	l.mu.Lock()
	past, found := l.producer.Past(), l.producer.Recovered()
	l.mu.Unlock()
	if found.CutOff {
		l.log.Info("the reader before was killed in a read", "recovered", found.Bytes, "uncertain", found.Uncertain)
	}
	l.last = past.Read.Time
	if before.fd < 0 {
		if past.Device == spool.Opened {
			l.gone(os.NewSyscallError("read", syscall.ENODEV)) // it was killed when it gave that back
		}
		return nil
	}
	p, err := before.adopt()
	if err != nil {
		_ = sys.CloseFD(before.fd)
		if past.Device == spool.Opened {
			l.gone(err)
		}
		return nil
	}
	now := time.Now()
	if died := l.link.Died(); past.Device == spool.Opened {
		l.note(spool.Mark{Time: died.UnixNano(), Kind: spool.Unattended, B: uint64(max(0, now.Sub(died)))})
	} else {
		l.opened()
	}
	return p
}

func (l *line) opened() {
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Opened, B: uint64(now.Steady)})
}

// open opens the device: by its path at first, and by its identity from then on. The keeper has it
// before anything is written or read, so that whoever comes next has it, too.
func (l *line) open() (*serial.Port, error) {
	path, err := serial.Resolve(l.lane.Port, l.identity)
	if err != nil {
		return nil, err
	}
	p, err := serial.Open(path, l.lane.Line)
	if err != nil {
		return nil, err
	}
	if id := serial.Identity(path); id != "" {
		l.identity = id
	}
	if err := l.link.Put(PortOf(l.source), Port{Path: p.Path, Accepted: p.Accepted, Identity: l.identity}, p.FD()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	clear(l.told)
	l.opened()
	return p, nil
}

// errLeft ends the reading of a device that another reader goes on with.
var errLeft = errors.New("another reader goes on")

// serve has an open device read, until it is gone, which is an error, or the line ends.
func (l *line) serve(p *serial.Port) error {
	l.count(p)
	h, err := l.read.Add(reader.Port{FD: p.FD(), Handler: l, Into: l, Silence: l.lane.Silence, Patience: l.lane.Patience})
	if err != nil {
		return err
	}
	counts := time.NewTicker(countEach)
	defer counts.Stop()
	ends := l.ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case err := <-l.closed:
			l.count(p)
			if errors.Is(err, reader.ErrRemoved) {
				return nil
			}
			return err
		case <-l.full: // the bell need not be rung: the recorder knows what it has not taken
			time.Sleep(fullLook)
			h.Resume()
		case <-counts.C:
			l.count(p)
		case <-ends:
			ends = nil
			if l.isLeft() {
				h.Remove()
				if err := <-l.closed; !errors.Is(err, reader.ErrRemoved) {
					return err // it was gone before
				}
				return errLeft
			}
			l.mu.Lock()
			late = time.After(time.Until(l.giveUp))
			l.mu.Unlock()
			h.Finish()
		case <-late:
			h.Remove()
			<-l.closed
			l.discard(p)
			return nil
		}
	}
}

// count writes down what the driver has counted, where that has changed.
func (l *line) count(p *serial.Port) {
	c, err := p.Counters()
	if err != nil {
		return
	}
	for i, n := range []uint64{c.Overrun, c.BufferOverrun, c.Framing, c.Parity, c.Break} {
		if told, ok := l.told[uint32(i)]; ok && told == n {
			continue
		}
		l.mu.Lock()
		err := l.producer.Note(spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Counted, A: uint32(i), B: n})
		l.mu.Unlock()
		if err != nil {
			return // there is no room: the next look has it, for the counter stands there
		}
		l.told[uint32(i)] = n
	}
	l.bell.Ring()
}

// discard counts what the kernel holds, and nobody will read.
func (l *line) discard(p *serial.Port) {
	if n, err := sys.Waiting(p.FD()); err == nil && n > 0 {
		l.note(spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Lost, A: spool.Discarded, B: uint64(n)})
	}
}

// gone writes down that the device is.
func (l *line) gone(err error) {
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Closed, A: errnoOf(err), B: uint64(now.Steady)})
}

// forget closes a device that is not read any more, here and on the shelf.
func (l *line) forget(p *serial.Port) {
	_ = p.Close() // it is gone, or nobody cares
	if err := l.link.Put(PortOf(l.source), Port{Path: p.Path, Identity: l.identity, Why: "it was closed"}); err != nil {
		l.log.Warn("the keeper has ended", "error", err)
	}
}

// absent writes down why the device cannot be opened. The words are for the shelf, and come before
// the mark.
func (l *line) absent(err error) {
	if err := l.link.Put(PortOf(l.source), Port{Identity: l.identity, Why: err.Error()}); err != nil {
		l.log.Warn("the keeper has ended", "error", err)
	}
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Absent, A: errnoOf(err), B: uint64(now.Steady)})
}

// errnoOf is the number of an error of the kernel; 0: it is none, or the end of a stream.
func errnoOf(err error) uint32 {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return uint32(errno)
	}
	return 0
}

// pause waits for so long, or until the line ends.
func (l *line) pause(d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-l.ctx.Done():
	case <-wait.C:
	}
}

// note writes a mark. Where there is no room it waits until the recorder has made some, or the time
// to end is over: then nobody will look at the spool.
func (l *line) note(m spool.Mark) {
	for {
		l.mu.Lock()
		err := l.producer.Note(m)
		over := l.ctx.Err() != nil && time.Now().After(l.giveUp)
		l.mu.Unlock()
		l.bell.Ring()
		if err == nil {
			return
		}
		if over || !errors.Is(err, spool.ErrFull) {
			l.log.Error("what happened to the device cannot be written down", "mark", m.Kind, "error", err)
			return
		}
		time.Sleep(fullLook)
	}
}

// Read implements reader.Sink.
func (l *line) Read(at time.Time, fd int, read func(int, []byte) (int, syscall.Errno)) (n int, errno syscall.Errno, full bool) {
	l.mu.Lock()
	n, err := l.producer.Read(spool.Chunk, spool.MomentOf(at), fd, read)
	switch {
	case err == nil && n > 0:
		l.last = at.UnixNano()
		l.hadRoom()
	case errors.Is(err, spool.ErrFull) && l.stuck.IsZero():
		l.stuck = time.Now()
	}
	l.mu.Unlock()
	switch {
	case err == nil || errors.As(err, &errno):
		return n, errno, false
	case errors.Is(err, spool.ErrFull):
		l.bell.Ring()
		select {
		case l.full <- struct{}{}:
		default:
		}
		return 0, 0, true
	}
	l.log.Error("the spool makes no sense: the source cannot be read until the recorder is started anew", "error", err)
	return 0, syscall.EPROTO, false
}

// stuckLong is for how long a port that is not read for want of room is in no outage: the kernel
// holds what comes meanwhile.
const stuckLong = 100 * time.Millisecond

// hadRoom writes down for how long there was none. mu is held, and a read has left room for marks.
func (l *line) hadRoom() {
	if l.stuck.IsZero() {
		return
	}
	if d := time.Since(l.stuck); d >= stuckLong {
		if err := l.producer.Note(spool.Mark{Time: l.stuck.UnixNano(), Kind: spool.Unattended, A: spool.NoRoom, B: uint64(d)}); err != nil {
			l.log.Error("that there was no room cannot be written down", "error", err)
		}
	}
	l.stuck = time.Time{}
}

// Last implements reader.Sink.
func (l *line) Last() (at time.Time, silences int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	past := l.producer.Past()
	if past.Read.Kind == 0 {
		return time.Time{}, 0
	}
	return spool.Moment{Wall: past.Read.Time, Steady: int64(past.Read.B)}.Time(), past.Silences
}

// Arrived implements reader.Handler: the bytes are in the spool.
func (l *line) Arrived([]byte, int, int64) (done int, more bool) {
	l.bell.Ring()
	return 0, true
}

// Silent implements reader.Handler.
func (l *line) Silent(_ []byte, at int64) int {
	l.mu.Lock()
	err := l.producer.Note(spool.Mark{Time: at, Kind: spool.Silent, B: uint64(max(0, at-l.last))})
	l.mu.Unlock()
	if err != nil {
		l.log.Error("a silence cannot be written down", "error", err) // each read leaves room for it
	}
	l.bell.Ring()
	return 0
}

// Closed implements reader.Handler.
func (l *line) Closed(_ []byte, _ int64, err error) { l.closed <- err }

var (
	_ reader.Handler = (*line)(nil)
	_ reader.Sink    = (*line)(nil)
)
