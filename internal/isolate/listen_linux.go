package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// listening is the wire of a device that connects. One connection is read at a time, and one more
// is accepted, so that we know of it; the rest waits in the kernel, with what they send. The keeper
// accepts them, and has them first: none is lost by a kill.
type listening struct {
	plain
	line    *line
	socket  *listenSocket // nil until the address is free
	answers chan Entry    // of the keeper
	taken   chan struct{} // has a signal when the one that waited was taken
	ends    context.CancelFunc
	ended   chan struct{} // closed once no more are accepted; nil: that was not begun
	asked   bool          // the keeper has not answered yet; of accept, and then of rest
	current bool          // the one that waited is the device: it is to be taken off the shelf
	told    bool          // that nobody has connected

	mu      sync.Mutex
	waiting int           // a connection that waits; -1: none
	signal  chan struct{} // has a signal while one waits, unless that was heard
}

func newListening(l *line, before adoption) *listening {
	w := &listening{
		line: l, answers: make(chan Entry, 1), taken: make(chan struct{}, 1), waiting: -1, signal: make(chan struct{}, 1),
	}
	if before.next >= 0 && before.fd >= 0 && sys.SameFile(before.next, before.fd) { // it was taken, and not yet off the shelf
		_ = sys.CloseFD(before.next)
		before.next = -1
		w.drop(nextOf(l.source))
	}
	if before.next >= 0 {
		w.offer(before.next)
	}
	if before.listener >= 0 {
		w.begin(newListenSocket(before.listener), before.next >= 0)
	}
	return w
}

// listen opens the address, unless it is.
func (w *listening) listen(ctx context.Context) error {
	if w.socket != nil {
		return nil
	}
	l, err := sockets.Listen(ctx, w.line.lane.Port)
	if err != nil {
		return err
	}
	defer l.Close()
	fd, err := sys.SocketOf(l)
	if err != nil {
		return err
	}
	if err := w.line.link.Put(listenerOf(w.line.source), nil, fd); err != nil {
		return errors.Join(err, sys.CloseFD(fd))
	}
	w.begin(newListenSocket(fd), w.waits())
	return nil
}

// begin accepts connections from now on. waits: one waits already.
func (w *listening) begin(s *listenSocket, waits bool) {
	w.socket, w.ended = s, make(chan struct{})
	ctx, ends := context.WithCancel(context.Background())
	w.ends = ends
	context.AfterFunc(ctx, s.interrupt)
	go w.accept(ctx, waits)
}

// Without descriptors to be had, accepting rests for so long, at first and at most.
const (
	firstRest = 20 * time.Millisecond
	lastRest  = time.Second
)

// accept is a goroutine that keeps one connection waiting.
func (w *listening) accept(ctx context.Context, waits bool) {
	defer close(w.ended)
	rest := firstRest
	for {
		if waits {
			select {
			case <-ctx.Done():
				return
			case <-w.taken:
			}
		}
		waits = false
		if !w.socket.wait() || ctx.Err() != nil {
			return
		}
		fd, err := w.ask(ctx)
		switch {
		case ctx.Err() != nil && fd < 0:
			return
		case err != nil:
			w.line.log.Warn("a connection cannot be taken now, and waits", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
			}
			rest = min(2*rest, lastRest)
		case fd >= 0:
			w.offer(fd)
			waits, rest = true, firstRest
		}
	}
}

// answersIn is how long the keeper may take to accept.
const answersIn = 5 * time.Second

// ask has the keeper accept a connection; -1: there was none, or ctx was done before: then the next
// ask brings it, here or in another process.
func (w *listening) ask(ctx context.Context) (fd int, err error) {
	if !w.asked {
		if err := w.line.link.accept(w.line.source); err != nil {
			return -1, err
		}
		w.asked = true
	}
	late := time.NewTimer(answersIn)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return -1, ctx.Err()
	case e := <-w.answers:
		w.asked = false
		if len(e.FDs) > 0 {
			return e.FDs[0], nil
		}
		if len(e.Data) > 0 {
			return -1, fmt.Errorf("accept: %s", e.Data)
		}
		return -1, nil
	case <-late.C:
		return -1, errors.New("the keeper does not answer")
	}
}

func (w *listening) heard(e Entry) {
	select {
	case w.answers <- e:
	default: // nobody has asked
		e.CloseFDs()
	}
}

// offer lets a connection wait; the one before was taken.
func (w *listening) offer(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = fd
	w.tell()
}

// tell signals that a connection waits. mu is held.
func (w *listening) tell() {
	select {
	case w.signal <- struct{}{}:
	default: // it is there
	}
}

func (w *listening) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting >= 0
}

func (w *listening) newer() <-chan struct{} {
	if w.line.lane.Kind == First {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting >= 0 { // whoever was told of it may not have taken it
		w.tell()
	}
	return w.signal
}

func (w *listening) open(ctx context.Context) (device, error) {
	if err := w.listen(ctx); err != nil {
		w.told = false
		return nil, err
	}
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
func (w *listening) take() device {
	w.mu.Lock()
	defer w.mu.Unlock()
	fd := w.waiting
	if fd < 0 {
		return nil
	}
	w.waiting = -1
	select {
	case <-w.signal:
	default: // it was heard
	}
	w.current, w.told = true, false
	sys.Unseal(fd) // it may have the filter of a listener that ends
	d := &netDevice{fd: fd}
	if peer, err := sys.PeerOf(fd); err == nil {
		d.peer = peer.String()
	}
	return d
}

func (w *listening) kept() {
	if !w.current {
		return
	}
	w.current = false
	w.drop(nextOf(w.line.source))
	w.taken <- struct{}{} // has room: accept waits for it, or has ended
}

func (w *listening) drop(name string) {
	if err := w.line.link.Drop(name); err != nil {
		w.line.log.Warn("the keeper has ended", "error", err)
	}
}

func (w *listening) adopt(fd int, p Port) (device, error) {
	return &netDevice{fd: fd, peer: p.Path}, nil
}

// leave ends the accepting.
func (w *listening) leave() {
	if w.ended != nil {
		w.ends()
		<-w.ended
	}
}

// rest is the next of those that wait here and in the kernel, which has acknowledged what they
// sent. The kernel completes no connection meanwhile; a client that tries goes on trying.
func (w *listening) rest() device {
	if w.socket == nil {
		return nil
	}
	if w.ended != nil {
		w.leave()
		w.ended = nil
		if err := sys.Seal(w.socket.fd); err != nil {
			w.line.log.Warn("a connection that comes while this listener closes may be reset with what it has sent", "error", err)
		}
	}
	select {
	case <-w.taken: // nobody listens any more
	default:
	}
	if d := w.take(); d != nil {
		return d
	}
	fd, err := w.ask(context.Background())
	if err != nil {
		w.line.log.Warn("connections that wait cannot be taken", "error", err)
	}
	if fd < 0 {
		return nil
	}
	w.offer(fd)
	return w.take()
}

func (w *listening) close() {
	w.leave()
	if w.socket != nil {
		w.socket.close()
		w.socket = nil
		w.drop(listenerOf(w.line.source))
	}
}

// listenSocket is a listening socket at which one waits, and which another process takes from.
type listenSocket struct {
	fd   int
	file *os.File // of the runtime's poller; it has fd
}

// newListenSocket takes a descriptor over that does not block.
func newListenSocket(fd int) *listenSocket {
	return &listenSocket{fd, os.NewFile(uintptr(fd), "listener")}
}

// wait returns when a connection waits; false once it was interrupted.
func (s *listenSocket) wait() bool {
	raw, err := s.file.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			in, err := sys.HasInput(int(fd))
			return in || err != nil
		})
	}
	return err == nil
}

// interrupt ends wait.
func (s *listenSocket) interrupt() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) }

func (s *listenSocket) close() { _ = s.file.Close() }
