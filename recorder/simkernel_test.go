package recorder

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
)

// kernel is what lies between the devices and the recorder in a scenario. It remembers of every
// byte whether it was taken from the device, and when the recorder read it.
//
// One lock guards it with all of its wires. It is held for moments, so that fake time goes on.
type kernel struct {
	mu    sync.Mutex
	wires []*wire
	fds   map[int]*wire
	life  *life // the recorder that runs
	made  int   // wires so far
	open  int   // devices that are open
	brief bool  // only sums are kept of what passes, for a run without end
}

// life is one process of the recorder. What a dead one still does reaches nothing.
type life struct {
	n    int
	dead bool
}

// carriage is how the bytes of a device come.
type carriage string

const (
	byLine     carriage = "line"     // a serial line, which keeps what nobody has read
	byListener carriage = "listen"   // devices connect
	byDial     carriage = "dial"     // the device is connected to
	byDatagram carriage = "datagram" // a socket that devices send to
)

var carriages = []carriage{byLine, byListener, byDial, byDatagram}

// wire is a line, one connection, or one socket.
type wire struct {
	k     *kernel
	e     *endpoint
	n     int
	kind  carriage
	limit int // bytes that the kernel keeps

	queue   []byte   // of a stream
	grams   [][]byte // of a socket
	held    int      // bytes in them
	ended   bool     // the device has closed its side
	left    bool     // … before anybody had it end
	deaf    bool     // nothing more is taken
	broken  bool     // the recorder is gone, or the line is unplugged
	news    chan struct{}
	space   chan struct{}
	refused uint64 // datagrams that found no room
	mayHold uint64 // what the framing may hold back behind a length that is false, in bytes

	made   time.Time // when the device connected, or it was opened first
	shown  bool      // somebody has read it
	begun  time.Time // … since then; of a connection to a hall
	closed readMark  // when a process closed it; of a connection to a hall

	accepted, taken uint64      // bytes
	reads           []readMark  // what was read by when
	opens           []time.Time // when a process of the recorder began to read it
	cuts            []uint64    // where a reading ended, and another begins
	gone            []spanBytes // taken from the device, and thrown away unread
	thrown          uint64      // bytes of gone
}

// readMark says that the bytes before end were read at a time.
type readMark struct {
	end  uint64
	at   time.Time
	life int
}

type spanBytes struct {
	from, to uint64
	killed   bool
	at       readMark // when, by which process
}

func newKernel() *kernel { return &kernel{fds: map[int]*wire{}} }

func (k *kernel) newWire(kind carriage, limit int) *wire {
	w := &wire{
		k: k, n: k.made, kind: kind, limit: limit, news: make(chan struct{}, 1), space: make(chan struct{}, 1),
		made: time.Now(),
	}
	k.made++
	if !k.brief {
		k.wires = append(k.wires, w)
	}
	k.fds[w.n+1000] = w
	return w
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write gives bytes to a stream until all are taken, it breaks, or quit is closed. It returns how
// many were taken.
func (w *wire) write(b []byte, quit <-chan struct{}) (n int, ok bool) {
	for len(b) > 0 {
		w.k.mu.Lock()
		if w.deaf || w.broken || w.ended {
			w.k.mu.Unlock()
			return n, false
		}
		m := min(len(b), w.limit-w.held)
		if m > 0 {
			w.queue = append(w.queue, b[:m]...)
			w.held += m
			w.accepted += uint64(m)
			b, n = b[m:], n+m
			poke(w.news)
		}
		w.k.mu.Unlock()
		if m > 0 {
			continue
		}
		select {
		case <-w.space:
		case <-quit:
			return n, false
		}
	}
	return n, true
}

// send gives a datagram to a socket.
func (w *wire) send(b []byte) bool {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	switch {
	case w.deaf || w.broken:
		return false
	case w.held+len(b) > w.limit:
		w.refused++
		return false
	}
	w.grams = append(w.grams, append([]byte(nil), b...))
	w.held += len(b)
	w.accepted += uint64(len(b))
	poke(w.news)
	return true
}

// end is the device closing its side.
func (w *wire) end() {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	w.left = w.left || !w.ended
	w.ended = true
	poke(w.news)
}

var errNothing = errors.New("nothing to read now")

// read takes up to n bytes, or a datagram, for a process of the recorder.
func (w *wire) read(l *life, n int) ([]byte, error) {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	var b []byte
	switch {
	case l.dead:
		return nil, errNothing
	case len(w.grams) > 0:
		b, w.grams = w.grams[0], w.grams[1:]
	case len(w.queue) > 0:
		n = min(n, len(w.queue))
		b = append(b, w.queue[:n]...)
		w.queue = w.queue[n:]
	case w.broken:
		return nil, errors.New("input/output error")
	case w.ended:
		return nil, io.EOF
	default:
		return nil, errNothing
	}
	w.held -= len(b)
	w.taken += uint64(len(b))
	w.e.taken += uint64(len(b))
	if !w.k.brief {
		w.reads = append(w.reads, readMark{w.taken, time.Now(), l.n})
	}
	poke(w.space)
	return b, nil
}

// discard throws away what is held. k.mu is held.
func (w *wire) discard(killed bool) (n int) {
	if n = w.held; n > 0 {
		if !w.k.brief {
			w.gone = append(w.gone, spanBytes{w.accepted - uint64(n), w.accepted, killed, w.k.now()})
		}
		w.thrown += uint64(n)
		w.e.thrown += uint64(n)
	}
	w.queue, w.grams, w.held = nil, nil, 0
	return n
}

// now is this moment, of the process that runs. k.mu is held.
func (k *kernel) now() readMark { return readMark{at: time.Now(), life: k.life.n} }

// rest notes that a reading by a process has ended here. One that was ended on purpose may go on
// where it was, until the process closes the wire.
func (w *wire) rest(l *life, onPurpose bool) {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	if !l.dead && !onPurpose && !w.k.brief {
		w.cuts = append(w.cuts, w.taken)
	}
}

// simDevice is a wire, open for one process of the recorder.
type simDevice struct {
	w       *wire
	l       *life
	dropped uint64 // before the lane began
	told    uint64
}

func (d *simDevice) fd() int                     { return d.w.n + 1000 }
func (d *simDevice) name() string                { return cmp.Or(d.w.e.addr, string(d.w.kind)) }
func (d *simDevice) settings() map[string]string { return nil }

// recount is called when a port goes on with what another one has left open.
func (d *simDevice) recount() {
	d.dropped = d.told
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	d.w.opened()
}

// opened notes that a process of the recorder begins to read the wire. k.mu is held.
func (w *wire) opened() {
	if !w.k.brief {
		w.opens = append(w.opens, time.Now())
	}
}

func (d *simDevice) kernel() *ledger.Kernel {
	if d.w.kind != byDatagram {
		return nil
	}
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	d.told = d.w.refused
	n := d.told - d.dropped
	return &ledger.Kernel{BufferOverrun: &n}
}

func (d *simDevice) deafen() {
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	if d.w.kind != byLine && !d.l.dead {
		d.w.deaf = true
		if d.w.kind != byDatagram {
			d.w.ended = true
		}
		poke(d.w.news)
		poke(d.w.space)
	}
}

func (d *simDevice) waiting() bool {
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	return !d.l.dead && d.w.held > 0
}

func (d *simDevice) unread() uint64 {
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	return uint64(d.w.held)
}

func (d *simDevice) ending() bool {
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	return d.w.ended || d.w.broken
}

func (d *simDevice) leaveShelf() {}

func (d *simDevice) discard() uint64 {
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	if d.l.dead {
		return 0
	}
	n := uint64(d.w.held)
	if d.w.kind == byDatagram { // to count them is to take them
		d.w.discard(false)
	}
	return n
}

func (d *simDevice) close() error {
	d.w.k.mu.Lock()
	defer d.w.k.mu.Unlock()
	if d.l.dead {
		return nil
	}
	d.w.k.open--
	if d.w.e.by != nil {
		d.w.closed = d.w.k.now()
	}
	if i := slices.Index(d.w.e.openNow, d.w); i >= 0 {
		d.w.e.openNow = slices.Delete(d.w.e.openNow, i, i+1)
	}
	if d.w.k.brief {
		if d.w.kind != byLine {
			delete(d.w.k.fds, d.fd())
		}
	} else {
		d.w.cuts = append(d.w.cuts, d.w.taken)
	}
	d.w.leave(false)
	return nil
}

// leave is the recorder's side closed. k.mu is held.
func (w *wire) leave(killed bool) {
	if w.kind == byLine {
		return
	}
	w.discard(killed)
	w.broken = true
	poke(w.space)
}

// endpoint is where the device of a source is reached.
type endpoint struct {
	k     *kernel
	kind  carriage
	limit int
	line  *wire // byLine
	hold  uint64
	opens time.Duration // so long an opening takes
	by    *endpoint     // of a caller: the hall that it connects to; nil: here
	addr  string        // … and where it comes from

	away    bool         // byLine: unplugged; byDial: it refuses
	queue   []*wire      // byListener: connections that wait; byDial: those that the device has not seen yet
	at      *simListener // byListener: who listens
	sock    *wire        // byDatagram: the open socket
	openNow []*wire      // open for the process that runs
	wires   []*wire      // all that there were

	taken, thrown uint64 // bytes, of all wires
}

func (k *kernel) newEndpoint(kind carriage, limit int, hold uint64) *endpoint {
	e := &endpoint{k: k, kind: kind, limit: limit, hold: hold}
	if kind == byLine {
		e.line = e.newWire()
	}
	return e
}

func (e *endpoint) newWire() *wire {
	w := e.k.newWire(e.kind, e.limit)
	w.e, w.mayHold = e, e.hold
	if !e.k.brief {
		e.wires = append(e.wires, w)
	}
	return w
}

// connect is a device that makes a connection; nil if nobody listens, or none was made to it.
func (e *endpoint) connect() *wire {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	switch e.kind {
	case byLine:
		return e.line
	case byDial:
		if len(e.queue) == 0 {
			return nil
		}
		w := e.queue[0]
		e.queue = e.queue[1:]
		return w
	case byListener:
		at := e.listensAt()
		if at.at == nil {
			return nil
		}
		w := e.newWire()
		at.queue = append(at.queue, w)
		poke(at.at.newer)
		return w
	}
	return e.sock
}

// listensAt is where connections to the endpoint are taken.
func (e *endpoint) listensAt() *endpoint { return cmp.Or(e.by, e) }

// opener makes the endpoint's opener for a process.
func (e *endpoint) opener(l *life) opener {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	o := &simListener{e: e, l: l, newer: make(chan struct{}, 1)}
	if e.kind == byListener && !o.l.dead {
		e.at = o
	}
	return o
}

// simListener opens the device of an endpoint, whatever its carriage.
type simListener struct {
	e     *endpoint
	l     *life
	newer chan struct{} // byListener: a connection waits
	entrance
}

func (o *simListener) listen(context.Context) error { return nil }
func (o *simListener) signal() <-chan struct{}      { return o.newer }

func (o *simListener) waits() bool {
	o.e.k.mu.Lock()
	defer o.e.k.mu.Unlock()
	return len(o.e.queue) > 0
}

func (o *simListener) dials() string {
	if o.e.kind == byDial {
		return "the device"
	}
	return ""
}

func (o *simListener) open(ctx context.Context) (device, error) {
	time.Sleep(o.e.opens)
	for {
		d, err := o.take()
		if d != nil || err != nil {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.newer:
		}
	}
}

// take opens what there is; nil: nothing yet.
func (o *simListener) take() (device, error) {
	e := o.e
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if o.l.dead {
		return nil, nil
	}
	var w *wire
	switch e.kind {
	case byLine:
		if e.away {
			return nil, errors.New("no such file or directory")
		}
		w = e.line
	case byDial:
		if e.away {
			return nil, errors.New("connection refused")
		}
		w = e.newWire()
		e.queue = append(e.queue, w)
	case byDatagram:
		w = e.newWire()
		e.sock = w
	case byListener:
		if len(e.queue) == 0 {
			return nil, nil
		}
		w, e.queue = e.queue[0], e.queue[1:]
		select {
		case <-o.newer:
		default:
		}
		if len(e.queue) > 0 {
			poke(o.newer)
		}
	}
	w.e.openNow = append(w.e.openNow, w)
	e.k.open++
	w.opened()
	return &simDevice{w: w, l: o.l}, nil
}

func (o *simListener) replaced() <-chan struct{} {
	if o.e.kind != byListener {
		return nil
	}
	o.e.k.mu.Lock()
	defer o.e.k.mu.Unlock()
	if len(o.e.queue) > 0 {
		poke(o.newer)
	}
	return o.newer
}

func (o *simListener) close(bool) (rest []device, more bool, err error) {
	e := o.e
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if e.kind != byListener || o.l.dead || e.at != o {
		return nil, false, nil
	}
	for _, w := range e.queue {
		rest = append(rest, &simDevice{w: w, l: o.l})
		w.e.openNow = append(w.e.openNow, w)
		e.k.open++
	}
	e.queue, e.at = nil, nil
	return rest, false, nil
}

// running is the process that runs, or is to begin.
func (k *kernel) running() *life {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.life
}

func (k *kernel) isDead(l *life) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.dead
}

// kill ends the process that runs, as far as the kernel is concerned, and begins another.
func (k *kernel) kill(all []*endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.life.dead = true
	for _, e := range all {
		if e.kind == byLine {
			e.line.cuts = append(e.line.cuts, e.line.taken)
			continue
		}
		for _, w := range append(e.openNow, e.queue...) {
			w.cuts = append(w.cuts, w.taken)
			w.leave(true)
		}
		e.openNow, e.queue, e.at, e.sock = nil, nil, nil, nil
	}
	k.life = &life{n: k.life.n + 1}
}

// waiting is what the kernel holds for an endpoint that the recorder could read. To a hall a
// device must have connected before that.
func (e *endpoint) waiting(since time.Time) (n int) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	for _, w := range slices.Concat(e.openNow, e.listensAt().queue) {
		if w.e == e && (e.by == nil || w.made.Before(since)) {
			n += w.held
		}
	}
	return n
}
