package server

import (
	"io"
	"iter"
	"net"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// coConn is a connection whose handler runs as a coroutine on the loop's thread: where it would wait it gives way to the loop, and the
// loop goes on with it when what it waits for is there. Nothing of it is locked: there is one thread. Between requests it has no
// coroutine, so that silent connections hold no stack.
type coConn struct {
	c       *conn
	w       *worker  // that runs its handler; nil between requests
	sess    *session // nil for a ConnHandler
	wants   want
	in      []byte // received and not read: the driver's memory while the coroutine runs, else held's
	held    []byte
	err     error // what comes after in
	shut    bool  // by the handler
	over    bool  // all has been served
	duck    bool  // the server is about to end
	leaving bool  // … and a last request is waited for
	idle    bool
	gone    func()
	addrs   [2]net.Addr
}

// want is what a coroutine waits for.
type want uint8

const (
	nothing want = iota
	toRead
	toWrite
)

// maxQueued is how much output a connection holds; a handler that writes more waits for the client.
const maxQueued = 64 << 10

// worker is a coroutine that serves one connection after the other.
type worker struct {
	c     *coConn // nil: it rests
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
}

const maxResting = 256 // workers of a loop

// worker takes one that rests, or makes one.
func (l *loop) worker(c *coConn) *worker {
	if n := len(l.resting); n > 0 {
		w := l.resting[n-1] // whose stack was used last
		l.resting = l.resting[:n-1]
		w.c = c
		return w
	}
	w := &worker{c: c}
	w.next, w.stop = iter.Pull(func(yield func(struct{}) bool) {
		w.yield = yield
		for on := true; on; on = yield(struct{}{}) {
			w.c.serve()
			w.c = nil
		}
	})
	return w
}

// rest keeps a worker for later.
func (l *loop) rest(w *worker) {
	if len(l.resting) < maxResting {
		l.resting = append(l.resting, w)
		return
	}
	w.stop()
}

func newCoConn(c *conn) *coConn {
	g := &coConn{c: c}
	if c.l.srv.cfg.Conn == nil {
		g.sess = newSession(c.l.srv, g)
		g.sess.coroutine = true
	}
	return g
}

func (g *coConn) begin() { g.run() }

// run lets the coroutine go on until it wants something.
func (g *coConn) run() {
	l := g.c.l
	if g.w == nil {
		g.w = l.worker(g)
	}
	w := g.w
	g.wants = nothing
	w.next()
	if w.c != nil {
		return
	}
	g.w = nil
	l.rest(w)
	if g.idle && !g.over {
		g.wants = toRead
	} else if g.over && g.c.app == g { // else it lives on as a goConn
		g.c.finish(false)
	}
}

// wait gives way until the loop has something for the coroutine. It looks again then: it may be something else.
func (g *coConn) wait(w want) {
	g.wants = w
	g.w.yield(struct{}{})
}

// The loop's side.

func (g *coConn) input(b []byte) {
	if len(g.in) > 0 || g.wants != toRead {
		g.hold(b)
		if g.wants == toRead {
			g.run()
		}
		return
	}
	g.in = b
	g.run()
	if g.c.app != g {
		return
	}
	if rest := g.in; len(rest) > 0 && len(g.held) == 0 {
		g.in = nil
		g.hold(rest)
	}
}

// hold keeps b until it is read.
func (g *coConn) hold(b []byte) {
	if g.over || g.shut {
		return
	}
	g.held = append(g.held[:copy(g.held[:cap(g.held)][:len(g.in)], g.in)], b...)
	g.in = g.held
	if len(g.in) > maxHeld {
		g.c.hold()
	}
}

func (g *coConn) ended(err error) {
	if g.err == nil || g.err == io.EOF {
		g.err = err
	}
	if gone := g.gone; gone != nil {
		g.gone = nil
		gone()
	}
	if g.wants != nothing && !g.over {
		g.run()
	}
}

func (g *coConn) sent() {
	if g.wants == toWrite && g.c.queued < maxQueued {
		g.run()
	}
}

func (g *coConn) writable() {}
func (g *coConn) refresh()  {}

func (g *coConn) expired() {
	if g.wants != nothing {
		g.run()
	}
}

func (g *coConn) posted() {}

func (g *coConn) drain() {
	g.duck = true
	if g.idle {
		g.leaveSoon()
	}
}

// leaveSoon ends the wait for a request that does not come although the server is about to end.
func (g *coConn) leaveSoon() {
	g.leaving = true
	g.c.readBy = g.c.l.now + int64(duckFor)
	g.c.watch()
}

func (g *coConn) mayClose() bool { return true }

func (g *coConn) closed() {
	g.ended(net.ErrClosed)
	g.in, g.held = nil, nil
}

// The coroutine's side.

func (g *coConn) await() error {
	for len(g.in) == 0 {
		switch {
		case g.shut:
			return net.ErrClosed
		case g.err != nil:
			return g.err
		case g.passed(g.c.readBy):
			return os.ErrDeadlineExceeded
		}
		g.wait(toRead)
	}
	return nil
}

func (g *coConn) passed(at int64) bool { return at < 0 || at > 0 && g.c.l.now >= at }

// waitInput does not wait: without input it is errIdle, and the loop lets the session go on when there is some.
func (g *coConn) waitInput() error {
	g.idle = true
	if len(g.in) == 0 {
		g.in, g.held = nil, nil
		if g.err == nil && !g.shut && !g.passed(g.c.readBy) {
			if g.duck && !g.leaving {
				g.leaveSoon()
			}
			return errIdle
		}
	}
	err := g.await()
	g.idle = false
	return err
}

func (g *coConn) onGone(f func()) {
	if g.err != nil && f != nil {
		f()
		return
	}
	g.gone = f
}

func (g *coConn) draining() bool { return g.duck }
func (g *coConn) came() int64    { return g.c.l.now }
func (g *coConn) takeOver()      {}

func (g *coConn) count(int64) {
	g.c.l.tally.requests++
	g.c.l.answers++
}

// Read implements net.Conn.
func (g *coConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := g.await(); err != nil {
		return 0, opError("read", err)
	}
	n := copy(b, g.in)
	g.in = g.in[n:]
	if g.c.held && len(g.in) <= maxHeld/2 {
		g.c.resume()
	}
	return n, nil
}

// Write implements net.Conn. It returns when the loop has taken b, which then sends it with all that was written in this turn.
func (g *coConn) Write(b []byte) (n int, err error) {
	for {
		switch {
		case g.shut:
			err = net.ErrClosed
		case g.c.state != open:
			err = net.ErrClosed
		case g.err != nil && g.err != io.EOF:
			err = g.err
		case g.passed(g.c.writeBy):
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			return n, opError("write", err)
		}
		if m := min(maxQueued-g.c.queued, len(b)-n); m > 0 {
			g.c.write(b[n : n+m])
			n += m
		}
		if n == len(b) {
			return n, nil
		}
		g.wait(toWrite)
	}
}

// Close implements net.Conn.
func (g *coConn) Close() error { return g.end(false) }

func (g *coConn) end(linger bool) error {
	if g.shut {
		return opError("close", net.ErrClosed)
	}
	g.shut = true
	g.in = nil
	g.c.finish(linger)
	return nil
}

// CloseWrite ends this side of the connection, once all is sent.
func (g *coConn) CloseWrite() error {
	g.drainOutput()
	if g.shut || g.c.state != open {
		return opError("close", net.ErrClosed)
	}
	return sys.EndSending(g.c.fd)
}

// drainOutput waits until all that was written has been sent.
func (g *coConn) drainOutput() {
	for g.c.queued > 0 && g.c.state == open && (g.err == nil || g.err == io.EOF) {
		g.wait(toWrite)
	}
}

// SetDeadline implements net.Conn.
func (g *coConn) SetDeadline(t time.Time) error {
	_ = g.SetReadDeadline(t)
	return g.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (g *coConn) SetReadDeadline(t time.Time) error {
	if g.shut || g.c.state != open {
		return opError("set", net.ErrClosed)
	}
	g.c.readBy = g.c.l.srv.at(t)
	g.c.watch()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (g *coConn) SetWriteDeadline(t time.Time) error {
	if g.shut || g.c.state != open {
		return opError("set", net.ErrClosed)
	}
	g.c.writeBy = g.c.l.srv.at(t)
	g.c.watch()
	return nil
}

// LocalAddr implements net.Conn.
func (g *coConn) LocalAddr() net.Addr { return g.addr(0, sys.LocalOf) }

// RemoteAddr implements net.Conn.
func (g *coConn) RemoteAddr() net.Addr { return g.addr(1, sys.PeerOf) }

func (g *coConn) addr(i int, of func(int) (net.Addr, error)) net.Addr {
	if g.addrs[i] == nil {
		g.addrs[i] = &net.TCPAddr{}
		if g.c.state != dead {
			if a, err := of(g.c.fd); err == nil {
				g.addrs[i] = a
			}
		}
	}
	return g.addrs[i]
}

// promote makes a goroutine's connection of it.
func (g *coConn) promote() *goConn {
	n := newGoConn(g.c)
	n.err, n.gone, n.addrs = g.err, g.gone, g.addrs
	n.readBy, n.writeBy = g.c.readBy, g.c.writeBy
	if len(g.in) > 0 {
		n.in = append([]byte(nil), g.in...)
	}
	n.held = g.c.held
	n.duck.Store(g.duck)
	g.c.app = n
	return n
}

// serve runs the handler, or the session until it has nothing to do.
func (g *coConn) serve() {
	srv := g.c.l.srv
	if g.sess == nil {
		srv.cfg.Conn(srv.ctx, g)
		_ = g.Close()
		g.over = true
		return
	}
	switch g.sess.serve() {
	case errIdle:
		return
	case errPromote:
		g.drainOutput() // the goroutine writes to the socket directly
		n := g.promote()
		g.sess.c, g.sess.coroutine = n, false
		go srv.serveSession(g.sess, n)
	}
	g.over = true
}

// serveConn is the life of a connection on a goroutine.
func (s *Server) serveConn(g *goConn) {
	if s.cfg.TLS != nil {
		s.serveTLS(g)
		return
	}
	if s.cfg.Conn != nil {
		defer g.Close()
		s.cfg.Conn(s.ctx, g)
		return
	}
	s.serveSession(newSession(s, g), g)
}

// serveSession runs a session on a goroutine.
func (s *Server) serveSession(sess *session, g *goConn) {
	over := false
	defer func() {
		if !over { // the handler ended its goroutine
			_ = g.Close()
		}
	}()
	_ = sess.serve() // it has ended the connection and said what there is to say
	over = true
}
