package server

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// goConn is a connection that goroutines use: a net.Conn. The loop receives for it; writing goes straight to the socket, since the
// goroutine is on a CPU already, and asks the loop only when the socket takes no more.
type goConn struct {
	c       *conn
	counted bool // the loop's: among the hijacked
	duck    atomic.Bool
	arrived atomic.Int64 // when the newest input came

	mu       sync.Mutex
	read     sync.Cond // for input, its end, a deadline
	write    sync.Cond // for room, a deadline
	in       []byte    // received and not read
	block    *inBlock  // the memory of in
	err      error     // what comes after in: io.EOF or the failure
	shut     bool      // by Close or by the loop: the descriptor must not be used any more
	writers  int       // in system calls: the descriptor must not be closed under them
	full     bool      // the loop waits for room in the socket
	held     bool      // the loop has stopped to receive
	told     bool      // the loop has been told to look at asked
	asked    request
	readBy   int64 // as in conn; -1: long ago
	writeBy  int64
	gone     func() // called once when the peer has left
	idle     bool   // between requests
	hijacked bool
	addrs    [2]net.Addr

	writing sync.Mutex // one writer at a time
}

// request is what goroutines ask of the loop.
type request struct{ room, resume, deadline, finish, linger bool }

// inBlock is memory for input that waits to be read.
type inBlock struct{ b [4 << 10]byte }

var inBlocks = sync.Pool{New: func() any { return new(inBlock) }}

const (
	maxHeld = 64 << 10               // input that is held for a handler which does not read
	duckFor = 500 * time.Millisecond // how long a connection without a request is kept when the server ends
)

func newGoConn(c *conn) *goConn {
	g := &goConn{c: c}
	g.read.L, g.write.L = &g.mu, &g.mu
	return g
}

func (g *goConn) begin() { go g.c.l.srv.serveConn(g) }

// The loop's side.

func (g *goConn) input(b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return
	}
	g.arrived.Store(g.c.l.now)
	if len(g.in) == 0 && len(b) <= len(inBlock{}.b) {
		if g.block == nil {
			g.block = inBlocks.Get().(*inBlock)
		}
		g.in = g.block.b[:0]
	}
	g.in = append(g.in, b...) // beyond the block it moves to memory of its own
	if len(g.in) > maxHeld && !g.held {
		g.held = true
		g.c.hold()
	}
	g.read.Signal()
}

func (g *goConn) ended(err error) {
	g.mu.Lock()
	if g.err == nil || g.err == io.EOF {
		g.err = err
	}
	gone := g.gone
	g.gone = nil
	g.read.Broadcast()
	g.write.Broadcast()
	g.mu.Unlock()
	if gone != nil {
		gone()
	}
}

func (g *goConn) sent() {}

func (g *goConn) writable() {
	g.mu.Lock()
	g.full = false
	g.write.Broadcast()
	g.mu.Unlock()
}

func (g *goConn) refresh() {
	g.mu.Lock()
	g.c.readBy, g.c.writeBy = max(g.readBy, 0), max(g.writeBy, 0)
	g.mu.Unlock()
}

func (g *goConn) expired() {
	g.mu.Lock()
	g.read.Broadcast()
	g.write.Broadcast()
	g.mu.Unlock()
}

func (g *goConn) posted() {
	g.mu.Lock()
	r := g.asked
	g.asked, g.told = request{}, false
	hijacked := g.hijacked
	g.mu.Unlock()
	c := g.c
	if hijacked && !g.counted {
		g.counted = true
		c.l.hijacked++
	}
	if r.room {
		c.l.d.room(c)
	}
	if r.resume {
		c.resume()
	}
	if r.deadline {
		g.refresh()
		c.watch()
	}
	if r.finish {
		c.finish(r.linger)
	}
}

func (g *goConn) drain() {
	g.duck.Store(true)
	g.mu.Lock()
	if g.idle && len(g.in) == 0 {
		g.leaveSoon()
	}
	g.mu.Unlock()
}

func (g *goConn) mayClose() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.told = true, false // a writer that ends from now on must say so again
	g.read.Broadcast()
	g.write.Broadcast()
	return g.writers == 0
}

func (g *goConn) closed() {
	if g.counted {
		g.c.l.hijacked--
	}
	g.ended(net.ErrClosed)
	g.mu.Lock()
	g.release()
	g.mu.Unlock()
}

func (g *goConn) release() {
	if g.block != nil {
		inBlocks.Put(g.block)
		g.block = nil
	}
	g.in = nil
}

// The goroutines' side.

// ask tells the loop to look at asked. g.mu is held.
func (g *goConn) ask() {
	if !g.told {
		g.told = true
		g.c.l.post(post{what: postConn, c: g.c})
	}
}

// await waits for input. g.mu is held.
func (g *goConn) await() error {
	for {
		switch {
		case g.shut:
			return g.failure()
		case len(g.in) > 0:
			return nil
		case g.err != nil:
			return g.err
		case g.passed(g.readBy):
			return os.ErrDeadlineExceeded
		}
		g.read.Wait()
	}
}

func (g *goConn) failure() error {
	if g.err != nil && g.err != io.EOF {
		return g.err
	}
	return net.ErrClosed
}

func (g *goConn) passed(at int64) bool { return at < 0 || at > 0 && g.c.l.srv.clock() >= at }

// waitInput waits until there is something to read: between requests no memory is held for it.
func (g *goConn) waitInput() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = true
	if g.duck.Load() && len(g.in) == 0 {
		g.leaveSoon()
	}
	err := g.await()
	g.idle = false
	return err
}

// leaveSoon ends the wait for a request that does not come although the server is about to end. g.mu is held.
func (g *goConn) leaveSoon() {
	g.readBy = g.c.l.srv.clock() + int64(duckFor)
	g.asked.deadline = true
	g.ask()
}

// onGone asks for a call of f, once, when the peer has left; nil asks for none.
func (g *goConn) onGone(f func()) {
	g.mu.Lock()
	late := g.err != nil
	if !late {
		g.gone = f
	}
	g.mu.Unlock()
	if late && f != nil {
		f()
	}
}

func (g *goConn) draining() bool { return g.duck.Load() }
func (g *goConn) came() int64    { return g.arrived.Load() }

func (g *goConn) takeOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hijacked, g.gone = true, nil
	g.ask()
}

// Read implements net.Conn.
func (g *goConn) Read(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if err := g.await(); err != nil {
		return 0, opError("read", err)
	}
	n := copy(b, g.in)
	g.in = g.in[n:]
	if len(g.in) == 0 {
		g.release()
	}
	if g.held && len(g.in) <= maxHeld/2 {
		g.held, g.asked.resume = false, true
		g.ask()
	}
	return n, nil
}

// Write implements net.Conn.
func (g *goConn) Write(b []byte) (n int, err error) {
	g.writing.Lock()
	defer g.writing.Unlock()
	for {
		if err := g.mayWrite(); err != nil {
			return n, opError("write", err)
		}
		if n == len(b) {
			return n, nil
		}
		m, err := sys.Send(g.c.fd, b[n:])
		n += m
		g.c.l.srv.shared[g.c.l.index].wrote.Add(uint64(m))
		g.mu.Lock()
		g.writers--
		switch {
		case g.shut:
			g.ask() // the loop waits for us to close the descriptor
		case sys.Pending(err):
			err = nil
			g.full, g.asked.room = true, true
			g.ask()
		}
		g.mu.Unlock()
		if err != nil {
			return n, opError("write", err)
		}
		if n == len(b) {
			return n, nil
		}
	}
}

// mayWrite waits until the socket may take something, and counts the caller among the writers.
func (g *goConn) mayWrite() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case g.shut || g.err != nil && g.err != io.EOF:
			return g.failure()
		case g.passed(g.writeBy):
			return os.ErrDeadlineExceeded
		case !g.full:
			g.writers++
			return nil
		}
		g.write.Wait()
	}
}

// Close implements net.Conn.
func (g *goConn) Close() error { return g.end(false) }

// end closes; linger gives the peer time to read what was written although it may still be sending.
func (g *goConn) end(linger bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return opError("close", net.ErrClosed)
	}
	g.shut = true
	g.asked.finish, g.asked.linger = true, linger
	g.ask()
	g.read.Broadcast()
	g.write.Broadcast()
	return nil
}

// CloseWrite ends this side of the connection.
func (g *goConn) CloseWrite() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return opError("close", net.ErrClosed)
	}
	return sys.EndSending(g.c.fd)
}

// SetDeadline implements net.Conn.
func (g *goConn) SetDeadline(t time.Time) error { return g.setDeadlines(t, true, true) }

// SetReadDeadline implements net.Conn.
func (g *goConn) SetReadDeadline(t time.Time) error { return g.setDeadlines(t, true, false) }

// SetWriteDeadline implements net.Conn.
func (g *goConn) SetWriteDeadline(t time.Time) error { return g.setDeadlines(t, false, true) }

func (g *goConn) setDeadlines(t time.Time, read, write bool) error {
	at := g.c.l.srv.at(t)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return opError("set", net.ErrClosed)
	}
	if read {
		g.readBy = at
		g.read.Broadcast()
	}
	if write {
		g.writeBy = at
		g.write.Broadcast()
	}
	if look := g.c.timerAt.Load(); at > 0 && (look == 0 || at < look) { // else the loop looks early enough
		g.asked.deadline = true
		g.ask()
	}
	return nil
}

// LocalAddr implements net.Conn.
func (g *goConn) LocalAddr() net.Addr { return g.addr(0, sys.LocalOf) }

// RemoteAddr implements net.Conn.
func (g *goConn) RemoteAddr() net.Addr { return g.addr(1, sys.PeerOf) }

func (g *goConn) addr(i int, of func(int) (net.Addr, error)) net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.addrs[i] == nil {
		g.addrs[i] = &net.TCPAddr{}
		if !g.shut {
			if a, err := of(g.c.fd); err == nil {
				g.addrs[i] = a
			}
		}
	}
	return g.addrs[i]
}

// at is a moment as the loops count: 0 is never, -1 long ago.
func (s *Server) at(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if at := int64(t.Sub(s.base)); at > 0 {
		return at
	}
	return -1
}

func opError(op string, err error) error {
	if err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Err: err}
}

func (g *goConn) count(began int64) {
	l := g.c.l
	l.latency.record(time.Duration(l.srv.clock()-began), 1)
	l.srv.shared[l.index].answered.Add(1)
}
