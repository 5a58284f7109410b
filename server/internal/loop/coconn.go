package loop

import (
	"cmp"
	"errors"
	"io"
	"iter"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// CoConn is a connection whose handler runs as a coroutine on the loop's thread: where it would
// wait it gives way to the loop, and the loop goes on with it when what it waits for is there.
// Nothing of it is locked: there is one thread. What other goroutines may want of it is in outside.
// Between requests it has no coroutine, so that silent connections hold no stack.
type CoConn struct {
	c       *Conn
	w       *worker // that runs its handler; nil between requests
	service Service
	wants   wish
	out     atomic.Pointer[outside] // nil: nobody has wanted anything
	in      Input
	err     error // what comes after in
	shut    bool  // by the handler
	over    bool  // all has been served
	duck    bool  // the server is about to end
	headBy  int64 // as in GoConn
	leaving bool  // … and a last request is waited for
	idle    bool
	grace   bool // WaitInput has found something in time: the next Read gets it
	// patience is how long the wait for the next request may last, from when the client has taken
	// the output that is still queued; 0: the deadline runs, or there is none.
	patience time.Duration
	gone     func()
	addrs    [2]net.Addr
	aside    *aside // sends a part of a file; nil: there is none
	rooms    uint64 // how often the loop has told of room in the socket
}

// Service is what runs on a coroutine.
type Service interface {
	Begin()
	// Serve serves until the connection is over, or until there is nothing to do before more input
	// comes (Idle): it is called again then. Promote asks for a goroutine: Promoted is called on
	// one, and Serve no more.
	Serve() Verdict
	Promoted(*GoConn)
	Closed() // not after Promote
}

// Verdict is what a Service ends with.
type Verdict uint8

// The verdicts.
const (
	Over Verdict = iota
	Idle
	Promote
)

// want is what a coroutine waits for.
type want uint8

const (
	nothing want = iota // it runs, or there is none
	toRead
	toWrite
)

// wish is a want. The loop's thread stores it; others look whether the coroutine waits.
type wish struct{ atomic.Uint32 }

func (w *wish) is(v want) bool { return want(w.Load()) == v }
func (w *wish) set(v want)     { w.Store(uint32(v)) }

const (
	// MaxQueued is how much output a connection holds; a handler that writes more waits for the
	// client.
	MaxQueued = 64 << 10
	// ByReference is the size from which a Write is sent from the writer's memory.
	ByReference = 16 << 10
	maxResting  = 256 // workers of a loop
)

// worker is a coroutine that serves one connection after the other.
type worker struct {
	c     *CoConn // nil: it rests
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
}

// worker takes one that rests, or makes one.
func (l *Loop) worker(g *CoConn) *worker {
	if n := len(l.resting); n > 0 {
		w := l.resting[n-1] // whose stack was used last
		l.resting = l.resting[:n-1]
		w.c = g
		return w
	}
	w := &worker{c: g}
	w.next, w.stop = iter.Pull(func(yield func(struct{}) bool) {
		standIn(func() {
			w.yield = yield
			for on := true; on; on = yield(struct{}{}) {
				w.c.serve()
				w.c = nil
			}
		})
	})
	return w
}

// resume lets a worker go on until it wants something, and reports whether its handler has ended it
// by runtime.Goexit.
func (w *worker) resume() (died bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, died = p.(diedByGoexit); !died {
				panic(p)
			}
		}
	}()
	w.next()
	return false
}

// rest keeps a worker for later.
func (l *Loop) rest(w *worker) {
	if len(l.resting) < maxResting {
		l.resting = append(l.resting, w)
		return
	}
	w.stop()
}

// NewCoConn makes the App of a connection that service serves.
func NewCoConn(c *Conn) *CoConn { return &CoConn{c: c} }

// Serve sets what serves the connection. It must be called before Begin.
func (g *CoConn) Serve(s Service) { g.service = s }

// Begin implements App.
func (g *CoConn) Begin() {
	g.service.Begin()
	g.run()
}

// run lets the coroutine go on until it wants something.
func (g *CoConn) run() {
	l := g.c.loop
	if g.w == nil {
		g.w = l.worker(g)
	}
	w := g.w
	g.wants.set(nothing)
	if w.resume() {
		l.group.cfg.Log.Error("a handler has called runtime.Goexit: its connection is closed", "loop", l.index)
		g.w = nil
		g.Died()
		return
	}
	if w.c != nil {
		return
	}
	g.w = nil
	l.rest(w)
	if g.idle && !g.over {
		g.wants.set(toRead)
	} else if g.over && g.c.app == App(g) { // else it lives on as a GoConn
		g.c.Finish(false)
	}
}

// ErrElsewhere is what a connection of a coroutine says to another goroutine that would have to
// wait for it.
var ErrElsewhere = errors.New("the handler's mode is coroutine, and this is another goroutine, which cannot wait for the client: mode goroutine is for such handlers")

// elsewhere is an error anywhere but on the coroutine: on other goroutines, on coroutines of other
// connections, which have the same thread, and in hooks. To give way there would end the process.
func (g *CoConn) elsewhere() error {
	if !g.own() || g.w == nil {
		return ErrElsewhere
	}
	return nil
}

// wait gives way until the loop has something for the coroutine. It looks again then: it may be
// something else. The error is ErrElsewhere.
func (g *CoConn) wait(w want) error {
	if err := g.elsewhere(); err != nil {
		return err
	}
	g.wants.set(w)
	g.w.yield(struct{}{})
	return nil
}

// serve runs on the coroutine.
func (g *CoConn) serve() {
	switch g.service.Serve() {
	case Idle:
		return
	case Promote:
		g.drainOutput() // the goroutine writes to the socket directly
		n, s := g.promote(), g.service
		n.start(s.Promoted)
	}
	g.over = true
}

// promote makes a goroutine's connection of it.
func (g *CoConn) promote() *GoConn {
	g.in.Settle()
	n := NewGoConn(g.c, nil)
	n.in, g.in = g.in, Input{}
	n.err, n.gone, n.addrs = g.err, g.gone, g.addrs
	n.readBy, n.writeBy = g.c.readBy, g.c.writeBy
	n.held = g.c.held && !n.aside
	n.ready = true // nobody knows
	if n.aside {
		g.c.Resume()
	}
	n.arrived.Store(g.c.loop.now)
	n.duck.Store(g.duck)
	g.c.Become(n)
	g.moved(n)
	return n
}

// The loop's side.

// Input implements App.
func (g *CoConn) Input(b Lent) {
	if g.over || g.shut {
		return
	}
	g.in.Lend(b)
	if g.wants.is(toRead) {
		g.run()
	}
	g.in.Settle()
	if g.in.Len() > MaxHeld && g.c.app == App(g) {
		g.c.Hold()
	}
}

// Ended implements App.
func (g *CoConn) Ended(err error) {
	if g.err == nil || g.err == io.EOF {
		g.err = err
	}
	if gone := g.gone; gone != nil {
		g.gone = nil
		gone()
	}
	if !g.wants.is(nothing) && !g.over {
		g.run()
	}
}

// Sent implements App.
func (g *CoConn) Sent() {
	if g.c.queued == 0 {
		g.tick()
	}
	if g.wants.is(toWrite) && g.c.queued < MaxQueued {
		g.run()
	}
}

// Writable implements App.
func (g *CoConn) Writable() {
	g.rooms++
	if g.wants.is(toWrite) {
		g.run()
	}
}

// Expired implements App.
func (g *CoConn) Expired() {
	switch {
	case g.idle && g.c.queued > 0 && g.passed(g.c.writeBy): // nobody writes who could be told
		g.c.Kill(ErrTooSlow)
	case !g.wants.is(nothing):
		g.run()
	}
}

// Posted implements App.
func (g *CoConn) Posted() {
	if o := g.out.Load(); o != nil {
		g.doOf(o)
	}
	if g.wants.is(toWrite) || g.shut && g.wants.is(toRead) {
		g.run()
	}
}

// Drain implements App.
func (g *CoConn) Drain() {
	g.duck = true
	switch {
	case g.idle:
		g.leaveSoon()
	case g.headBy > 0:
		g.boundHead()
	}
}

// AwaitHead says whether the rest of a request's head is waited for: the end of the server does not
// wait for it for ever.
func (g *CoConn) AwaitHead(on bool) {
	g.headBy = 0
	if on {
		g.headBy = g.c.loop.now + int64(HeadFor)
		if g.duck {
			g.boundHead()
		}
	}
}

// boundHead ends the wait for the rest of a head.
func (g *CoConn) boundHead() {
	by := max(g.headBy, g.c.loop.now+int64(DuckFor))
	if g.c.readBy == 0 || by < g.c.readBy {
		g.c.SetReadBy(by)
	}
}

// EndIdle implements App.
func (g *CoConn) EndIdle() {
	if g.idle {
		g.patience = 0
		g.c.SetReadBy(-1)
	}
}

// HeadSince implements App.
func (g *CoConn) HeadSince() int64 { return headSince(g.headBy) }

// Died implements App.
func (g *CoConn) Died() {
	g.shut, g.over = true, true
	g.wants.set(nothing)
	g.in.Drop()
	if gone := g.gone; gone != nil {
		g.gone = nil
		gone()
	}
	g.c.Finish(true)
}

// leaveSoon ends the wait for a request that does not come although the server is about to end.
func (g *CoConn) leaveSoon() {
	g.leaving, g.patience = true, 0
	g.c.SetReadBy(g.c.loop.now + int64(DuckFor))
	g.waitForClient()
}

// waitForClient stops the time for the next request while the client has not taken the answers
// before.
func (g *CoConn) waitForClient() {
	if g.c.queued > 0 && g.c.readBy > 0 {
		g.patience = time.Duration(max(g.c.readBy-g.c.loop.now, 1))
		g.c.SetReadBy(0)
	}
}

// tick lets that time go on.
func (g *CoConn) tick() {
	if d := g.patience; d > 0 {
		g.patience = 0
		g.c.SetReadBy(Later(g.c.loop.now, d))
	}
}

// MayClose implements App.
func (g *CoConn) MayClose() bool { return g.aside == nil || g.aside.over.Load() }

// Closed implements App.
func (g *CoConn) Closed() {
	g.Ended(net.ErrClosed)
	g.in.Drop()
	g.service.Closed()
}

// The coroutine's side.

func (g *CoConn) passed(at int64) bool { return at < 0 || at > 0 && g.c.loop.now >= at }

// OnGone asks for a call of f, once, when the peer has left; nil asks for none.
func (g *CoConn) OnGone(f func()) {
	if g.err != nil && f != nil {
		f()
		return
	}
	g.gone = f
}

// Draining reports whether the server is going to end.
func (g *CoConn) Draining() bool { return g.c.loop.group.ending.Load() }

// Came is when the newest input came, as Group.Clock.
func (g *CoConn) Came() int64 { return g.c.loop.now }

// Origin is what the listener of the connection was given.
func (g *CoConn) Origin() any { return g.c.origin }

// Conn is the loop's side of it.
func (g *CoConn) Conn() *Conn { return g.c }

// writeError is why nothing can be written; nil if it can.
func (g *CoConn) writeError() error {
	switch {
	case !g.wants.is(nothing):
		return ErrElsewhere
	case g.shut, g.c.state != Open:
		return net.ErrClosed
	case g.err != nil && g.err != io.EOF:
		return g.err
	case g.passed(g.c.writeBy):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Write implements net.Conn. It returns when the loop has taken b, which then sends it with all
// that was written in this turn. What is large is sent from b, and Write returns when that is done.
func (g *CoConn) Write(b []byte) (n int, err error) {
	if len(b) >= ByReference {
		return g.writeLarge(b)
	}
	for {
		if err := g.writeError(); err != nil {
			return n, opError("write", err)
		}
		if m := min(MaxQueued-g.c.queued, len(b)-n); m > 0 {
			g.c.Write(b[n : n+m])
			n += m
		}
		if n == len(b) {
			return n, nil
		}
		if err := g.wait(toWrite); err != nil {
			return n, opError("write", err)
		}
	}
}

// WriteLast is Write, which End follows: the loop sends the output of a connection that ends with
// its end.
func (g *CoConn) WriteLast(b []byte) (int, error) { return g.Write(b) }

// writeLarge lends b to the loop until it is sent. It must not return before nobody uses b any
// more.
func (g *CoConn) writeLarge(b []byte) (int, error) {
	if err := cmp.Or(g.elsewhere(), g.writeError()); err != nil {
		return 0, opError("write", err)
	}
	g.c.WriteForeign(b)
	var err error
	for g.c.foreign > 0 {
		if err == nil {
			if err = g.writeError(); err != nil {
				g.c.DropForeign()
				continue
			}
		}
		_ = g.wait(toWrite) // it is the coroutine
	}
	if err == nil {
		err = g.writeError()
		if g.c.state == Open || err == nil {
			return len(b), nil // a deadline that has passed since is the next Write's
		}
	}
	return max(len(b)-g.c.dropped, 0), opError("write", err) // b was the last of the output
}

// WriteAll writes all bufs.
func (g *CoConn) WriteAll(bufs net.Buffers) error {
	for _, b := range bufs {
		if _, err := g.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// Close implements net.Conn. Any goroutine may call it: the coroutine wakes.
func (g *CoConn) Close() error {
	if g.own() && g.c.app == App(g) {
		return g.End(false)
	}
	return g.leave((*outside).close, (*GoConn).Close)
}

// End closes; linger gives the peer time to read what was written although it may still be sending.
func (g *CoConn) End(linger bool) error {
	if g.shut {
		return opError("close", net.ErrClosed)
	}
	g.shut = true
	g.in.Drop()
	g.c.Finish(linger)
	return nil
}

// CloseWrite ends this side of the connection, once all is sent.
func (g *CoConn) CloseWrite() error {
	if err := g.elsewhere(); err != nil {
		return opError("close", err)
	}
	g.drainOutput()
	if g.shut || g.c.state != Open {
		return opError("close", net.ErrClosed)
	}
	return g.c.sock.EndSending()
}

// drainOutput waits until all that was written has been sent.
func (g *CoConn) drainOutput() {
	for g.c.queued > 0 && g.writeError() == nil {
		if g.wait(toWrite) != nil {
			return
		}
	}
}

// SetDeadline implements net.Conn. Any goroutine may call it, and its like.
func (g *CoConn) SetDeadline(t time.Time) error { return g.setDeadlines(t, true, true) }

// SetReadDeadline implements net.Conn.
func (g *CoConn) SetReadDeadline(t time.Time) error { return g.setDeadlines(t, true, false) }

// SetWriteDeadline implements net.Conn.
func (g *CoConn) SetWriteDeadline(t time.Time) error { return g.setDeadlines(t, false, true) }

// SetDeadlines sets deadlines for the coroutine, which does not ask who it is.
func (g *CoConn) SetDeadlines(t time.Time, read, write bool) error {
	if g.shut || g.c.state != Open {
		return opError("set", net.ErrClosed)
	}
	at := g.c.loop.group.At(t)
	if read {
		g.c.SetReadBy(at)
	}
	if write {
		g.c.SetWriteBy(at)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (g *CoConn) LocalAddr() net.Addr { return g.addr(0, g.c.sock.Local) }

// RemoteAddr implements net.Conn.
func (g *CoConn) RemoteAddr() net.Addr { return g.addr(1, g.c.sock.Peer) }

func (g *CoConn) addr(i int, of func() (net.Addr, error)) net.Addr {
	if g.addrs[i] == nil {
		g.addrs[i] = &net.TCPAddr{}
		if g.c.state != Dead {
			if a, err := of(); err == nil {
				g.addrs[i] = a
			}
		}
	}
	return g.addrs[i]
}

func opError(op string, err error) error {
	if err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Err: err}
}
