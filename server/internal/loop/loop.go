package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Loop runs a share of a group's connections; see the package comment.
type Loop struct {
	Memory Memory // for large requests and answers; the loop's goroutine's
	Data   any    // of who made the group

	group  *Group
	index  int
	thread int // that it is locked to; 0: to none
	driver Driver
	now    int64 // ns of Group.Clock, read once a turn
	timers timers
	dirty  []*Conn // have output that is not being sent

	first    *Conn // of those that are open, newest first
	open     int
	serving  int   // goroutines that serve connections, open or not, or send a file for one
	apart    int   // open connections that somebody else has taken over: the end does not wait for them
	acceptor       // of loop 0
	current  *Conn // whose App is being called

	mu      sync.Mutex
	posts   []post
	spare   []post
	stopped bool          // nobody will do posts any more
	asleep  atomic.Bool   // in the kernel, or about to be: a post must wake it
	turns   atomic.Uint64 // for watchStalls
	brisk   bool          // the last wait was over within briefWait
	yielded int64         // when other goroutines could have the CPU last, as now
	came    int64         // when a connection came here last, as now
	leaving leaving
	hard    bool          // … and nobody is let in
	drained chan struct{} // closed when nothing is left to wait for

	resting []*worker // coroutines without a connection
	tally   Tally
	shared  *Published
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
	c    *Conn
	sock Socket
	ln   *Listener
	most time.Duration // how long a connection may have sent nothing
	head time.Duration // … and only a part of a request's head; 0: as long as its deadline says
}

type postKind uint8

const (
	postOpen     postKind = iota // sock is a new connection
	postListen                   // accept from ln
	postUnlisten                 // … no more, and leave those who wait
	postSweep                    // accept those who have connected, and nobody else
	postRoom                     // there is room for connections again
	postDrain                    // finish what is under way, then end
	postIdle                     // end the connections that wait for a request
	postStop                     // end now
	postConn                     // c has something for its loop
)

// Now is the time in ns of [Group.Clock] at which the turn began.
func (l *Loop) Now() int64 { return l.now }

// Index is the loop's number in its group.
func (l *Loop) Index() int { return l.index }

// Group is the group of the loop.
func (l *Loop) Group() *Group { return l.group }

// Tally is what the loop counts; it is published once a turn.
func (l *Loop) Tally() *Tally { return &l.tally }

// run is the life of a loop. ready is told once it can be posted to.
func (l *Loop) run(ready chan<- error) {
	cfg := &l.group.cfg
	if cfg.Locked {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		l.thread = threadID()
	}
	var err error
	l.driver, err = cfg.NewDriver(l)
	if ready <- err; err != nil {
		return
	}
	l.publish() // what it holds from the start
	if cfg.OnLoop {
		defer l.watchStalls()()
		for l.live() { // a handler has ended the goroutine
			l.afterDeath()
		}
	} else {
		l.turnOver()
	}
	l.end()
}

// turnOver runs turns until the loop is to end.
func (l *Loop) turnOver() {
	for l.leaving != gone {
		if err := l.turn(); err != nil {
			l.group.fail(fmt.Errorf("loop %d: %w", l.index, err))
			return
		}
	}
}

// end lets go of everything.
func (l *Loop) end() {
	for c := l.first; c != nil; { // only after an error
		next := c.next
		c.Kill(net.ErrClosed)
		c = next
	}
	l.leaving = lameDuck
	l.leave()
	for _, ln := range l.listeners {
		if ln.Slot == nil { // there was no room for its connections yet, and the driver does not know it
			_ = ln.close()
		}
	}
	l.mu.Lock()
	l.stopped = true
	for _, p := range l.posts {
		switch p.what {
		case postOpen:
			l.refuse(p.sock)
		case postListen:
			_ = p.ln.close()
		}
	}
	l.mu.Unlock()
	l.tellDrained()
	for _, w := range l.resting {
		w.stop()
	}
	l.publish()
	if err := l.driver.Shut(); err != nil {
		l.group.fail(fmt.Errorf("loop %d: %w", l.index, err))
	}
}

func (l *Loop) turn() error {
	l.flush()
	if !l.group.cfg.OnLoop {
		// Handlers that the last turn woke run now, on this P, and what they cause is in the next
		// look at the kernel.
		runtime.Gosched()
		l.takePosts()
		l.flush()
	}
	if l.leaving == lameDuck {
		if l.leave(); l.leaving == gone {
			return nil
		}
	}
	wait := l.timers.until(l.now)
	if at := l.retryAt(); at > 0 && (wait < 0 || time.Duration(at-l.now) < wait) {
		wait = time.Duration(max(at-l.now, 0))
	}
	l.asleep.Store(true)
	l.mu.Lock()
	if len(l.posts) > 0 {
		wait = 0
	}
	l.mu.Unlock()
	if err := l.wait(wait); err != nil {
		return err
	}
	l.takePosts()
	l.retryAccept()
	l.expire()
	if f := l.group.cfg.Turned; f != nil {
		f(l)
	}
	l.publish()
	return nil
}

const (
	briefWait = 200 * time.Microsecond
	yieldEach = time.Millisecond
	briefFor  = 10 * time.Millisecond // behind a connection that came
)

// wait waits in the driver. Under load a loop that waited as other goroutines do would lose its CPU
// to the runtime's monitor after 20 µs, for nobody, and pay four switches of threads to get it back
// (docs/design/2026-11-23-what-the-monitor-costs.md). So where handlers run on the loop, and
// connections come and go, it waits briefly as long as something comes at once, unless goroutines
// of its connections want the CPU; those that it knows nothing of get it now and then. Where
// connections stay, that costs more than it saves.
func (l *Loop) wait(d time.Duration) error {
	brief := l.brisk && l.group.cfg.OnLoop && l.serving == 0 && l.now-l.came < int64(briefFor)
	if brief {
		if l.now-l.yielded > int64(yieldEach) {
			l.yielded = l.now
			runtime.Gosched()
		}
		if d < 0 || d > briefWait {
			d = briefWait
		}
	}
	began := l.group.Clock()
	err := l.driver.Wait(d, brief)
	l.brisk = l.now-began < int64(briefWait)
	return err
}

// leave ends the loop once it has no connections.
func (l *Loop) leave() {
	if l.open == l.apart && l.serving == 0 {
		l.tellDrained()
	}
	if l.open == 0 && (l.serving == 0 || l.hard) {
		l.leaving = gone
	}
}

func (l *Loop) tellDrained() {
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}

// Tick begins the loop's work of a turn. The driver calls it when it comes back from the kernel.
func (l *Loop) Tick() {
	l.asleep.Store(false)
	l.turns.Add(1)
	l.now = l.group.Clock()
}

// flush sends what connections have written since.
func (l *Loop) flush() {
	for i := 0; i < len(l.dirty); i++ { // it may grow meanwhile
		c := l.dirty[i]
		if c == nil { // a handler died in the midst of this
			continue
		}
		l.dirty[i] = nil
		c.dirty = false
		if !c.sending && c.head != nil && c.state != Dead {
			l.driver.Send(c)
		}
	}
	l.dirty = l.dirty[:0]
}

// post leaves something for the loop and reports whether it will be done.
func (l *Loop) post(p post) bool {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return false
	}
	l.posts = append(l.posts, p)
	if l.asleep.CompareAndSwap(true, false) {
		l.driver.Wake() // under mu: after stopped there is no driver
	}
	l.mu.Unlock()
	return true
}

func (l *Loop) takePosts() {
	l.mu.Lock()
	l.posts, l.spare = l.spare[:0], l.posts
	l.mu.Unlock()
	for i, p := range l.spare {
		l.spare[i] = post{}
		switch p.what {
		case postOpen:
			l.add(p.sock, p.ln)
		case postListen:
			l.listen(p.ln)
		case postUnlisten:
			if !p.ln.ending {
				p.ln.ending = true
				l.driver.Unlisten(p.ln, false)
			}
		case postSweep:
			l.sweep()
		case postRoom:
			l.acceptAgain()
		case postDrain:
			l.drain()
		case postIdle:
			l.every(func(c *Conn) { c.endIdle(p.most, p.head) })
		case postStop:
			l.stop()
		case postConn:
			if p.c.app.Posted(); p.c.state == Dead {
				l.driver.Close(p.c)
			}
		}
	}
	clear(l.spare) // a handler may have died in the midst of it
}

// stop ends the loop and all its connections.
func (l *Loop) stop() {
	l.every(func(c *Conn) { c.Kill(net.ErrClosed) })
	l.leaving, l.hard = lameDuck, true
}

// drain begins the end: connections that wait for nothing are closed after a moment, the others
// when they have been answered.
func (l *Loop) drain() {
	if l.leaving == staying {
		l.leaving = lameDuck
	}
	l.each(App.Drain)
}

// each calls the App of every connection that is open.
func (l *Loop) each(f func(App)) {
	l.every(func(c *Conn) {
		if c.state == Open {
			l.call(c, func() { f(c.app) })
		}
	})
}

// every calls f with every connection, which it may end.
func (l *Loop) every(f func(*Conn)) {
	for c := l.first; c != nil; {
		next := c.next
		f(c)
		c = next
	}
}

// Draining reports whether the group is going to end.
func (l *Loop) Draining() bool { return l.group.ending.Load() }

// add takes a new connection.
func (l *Loop) add(sock Socket, ln *Listener) {
	if l.hard {
		l.refuse(sock)
		return
	}
	c := &Conn{loop: l, sock: sock, origin: ln.Origin, short: ln.Short, began: l.now}
	if err := l.driver.Open(c); err != nil {
		l.refuse(sock)
		l.group.cfg.Log.Warn("a connection was closed: it cannot be watched", "error", err)
		return
	}
	c.next = l.first
	if l.first != nil {
		l.first.prev = c
	}
	l.first = c
	l.open++
	l.came = l.now
	l.tally.Accepted++
	c.app = l.group.cfg.NewApp(c)
	l.call(c, c.app.Begin)
}

// refuse closes a connection that nobody can serve.
func (l *Loop) refuse(sock Socket) {
	_ = sock.Close()
	l.tally.Dropped++
	l.group.left()
}

// Become gives the connection to another App. The first one hears of nothing any more.
func (c *Conn) Become(a App) { c.app = a }

// call calls the App of c, so that its death is known to be c's.
func (l *Loop) call(c *Conn, f func()) {
	before := l.current
	l.current = c
	f()
	l.current = before
}

// MayReceive says how much of at most n bytes the loop is to receive for the connection now. If it
// is 0, a reader knows that there is something. last says that the peer has ended its side.
func (l *Loop) MayReceive(c *Conn, n int, last bool) int {
	if g, ok := c.app.(*GoConn); ok && c.state == Open {
		return min(n, g.mayReceive(last))
	}
	return n
}

// Received hands bytes to a connection.
func (l *Loop) Received(c *Conn, b Lent) {
	l.tally.In += uint64(len(b))
	c.spoke = true
	if c.state != Open {
		c.throwAway(len(b))
		return
	}
	if c.bulky > 0 {
		c.bulky--
	}
	before := l.current
	l.current, c.share = c, mostShare
	c.app.Input(b)
	l.current, c.share = before, 0
	switch {
	case c.failed == io.EOF:
		l.Ended(c, nil)
	case c.failed != nil:
		l.Ended(c, c.failed)
	}
}

// Ended says that no more bytes will come: err is nil if the peer has ended its side.
func (l *Loop) Ended(c *Conn, err error) {
	c.ended = true
	switch {
	case c.state == Dead:
	case err != nil || c.state == Lingering:
		c.Kill(err)
	case c.state == Open:
		l.call(c, func() { c.app.Ended(io.EOF) })
	}
}

// Sent says that the kernel took n bytes of c's output.
func (l *Loop) Sent(c *Conn, n int, err error) {
	c.sending, c.flying = false, nil
	l.tally.Out += uint64(n)
	c.took(n)
	if c.dropping {
		c.DropForeign()
	}
	switch {
	case err != nil && !errors.Is(err, ErrCanceled):
		c.Kill(err)
	case c.state == Dead:
	case c.head != nil:
		c.soil()
	case c.state == Flushing:
		c.flushed()
	}
	if c.state == Open {
		l.call(c, c.app.Sent)
	}
}

// ErrCanceled is the error of a Sent that CancelSend brought about.
var ErrCanceled = errors.New("canceled")

// Writable says that the socket of c takes output.
func (l *Loop) Writable(c *Conn) {
	if c.state == Open {
		c.app.Writable()
	}
}

// Detached says that the driver does not receive for c any more.
func (l *Loop) Detached(c *Conn) {
	if g, ok := c.app.(*GoConn); ok && c.state != Dead {
		g.detached()
	}
}

// Closed says that the driver has let go of the descriptor.
func (l *Loop) Closed(c *Conn) {
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
	c.sending, c.dropping, c.flying = false, false, nil
	c.dropOutput()
	l.group.left()
	l.call(c, c.app.Closed)
}

// MayClose reports whether the descriptor of c may be closed, and sees to it that nobody begins to
// use it.
func (l *Loop) MayClose(c *Conn) bool { return c.app.MayClose() }

// expire ends what has taken too long.
func (l *Loop) expire() {
	for {
		c := l.timers.pop(l.now)
		if c == nil {
			return
		}
		if g, ok := c.app.(*GoConn); ok && c.state == Open {
			g.refresh()
		}
		switch {
		case !c.passed(l.now): // it has moved on
		case c.state == Open:
			l.call(c, c.app.Expired)
		case c.lingerOn():
		default:
			c.Kill(ErrTooSlow)
		}
		if at := c.nextLook(l.now); c.state != Dead && at != never {
			c.watch(at)
		}
	}
}

// Tally is what a loop counts.
type Tally struct {
	Accepted, Requests, In, Out, Dropped uint64
}

// Published is what others may read of a loop.
type Published struct {
	Accepted, Requests, In, Out, Dropped                    atomic.Uint64
	Wrote                                                   atomic.Uint64 // bytes that goroutines sent by themselves
	Read                                                    atomic.Uint64 // … and received
	Stalls                                                  atomic.Uint64
	Calls, Submitted, Completed, Starved, Overflows, Mapped atomic.Uint64
	_                                                       [2]uint64 // loops do not share cache lines
}

func (l *Loop) publish() {
	p := l.shared
	p.Accepted.Store(l.tally.Accepted)
	p.Requests.Store(l.tally.Requests)
	p.In.Store(l.tally.In)
	p.Out.Store(l.tally.Out)
	p.Dropped.Store(l.tally.Dropped)
	f := l.driver.Figures()
	p.Calls.Store(f.Calls)
	p.Submitted.Store(f.Submitted)
	p.Completed.Store(f.Completed)
	p.Starved.Store(f.Starved)
	p.Overflows.Store(f.Overflows)
	p.Mapped.Store(f.Mapped)
}
