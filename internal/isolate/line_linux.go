package isolate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
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
// reader.Handler and reader.Sink; for moments also a timer, the runover, and the goroutine that
// follows the link. The spool's producer is under mu, which is held for a read at
// most.
type line struct {
	source string
	lane   Lane
	link   *Link
	log    *slog.Logger
	bell   *Bell
	read   reader.Reader
	spool  *spool.Spool // that the producer fills
	far    *spool.Spool // that is recorded: the same, unless over is between the two
	over   *runover     // between that and the recorder; nil: nothing is
	wire   wire
	stop   context.CancelFunc // run is to read what there is, and to end
	ctx    context.Context
	left   context.CancelFunc
	stays  context.Context // done once another reader is to go on with the device, which stays open
	done   chan struct{}   // closed by run
	before *line           // of the same source, which had not ended when this one was made; nil: none

	closed chan error    // of reader.Handler, for run
	full   chan struct{} // the reader found no room, and pauses

	told map[uint32]uint64 // counters as they were written last

	mu       sync.Mutex
	producer *spool.Producer
	giveUp   time.Time // when run ends at the latest, once it is stopped
	dropped  bool      // … and nobody looks at the spool any more
	orphaned bool      // the keeper has ended
	last     int64     // when bytes came last, ns since 1970
	stuck    time.Time // since when there was no room; zero: there is some
	serves   device    // what is read now; nil: nothing
	why      uint32    // … and why, as Unattended says it
	said     Port      // what the shelf has of the device, unless that is open
	lost     uint64    // bytes that nobody reads since the line was to end, and of which there is no mark yet
	late     uint64    // … and of which there is one
}

func newLine(r *ports, source string, lane Lane, s, far *spool.Spool, p *spool.Producer) *line {
	l := &line{
		source: source, lane: lane, link: r.link, log: r.log.With("source", source), bell: r.bell, read: r.read,
		spool: s, far: far, producer: p,
		done: make(chan struct{}), closed: make(chan error, 1), full: make(chan struct{}, 1), told: map[uint32]uint64{},
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.stays, l.left = context.WithCancel(context.Background())
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

// orphan is end, for the keeper has ended: nobody says any more when nobody looks at the spool.
func (l *line) orphan(by time.Time) {
	l.mu.Lock()
	l.orphaned = true
	l.mu.Unlock()
	l.end(by)
}

// leave has the line end as if its process had been killed, but between two reads, and returns when
// it has.
func (l *line) leave(by time.Time) {
	l.mu.Lock()
	l.giveUp = by
	l.mu.Unlock()
	l.left()
	l.stop()
	<-l.done
}

// drop has the line end without a look at what there is: the recorder has seen the end of it, or
// has given its spool up. Connections that wait are closed.
func (l *line) drop() {
	l.mu.Lock()
	l.giveUp, l.dropped = time.Now(), true
	l.mu.Unlock()
	l.stop()
}

func (l *line) isDropped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// isLate says whether the time is over in which a line that ends reads what there is.
func (l *line) isLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !time.Now().Before(l.giveUp)
}

// hasEnded says whether run has.
func (l *line) hasEnded() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *line) isLeft() bool { return l.stays.Err() != nil }

// isStuck says whether there is no room for what the device brings.
func (l *line) isStuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stuck.IsZero()
}

// littleWaits is how many bytes of a stream may wait while it is read as they come, or each tick.
const littleWaits = 64 << 10

// hasCaughtUp says whether what a line that was stuck has not read is as little as it is while
// there is room, and nothing waits in front of the spool that is recorded.
func (l *line) hasCaughtUp() bool {
	if l.over.holds() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	little := uint64(littleWaits)
	if l.lane.Kind == Datagrams { // the next one is all that is known of them
		little = 0
	}
	return l.stuck.IsZero() && (l.serves == nil || sockets.Waiting(l.serves.FD()) <= little)
}

// run keeps the device open until the line ends. It begins with what the reader before has left.
func (l *line) run(before adoption) {
	defer close(l.done)
	defer l.over.close()
	l.over.begin()
	d := l.goOn(before)
	var retry time.Duration
	var idle sockets.Idleness
	for l.ctx.Err() == nil {
		if d == nil {
			var err error
			if d, err = l.open(); err != nil {
				if l.ctx.Err() == nil {
					l.absent(err)
					retry = max(firstRetry, min(2*retry, lastRetry))
					l.pause(retry + rand.N(retry/2))
				}
				continue
			}
		}
		began, from := time.Now(), l.position()
		err := l.serveToEnd(d)
		if errors.Is(err, errLeft) {
			l.wire.leave()
			return
		}
		if d = nil; errors.Is(err, errUntaken) {
			retry = max(firstRetry, min(2*retry, lastRetry))
			l.pause(retry + rand.N(retry/2))
			continue
		}
		retry = 0
		if l.lane.Kind == Dialled {
			l.pause(idle.Next(time.Since(began), l.position()-from))
		}
	}
	if l.isLeft() {
		l.wire.leave()
		return
	}
	switch {
	case !l.isDropped():
		if errors.Is(l.readRest(d), errLeft) {
			l.wire.leave()
			return
		}
	case d != nil:
		_ = d.Close()
	}
	l.wire.close()
	now := spool.MomentOf(time.Now())
	l.noteLost()
	l.tellEnd()
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Ended, B: uint64(now.Steady)})
	l.over.await()
}

func (l *line) serving(d device) {
	l.mu.Lock()
	l.serves = d
	l.mu.Unlock()
}

// serveToEnd has a device read, and closes it, unless the error is errLeft.
func (l *line) serveToEnd(d device) error {
	l.serving(d)
	err := l.serve(d)
	l.serving(nil)
	if errors.Is(err, errLeft) {
		return err
	}
	l.unblock()
	if err != nil {
		l.gone(err)
	}
	l.forget(d)
	return err
}

// readRest reads what there is of a device that was adopted and never read, nil: there is none, and
// of those that wait. errLeft: the next reader goes on with what is on the shelf.
func (l *line) readRest(d device) error {
	for ; ; d = nil {
		if d == nil {
			if !l.isLeft() {
				d = l.wire.rest()
			}
			switch {
			case d == nil && l.isLeft(): // what waits stays where it is
				return errLeft
			case d == nil:
				return nil
			}
			if l.isLate() { // a mark for each would not have room in a full spool
				l.loses(d.discard())
				l.wire.kept()
				_ = d.Close()
				continue
			}
			l.mu.Lock()
			device := l.producer.Past().Device
			l.mu.Unlock()
			if device == spool.Opened { // the one before has come to its end, and this one is another wire
				l.gone(spool.ErrReplaced)
			}
			if err := l.keep(d); err != nil {
				l.log.Warn("a connection cannot be read to its end", "error", err)
				return nil
			}
		}
		_ = l.serveToEnd(d) // what is lost is in the spool, and a device that was left on the shelf
	}
}

// position is the offset of the next byte to be read.
func (l *line) position() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producer.Position()
}

// goOn takes over what the reader before has left, and writes down for how long nobody read it.
func (l *line) goOn(before adoption) device {
	l.mu.Lock()
	past, found := l.producer.Past(), l.producer.Recovered()
	l.mu.Unlock()
	if found.CutOff {
		l.log.Info("the reader before was killed in a read", "recovered", found.Bytes, "uncertain", found.Uncertain)
	}
	l.last = past.Read.Time
	l.inherit(before)
	now := time.Now()
	died, why := l.link.Died(), spool.Killed
	if died.IsZero() { // the keeper was restarted, too, and has not seen it
		died, why = now, spool.Restarted
		if lived := max(l.bell.LivedAt(), past.Read.Time); lived > 0 {
			died = time.Unix(0, lived)
		}
	}
	l.wasBlocked(died)
	if before.fd < 0 {
		if past.Device == spool.Opened {
			l.gone(os.NewSyscallError("read", syscall.ENODEV)) // it was killed when it gave that back
		}
		return nil
	}
	d, err := l.wire.adopt(before.fd, before.Port)
	if err != nil {
		if past.Device == spool.Opened {
			l.gone(err)
		}
		return nil
	}
	if past.Device == spool.Opened {
		l.note(spool.Mark{Time: died.UnixNano(), Kind: spool.Unattended, A: why, B: uint64(max(0, now.Sub(died)))})
	} else {
		l.opened()
	}
	return d
}

func (l *line) opened() {
	now := spool.MomentOf(time.Now())
	l.note(spool.Mark{Time: now.Wall, Kind: spool.Opened, B: uint64(now.Steady)})
}

// open opens the device, or waits for it.
func (l *line) open() (device, error) {
	d, err := l.wire.open(l.ctx)
	if err != nil {
		return nil, err
	}
	if err := l.keep(d); err != nil {
		return nil, err
	}
	return d, nil
}

// keep gives the keeper a device that was opened, before anything is written or read, so that
// whoever comes next has it, too. After an error the device is closed.
func (l *line) keep(d device) error {
	about := d.about()
	about.Begin = l.position()
	if err := l.link.Put(PortOf(l.source), l.counted(about), d.FD()); err != nil {
		return errors.Join(err, d.Close())
	}
	l.wire.kept()
	clear(l.told)
	l.opened()
	if l.lane.Kind != Serial { // a socket's counters begin with 0, whatever it has dropped meanwhile
		for _, c := range d.counts() {
			l.note(spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Counted, A: c.which})
			l.told[c.which] = 0
		}
	}
	return nil
}

var (
	// errLeft ends the reading of a device that another reader goes on with.
	errLeft = errors.New("another reader goes on")
	// errUntaken is a device that cannot be read, for the kernel or the process has no room for it.
	errUntaken = errors.New("the reader cannot take it")
)

// takeover is the silence after which a newer connection takes the place of one that has not ended:
// a device that connects again has lost its old connection, whether we have noticed or not, and one
// that sends has not.
const takeover = 500 * time.Millisecond

// untilCount is how long it is until the driver's counters are looked at: all lines look at once,
// each second, for one wake-up.
func untilCount() time.Duration {
	return countEach - time.Duration(time.Now().UnixNano())%countEach
}

// serve has an open device read, until it is gone or replaced, which is an error, or the line ends.
func (l *line) serve(d device) error {
	l.count(d)
	h, err := l.read.Add(reader.Port{
		FD: d.FD(), Handler: l, Into: l, Silence: l.lane.Silence, Patience: l.lane.Patience,
		Messages: l.lane.Kind == Datagrams,
	})
	if err != nil {
		if n := d.discard(); n > 0 {
			l.note(spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Lost, A: spool.Untaken, B: n})
		}
		return fmt.Errorf("%w: %w", errUntaken, err)
	}
	counts, looks := time.NewTimer(untilCount()), time.NewTicker(takeover)
	defer counts.Stop()
	defer looks.Stop()
	ends, newer := l.ctx.Done(), l.wire.newer()
	var late, look <-chan time.Time
	var before uint64 // where the wire was at the last look
	replaced := false
	for {
		select {
		case err := <-l.closed:
			l.count(d)
			switch {
			case replaced:
				return spool.ErrReplaced
			case errors.Is(err, reader.ErrRemoved):
				return nil
			}
			return err
		case <-newer:
			newer, look, before = nil, looks.C, l.position()
			looks.Reset(takeover)
		case <-look:
			if now := l.position(); now != before || sockets.Waiting(d.FD()) > 0 { // it lives
				before = now
				continue
			}
			look, replaced = nil, true
			d.deafen()
			h.Finish()
		case <-l.full: // the bell need not be rung: the recorder knows what it has not taken
			time.Sleep(fullLook)
			h.Resume()
		case now := <-counts.C:
			counts.Reset(untilCount())
			l.bell.Lives(now)
			l.count(d)
		case <-ends:
			ends, newer, look = nil, nil, nil
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
			d.deafen()
			h.Finish()
		case <-late:
			h.Remove()
			<-l.closed
			l.discard(d)
			return nil
		}
	}
}

// readOnce reads once. mu is held. more: there may be more than there was place for. A read of no
// bytes would take nothing, neither an end nor an empty datagram.
func (l *line) readOnce(at time.Time, fd int, read func(int, []byte) (int, syscall.Errno)) (n int, more bool,
	err error,
) {
	switch l.lane.Kind {
	case Datagrams:
		given, errno := sys.NextDatagram(fd)
		if errno != 0 {
			return 0, false, errno
		}
		n, err = l.producer.ReadWhole(spool.Message, max(1, given), spool.MomentOf(at), fd, read)
	case Serial:
		given, waitErr := sys.Waiting(fd)
		if waitErr != nil {
			given = 0 // read says what is wrong
		}
		n, err = l.producer.ReadWhole(spool.Chunk, max(1, given), spool.MomentOf(at), fd, read)
		more = 0 < n && n < given
	default:
		place := 0
		n, err = l.producer.Read(spool.Chunk, spool.MomentOf(at), fd, func(fd int, b []byte) (int, syscall.Errno) {
			place = len(b)
			return read(fd, b)
		})
		more = 0 < n && n == place
	}
	return n, more, err
}

// Read implements reader.Sink.
func (l *line) Read(at time.Time, fd int, read func(int, []byte) (int, syscall.Errno)) (n int, errno syscall.Errno,
	more, full bool,
) {
	if l.over.isBroken() {
		return 0, syscall.EPROTO, false, false
	}
	l.mu.Lock()
	n, more, err := l.readOnce(at, fd, read)
	switch {
	case err == nil && (n > 0 || l.lane.Kind == Datagrams):
		l.last = at.UnixNano()
		l.hadRoom()
	case errors.Is(err, spool.ErrFull) && l.stuck.IsZero():
		l.stuck, l.why = time.Now(), spool.NoRoom
		fallthrough
	case errors.Is(err, spool.ErrFull):
		l.why = cmp.Or(l.over.cause(), l.why)
		l.far.Block(l.stuck.UnixNano(), l.why)
	}
	l.mu.Unlock()
	if err == nil {
		return n, 0, more, false
	}
	errno, full = l.unread(err)
	return n, errno, more, full
}

// unread tells the reader why nothing was read.
func (l *line) unread(err error) (errno syscall.Errno, full bool) {
	switch {
	case errors.As(err, &errno):
		return errno, false
	case errors.Is(err, spool.ErrFull):
		l.bell.Ring()
		select {
		case l.full <- struct{}{}:
		default:
		}
		return 0, true
	}
	l.log.Error("the spool makes no sense: the source cannot be read until the recorder is started anew", "error", err)
	return syscall.EPROTO, false
}

// hadRoom writes down for how long there was none: also where on the wire, for who counts frames by
// time. mu is held, and a read has left room for marks.
func (l *line) hadRoom() {
	if l.stuck.IsZero() {
		return
	}
	d := time.Since(l.stuck)
	l.far.Unblock(d)
	if d >= spool.Brief {
		if err := l.producer.Note(spool.Mark{
			Time: l.stuck.UnixNano(), Kind: spool.Unattended, A: l.why, B: uint64(d),
		}); err != nil {
			l.log.Error("where there was no room cannot be written down", "error", err)
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
	l.over.move()
	l.bell.Tell()
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
	l.over.move()
	l.bell.Tell()
	return 0
}

// Closed implements reader.Handler.
func (l *line) Closed(_ []byte, _ int64, err error) { l.closed <- err }

var (
	_ reader.Handler = (*line)(nil)
	_ reader.Sink    = (*line)(nil)
)
