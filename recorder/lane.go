package recorder

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// lane takes the bytes of one port through framing and books into the log. It is the port's
// reader.Handler.
//
// Everything is done under mu, most of it on the goroutine that reads; sheets and the settling of
// commits take it for moments. Only methods of lane, and of spooled, take it. A frame goes straight
// from the ring into the log's staging buffer; only what that cannot take is kept in the backlog.
//
// With the strategy pipeline four goroutines share the work: they call took, classified and store,
// and one of them runs the decoder, without mu.
type lane struct {
	cfg       config.Source // Frame, Overflow, Buffer and Quarantine under mu; what else it says stays the same
	closed    chan error    // the end of the reading, for its port
	number    uint64        // of its book, in this process
	hubNumber uint64        // … and of the book of its source, if it is a peer; 0: it is none
	former    *lane         // had its device under another name, until it is listed; nil: none

	mu       sync.Mutex
	in       intake
	out      outlet
	state    string
	handle   reader.Handle  // nil while nothing is read
	device   device         // nil while the port is closed
	kernel   *ledger.Kernel // what the drivers have counted since the lane began
	past     *ledger.Kernel // … of which this much of devices that are closed
	counts   counts         // … as marks of a spool tell it
	touched  bool           // the books have changed otherwise than by what was read: a checkpoint is due
	wordless bool           // the open outage has the number of an error, whose words may come
	overrun  time.Time      // when it was noticed last that the kernel has lost something
	accepted map[string]string
	path     string
	why      string   // what keeps the device from being open now; "": it is open, or was not tried yet
	paused   string   // why nobody read the device before this lane, which has not opened it yet; else ""
	handOn   bool     // what is not classified when the reading ends is left for another lane
	left     half     // … and this is it
	ending   bool     // its source stops, or the recording does: an end of the reading is no absence now
	gone     bool     // it was not there when the recording began to stop, and has not come since
	replaced bool     // its port ends the reading, for a newer connection
	behind   bool     // the log was, when its port gave up what the kernel holds
	unended  string   // see endsBadly
	untaken  uint64   // bytes that were given up for that, since the recording began to stop
	stops    bool     // the recording does
	before   badEnd   // … and did, under a recorder that was killed then
	thrown   []thrown // what was counted of connections that may still be on the keeper's shelf
	readTo   int64    // see isReadTo
	asAway   bool     // the word that is being given finds that it is not there
	knownOut bool     // a word was given since it is not there

	// bytes that have run over into a file, in front of the lane's spool
	inFront atomic.Uint64

	short func() bool // whether connections wait for descriptors; nil: it has no listener

	parsing uint64 // bytes that a pipeline has read, and not posted what they are
}

// lanesMade is how many lanes this process has made: each has a book, and its number.
var lanesMade atomic.Uint64

func newLane(cfg config.Source, log appender, stream, waste uint32) (*lane, error) {
	l := &lane{cfg: cfg, number: lanesMade.Add(1), closed: make(chan error, 1), state: ledger.StateWaiting}
	in, err := newIntake(cfg, &l.out, waste)
	if err != nil {
		return nil, err
	}
	l.in = in
	l.in.overran = l.overran
	l.out = outlet{
		log: log, stream: stream, overflow: cfg.Overflow, buffer: int(cfg.Buffer), book: in.book, latency: hist.New(),
		reached: map[ledger.Stream]uint64{},
	}
	if over := newSpill(cfg); over != nil {
		over.begin = func() { go l.runOver() }
		l.out.backlog.over = over
	}
	l.out.numbered, _ = in.dec.(frame.Numbered)
	return l, nil
}

// Arrived implements reader.Handler.
func (l *lane) Arrived(view []byte, fresh int, at int64) (done int, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.now = at
	l.in.book.At(at)
	l.in.book.Read(fresh)
	l.readOn(at)
	l.out.drain()
	if l.out.full() { // Resume brings the same view again
		l.in.held = len(view)
		l.state = ledger.StateBlocked
		return 0, false
	}
	if l.state == ledger.StateBlocked {
		l.state = ledger.StateOpen
		l.in.restart()
	}
	done = l.in.classify(view)
	l.in.beat(fresh, 0)
	return done, true
}

// Silent implements reader.Handler.
func (l *lane) Silent(view []byte, at int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(at)
	defer l.in.beat(0, max(0, time.Duration(at-l.in.now)))
	return l.in.silent(view, at)
}

// Closed implements reader.Handler.
func (l *lane) Closed(view []byte, at int64, err error) {
	l.mu.Lock()
	l.in.book.At(at)
	l.handle = nil
	pause := max(0, time.Duration(at-l.in.now)) // a frame that ends now came with the last bytes
	if l.ending || errors.Is(err, reader.ErrRemoved) {
		if l.handOn {
			l.left = l.in.leave(view)
		} else {
			l.in.end(view, at, AtStop)
			if l.in.came > 0 {
				l.in.beat(0, pause)
			}
		}
		if l.ending {
			l.isReadTo(at)
		}
		if len(view) > 0 { // which is of this time
			l.readOn(at)
		}
		l.state = ledger.StateStopped
	} else {
		l.in.end(view, at, AtGone)
		l.in.beat(0, pause)
		l.in.gone()
		l.state = ledger.StateWaiting
		if l.why = cause(err); l.replaced {
			l.why = outageReplaced
		}
		l.in.book.OutageBegins(at, l.why)
		l.watch(Event{Kind: PortGone, At: at, Err: err})
	}
	l.mu.Unlock()
	l.closed <- err
}

func cause(err error) string {
	if errors.Is(err, io.EOF) {
		return "end of stream"
	}
	return err.Error()
}

// leaves says that another lane of the same framing goes on with the device.
func (l *lane) leaves() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handOn = true
}

// isLeaving reports whether another lane goes on with what is not classified.
func (l *lane) isLeaving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handOn
}

// remainder is what was left for another lane.
func (l *lane) remainder() half {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// restore makes the decoder go on where that of another lane was. Nothing is read yet.
func (l *lane) restore(h half) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.restore(h)
}

// settle posts what a commit made of the frames in the log.
func (l *lane) settle(c seglog.Commit, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(now)
	l.out.settle(c, now)
	l.goOn()
}

// goOn has a blocked port read again, once there is room. mu is held.
func (l *lane) goOn() {
	if l.state == ledger.StateBlocked && !l.out.full() && l.handle != nil {
		l.handle.Resume()
	}
}

// lose posts what is still held when the log has closed: n frames that will not be stored.
func (l *lane) lose(cause string) (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(time.Now().UnixNano())
	return l.out.lose(cause)
}

// resume makes the books go on where the source was left. Those of a framing that does not number
// its frames keep the numbers for the next one that does.
func (l *lane) resume(at place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range at.seen {
		l.in.book.Resume(p)
	}
	l.succeeded(at.succeeds)
	l.out.reach(at.stored)
	if at.why != "" {
		l.in.book.OutageBegins(at.at, at.why)
		if l.paused = at.why; at.isSet {
			l.in.book.ClockWasSet(at.at, at.at)
		}
	}
}

// absorb takes over the counts of a lane that is closed and holds nothing that is not stored.
func (l *lane) absorb(from *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from.mu.Lock()
	defer from.mu.Unlock()
	l.in.book.Absorb(from.in.book)
	l.out.inherit(&from.out)
}

// succeeds makes the books go on where those of a lane are that had the device under another name,
// and has stopped.
func (l *lane) succeeds(former *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	former.mu.Lock()
	defer former.mu.Unlock()
	l.in.book.Succeed(former.in.book)
}

// config is the configuration of the source as it is now.
func (l *lane) config() config.Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg
}

// listens says that connections can be made.
func (l *lane) listens(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.paused, l.why, l.gone = ledger.StateOpen, "", "", false
	l.in.book.OutageEnds(now)
}

// refuse posts connections that are not taken, and what they had sent, in bytes.
func (l *lane) refuse(cause string, connections, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(time.Now().UnixNano())
	l.in.book.Refuse(cause, connections)
	l.in.book.Unread(unreadRefused, n)
	l.touched = true
}

// reach notes what an earlier lane of the source has stored.
func (l *lane) reach(ps []ledger.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.reach(ps)
}

// reconfigure changes what a lane may change without losing its place.
func (l *lane) reconfigure(cfg config.Source, waste uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Field by field: the others stay the same, and are read without the lock.
	l.cfg.Overflow, l.cfg.Buffer, l.cfg.Quarantine = cfg.Overflow, cfg.Buffer, cfg.Quarantine
	l.out.overflow, l.out.buffer, l.in.wasteStream = cfg.Overflow, int(cfg.Buffer), waste
	if over := l.out.backlog.over; over != nil {
		over.buffer = int(cfg.Buffer)
	}
	l.goOn()
}

// seen lists the highest number that was seen of the streams that the book follows.
func (l *lane) seen() []ledger.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.book.Positions()
}

// follows says that another lane had the source before, and has stopped.
func (l *lane) follows(before *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.before = before
}

// isSettled reports whether nothing is held that is not stored yet, here or in lanes before this
// one.
func (l *lane) isSettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.out.isUnsettled() && len(l.out.waste) == 0
}

// isThrough reports whether the log has got all that a lane which has stopped had for it, and that
// those before it had.
func (l *lane) isThrough() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.backlog.frames == 0 && l.out.isNext()
}

// positions lists how far the numbers of the streams that the book still follows are accounted for.
func (l *lane) positions() []ledger.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.positions()
}

// reaches is up to which record of the log, at most upTo, positions know all.
func (l *lane) reaches(upTo uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.staged.reaches(upTo)
}

// unsynced is what the account counts as stored, or quarantined, and is not durable.
func (l *lane) unsynced() archive.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.unsynced()
}

// sheet draws up the account of the port.
func (l *lane) sheet() ledger.Port {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account()
}

// statement is the account with the positions of the same moment. seen is the highest numbers that
// the account knows, without gaps; nil where those are accounted for. unsynced is what it counts as
// stored, or quarantined, and is not durable.
func (l *lane) statement() (p ledger.Port, accounted, seen []ledger.Position, unsynced archive.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out.isUnsettled() {
		seen = withoutGaps(l.in.book.Positions())
	}
	return l.account(), l.out.positions(), seen, l.out.unsynced()
}

// account is sheet; mu is held. It first asks the driver for its counters, and posts a request
// whose answer is overdue.
func (l *lane) account() ledger.Port {
	l.readCounters()
	if l.state == ledger.StateOpen {
		l.in.overdue()
	}
	held := ledger.Held{Bytes: uint64(l.in.held), Frames: uint64(l.out.inFlight())}
	if over := l.out.backlog.over; over != nil {
		held.Spilled = uint64(over.bytes)
	} else {
		held.Spilled = l.inFront.Load()
	}
	p := l.in.book.Sheet(l.cfg.ID, l.state, held, l.kernel)
	p.Book, p.Hub = l.number, l.hubNumber
	p.Proof, p.Heard = proof(l.in.dec), l.in.heard
	if l.state == ledger.StateWaiting {
		p.Why = l.why
	}
	p.FewDescriptors = l.short != nil && l.state != ledger.StateStopped && l.short()
	p.SilentSince = l.in.book.SilentSince(l.in.steady())
	return p
}

// beginAck notes what the account has, and returns both, to make it known.
func (l *lane) beginAck() (ledger.Port, ledger.Noted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.account()
	l.asAway = p.State == ledger.StateWaiting
	return p, l.in.book.BeginAck(l.kernel)
}

// endAck makes known what beginAck has noted, and the gaps of earlier books, or forgets it.
func (l *lane) endAck(known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.EndAck(known)
	l.knownOut = l.knownOut || known && l.asAway
	l.asAway, l.touched = false, true
}

// isKnownOut reports whether a word was given since the device is not there.
func (l *lane) isKnownOut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.knownOut
}

// isBack says that the device is there again: no word that was given is about the next absence. mu
// is held.
func (l *lane) isBack() { l.asAway, l.knownOut = false, false }

// isTouched reports whether a checkpoint is due though nothing was read.
func (l *lane) isTouched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.touched
}

// turnLatency is the time from read to stored since it was last asked.
func (l *lane) turnLatency() hist.Summary {
	l.out.latency.Turn()
	return l.out.latency.Last()
}

// readCounters brings the driver's counts up to date. mu is held.
func (l *lane) readCounters() {
	if l.device != nil {
		if k := l.device.kernel(); k != nil { // else it does not answer any more, and what it has said counts
			k = l.past.Plus(k)
			if k.Lost() > l.kernel.Lost() {
				l.in.book.At(time.Now().UnixNano())
				l.in.book.Overrun()
				l.overrun = time.Now()
			}
			l.kernel = k
		}
	}
}

// doubt is for how long what does not come may have been lost here: what the kernel held when it
// lost something is read by then.
const doubt = 2 * time.Second

// overran reports whether the kernel has lost something lately. mu is held.
func (l *lane) overran() bool {
	l.readCounters()
	return !l.overrun.IsZero() && time.Since(l.overrun) < doubt
}

// opened begins the reading of a device.
func (l *lane) opened(d device, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.device, l.path, l.accepted = d, d.name(), d.settings()
	l.begin(now)
}

// begin says that what comes from now on is of a device that was opened. mu is held.
func (l *lane) begin(now int64) {
	l.state, l.in.heard, l.paused, l.why, l.gone, l.replaced = ledger.StateOpen, false, "", "", false, false
	l.in.book.At(now)
	l.in.restart()
	l.in.book.OutageEnds(now)
	l.isBack()
	l.readOn(now)
	l.watch(Event{Kind: PortOpen, At: now, Device: l.path})
}

// attach keeps the handle of the reading, unless it is over already.
func (l *lane) attach(h reader.Handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == ledger.StateOpen || l.state == ledger.StateBlocked {
		l.handle = h
		h.Resume() // it may have paused before there was a handle to resume it by
	}
}

// ends says that the recording is about to stop: a device that is not there now, and does not come
// meanwhile, is not there in the last sheet either. One that goes from now on was there.
func (l *lane) ends() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending, l.gone, l.stops = true, l.state == ledger.StateWaiting, true
	l.untaken, l.unended = l.before.untaken, l.before.unended
}

// finishes says that the port ends the reading. What ends it then is most often the port's own
// doing: a connection that is made deaf comes to its end.
func (l *lane) finishes(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending, l.replaced = l.ending || why == unreadStopped, why == unreadReplaced
	// a line cannot be made deaf: what it brings until the reading has ended is read, or counted
	if why == unreadStopped && (l.cfg.Serial == nil || l.in.spooled) {
		l.isReadTo(time.Now().UnixNano())
	}
}

// stopped is the end of a lane: its source is closed for good.
func (l *lane) stopped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.short = ledger.StateStopped, nil
	if l.gone {
		l.state = ledger.StateWaiting
	}
}

// runsShort says how it can be asked whether connections wait for descriptors.
func (l *lane) runsShort(short func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.short = short
}

func (l *lane) bytesRead() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.book.BytesRead()
}

// bytesPosted is how many bytes were read of which the account has what they are, but for a frame
// that is not whole.
func (l *lane) bytesPosted() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.book.BytesRead() - l.parsing
}

// detach forgets the device before it is closed.
func (l *lane) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readCounters()
	l.device, l.past = nil, l.kernel
}

// awaits says what keeps a port from being open that is about to be. It posts no outage: that is
// for what lasts.
func (l *lane) awaits(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = why
}

// outage posts that the port cannot be opened.
func (l *lane) outage(now int64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOut(now, why)
	l.touched = true
}

// isOut is outage; mu is held.
func (l *lane) isOut(now int64, why string) {
	if l.why = why; l.ending {
		return
	}
	l.state = ledger.StateWaiting
	l.in.book.OutageBegins(now, why)
	if l.paused != "" && l.paused != why && !strings.HasSuffix(l.paused, outageThen+why) {
		l.in.book.OutageGoesOn(l.paused + outageThen + why)
	}
}

var _ reader.Handler = (*lane)(nil)
