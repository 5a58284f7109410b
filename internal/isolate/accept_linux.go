package isolate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// Acceptor listens for a source, and keeps one connection waiting; the rest waits in the kernel,
// with what they send. The keeper accepts them, and has them first: none is lost by a kill.
//
// One goroutine calls its methods, but for Heard, which the one calls that follows the link, and
// Taken.
type Acceptor struct {
	Link   *Link
	Log    *slog.Logger
	Source string
	Name   func() string // of the entry that the next connection is to be; the same until that is there
	Offer  func(Arrival) // takes a connection that waits; no more are accepted until Taken

	socket  *listenSocket // nil until the address is free
	answers chan Entry    // of the keeper
	taken   chan struct{} // has a signal when the one that waited was taken
	ends    context.CancelFunc
	ended   chan struct{} // closed once no more are accepted; nil: that was not begun
	asked   bool          // the keeper has not answered yet; of accept, and then of Rest
	owed    bool          // … or its answer came without the connection, which is on the shelf
}

// Arrival is a connection that was accepted.
type Arrival struct {
	Name string // of its entry
	FD   int    // -1: there was none
	Peer string // the address that it comes from; "": it is not known, or the keeper is of an older program
}

// Begin makes an Acceptor ready. listener is one that another process has begun; -1: there is none.
// That process may have been killed between Seal and Close. The seal is the socket's, so it
// outlives who set it: Begin takes it off, or nobody could connect any more. waits: a connection
// waits that was offered before.
func (a *Acceptor) Begin(listener int, waits bool) {
	a.answers, a.taken = make(chan Entry, 1), make(chan struct{}, 1)
	if listener >= 0 {
		sys.Unseal(listener)
		a.begin(newListenSocket(listener), waits)
	}
}

// Listen opens the address, unless it is.
func (a *Acceptor) Listen(ctx context.Context, addr string, waits bool) error {
	if a.socket != nil {
		return nil
	}
	l, err := sockets.Listen(ctx, addr)
	if err != nil {
		return err
	}
	defer l.Close()
	fd, err := sys.SocketOf(l)
	if err != nil {
		return err
	}
	if err := a.Link.Put(ListenerOf(a.Source), addr, fd); err != nil {
		return errors.Join(err, sys.CloseFD(fd))
	}
	a.begin(newListenSocket(fd), waits)
	return nil
}

// begin accepts connections from now on.
func (a *Acceptor) begin(s *listenSocket, waits bool) {
	a.socket, a.ended = s, make(chan struct{})
	ctx, ends := context.WithCancel(context.Background())
	a.ends = ends
	context.AfterFunc(ctx, s.interrupt)
	go a.accept(ctx, waits)
}

// Without descriptors to be had, accepting rests for so long, at first and at most.
const (
	firstRest = 20 * time.Millisecond
	lastRest  = time.Second
)

// accept is a goroutine that keeps one connection waiting.
func (a *Acceptor) accept(ctx context.Context, waits bool) {
	defer close(a.ended)
	rest := firstRest
	for {
		if waits {
			select {
			case <-ctx.Done():
				return
			case <-a.taken:
			}
		}
		waits = false
		// an answer that is late may bring the last one that waited
		if !a.asked && !a.owed && !a.socket.wait() || ctx.Err() != nil {
			return
		}
		conn, err := a.ask(ctx)
		switch {
		case ctx.Err() != nil && conn.FD < 0:
			return
		case err != nil:
			a.Log.Warn("a connection cannot be taken now, and waits", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
			}
			rest = min(2*rest, lastRest)
		case conn.FD >= 0:
			a.Offer(conn)
			waits, rest = true, firstRest
		}
	}
}

// Taken says that the connection that waited does not wait any longer.
func (a *Acceptor) Taken() {
	select {
	case a.taken <- struct{}{}:
	default: // nobody accepts any more
	}
}

var errKeeperEnded = errors.New("the keeper has ended")

// answersIn is how long the keeper may take to accept.
const answersIn = 5 * time.Second

// ask has the keeper accept a connection. Where there was none because ctx was done before, the
// next ask brings it, here or in another process.
func (a *Acceptor) ask(ctx context.Context) (Arrival, error) {
	none := Arrival{FD: -1}
	if !a.asked {
		if err := a.Link.Accept(a.Source, a.Name()); err != nil {
			return none, err
		}
		a.asked = true
	}
	late := time.NewTimer(answersIn)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case <-a.Link.over:
		return none, errKeeperEnded
	case e := <-a.answers:
		a.asked, a.owed = false, e.Bare
		if len(e.FDs) > 0 {
			return Arrival{Name: e.Name, FD: e.FDs[0], Peer: e.Peer()}, nil
		}
		if e.Bare {
			return none, errors.New("this process may open no more descriptors")
		}
		if len(e.Data) > 0 {
			return none, fmt.Errorf("accept: %s", e.Data)
		}
		return none, nil
	case <-late.C:
		return none, errors.New("the keeper does not answer")
	}
}

// settle waits for an answer that is still to come, so that nobody else takes it for theirs. A
// connection that it brings stays on the shelf, where the next ask finds it.
func (a *Acceptor) settle() {
	if !a.asked {
		return
	}
	late := time.NewTimer(settlesIn)
	defer late.Stop()
	select {
	case e := <-a.answers:
		a.asked, a.owed = false, e.Bare || len(e.FDs) > 0
		e.CloseFDs()
	case <-a.Link.over:
	case <-late.C: // the keeper stands still
	}
}

// settlesIn is how long settle waits. A keeper that is there answers at once.
const settlesIn = time.Second

// Heard takes an answer of the keeper.
func (a *Acceptor) Heard(e Entry) {
	select {
	case a.answers <- e:
	default: // nobody has asked
		e.CloseFDs()
	}
}

// Waits reports whether a connection waits in the kernel.
func (a *Acceptor) Waits() bool { return a.socket != nil && sys.Backlogged(a.socket.fd) > 0 }

// Leave ends the accepting. What waits stays where it is.
func (a *Acceptor) Leave() {
	if a.ended != nil {
		a.ends()
		<-a.ended
	}
}

// Seal ends the accepting for good. The kernel completes no connection from then on; a client that
// tries goes on trying. It does so once. Close is to follow; where this process is killed before,
// the Begin of the next one undoes it.
func (a *Acceptor) Seal() {
	if a.ended == nil {
		return
	}
	a.Leave()
	a.ended = nil
	if err := sys.Seal(a.socket.fd); err != nil {
		a.Log.Warn("a connection that comes while this listener closes may be reset with what it has sent", "error",
			err)
	}
}

// Rest is the next of the connections that wait in the kernel, which has acknowledged what they
// sent. Seal was called before. last: the listener is about to be closed, so where the keeper
// cannot take it, as it may open no more, this process does. Where ctx is done, it stays where it
// is.
func (a *Acceptor) Rest(ctx context.Context, last bool) (Arrival, error) {
	none := Arrival{FD: -1}
	if a.socket == nil {
		return none, nil
	}
	got, err := a.ask(ctx)
	if err == nil || !last || a.asked || a.owed {
		return got, err
	}
	fd, peer, acceptErr := sys.Accept(a.socket.fd)
	switch {
	case acceptErr == nil:
		return Arrival{Name: a.Name(), FD: fd, Peer: sys.PeerName(fd, peer)}, nil
	case sys.Pending(acceptErr), sys.Backlogged(a.socket.fd) == 0: // without descriptors none is looked for
		return none, nil
	}
	return none, err
}

// Abandoned is how many connections wait that Rest could not take, and the entry of the one among
// them that the keeper has taken; "": it has none. Close is to follow.
func (a *Acceptor) Abandoned() (n int, shelved string) {
	if a.socket == nil {
		return 0, ""
	}
	a.settle()
	n = sys.Backlogged(a.socket.fd)
	if a.owed {
		n, shelved = n+1, a.Name()
	}
	return n, shelved
}

// Close ends it all.
func (a *Acceptor) Close() {
	a.Leave()
	a.settle()
	if a.socket == nil {
		return
	}
	a.socket.close()
	a.socket = nil
	if err := a.Link.Drop(ListenerOf(a.Source)); err != nil {
		a.Log.Warn("the keeper has ended", "error", err)
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
