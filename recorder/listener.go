package recorder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// takeover is the silence after which a newer connection takes the place of one that has not ended:
// a device that connects again has lost its old connection, whether we have noticed or not, and one
// that sends has not.
const takeover = 500 * time.Millisecond

// listener takes one connection at a time. One more is accepted, so that we know of it; the rest
// waits in the kernel, which keeps as many as net.core.somaxconn says (4096) with what they send,
// and has those beyond try again.
type listener struct {
	addr  string
	peers string
	newer chan struct{} // has a signal while a connection waits
	taken chan struct{} // has a signal when the connection that waited has been taken
	quit  chan struct{}
	done  sync.WaitGroup // the accepting
	entrance

	mu      sync.Mutex
	l       *net.TCPListener // nil until the address is free
	waiting *net.TCPConn     // nil: none
	closing bool
	sealed  bool // of whoever closes it
}

// entrance is what a hub counts of who comes in.
type entrance struct {
	short shortage
	first atomic.Bool // a hub has a connection in the place that its source has in any case
}

func (e *entrance) counts() *entrance { return e }

// newListener listens at once where it can; an address that is taken is tried again by open.
func newListener(addr, peers string) *listener {
	o := &listener{
		addr: addr, peers: peers,
		newer: make(chan struct{}, 1), taken: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	_ = o.listen(context.Background()) // open says what is wrong
	return o
}

func (o *listener) listen(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.l != nil {
		return nil
	}
	l, err := sockets.Listen(ctx, o.addr)
	if err != nil {
		return err
	}
	o.l = l
	o.done.Go(func() { o.accept(o.l) })
	return nil
}

// Without descriptors to be had, accepting rests for so long, at first and at most.
const (
	firstRest = 20 * time.Millisecond
	lastRest  = time.Second
)

// accept is a goroutine that keeps one connection waiting.
func (o *listener) accept(l *net.TCPListener) {
	rest := firstRest
	for {
		c, err := l.AcceptTCP()
		switch {
		case err == nil:
			rest = firstRest
			o.short.accept.Store(false)
			o.offer(c)
		case errors.Is(err, net.ErrClosed), o.ended():
			return
		default: // no descriptors: the connection stays where it is, and Accept would fail again at once
			o.short.accept.Store(true)
			if !o.pause(rest) {
				return
			}
			rest = min(2*rest, lastRest)
			continue
		}
		select {
		case <-o.quit:
			return
		case <-o.taken:
		}
	}
}

func (o *listener) ended() bool {
	select {
	case <-o.quit:
		return true
	default:
		return false
	}
}

// pause waits; false if the listener ends meanwhile.
func (o *listener) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-o.quit:
		return false
	case <-t.C:
		return true
	}
}

// offer lets a connection wait. The signal changes together with it: one left behind by a
// connection that has been taken would end that connection.
func (o *listener) offer(c *net.TCPConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = c
	o.newer <- struct{}{}
}

// take returns the connection that waits, nil if none does. After an error it waits on.
func (o *listener) take() (device, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting == nil {
		return nil, nil
	}
	s, err := newSocket(o.waiting)
	if err != nil {
		return nil, err
	}
	_ = o.waiting.Close() // s has a descriptor of its own
	o.waiting = nil
	select {
	case <-o.newer:
	default: // whoever waited for it has it
	}
	o.taken <- struct{}{}
	return s, nil
}

// waits reports whether a connection does.
func (o *listener) waits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting != nil
}

func (o *listener) open(ctx context.Context) (device, error) {
	if err := o.listen(ctx); err != nil {
		return nil, err
	}
	for {
		if d, err := o.take(); d != nil || err != nil {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.newer:
		}
	}
}

func (o *listener) signal() <-chan struct{} { return o.newer }

// replaced gives the signal of a connection that waits again: a port that a reload has stopped may
// have had it.
func (o *listener) replaced() <-chan struct{} {
	if o.peers == config.PeersFirst {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting != nil {
		select {
		case o.newer <- struct{}{}:
		default: // it is there
		}
	}
	return o.newer
}

// drainBatch is how many connections a listener that ends gives at a time: those are read and
// closed before the next are taken, so that they need few descriptors.
const drainBatch = 64

// handSpare is how many descriptors a listener that ends leaves to whoever reads what it takes.
const handSpare = 2

// close takes what waits here and in the kernel, which has acknowledged what they sent, before it
// gives up the address. The kernel completes no connection meanwhile; a client that tries goes on
// trying. There may be more to take once what it returns is closed, or when there are descriptors:
// it is to be called again, then, with giveUp when that has taken too long. Why so:
// docs/design/2026-11-22-the-end-of-a-listener.md.
func (o *listener) close(giveUp bool) (rest []device, more bool, err error) {
	o.mu.Lock()
	l, begins := o.l, !o.closing
	if o.closing = true; begins {
		close(o.quit)
	}
	o.mu.Unlock()
	if l == nil {
		return nil, false, nil
	}
	if begins {
		err = l.SetDeadline(time.Unix(1, 0)) // ends Accept
		o.done.Wait()
		err = errors.Join(err, o.seal(l))
	}
	rest, takeErr := o.takeSome(l)
	if (len(rest) > 0 || takeErr != nil) && (!giveUp || o.sealed && len(rest) > 0) {
		return rest, true, err
	}
	if takeErr != nil {
		err = errors.Join(err, o.abandon(l, takeErr))
	}
	return rest, false, errors.Join(err, l.Close())
}

func (o *listener) seal(l *net.TCPListener) (err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		if err = sys.Seal(int(fd)); err != nil {
			err = fmt.Errorf("a connection that comes while this listener closes may be reset with what it has sent: %w", err)
		}
		o.sealed = err == nil
	})
	return errors.Join(err, ctlErr)
}

// takeSome takes up to a batch of those that wait. An error says that there are too few descriptors
// to take more, or one.
func (o *listener) takeSome(l *net.TCPListener) (rest []device, err error) {
	for range handSpare {
		fd, err := sys.Eventfd()
		if err != nil {
			return nil, err
		}
		defer func() { _ = sys.CloseFD(fd) }()
	}
	d, err := o.take()
	if err != nil {
		return nil, err
	}
	if d != nil {
		rest = append(rest, d)
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return rest, err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		var more []device
		more, err = acceptSome(int(fd), drainBatch-len(rest))
		rest = append(rest, more...)
	})
	return rest, errors.Join(err, ctlErr)
}

// abandon counts what waits, which nobody will take for that reason.
func (o *listener) abandon(l *net.TCPListener, why error) *untaken {
	left := &untaken{err: why}
	o.mu.Lock()
	if o.waiting != nil {
		left.connections, left.bytes = 1, waitingIn(o.waiting)
		_ = o.waiting.Close()
		o.waiting = nil
	}
	o.mu.Unlock()
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { left.connections += sys.Backlogged(int(fd)) })
	}
	return left
}

// untaken is connections that a listener could not take when it closed.
type untaken struct {
	connections int
	bytes       uint64 // that they had sent, as far as it is known
	err         error
}

func (u *untaken) Error() string {
	return fmt.Sprintf("%d connections could not be taken: %v; allow more descriptors (LimitNOFILE, ulimit -n)",
		u.connections, u.err)
}

func (u *untaken) Unwrap() error { return u.err }

// waitingIn is what the kernel holds for a connection.
func waitingIn(c *net.TCPConn) (n uint64) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n = sockets.Waiting(int(fd)) })
	}
	return n
}

// acceptSome takes up to so many connections that have been made by now.
func acceptSome(fd, most int) (all []device, err error) {
	for len(all) < most {
		n, peer, err := sys.Accept(fd)
		if sys.Pending(err) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		sys.Unseal(n)
		all = append(all, &socket{descriptor: n, peer: sys.PeerName(n, peer)})
	}
	return all, nil
}
