// Package epoll drives a loop by epoll and plain calls: one to wait, and one for each receive and
// send.
package epoll

import (
	"errors"
	"net/netip"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// driver watches every socket for edges, from its opening to its end, in both directions: no call
// is needed to change what is watched for. An edge says only that something has changed; so who
// receives goes on until the socket says that there is nothing more, and what is left over from a
// turn is on the list again.
type driver struct {
	l      *loop.Loop
	epoll  *sys.Epoll
	wakeFD int
	conns  []*conn // by index
	free   []uint32
	again  []*conn // have something to receive that no event will tell of
	spare2 []*conn
	buf    []byte
	calls  uint64
	spare  [2][]*loop.Chunk
	opened uint32
	lns    []*listener
	events int // of the batch under way …
	next   int // … and the next one

	take func(fd int) (conn int, peer netip.AddrPort, err error) // sys.Accept, but for tests
}

// conn is what epoll needs of a connection.
type conn struct {
	c  *loop.Conn
	fd int
	// of the place in the table: an event that was fetched before the place changed hands is not
	// for the new one
	gen   uint32
	again bool // on the list
	ready bool // there may be something to receive
	// a receive of less than there was room for says nothing: there may be an end behind it, or
	// something out of band
	last bool
	gone bool // closed
}

// listener is what epoll needs of a listening socket.
type listener struct {
	ln    *loop.Listener
	armed bool
}

const (
	idWake     = ^uint64(0)
	idListener = uint64(1) << 63 // and the index
	maxBatch   = 512
	bufSize    = 64 << 10
	maxAccepts = 512 // a turn
)

// New makes a driver for a loop.
func New(l *loop.Loop) (loop.Driver, error) {
	d := &driver{l: l, wakeFD: -1, buf: make([]byte, bufSize), take: sys.Accept}
	var err error
	if d.epoll, err = sys.NewEpoll(maxBatch); err != nil {
		return nil, err
	}
	if d.wakeFD, err = sys.Eventfd(); err == nil {
		err = d.epoll.Add(d.wakeFD, sys.Readable, idWake)
	}
	if err != nil {
		return nil, errors.Join(err, d.Shut())
	}
	return d, nil
}

// Wake implements loop.Driver.
func (d *driver) Wake() { sys.EventfdSignal(d.wakeFD) }

// Wait implements loop.Driver.
func (d *driver) Wait(timeout time.Duration, brief bool) error {
	if len(d.again) > 0 {
		timeout = 0
	}
	if d.next >= d.events { // else a handler died in the midst of the last batch
		n, err := d.wait(timeout, brief)
		if err != nil {
			return err
		}
		d.events, d.next = n, 0
	}
	d.l.Tick()
	for d.next < d.events {
		events, id := d.epoll.Event(d.next)
		d.next++
		switch {
		case id == idWake:
			sys.EventfdDrain(d.wakeFD)
		case id&idListener != 0:
			d.accept(d.lns[uint32(id)], events)
		default:
			if e := d.conns[uint32(id)]; e != nil && e.gen == uint32(id>>32) {
				d.event(e, events)
			}
		}
	}
	d.receiveAgain()
	return nil
}

func (d *driver) wait(timeout time.Duration, brief bool) (int, error) {
	d.calls++
	switch {
	case brief:
		return d.epoll.WaitBriefly(timeout)
	case timeout < 0:
		return d.epoll.Wait(-1)
	}
	return d.epoll.Wait(int((timeout + time.Millisecond - 1) / time.Millisecond))
}

// event handles what has changed at a socket.
func (d *driver) event(e *conn, events uint32) {
	c := e.c
	if events&(sys.Ended|sys.Urgent) != 0 {
		e.last = true
	}
	if events&(sys.Readable|sys.Gone|sys.Urgent) != 0 {
		e.ready = true
		d.receive(e)
	}
	if events&(sys.Writable|sys.Gone) != 0 && !e.gone {
		if c.Sending() {
			d.l.Sent(c, 0, nil) // which puts it on the list of those to be sent
		}
		d.l.Writable(c)
	}
}

// receive receives once. What is left is for the next turn, so that one connection does not keep
// the others waiting.
func (d *driver) receive(e *conn) {
	c := e.c
	if e.gone || c.InputEnded() || c.State() == loop.Dead || c.Held() {
		return // ready stays: Resume looks at it
	}
	most := d.l.MayReceive(c, len(d.buf), e.last)
	if most == 0 {
		e.ready = false // a reader knows
		return
	}
	d.calls++
	n, err := c.Socket().Receive(d.buf[:most])
	switch {
	case err == loop.ErrWait:
		e.ready = false
		d.l.ReceivedNothing(c)
	case err != nil:
		d.l.Ended(c, err)
	case n == 0:
		d.l.Ended(c, nil)
	default:
		e.ready = n == most && most == len(d.buf) || e.last // else there was no more, or a reader knows
		if e.ready && !e.again {
			e.again = true
			d.again = append(d.again, e)
		}
		b := loop.Lent(d.buf[:n])
		d.l.Received(c, b)
		b.GiveBack()
	}
}

// receiveAgain goes on with those that had more to receive than one turn allows.
func (d *driver) receiveAgain() {
	if len(d.again) == 0 {
		return
	}
	d.again, d.spare2 = d.spare2[:0], d.again
	for i, e := range d.spare2 {
		if e == nil {
			continue
		}
		d.spare2[i] = nil
		e.again = false
		if e.ready {
			d.receive(e)
		}
	}
}

// Recover implements loop.Driver.
func (d *driver) Recover() {
	for _, e := range d.spare2 { // those that receiveAgain did not come to
		if e != nil && e.again {
			d.again = append(d.again, e)
		}
	}
	clear(d.spare2)
	loop.Lent(d.buf).GiveBack()
}

func (d *driver) idOf(e *conn) uint64 { return uint64(e.gen)<<32 | uint64(e.c.ID) }

// Open implements loop.Driver.
func (d *driver) Open(c *loop.Conn) error {
	if len(d.free) == 0 {
		d.conns = append(d.conns, nil)
		d.free = append(d.free, uint32(len(d.conns)-1))
	}
	i := d.free[len(d.free)-1]
	c.ID = i
	d.opened++
	e := &conn{c: c, last: c.ShortReads(), fd: c.Socket().FD(), gen: d.opened & (1<<31 - 1)}
	d.calls++
	if err := d.epoll.Add(e.fd, sys.Readable|sys.Writable|sys.Urgent|sys.Edges, d.idOf(e)); err != nil {
		return err
	}
	d.free = d.free[:len(d.free)-1]
	d.conns[i] = e
	c.Slot = e
	return nil
}

// Hold implements loop.Driver: receive looks at Conn.Held.
func (d *driver) Hold(*loop.Conn) {}

// Resume implements loop.Driver. There may be something of which nobody told: a reader left it.
func (d *driver) Resume(c *loop.Conn) {
	e := c.Slot.(*conn)
	if e.ready = true; !e.again {
		e.again = true
		d.again = append(d.again, e)
	}
}

// Untouched implements loop.Driver: it receives only between calls of the loop.
func (d *driver) Untouched(*loop.Conn) bool { return true }

// AwaitRoom implements loop.Driver: an edge comes unasked.
func (d *driver) AwaitRoom(*loop.Conn) {}

// ReadsAside implements loop.Driver.
func (d *driver) ReadsAside() bool { return true }

const maxVector = 16

// Send implements loop.Driver: until the socket takes no more; then it waits for an edge.
func (d *driver) Send(c *loop.Conn) {
	var room [maxVector][]byte
	for c.Output() != nil && c.State() != loop.Dead {
		k, n := c.Output(), 0
		var err error
		d.calls++
		if k.Next() == nil {
			n, err = send(c, k.Bytes())
		} else {
			bufs := room[:0]
			for ; k != nil && len(bufs) < maxVector; k = k.Next() {
				bufs = append(bufs, k.Bytes())
			}
			n, err = c.Socket().SendAll(bufs)
		}
		if err == loop.ErrWait {
			c.SetSending()
			return
		}
		d.l.Sent(c, n, err)
	}
}

// send sends one piece of output.
func send(c *loop.Conn, b []byte) (int, error) {
	if c.LastSend() {
		return c.Socket().SendMore(b)
	}
	return c.Socket().Send(b)
}

// CancelSend implements loop.Driver. Nothing is under way in the kernel.
func (d *driver) CancelSend(c *loop.Conn) { d.l.Sent(c, 0, nil) }

// Detach implements loop.Driver.
func (d *driver) Detach(c *loop.Conn) {
	d.calls++
	if err := d.epoll.Remove(c.Slot.(*conn).fd); err != nil {
		c.Kill(err)
		return
	}
	d.l.Detached(c)
}

// Close implements loop.Driver.
func (d *driver) Close(c *loop.Conn) {
	e := c.Slot.(*conn)
	if e.gone {
		return
	}
	if !d.l.MayClose(c) {
		c.Socket().Hang()
		return
	}
	e.gone = true
	d.conns[c.ID] = nil
	d.free = append(d.free, c.ID)
	if d.calls++; c.Corked() {
		d.calls++
		_ = c.Socket().EndSending()
	}
	_ = c.Socket().Close()
	d.l.Closed(c)
}

// Accept implements loop.Driver.
func (d *driver) Accept(ln *loop.Listener) error {
	a, ok := ln.Slot.(*listener)
	if !ok {
		a = &listener{ln: ln}
		ln.Slot = a
		i := 0
		for i < len(d.lns) && d.lns[i] != nil {
			i++
		}
		if i == len(d.lns) {
			d.lns = append(d.lns, nil)
		}
		d.lns[i] = a
		if err := d.epoll.Add(ln.FD, 0, idListener|uint64(i)); err != nil {
			return err
		}
	}
	a.armed = true
	return d.watch(a, sys.Readable)
}

func (d *driver) watch(a *listener, events uint32) error {
	for i, one := range d.lns {
		if one == a {
			return d.epoll.Set(a.ln.FD, events, idListener|uint64(i))
		}
	}
	return nil
}

// Pause implements loop.Driver.
func (d *driver) Pause(ln *loop.Listener) {
	a := ln.Slot.(*listener)
	a.armed = false
	_ = d.watch(a, 0)
}

// accept accepts who waits. A socket that was shut down is asked even in a pause: epoll would tell
// of it without end.
func (d *driver) accept(a *listener, events uint32) {
	if a == nil {
		return
	}
	for range maxAccepts {
		if !a.armed && events&sys.Gone == 0 {
			return
		}
		d.calls++
		fd, peer, err := d.take(a.ln.FD)
		switch {
		case err == nil:
			options(a.ln, fd)
			d.l.Accepted(a.ln, loop.NewSocket(fd, peer))
		case sys.Pending(err):
			return
		default:
			d.Pause(a.ln)
			d.l.AcceptFailed(a.ln, err, sys.PassingAccept(err), sys.NoDescriptors(err))
			return
		}
	}
}

// options gives a connection those of its listener, if it may have come before that had them.
func options(ln *loop.Listener, fd int) {
	if ln.Early() {
		sys.Accepted(fd)
	}
}

// Unlisten implements loop.Driver.
func (d *driver) Unlisten(ln *loop.Listener, sweep bool) {
	a, ok := ln.Slot.(*listener)
	if ok {
		_ = d.epoll.Remove(ln.FD)
		for i, one := range d.lns {
			if one == a {
				d.lns[i] = nil
			}
		}
	}
	for sweep {
		fd, peer, err := sys.Accept(ln.FD)
		if err != nil {
			break
		}
		options(ln, fd)
		d.l.Accepted(ln, loop.NewSocket(fd, peer))
	}
	_ = ln.Close()
	d.l.Unlistened(ln)
}

// Chunk implements loop.Driver.
func (d *driver) Chunk(large bool) *loop.Chunk {
	k, size := 0, loop.SmallChunk
	if large {
		k, size = 1, loop.LargeChunk
	}
	if n := len(d.spare[k]); n > 0 {
		c := d.spare[k][n-1]
		d.spare[k] = d.spare[k][:n-1]
		return c
	}
	return &loop.Chunk{Mem: make([]byte, size), Large: large}
}

const maxSpare = 1024 // chunks of a size

// Recycle implements loop.Driver.
func (d *driver) Recycle(c *loop.Chunk) {
	c.Lo, c.Hi = 0, 0
	k := 0
	if c.Large {
		k = 1
	}
	if len(d.spare[k]) < maxSpare {
		d.spare[k] = append(d.spare[k], c)
	}
}

// Figures implements loop.Driver.
func (d *driver) Figures() loop.Figures { return loop.Figures{Calls: d.calls} }

// Shut implements loop.Driver.
func (d *driver) Shut() error {
	for _, a := range d.lns {
		if a != nil {
			_ = a.ln.Close()
		}
	}
	if d.wakeFD >= 0 {
		_ = sys.CloseFD(d.wakeFD)
	}
	return d.epoll.Close()
}
