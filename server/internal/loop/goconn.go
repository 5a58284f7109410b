package loop

import (
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// GoConn is a connection that goroutines use: a net.Conn. The loop receives for it while nobody
// reads, so that a silent connection holds no memory and a request is there when its goroutine
// wakes. Sending goes straight to the socket, since the goroutine is on a CPU already; the loop is
// asked only for room. Where the driver allows it, so does receiving: once a reader has found no
// input it reads from the socket itself (mine), the loop only says when there may be something
// (ready), and no byte is copied twice.
//
// The loop and a reader never receive at the same time, or bytes would change their order: the loop
// asks mayReceive, which says no while the socket is the reader's; a reader waits while the loop is
// receiving.
type GoConn struct {
	c       *Conn
	serve   func(*GoConn)
	aside   bool // goroutines may receive
	apart   bool // the loop's: counted among those taken over
	quiet   bool // AwaitInput was called
	silent  bool // the loop's: … and nothing has come yet
	duck    atomic.Bool
	large   atomic.Bool  // a reader wants LargeInput or more; only where the loop receives
	arrived atomic.Int64 // when the newest input came

	mu        sync.Mutex
	read      sync.Cond // for input, its end, a deadline, the detaching
	write     sync.Cond // for room, a deadline
	in        Input     // received by the loop and not read
	err       error     // what comes after in: io.EOF or the failure
	closed    bool      // by Close
	shut      bool      // the descriptor must not be used any more
	users     int       // in system calls: the descriptor must not be closed under them
	receiving bool      // the loop is, or a reader for it
	mine      bool      // only readers receive
	ready     bool      // the socket may have something that nobody has received
	last      bool      // … and the peer has ended its side: it is ready until a receive says so
	full      bool      // the loop waits for room in the socket
	rooms     uint64    // how often there was room again
	held      bool      // the loop has stopped to receive
	told      bool      // the loop has been told to look at asked
	asked     request
	readBy    int64 // as in Conn; -1: long ago
	writeBy   int64
	gone      func() // called once when the peer has left
	later     func() // called once when input has come: ReadNow's
	headBy    int64  // when the rest of a head is too late for a server that ends; 0: none is waited for
	idle      bool   // between requests
	grace     bool   // WaitInput has found something in time: the next Read gets it
	unwanted  bool   // … it shall not be
	taken     bool   // a handler has taken it over
	detach    detaching
	served    bool // serve has returned
	addrs     [2]net.Addr

	writing sync.Mutex // one writer at a time
}

// request is what goroutines ask of the loop.
type request struct {
	room, resume, deadline, finish, linger, detach, served, taken bool
	ended                                                         error // what a reader has found: io.EOF or a failure
}

// detaching is how far a connection has come on its way out of the loop.
type detaching uint8

const (
	attached detaching = iota
	leavingLoop
	detached
)

const (
	MaxHeld = 64 << 10               // input that is held for a handler which does not read
	DuckFor = 500 * time.Millisecond // how long a connection without a request is kept when the server ends
	HeadFor = 5 * time.Second        // … and for the rest of a request's head, from its first bytes: net/http's
)

// NewGoConn makes the App of a connection that serve serves, on a goroutine of its own.
func NewGoConn(c *Conn, serve func(*GoConn)) *GoConn {
	g := &GoConn{c: c, serve: serve, aside: c.loop.driver.ReadsAside()}
	g.read.L, g.write.L = &g.mu, &g.mu
	return g
}

// AwaitInput is for before Begin: serve is called when the first byte is there, which must be
// within d (0: at any time). Silent connections have no goroutine, and one that begins to speak at
// once need not be woken after it was started.
func (g *GoConn) AwaitInput(d time.Duration) {
	g.silent, g.quiet = true, true
	if d > 0 {
		g.readBy = Later(g.c.began, d)
	}
}

// Began is when the connection came, if serve was not called then; else 0.
func (g *GoConn) Began() int64 {
	if !g.quiet {
		return 0
	}
	return g.c.began
}

// Begin implements App.
func (g *GoConn) Begin() {
	if !g.silent {
		g.start(g.serve)
	} else if g.readBy != 0 {
		g.c.SetReadBy(g.readBy)
	}
}

// leave ends a connection on which nothing has come, and reports whether it is one.
func (g *GoConn) leave() bool {
	if g.silent {
		g.c.Finish(false)
	}
	return g.silent
}

// start runs serve on a goroutine. The loop does not end before it has returned, or the connection
// was taken over.
func (g *GoConn) start(serve func(*GoConn)) {
	g.c.loop.serving++
	go func() {
		returned := false
		defer func() {
			if !returned {
				if p := recover(); p != nil { // of a hook: handlers' panics do not come this far
					g.c.loop.group.cfg.Log.Error("a connection is closed after a panic", "panic", p, "stack",
						string(debug.Stack()))
				} else {
					g.c.loop.group.cfg.Log.Error("a handler has called runtime.Goexit: its connection is closed")
				}
			}
			g.mu.Lock()
			taken := g.taken
			g.mu.Unlock()
			if !taken { // else who has it ends it
				_ = g.End(true)
			}
			g.mu.Lock()
			g.asked.served = true
			g.ask()
			g.mu.Unlock()
		}()
		serve(g)
		returned = true
	}()
}

// The loop's side.

// mayReceive says how much the loop is to receive: as much as a request mostly is, if there is no
// input yet. What is more, a reader receives straight to where it belongs; it is woken. last says
// that the peer has ended its side.
func (g *GoConn) mayReceive(last bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = g.last || last
	if g.mine || g.in.Len() > 0 || g.detach != attached {
		g.ready = true
		g.read.Broadcast()
		return 0
	}
	g.receiving = true
	return SmallBlock
}

// ReceivedNothing ends what MayReceive began, if neither Received nor Ended did.
func (l *Loop) ReceivedNothing(c *Conn) {
	if g, ok := c.app.(*GoConn); ok {
		g.mu.Lock()
		g.receiving = false
		g.read.Broadcast()
		g.mu.Unlock()
	}
}

// Input implements App.
func (g *GoConn) Input(b Lent) {
	block, n := g.receiveMore(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.receiving = false
	if g.silent {
		g.silent = false
		g.start(g.serve)
	}
	if !g.closed && !g.shut {
		g.arrived.Store(g.c.loop.now)
		if block != nil {
			g.in.add(block, n)
		} else {
			g.in.Lend(b)
			g.in.Settle()
		}
		g.ready = g.ready || g.aside && (len(b) == SmallBlock || g.last) // there may be more
		if g.in.Len() > MaxHeld+SmallBlock && !g.held && !g.aside {
			g.held = true
			g.c.Hold()
		}
		if later := g.later; later != nil {
			g.later = nil
			go later()
		}
	} else if block != nil {
		freeBlock(block)
	}
	g.read.Broadcast()
}

// Ended implements App.
func (g *GoConn) Ended(err error) {
	g.mu.Lock()
	g.receiving = false
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
	g.leave()
}

// Sent implements App.
func (g *GoConn) Sent() {}

// Writable implements App.
func (g *GoConn) Writable() {
	g.mu.Lock()
	g.rooms++
	if g.full {
		g.full = false
		g.write.Broadcast()
	}
	g.mu.Unlock()
}

// refresh brings the loop's deadlines up to date.
func (g *GoConn) refresh() {
	g.mu.Lock()
	g.c.readBy, g.c.writeBy = max(g.readBy, 0), max(g.writeBy, 0)
	g.mu.Unlock()
}

// Expired implements App.
func (g *GoConn) Expired() {
	if g.leave() {
		return
	}
	g.mu.Lock()
	g.read.Broadcast()
	g.write.Broadcast()
	g.mu.Unlock()
}

// Posted implements App.
func (g *GoConn) Posted() {
	g.mu.Lock()
	r, mine := g.asked, g.mine
	g.asked, g.told = request{}, false
	g.mu.Unlock()
	c, l := g.c, g.c.loop
	if (r.served || r.taken) && !g.served {
		g.served = true
		l.serving--
	}
	if c.state == Dead {
		return
	}
	if r.taken && !g.apart {
		g.apart = true
		l.apart++
	}
	if r.ended != nil && !c.ended {
		if r.ended == io.EOF {
			l.Ended(c, nil)
		} else {
			l.Ended(c, r.ended)
		}
	}
	if c.state != Open {
		return
	}
	if r.room {
		c.AwaitRoom()
	}
	if r.resume && g.aside {
		l.driver.Resume(c)
	} else if r.resume {
		c.Resume()
	}
	if r.deadline {
		g.refresh()
		if at := c.nextLook(0); at != never {
			c.watch(at)
		}
	}
	if r.detach {
		l.driver.Detach(c)
	}
	if r.finish {
		c.Finish(r.linger)
		// what the last reader left is thrown away, too: closed over it the socket would reset
		if mine && c.state == Lingering {
			l.driver.Resume(c)
		}
	}
}

// Drain implements App.
func (g *GoConn) Drain() {
	g.duck.Store(true)
	g.mu.Lock()
	switch {
	case g.silent || g.idle && g.in.Len() == 0:
		g.leaveSoon()
	case g.headBy > 0:
		g.boundHead()
	}
	g.mu.Unlock()
}

// EndIdle implements App.
func (g *GoConn) EndIdle() {
	if g.leave() {
		return
	}
	g.mu.Lock()
	g.unwanted = true
	g.read.Broadcast()
	g.mu.Unlock()
}

// HeadSince implements App.
func (g *GoConn) HeadSince() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return headSince(g.headBy)
}

// headSince is when a head began that is too late by then; 0: none is waited for.
func headSince(by int64) int64 { return max(by-int64(HeadFor), 0) }

// Died implements App. It cannot be: no handler runs on the loop.
func (g *GoConn) Died() { _ = g.Close() }

// MayClose implements App.
func (g *GoConn) MayClose() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.told = true, false // a user that ends from now on must say so again
	g.read.Broadcast()
	g.write.Broadcast()
	return g.users == 0
}

// Closed implements App.
func (g *GoConn) Closed() {
	if g.apart {
		g.c.loop.apart--
	}
	g.Ended(net.ErrClosed)
	g.mu.Lock()
	if g.closed {
		g.in.Drop()
	}
	g.mu.Unlock()
}

// The goroutines' side.

// ask tells the loop to look at asked. g.mu is held.
func (g *GoConn) ask() {
	if !g.told {
		g.told = true
		g.c.loop.post(post{what: postConn, c: g.c})
	}
}

func (g *GoConn) passed(at int64) bool { return at < 0 || at > 0 && g.c.loop.group.Clock() >= at }

// use makes a system call on the socket. g.mu is held, but not during the call.
func (g *GoConn) use(call func()) {
	g.users++
	g.mu.Unlock()
	call()
	g.mu.Lock()
	g.users--
	if g.shut {
		g.ask() // the loop waits for us to close the descriptor
	}
}

// leaveSoon ends the wait for a request that does not come although the server is about to end.
// g.mu is held.
func (g *GoConn) leaveSoon() {
	g.readBy = g.c.loop.group.Clock() + int64(DuckFor)
	g.asked.deadline = true
	g.ask()
}

// AwaitHead says whether the rest of a request's head is waited for: the end of the server does not
// wait for it for ever.
func (g *GoConn) AwaitHead(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.headBy = 0
	if on {
		g.headBy = g.c.loop.group.Clock() + int64(HeadFor)
		if g.duck.Load() {
			g.boundHead()
		}
	}
}

// boundHead ends the wait for the rest of a head. g.mu is held.
func (g *GoConn) boundHead() {
	by := max(g.headBy, g.c.loop.group.Clock()+int64(DuckFor))
	if g.readBy == 0 || by < g.readBy {
		g.readBy, g.asked.deadline = by, true
		g.ask()
	}
}

// SetIdle says whether the connection is between requests, and may be ended with the server.
func (g *GoConn) SetIdle(idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = idle
	if idle && g.duck.Load() {
		g.leaveSoon()
	}
}

// OnGone asks for a call of f, once, when the peer has left; nil asks for none.
func (g *GoConn) OnGone(f func()) {
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

// Draining reports whether the server is going to end.
func (g *GoConn) Draining() bool { return g.c.loop.group.ending.Load() }

// Came is when the newest input came, as Group.Clock.
func (g *GoConn) Came() int64 { return g.arrived.Load() }

// Socket is the socket. It must not be used once the connection is closed.
func (g *GoConn) Socket() Socket { return g.c.sock }

// Origin is what the listener of the connection was given.
func (g *GoConn) Origin() any { return g.c.origin }

// Loop is the loop of the connection. Only what is safe for goroutines may be used of it.
func (g *GoConn) Loop() *Loop { return g.c.loop }

// TakeOver says that the connection is somebody else's business from now on: the end of the group
// does not wait for it.
func (g *GoConn) TakeOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken, g.gone, g.asked.taken = true, nil, true
	g.ask()
}

// Detach takes the connection out of the loop: it returns one of package net, and the input that
// was received and not read. The GoConn is closed.
func (g *GoConn) Detach() (net.Conn, []byte, error) {
	g.mu.Lock()
	if g.detach == attached {
		g.detach, g.gone = leavingLoop, nil
		g.taken, g.asked.taken, g.asked.detach = true, true, true
		g.ask()
	}
	for (g.detach != detached || g.receiving) && !g.closed && !g.shut && (g.err == nil || g.err == io.EOF) {
		g.read.Wait()
	}
	var c net.Conn
	err := g.err
	switch {
	case g.closed || g.shut:
		err = net.ErrClosed
	case g.detach == detached:
		g.use(func() { c, err = netConn(g.c.sock.FD()) })
	}
	rest := append([]byte(nil), g.in.Bytes()...)
	g.mu.Unlock()
	_ = g.End(false)
	return c, rest, err
}

// detached is called when the loop receives no more.
func (g *GoConn) detached() {
	g.mu.Lock()
	g.detach = detached
	g.read.Broadcast()
	g.mu.Unlock()
}

// netConn makes a connection of package net with a descriptor of its own.
func netConn(fd int) (net.Conn, error) {
	f, err := duplicate(fd)
	if err != nil {
		return nil, err
	}
	c, err := net.FileConn(f)
	if e := f.Close(); err == nil {
		err = e
	}
	return c, err
}
