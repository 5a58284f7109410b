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
// loop goes on with it when what it waits for is there. Nothing of it is locked: there is one thread.
type coConn struct {
	c     *conn
	next  func() (struct{}, bool)
	yield func(struct{}) bool
	wants want
	in    []byte // received and not read: the driver's memory while the coroutine runs, else held's
	held  []byte
	err   error // what comes after in
	shut  bool  // by the handler
	over  bool  // the handler has returned
	duck  bool
	idle  bool
	gone  func()
	addrs [2]net.Addr
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

func newCoConn(c *conn) *coConn { return &coConn{c: c} }

func (*coConn) coroutine() {}

func (g *coConn) begin() {
	g.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		g.yield = yield
		g.c.l.srv.serveCoroutine(g)
	})
	g.run()
}

// run lets the coroutine go on until it wants something.
func (g *coConn) run() {
	g.wants = nothing
	if _, on := g.next(); !on {
		g.over = true
		if g.c.app == g { // else it lives on as a goConn
			g.c.finish(false)
		}
	}
}

// wait gives way until the loop has something for the coroutine. It looks again then: it may be something else.
func (g *coConn) wait(w want) {
	g.wants = w
	g.yield(struct{}{})
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

func (g *coConn) waitInput() error {
	g.idle = true
	if len(g.in) == 0 {
		g.in, g.held = nil, nil
		if g.duck {
			g.leaveSoon()
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
	g.c.l.tally.handedOver++
	return n
}

// serveCoroutine is the life of a connection in coroutine mode.
func (s *Server) serveCoroutine(g *coConn) {
	if s.cfg.Conn != nil {
		s.cfg.Conn(s.ctx, g)
		_ = g.Close()
		return
	}
	sess := newSession(s, g)
	if sess.serve() != errPromote {
		return
	}
	g.drainOutput() // the goroutine writes to the socket directly
	n := g.promote()
	sess.c, sess.promoted = n, true
	go s.serveSession(sess, n)
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
