package gateway

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// Overflow policies: what becomes of valid frames that the log cannot take fast enough.
const (
	overflowBlock  = "block"       // stop reading: the device, or the kernel's buffer, has to wait
	overflowOldest = "drop-oldest" // above 70 % fill, give up the oldest
	overflowNewest = "drop-newest" // when full, give up those that come
)

// Causes of dropped frames.
const (
	causeOldest   = "overflow_oldest"
	causeNewest   = "overflow_newest"
	causeDiskFull = "disk_full"
	causeFailed   = "log_failed"
	causeTooLarge = "too_large"
)

// fillLimit is the fill, in percent, above which drop-oldest begins.
const fillLimit = 70

// States of a port.
const (
	stateOpen    = "open"
	stateWaiting = "waiting" // not there, or not connected
	stateBlocked = "blocked" // not read, because the log cannot take more
	stateStopped = "stopped"
)

// appender is what a lane needs of the log.
type appender interface {
	TryAppend(stream uint32, time int64, data []byte) (seq uint64, err error)
}

// lane takes the bytes of one port through framing and books into the log. It is the port's reader.Handler
// and the decoder's frame.Sink.
//
// Everything is done on the goroutine that reads, under mu, which sheets and the settling of commits take for
// moments. A frame goes straight from the ring into the log's staging buffer; only what that cannot take is kept
// in the backlog.
type lane struct {
	cfg    SourceConfig
	log    appender
	stream uint32 // of frames in the log
	waste  uint32 // of quarantined bytes in the log; 0: not kept
	lat    *hist.Histogram

	mu      sync.Mutex
	book    *ledger.Book
	dec     frame.Decoder
	state   string
	now     int64 // when the bytes at hand were read, ns since 1970
	held    int   // bytes that are not classified yet
	between int   // frames posted and not offered to the log yet (strategy pipeline)
	offset  uint64
	backlog backlog
	staged  staged
	// sequenced: the framing numbers its frames. reached is the highest number of each stream that is stored: where the
	// next start goes on.
	sequenced bool
	reached   map[ledger.Stream]uint64
	handle    reader.Handle
	closed    chan error // the end of the reading, for the supervisor
	kernel    *ledger.Kernel
	device    device // nil while the port is closed
	accepted  map[string]string
	path      string
}

func newLane(cfg SourceConfig, log appender, stream, waste uint32) (*lane, error) {
	dec, err := cfg.decoder()
	if err != nil {
		return nil, err
	}
	size := 0
	if f, ok := dec.(frame.FixedSize); ok {
		size = f.FixedSize()
	}
	return &lane{
		cfg: cfg, log: log, stream: stream, waste: waste, lat: hist.New(),
		book: ledger.NewBook(size), dec: dec, state: stateWaiting,
		closed: make(chan error, 1), reached: map[ledger.Stream]uint64{}, sequenced: cfg.Frame.Kind == "tally128",
	}, nil
}

// Arrived implements reader.Handler.
func (l *lane) Arrived(view []byte, fresh int, at int64) (done int, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = at
	l.book.Read(fresh)
	l.drain()
	if l.full() { // Resume brings the same view again
		l.held = len(view)
		l.state = stateBlocked
		return 0, false
	}
	if l.state == stateBlocked {
		l.state = stateOpen
	}
	done = l.dec.Decode(view, l)
	if l.cfg.UDP != nil && done < len(view) { // a datagram ends its frames
		l.dec.Break(view[done:], frame.Message, l)
		done = len(view)
	}
	l.held = len(view) - done
	return done, true
}

// Silent implements reader.Handler.
func (l *lane) Silent(view []byte, at int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = at
	l.dec.Break(view, frame.Silence, l)
	l.held = 0
	return len(view)
}

// Closed implements reader.Handler.
func (l *lane) Closed(view []byte, at int64, err error) {
	l.mu.Lock()
	l.now = at
	l.dec.Break(view, frame.Closed, l)
	l.held = 0
	l.handle = nil
	l.state = stateWaiting
	if errors.Is(err, reader.ErrRemoved) {
		l.state = stateStopped
	} else {
		l.book.OutageBegins(at, cause(err))
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

// Frame implements frame.Sink.
func (l *lane) Frame(f *frame.Frame) {
	l.post(f)
	l.store(f)
}

func (l *lane) post(f *frame.Frame) {
	if f.Sequenced {
		l.book.Numbered(len(f.Data), ledger.Stream{Device: f.Device, Epoch: f.Epoch}, f.Seq)
	} else {
		l.book.Plain(len(f.Data))
	}
	l.offset += uint64(len(f.Data))
}

// Damaged implements frame.Sink.
func (l *lane) Damaged() { l.book.Damaged() }

// quarantineHeader is what stands before quarantined bytes: their offset in what was read since the start, u64 little-endian.
const quarantineHeader = 8

func quarantineOffset(data []byte) uint64 { return binary.LittleEndian.Uint64(data) }

// Skip implements frame.Sink.
func (l *lane) Skip(b []byte) {
	l.book.Skip(len(b))
	if l.waste != 0 {
		rec := binary.LittleEndian.AppendUint64(make([]byte, 0, quarantineHeader+len(b)), l.offset)
		if _, err := l.log.TryAppend(l.waste, l.now, append(rec, b...)); err == nil { // for forensics only: never in the way of frames
			l.book.Quarantine(len(b))
		}
	}
	l.offset += uint64(len(b))
}

// store brings a valid frame into the log, or into the backlog, or accounts for its loss.
func (l *lane) store(f *frame.Frame) {
	data := f.Data
	if l.backlog.frames == 0 {
		if seq, err := l.log.TryAppend(l.stream, l.now, data); err == nil {
			l.staged.add(seq, l.now, f)
			return
		} else if !errors.Is(err, seglog.ErrBusy) {
			l.drop(err)
			return
		}
	}
	if l.cfg.Overflow == overflowNewest && l.backlog.bytes+len(data) > int(l.cfg.Buffer) {
		l.book.Drop(causeNewest, 1)
		return
	}
	l.backlog.push(l.now, data)
	if l.cfg.Overflow == overflowOldest {
		for l.backlog.bytes*100 > int(l.cfg.Buffer)*fillLimit {
			l.backlog.pop()
			l.book.Drop(causeOldest, 1)
		}
	}
}

func (l *lane) drop(err error) {
	switch {
	case errors.Is(err, seglog.ErrDiskFull):
		l.book.Drop(causeDiskFull, 1)
	case errors.Is(err, seglog.ErrTooLarge):
		l.book.Drop(causeTooLarge, 1)
	default:
		l.book.Drop(causeFailed, 1)
	}
}

// drain offers the backlog to the log.
func (l *lane) drain() {
	for l.backlog.frames > 0 {
		at, data := l.backlog.front()
		seq, err := l.log.TryAppend(l.stream, at, data)
		if errors.Is(err, seglog.ErrBusy) {
			return
		}
		if err != nil {
			l.drop(err)
		} else {
			f := framings.Describe(l.cfg.Frame.Kind, data)
			l.staged.add(seq, at, &f)
		}
		l.backlog.pop()
	}
}

// full reports whether the policy forbids to take more.
func (l *lane) full() bool {
	return l.cfg.Overflow == overflowBlock && l.backlog.bytes > int(l.cfg.Buffer)/2
}

// settle posts what a commit made of the frames in the log.
func (l *lane) settle(c seglog.Commit, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.staged.settle(c.Stored, c.Durable, func(r run) {
		l.book.Stored(uint64(r.n))
		l.lat.Record(time.Duration(now-r.at), int64(r.n))
		if l.sequenced {
			l.reached[r.stream] = max(l.reached[r.stream], r.number)
		}
	}, func(n int) {
		l.book.Durable(uint64(n))
	})
	if c.Err != nil { // what was staged will never be written
		for n := l.staged.abandon(); n > 0; n-- {
			l.book.Drop(causeFailed, 1)
		}
	}
	if l.backlog.frames > 0 {
		l.drain()
	}
	if l.state == stateBlocked && !l.full() && l.handle != nil {
		l.handle.Resume()
	}
}

// lose posts what is still held when the log has closed: it will not be stored.
func (l *lane) lose(cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(l.staged.abandon())
	for l.backlog.frames > 0 {
		l.backlog.pop()
		n++
	}
	if n > 0 {
		l.book.Drop(cause, n)
	}
}

// resume makes the books expect what follows the frames that earlier starts have stored.
func (l *lane) resume(ps []ledger.Position, from int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ps {
		l.book.Resume(p)
		l.reached[ledger.Stream{Device: p.Device, Epoch: p.Epoch}] = p.Last
	}
	l.book.OutageBegins(from, "the recorder was not running")
}

// positions lists the highest stored number of the streams that the book still follows.
func (l *lane) positions() (ps []ledger.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.book.Positions() {
		if last, ok := l.reached[ledger.Stream{Device: p.Device, Epoch: p.Epoch}]; ok {
			p.Last = last
			ps = append(ps, p)
		}
	}
	if len(l.reached) > 2*ledger.MaxStreams { // streams that the book has settled
		clear(l.reached)
		for _, p := range ps {
			l.reached[ledger.Stream{Device: p.Device, Epoch: p.Epoch}] = p.Last
		}
	}
	return ps
}

// sheet draws up the account of the port.
func (l *lane) sheet() ledger.Port {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readCounters()
	held := ledger.Held{Bytes: uint64(l.held), Frames: uint64(l.between + l.backlog.frames + l.staged.frames)}
	return l.book.Sheet(l.cfg.ID, l.state, held, l.kernel)
}

// readCounters brings the driver's counts up to date. mu is held.
func (l *lane) readCounters() {
	if l.device != nil {
		if k := l.device.kernel(); k != nil {
			l.kernel = k
		}
	}
}

// opened begins the reading of a device.
func (l *lane) opened(d device, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.device, l.state = d, stateOpen
	l.path, l.accepted = d.name(), d.settings()
	l.book.OutageEnds(now)
}

// attach keeps the handle of the reading, unless it is over already.
func (l *lane) attach(h reader.Handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == stateOpen || l.state == stateBlocked {
		l.handle = h
		h.Resume() // it may have paused before there was a handle to resume it by
	}
}

// detach forgets the device before it is closed.
func (l *lane) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readCounters()
	l.device = nil
}

// outage posts that the port cannot be opened.
func (l *lane) outage(now int64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.OutageBegins(now, why)
}
