package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how a group works.
type Config struct {
	Loops    int           // 1 or more
	MaxConns int           // open at a time
	FlushFor time.Duration // how long a peer has for the rest of the output when the connection ends; 0: 30 s
	Locked   bool          // each loop has a thread of its own
	OnLoop   bool          // handlers run on the loops: a handler that holds one up is told of
	Log      *slog.Logger

	NewDriver func(*Loop) (Driver, error)
	NewApp    func(*Conn) App
	Turned    func(*Loop) // called at the end of each turn; may be nil
	Failed    func(error) // a loop cannot go on
}

// Group is some loops that share the connections of some listeners.
type Group struct {
	cfg    Config
	base   time.Time
	loops  []*Loop
	shared []Published

	running sync.WaitGroup
	turn    atomic.Uint64 // of the next connection
	conns   atomic.Int64  // open, all loops
	refused atomic.Bool   // accepting rests because there are MaxConns
	halt    sync.Once     // of drainAll
	halted  chan struct{} // … which closes it
	ending  atomic.Bool   // Drain was called: no answer promises to keep its connection
}

// New makes a group. Start starts it.
func New(cfg Config) *Group {
	return &Group{cfg: cfg, base: time.Now(), shared: make([]Published, cfg.Loops), halted: make(chan struct{})}
}

// Clock is the time of the group's deadlines: ns since it was made.
func (g *Group) Clock() int64 { return int64(time.Since(g.base)) }

// At is a moment as deadlines are counted: 0 is never, -1 long ago.
func (g *Group) At(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if at := int64(t.Sub(g.base)); at > 0 {
		return at
	}
	return -1
}

// Time is the moment that deadlines call at.
func (g *Group) Time(at int64) time.Time { return g.base.Add(time.Duration(at)) }

// Conns is the number of open connections.
func (g *Group) Conns() int { return int(g.conns.Load()) }

// Published is what the loops count, by loop.
func (g *Group) Published() []Published { return g.shared }

// Log is the log.
func (g *Group) Log() *slog.Logger { return g.cfg.Log }

// Start starts the loops.
func (g *Group) Start() error {
	loops := make([]*Loop, g.cfg.Loops)
	for i := range loops {
		l := &Loop{group: g, index: i, shared: &g.shared[i], drained: make(chan struct{})}
		ready := make(chan error, 1)
		g.running.Go(func() { l.run(ready) })
		if err := <-ready; err != nil {
			for _, l := range loops[:i] {
				l.post(post{what: postStop})
			}
			g.running.Wait()
			return fmt.Errorf("loop %d: %w", i, err)
		}
		loops[i] = l
	}
	g.loops = loops
	return nil
}

// Drain accepts who has connected and nobody else, lets all connections end, and waits until the
// last is gone, those apart that somebody has taken over. It returns early with the error of ctx.
func (g *Group) Drain(ctx context.Context) error {
	g.ending.Store(true)
	g.loops[0].post(post{what: postSweep})
	var err error
	for _, l := range g.loops {
		select {
		case <-l.drained:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// EndIdle ends the connections that wait for a request, the first one for so long at least, and
// where head is not 0 those that have waited for the rest of a request's head for so long.
func (g *Group) EndIdle(first, head time.Duration) {
	for _, l := range g.loops {
		l.post(post{what: postIdle, most: first, head: head})
	}
}

// ErrHeld: a loop did not end in time, since a handler holds it.
var ErrHeld = errors.New("a handler holds its loop, which ends when the handler returns")

const stopFor = 2 * time.Second

// Stop ends all connections and loops now, and waits for the loops. Where handlers run on them it
// waits for 2 s at most and returns ErrHeld then: the caller may be such a handler.
func (g *Group) Stop() error {
	g.ending.Store(true)
	for _, l := range g.loops {
		l.post(post{what: postStop})
	}
	if !g.cfg.OnLoop {
		g.running.Wait()
		return nil
	}
	ended := make(chan struct{})
	go func() {
		g.running.Wait()
		close(ended)
	}()
	patience := time.NewTimer(stopFor)
	defer patience.Stop()
	select {
	case <-ended:
		return nil
	case <-patience.C:
		return ErrHeld
	}
}

// Wait waits for the end of the loops.
func (g *Group) Wait() { g.running.Wait() }

func (g *Group) fail(err error) {
	if g.cfg.Failed != nil {
		g.cfg.Failed(err)
	}
}

// drainAll says that everybody who had connected has been accepted, and that nobody else will be.
func (g *Group) drainAll() {
	g.halt.Do(func() {
		close(g.halted)
		for _, l := range g.loops {
			l.post(post{what: postDrain})
		}
	})
}

// Halted is closed when Drain has accepted who had connected and closed the listeners.
func (g *Group) Halted() <-chan struct{} { return g.halted }

// place says which loop gets the next connection.
func (g *Group) place() *Loop {
	g.conns.Add(1)
	return g.loops[g.turn.Add(1)%uint64(len(g.loops))]
}

// left says that a connection is gone.
func (g *Group) left() {
	if g.conns.Add(-1) < int64(g.cfg.MaxConns) && g.refused.CompareAndSwap(true, false) {
		g.loops[0].post(post{what: postRoom})
	}
}

// full reports whether there are as many connections as may be; accepting then rests until one has
// left.
func (g *Group) full() bool {
	if g.conns.Load() < int64(g.cfg.MaxConns) {
		return false
	}
	g.refused.Store(true)
	return g.conns.Load() >= int64(g.cfg.MaxConns) // one may have left meanwhile
}

// Listen accepts connections from a listening socket, which must not block; up to early of them may
// have been made before that had its options. failed is told, once, when that has ended because of
// an error of the socket.
func (g *Group) Listen(ln *Listener, early int, closeFD func() error, failed func(error)) {
	ln.early, ln.closeFD, ln.failed = early, closeFD, failed
	if !g.loops[0].post(post{what: postListen, ln: ln}) {
		_ = ln.close()
	}
}

// Unlisten ends the accepting from ln. The connections go on.
func (g *Group) Unlisten(ln *Listener) {
	g.loops[0].post(post{what: postUnlisten, ln: ln})
}

// Listener is a listening socket. It is loop 0's.
type Listener struct {
	FD     int
	Origin any  // given to the connections
	Short  bool // their Conn.ShortReads
	Slot   any  // the driver's

	closeFD func() error
	failed  func(error)
	armed   bool          // the driver accepts
	ending  bool          // Unlisten was called
	retry   int64         // when to accept again after an error; 0: there was none
	delay   time.Duration // of the last retry
	errors  int           // since a connection was accepted
	early   int           // connections that may have been made before the socket had its options
}

// Early reports whether the next connection may have been made before the listening socket had the
// options that connections inherit: only as many as could wait at it then.
func (ln *Listener) Early() bool {
	ln.early--
	return ln.early >= 0
}

func (ln *Listener) close() error {
	if ln.closeFD == nil {
		return nil
	}
	f := ln.closeFD
	ln.closeFD = nil
	return f()
}

// Close closes the socket; it is for the driver.
func (ln *Listener) Close() error { return ln.close() }

// acceptor is what loop 0 does beside the others: it accepts for all. A listening socket for each
// loop would share connections out by a hash, unevenly, and closing one would reset those who wait
// at it.
type acceptor struct {
	listeners []*Listener
	sweeping  bool
}

// How errors of accepting are met.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
	manyErrors = 16 // of single connections one after the other
)

func (l *Loop) listen(ln *Listener) {
	if l.sweeping || l.leaving != staying {
		_ = ln.close()
		return
	}
	l.listeners = append(l.listeners, ln)
	l.arm(ln)
}

// arm begins or goes on to accept, if there is room.
func (l *Loop) arm(ln *Listener) {
	if ln.armed || ln.ending || ln.retry > 0 || l.group.full() {
		return
	}
	ln.armed = true
	if err := l.driver.Accept(ln); err != nil {
		ln.armed = false
		l.loseListener(ln, err)
	}
}

func (l *Loop) acceptAgain() {
	for _, ln := range l.listeners {
		l.arm(ln)
	}
}

// retryAt is when to accept again after an error; 0 if there is nothing to wait for.
func (l *Loop) retryAt() int64 {
	at := int64(0)
	for _, ln := range l.listeners {
		if ln.retry > 0 && (at == 0 || ln.retry < at) {
			at = ln.retry
		}
	}
	return at
}

func (l *Loop) retryAccept() {
	for _, ln := range l.listeners {
		if ln.retry > 0 && ln.retry <= l.now {
			ln.retry = 0
			l.arm(ln)
		}
	}
}

// Room is the number of connections that may still be accepted.
func (l *Loop) Room() int { return l.group.cfg.MaxConns - int(l.group.conns.Load()) }

// Accepted takes a new connection; the loops get them in turn.
func (l *Loop) Accepted(ln *Listener, sock Socket) {
	if ln.errors > 0 {
		if ln.delay > 0 {
			l.group.cfg.Log.Info("connections are accepted again")
		}
		ln.errors, ln.delay = 0, 0
	}
	l.came = l.now
	if to := l.group.place(); to == l {
		l.add(sock, ln)
	} else if !to.post(post{what: postOpen, sock: sock, ln: ln}) {
		l.refuse(sock)
	}
	if ln.armed && !ln.ending && l.group.full() {
		ln.armed = false
		l.driver.Pause(ln)
	}
}

// Unarmed says that the driver has ceased to accept without an error, like a ring whose operation
// has ended.
func (l *Loop) Unarmed(ln *Listener) {
	ln.armed = false
	l.arm(ln)
}

// AcceptFailed says that accepting has failed and that the driver has ceased to try. What is one
// connection's error is tried again at once, a limit of descriptors or memory after a while that
// doubles; the log has one line for that, and one when it is over. Anything else is the end of the
// listener.
func (l *Loop) AcceptFailed(ln *Listener, err error, passing, limit bool) {
	ln.armed = false
	if !passing && !limit {
		l.loseListener(ln, err)
		return
	}
	if ln.errors++; passing && ln.errors < manyErrors {
		l.arm(ln)
		return
	}
	if ln.delay == 0 {
		l.group.cfg.Log.Warn("no connection can be accepted for the moment; it is tried again", "error", err)
	}
	ln.delay = min(max(2*ln.delay, firstRetry), lastRetry)
	ln.retry = l.now + int64(ln.delay)
}

// loseListener ends a listener that is of no use any more.
func (l *Loop) loseListener(ln *Listener, err error) {
	if ln.ending {
		return
	}
	ln.ending = true
	if ln.failed != nil {
		ln.failed(err)
	}
	l.driver.Unlisten(ln, false)
}

// sweep ends the accepting from all listeners, of which it leaves nobody behind who has connected.
func (l *Loop) sweep() {
	l.sweeping = true
	for _, ln := range append([]*Listener(nil), l.listeners...) {
		if !ln.ending {
			ln.ending = true
			l.driver.Unlisten(ln, true)
		}
	}
	if len(l.listeners) == 0 {
		l.group.drainAll()
	}
}

// Unlistened says that a listener is closed.
func (l *Loop) Unlistened(ln *Listener) {
	for i, one := range l.listeners {
		if one == ln {
			l.listeners = append(l.listeners[:i:i], l.listeners[i+1:]...)
			break
		}
	}
	if l.sweeping && len(l.listeners) == 0 {
		l.group.drainAll()
	}
}
