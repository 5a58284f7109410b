package server

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// loop runs a share of the connections. Everything of it and of its connections belongs to one goroutine; others leave posts.
//
// A turn of the loop: send what connections have written, wait for the kernel, hand each event to its connection, do the posts, and end what
// has taken too long.
type loop struct {
	srv   *Server
	index int
	d     driver
	now   int64 // ns since Server.base, read once a turn
	due   timers
	dirty []*conn // have output that is not being sent

	first *conn // of those that are open, newest first
	open  int
	// … of which handlers have taken over, so that the end of the server does not wait for them
	hijacked int

	mu      sync.Mutex
	posts   []post
	spare   []post
	asleep  atomic.Bool   // in the kernel, or about to be: a post must wake it
	turns   atomic.Uint64 // for watch
	ended   bool          // nobody will do posts any more
	leaving leaving
	hard    bool          // … and nobody is let in
	drained chan struct{} // closed when nothing is left to wait for

	resting []*worker // coroutines without a connection
	tools   inlineTools
	second  int64 // of today
	today   []byte

	answers int64 // of this turn, whose latency is that of the turn
	latency *latency
	tally   tally
}

// leaving is how far the end of the loop has come.
type leaving uint8

const (
	staying leaving = iota
	lameDuck
	gone
)

// post is what another goroutine wants of a loop.
type post struct {
	what postKind
	c    *conn
	fd   int
}

type postKind uint8

const (
	postOpen    postKind = iota // fd is a new connection
	postListen                  // … a listening socket
	postRoom                    // there is room for connections again
	postDrain                   // finish what is under way, then end
	postStop                    // end now
	postConn                    // c has something for its loop
	postListens                 // accept no more
)

// driver is how a loop talks to the kernel: a ring, or epoll and plain calls. All methods but wake belong to the loop.
type driver interface {
	// wait hands over what was queued and waits for at most d (negative: for ever) until the kernel has something, which goes to
	// the loop's methods accepted, received, inputEnded, sent and closed.
	wait(d time.Duration) error
	wake() // from any goroutine
	listen(fd int) error
	listenAgain() // after Server.full
	unlisten()    // everybody who has connected is accepted, the socket is closed, and Server.unlistened called
	open(c *conn) error
	hold(c *conn) // receives no more until resume
	resume(c *conn)
	send(c *conn) // the first chunk of c's output
	room(c *conn) // wait until the socket can be written to
	close(c *conn)
	chunk(large bool) *chunk
	recycle(*chunk)
	figures() figures
	shut() error
}

// chunk is a piece of output.
type chunk struct {
	mem    []byte
	lo, hi int // of what is still to be sent
	next   *chunk
	large  bool
	handle any // the driver's
}

const (
	smallChunk = 4 << 10
	largeChunk = 64 << 10
)

// run is the life of a loop. ready is told once it can be posted to.
func (l *loop) run(ready chan<- error) {
	if c := l.srv.choice; c.Mode != Goroutine || c.Engine == Uring { // a ring completes on the thread that asked
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	var err error
	if l.d, err = l.srv.newDriver(l); err == nil {
		l.publish() // what it holds from the start
	}
	if ready <- err; err != nil {
		return
	}
	if l.srv.choice.Mode != Goroutine {
		defer l.watch()()
	}
	for l.leaving != gone {
		if err = l.turn(); err != nil {
			l.srv.fail(fmt.Errorf("server: loop %d: %w", l.index, err))
			break
		}
	}
	for c := l.first; c != nil; { // only after an error
		next := c.next
		c.kill(net.ErrClosed)
		c = next
	}
	l.leaving = lameDuck
	l.leave()
	l.mu.Lock()
	l.ended = true
	for _, p := range l.posts {
		if p.what == postOpen || p.what == postListen {
			_ = sys.CloseFD(p.fd)
		}
	}
	l.mu.Unlock()
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
	for _, w := range l.resting {
		w.stop()
	}
	l.publish()
	if err := l.d.shut(); err != nil {
		l.srv.fail(fmt.Errorf("server: loop %d: %w", l.index, err))
	}
}

func (l *loop) turn() error {
	l.flush()
	if l.srv.choice.Mode == Goroutine {
		// Handlers that the last turn woke run now, on this P, and what they cause is in the next look at the kernel.
		runtime.Gosched()
		l.takePosts()
		l.flush()
	}
	if l.leaving == lameDuck {
		if l.leave(); l.leaving == gone {
			return nil
		}
	}
	wait := l.due.until(l.now)
	l.asleep.Store(true)
	l.mu.Lock()
	if len(l.posts) > 0 {
		wait = 0
	}
	l.mu.Unlock()
	if err := l.d.wait(wait); err != nil {
		return err
	}
	l.takePosts()
	l.expire()
	if l.answers > 0 {
		began := l.now
		l.now = l.srv.clock()
		l.latency.record(time.Duration(l.now-began), l.answers)
		l.answers = 0
	}
	l.publish()
	return nil
}

// leave ends the loop once it has no connections.
func (l *loop) leave() {
	if l.open == l.hijacked {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
	if l.open == 0 {
		l.leaving = gone
	}
}

// tick begins the loop's work of a turn. The driver calls it when it comes back from the kernel.
func (l *loop) tick() {
	l.asleep.Store(false)
	l.turns.Add(1)
	l.now = l.srv.clock()
}

// flush sends what connections have written since.
func (l *loop) flush() {
	for i := 0; i < len(l.dirty); i++ { // it may grow meanwhile
		c := l.dirty[i]
		l.dirty[i] = nil
		c.dirty = false
		if !c.sending && c.head != nil && c.state != dead {
			l.d.send(c)
		}
	}
	l.dirty = l.dirty[:0]
}

// post leaves something for the loop and reports whether it will be done.
func (l *loop) post(p post) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.posts = append(l.posts, p)
	l.mu.Unlock()
	if l.asleep.CompareAndSwap(true, false) {
		l.d.wake()
	}
	return true
}

func (l *loop) takePosts() {
	l.mu.Lock()
	l.posts, l.spare = l.spare[:0], l.posts
	l.mu.Unlock()
	for i, p := range l.spare {
		l.spare[i] = post{}
		switch p.what {
		case postOpen:
			l.add(p.fd)
		case postListen:
			if err := l.d.listen(p.fd); err != nil {
				_ = sys.CloseFD(p.fd)
				l.srv.fail(fmt.Errorf("server: listen: %w", err))
			}
		case postRoom:
			l.d.listenAgain()
		case postListens:
			l.d.unlisten()
		case postDrain:
			l.drain()
		case postStop:
			for c := l.first; c != nil; {
				next := c.next
				c.kill(net.ErrClosed)
				c = next
			}
			l.leaving, l.hard = lameDuck, true
		case postConn:
			if p.c.state == dead {
				l.d.close(p.c)
			} else {
				p.c.app.posted()
			}
		}
	}
}

// drain begins the end: connections that wait for nothing are closed after a moment, the others when they have been answered.
func (l *loop) drain() {
	if l.leaving == staying {
		l.leaving = lameDuck
	}
	for c := l.first; c != nil; {
		next := c.next
		c.app.drain()
		c = next
	}
}

// accepted takes a new connection; the loops get them in turn.
func (l *loop) accepted(fd int) {
	sys.Accepted(fd) // who connected before the server began has to be told
	to := l.srv.place()
	if to == l {
		l.add(fd)
	} else if !to.post(post{what: postOpen, fd: fd}) {
		l.refuse(fd)
	}
}

// refuse closes a connection that nobody can serve.
func (l *loop) refuse(fd int) {
	_ = sys.CloseFD(fd)
	l.tally.dropped++
	l.srv.left()
}

func (l *loop) add(fd int) {
	c := &conn{l: l, fd: fd}
	if l.hard {
		l.refuse(fd)
		return
	}
	if err := l.d.open(c); err != nil {
		l.refuse(fd)
		l.srv.log.Warn("a connection was closed: it cannot be watched", "error", err)
		return
	}
	c.next = l.first
	if l.first != nil {
		l.first.prev = c
	}
	l.first = c
	l.open++
	l.tally.accepted++
	c.app = l.srv.newApp(c)
	c.app.begin()
}

// received hands bytes to a connection. They are the driver's again when it returns.
func (l *loop) received(c *conn, b []byte) {
	l.tally.in += uint64(len(b))
	if c.state == open {
		c.app.input(b)
	}
}

// inputEnded says that no more bytes will come: err is nil if the peer has ended its side.
func (l *loop) inputEnded(c *conn, err error) {
	c.eof = true
	switch {
	case c.state == dead:
	case err != nil || c.state == lingering:
		c.kill(err)
	case c.state == open:
		c.app.ended(io.EOF)
	}
}

// sent says that the kernel took n bytes of c's first chunk.
func (l *loop) sent(c *conn, n int, err error) {
	c.sending = false
	l.tally.out += uint64(n)
	c.take(n)
	switch {
	case err != nil:
		c.kill(err)
	case c.state == dead:
	case c.head != nil:
		c.soil()
	case c.state == flushing:
		c.flushed()
	}
	if c.state == open {
		c.app.sent()
	}
}

// closed says that the driver has let go of the descriptor.
func (l *loop) closed(c *conn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else if l.first == c {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	l.open--
	c.drop()
	c.app.closed()
	l.srv.left()
}

// expire ends what has taken too long.
func (l *loop) expire() {
	for {
		c := l.due.pop(l.now)
		if c == nil {
			return
		}
		if c.state == dead {
			continue
		}
		if c.state == open {
			c.app.refresh()
		}
		switch {
		case !c.passed(l.now): // it has moved on
		case c.state == open:
			c.app.expired()
		default:
			c.kill(errTooSlow)
		}
		if at := c.deadline(l.now); c.state != dead && at != never && c.timerAt.Load() == 0 {
			c.timerAt.Store(at)
			l.due.push(at, c)
		}
	}
}

// tally is what a loop counts; publish copies it to where others may read it.
type tally struct {
	accepted, requests, in, out, dropped uint64
}

func (l *loop) publish() {
	p := &l.srv.shared[l.index]
	p.accepted.Store(l.tally.accepted)
	p.requests.Store(l.tally.requests)
	p.in.Store(l.tally.in)
	p.out.Store(l.tally.out)
	p.dropped.Store(l.tally.dropped)
	f := l.d.figures()
	p.calls.Store(f.calls)
	p.submitted.Store(f.submitted)
	p.completed.Store(f.completed)
	p.starved.Store(f.starved)
	p.overflows.Store(f.overflows)
	p.mapped.Store(f.mapped)
}

// figures are what a driver counts.
type figures struct {
	calls     uint64 // system calls to wait, submit, receive and send
	submitted uint64 // entries of a ring
	completed uint64
	starved   uint64 // receives that found no buffer
	overflows uint64 // times the completion queue was full
	mapped    uint64 // bytes of buffers outside Go's heap
}

const never = math.MaxInt64

var errTooSlow = errors.New("the client took too long")
