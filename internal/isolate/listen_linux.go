package isolate

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// given is the wire of connections that the recorder has taken, and gives the reader to be read,
// one behind the other.
type given struct {
	plain
	line    *line
	current bool // the one that waited is the device: it is to be taken off the shelf
	told    bool // that nobody has connected

	mu      sync.Mutex
	waiting []int         // connections that wait
	closed  bool          // … and none any more
	signal  chan struct{} // has a signal while one waits, unless that was heard
}

func newGiven(l *line, before adoption) *given {
	w := &given{}
	w.begin(l, before)
	return w
}

func (w *given) begin(l *line, before adoption) {
	w.line, w.signal = l, make(chan struct{}, 1)
	// it was taken, and not yet off the shelf
	if before.next >= 0 && before.fd >= 0 && sys.SameFile(before.next, before.fd) {
		_ = sys.CloseFD(before.next)
		before.next = -1
		w.drop(NextOf(l.source))
	}
	if before.next >= 0 {
		w.offer(before.next)
	}
}

// offer lets a connection wait.
func (w *given) offer(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = sys.CloseFD(fd)
		return
	}
	w.waiting = append(w.waiting, fd)
	w.tell()
}

// tell signals that a connection waits. mu is held.
func (w *given) tell() {
	select {
	case w.signal <- struct{}{}:
	default: // it is there
	}
}

func (w *given) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

func (w *given) heard(e Entry) {
	if len(e.FDs) > 0 {
		w.offer(e.FDs[0])
	}
}

func (w *given) open(ctx context.Context) (device, error) {
	for {
		if d := w.take(); d != nil {
			return d, nil
		}
		if !w.told {
			w.told = true
			now := spool.MomentOf(time.Now())
			w.line.note(spool.Mark{Time: now.Wall, Kind: spool.Absent, A: spool.NotConnected, B: uint64(now.Steady)})
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.signal:
		}
	}
}

// take makes the device of the connection that waits; nil: none does.
func (w *given) take() device {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return nil
	}
	fd := w.waiting[0]
	w.waiting = w.waiting[1:]
	select {
	case <-w.signal:
	default: // it was heard
	}
	if len(w.waiting) > 0 {
		w.tell()
	}
	w.current, w.told = true, false
	sys.Unseal(fd) // it may have the filter of a listener that ends
	d := &netDevice{fd: fd}
	if peer, err := sys.PeerOf(fd); err == nil {
		d.peer = peer.String()
	}
	return d
}

func (w *given) kept() {
	if w.current {
		w.current = false
		w.drop(NextOf(w.line.source))
	}
}

func (w *given) drop(name string) {
	if err := w.line.link.Drop(name); err != nil {
		w.line.log.Warn("the keeper has ended", "error", err)
	}
}

func (w *given) adopt(fd int, p Port) (device, error) {
	return &netDevice{fd: fd, peer: p.Path}, nil
}

func (w *given) rest() device {
	if d := w.take(); d != nil {
		return d
	}
	return nil
}

// close closes what waits, and nobody will read.
func (w *given) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, fd := range w.waiting {
		_ = sys.CloseFD(fd)
	}
	w.waiting = nil
}

// listening is the wire of a device that connects. One connection is read at a time, and one more
// is accepted, so that we know of it.
type listening struct {
	given
	acceptor Acceptor
	counted  chan uint64 // what the keeper says that waits; for abandon
}

func newListening(l *line, before adoption) *listening {
	w := &listening{counted: make(chan uint64, 1)}
	w.begin(l, before)
	w.acceptor = Acceptor{
		Link: l.link, Log: l.log, Source: l.source, Name: func() string { return NextOf(l.source) },
		Offer: func(a Arrival) { w.offer(a.FD) },
	}
	w.acceptor.Begin(before.listener, w.waits())
	return w
}

func (w *listening) heard(e Entry) {
	if !e.Waits {
		w.acceptor.Heard(e)
		return
	}
	var n uint64
	_ = json.Unmarshal(e.Data, &n) // else nobody knows
	select {
	case w.counted <- n:
	default: // nobody has asked
	}
}

func (w *listening) newer() <-chan struct{} {
	if w.line.lane.Kind == First {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 { // whoever was told of it may not have taken it
		w.tell()
	}
	return w.signal
}

// listen opens the address, unless it is.
func (w *listening) listen(ctx context.Context) error {
	return w.acceptor.Listen(ctx, w.line.lane.Port, w.waits())
}

func (w *listening) open(ctx context.Context) (device, error) {
	if err := w.listen(ctx); err != nil {
		w.told = false
		return nil, err
	}
	return w.given.open(ctx)
}

func (w *listening) kept() {
	if w.current {
		w.given.kept()
		w.acceptor.Taken()
	}
}

func (w *listening) leave() { w.acceptor.Leave() }

// rest is the next of those that wait here and in the kernel. What cannot be taken now, for want of
// descriptors, is tried again until the line is late, and counted then.
func (w *listening) rest() device {
	w.acceptor.Seal()
	if d := w.take(); d != nil {
		return d
	}
	for told := false; ; time.Sleep(firstRest) {
		a, err := w.acceptor.Rest(w.line.stays, true)
		switch {
		case err == nil && a.FD < 0:
			return nil
		case err == nil:
			w.offer(a.FD)
			return w.take()
		case w.line.isLeft(), HasEnded(err): // what waits stays where it is, or nobody can say
			return nil
		case w.line.isLate():
			w.abandon(err)
			return nil
		case !told:
			told = true
			w.line.log.Warn("connections that wait cannot be taken now, and are tried again", "error", err)
		}
	}
}

// countsWithin is how long the keeper may take to say what waits.
const countsWithin = 2 * time.Second

// abandon writes down what waits, which nobody will take for that reason: the keeper looks at it,
// which may have descriptors where this process has none.
func (w *listening) abandon(why error) {
	n, shelved := w.acceptor.Abandoned()
	if n == 0 {
		return
	}
	bytes := w.queued()
	w.line.log.Warn("connections could not be taken: allow more descriptors (LimitNOFILE, ulimit -n)", "connections", n,
		"bytes", bytes, "error", why)
	if shelved != "" {
		w.drop(shelved)
	}
	w.line.note(spool.Mark{Time: time.Now().UnixNano(), Kind: spool.Lost, A: spool.RefusedOf(n), B: bytes})
}

// queued is how many bytes nobody will read of connections that wait, as the keeper finds; 0: it
// does not say.
func (w *listening) queued() uint64 {
	if err := w.line.link.Waits(w.line.source); err != nil {
		return 0 // the keeper has ended
	}
	late := time.NewTimer(countsWithin)
	defer late.Stop()
	select {
	case n := <-w.counted:
		return n
	case <-w.line.link.over:
	case <-late.C: // it stands still, or is of an older program
	}
	return 0
}

func (w *listening) close() {
	w.acceptor.Close()
	w.given.close()
}
