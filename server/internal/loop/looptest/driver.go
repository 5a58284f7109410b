package looptest

import (
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// driver is a loop.Driver whose kernel is a network in memory. In each Wait it does a few steps of
// those that are possible, which the seed chooses.
type driver struct {
	l      *loop.Loop
	n      *network
	ln     *loop.Listener
	paused bool
	woken  chan struct{}
	buf    []byte
	lent   []byte
}

// step is something that can happen.
type step struct {
	s  *socket
	do func(*socket)
}

const stepsOfATurn = 4

// Wait implements loop.Driver.
func (d *driver) Wait(timeout time.Duration, _ bool) error {
	steps := d.possible()
	if len(steps) == 0 && timeout != 0 {
		if timeout < 0 || timeout > time.Millisecond { // what goroutines do gives no sign
			timeout = time.Millisecond
		}
		select {
		case <-d.woken:
		case <-time.After(timeout):
		}
	}
	d.l.Tick()
	for range stepsOfATurn {
		steps = d.possible()
		if len(steps) == 0 {
			break
		}
		d.n.mu.Lock()
		one := steps[d.n.rng.IntN(len(steps))]
		d.n.mu.Unlock()
		one.do(one.s)
	}
	return nil
}

// possible is what can happen now.
func (d *driver) possible() (steps []step) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	add := func(s *socket, do func(*socket)) { steps = append(steps, step{s, do}) }
	for _, s := range d.n.sockets {
		passed := time.Since(d.n.began)
		for len(s.later) > 0 && s.later[0].At <= passed {
			s.toSend = append(s.toSend[:len(s.toSend):len(s.toSend)], s.later[0].Send...)
			s.later = s.later[1:]
		}
		switch {
		case s.closed:
		case !s.accepted:
			if d.ln != nil && !d.paused {
				add(s, d.accept)
			}
		default:
			if len(s.toSend) > 0 && !s.reset {
				add(s, d.clientSends)
			} else if !s.ended && !s.reset && len(s.later) == 0 && s.client.End != Never &&
				!(d.n.cfg.Gentle && s.busy()) {
				add(s, d.clientEnds)
			}
			if s.edge && s.conn != nil && !s.held {
				add(s, d.receive)
			}
			if s.window == 0 && !s.reset && s.client.Reads <= passed {
				add(s, d.clientReads)
			}
			if s.pending && (s.client.Reads <= passed || s.window > 0 || s.canceled || s.fail() != nil) {
				add(s, d.send)
			}
			if s.roomEdge && s.conn != nil {
				add(s, d.room)
			}
		}
	}
	return steps
}

// busy reports whether something of what the client sent, or of the answer to it, is on its way.
func (s *socket) busy() bool {
	return s.conn == nil || len(s.rx) > 0 || s.edge || s.pending || s.conn.Queued() > 0
}

func (d *driver) accept(s *socket) {
	s.accepted = true
	d.l.Accepted(d.ln, s)
}

func (d *driver) clientSends(s *socket) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	m := d.n.some(len(s.toSend))
	s.rx = append(s.rx, s.toSend[:m]...)
	s.toSend, s.edge = s.toSend[m:], true
}

func (d *driver) clientEnds(s *socket) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	s.edge = true
	if s.client.End == Reset {
		s.reset, s.rx, s.roomEdge = true, nil, true
		return
	}
	s.ended = true
}

func (d *driver) clientReads(s *socket) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	s.window, s.roomEdge = d.n.roomForOutput(), true
}

// receive receives once, as a driver does when it is told of an edge. What is left keeps the edge.
func (d *driver) receive(s *socket) {
	d.n.mu.Lock()
	s.edge = false
	c, last := s.conn, s.ended || s.reset || s.hung
	most := d.n.some(len(d.buf))
	d.n.mu.Unlock()
	if c.InputEnded() || c.State() == loop.Dead {
		return
	}
	if d.n.cfg.Aside {
		if most = d.l.MayReceive(c, most, last); most == 0 {
			return
		}
	}
	n, err := s.Receive(d.buf[:most])
	switch {
	case err == loop.ErrWait:
		d.l.ReceivedNothing(c)
	case err != nil:
		d.l.Ended(c, err)
	case n == 0:
		d.l.Ended(c, nil)
	default:
		d.n.mu.Lock()
		s.edge = s.edge || len(s.rx) > 0 || s.ended || s.reset
		d.n.mu.Unlock()
		s.client.Lent += n
		d.lent = d.buf[:n]
		d.l.Received(c, d.lent)
		d.takeBack()
	}
}

// takeBack ends a loan, and leaves nothing of it.
func (d *driver) takeBack() {
	for i := range d.lent {
		d.lent[i] = 0xdd
	}
	d.lent = nil
}

// room tells of room in a socket.
func (d *driver) room(s *socket) {
	s.roomEdge = false
	d.l.Writable(s.conn)
}

// send completes a send of the loop: some of it, or its failure.
func (d *driver) send(s *socket) {
	c := s.conn
	n, err := 0, error(nil)
	switch k := c.Output(); {
	case s.canceled:
		err = loop.ErrCanceled
	case k != nil:
		if n, err = send(c, k.Bytes()); err == loop.ErrWait {
			return // still pending
		}
	}
	s.pending, s.canceled = false, false
	d.l.Sent(c, n, err)
	if c.State() == loop.Dead {
		d.Close(c)
	}
}

func send(c *loop.Conn, b []byte) (int, error) {
	if c.LastSend() {
		return c.Socket().SendMore(b)
	}
	return c.Socket().Send(b)
}

// Wake implements loop.Driver.
func (d *driver) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// Accept implements loop.Driver.
func (d *driver) Accept(ln *loop.Listener) error {
	d.ln, d.paused = ln, false
	return nil
}

// Pause implements loop.Driver.
func (d *driver) Pause(*loop.Listener) { d.paused = true }

// Unlisten implements loop.Driver.
func (d *driver) Unlisten(ln *loop.Listener, _ bool) {
	d.ln = nil
	d.l.Unlistened(ln)
}

// Open implements loop.Driver.
func (d *driver) Open(c *loop.Conn) error {
	s := c.Socket().(*socket)
	s.conn, s.edge = c, true
	return nil
}

// Hold implements loop.Driver.
func (d *driver) Hold(c *loop.Conn) { c.Socket().(*socket).held = true }

// Resume implements loop.Driver.
func (d *driver) Resume(c *loop.Conn) {
	s := c.Socket().(*socket)
	d.n.mu.Lock()
	s.held, s.edge = false, true
	d.n.mu.Unlock()
}

// Send implements loop.Driver: it is done later.
func (d *driver) Send(c *loop.Conn) {
	c.SetSending()
	c.Socket().(*socket).pending = true
}

// CancelSend implements loop.Driver.
func (d *driver) CancelSend(c *loop.Conn) { c.Socket().(*socket).canceled = true }

// AwaitRoom implements loop.Driver.
func (d *driver) AwaitRoom(c *loop.Conn) {
	s := c.Socket().(*socket)
	d.n.mu.Lock()
	s.roomEdge = s.roomEdge || s.window > 0 || s.fail() != nil
	d.n.mu.Unlock()
}

// Detach implements loop.Driver.
func (d *driver) Detach(c *loop.Conn) { d.l.Detached(c) }

// Close implements loop.Driver.
func (d *driver) Close(c *loop.Conn) {
	s := c.Socket().(*socket)
	if s.closed {
		return
	}
	if s.pending {
		s.Hang() // then it comes back
		return
	}
	if !d.l.MayClose(c) {
		s.Hang()
		return
	}
	if c.Corked() {
		_ = s.EndSending()
	}
	d.l.Closed(c)
	_ = s.Close()
}

// Chunk implements loop.Driver. Chunks are small, so that answers need several.
func (d *driver) Chunk(large bool) *loop.Chunk {
	size := 256
	if large {
		size = 700
	}
	return &loop.Chunk{Mem: make([]byte, size), Large: large}
}

// Recycle implements loop.Driver: nobody may use the memory any more.
func (d *driver) Recycle(c *loop.Chunk) {
	for i := range c.Mem {
		c.Mem[i] = 0xdd
	}
}

// Untouched implements loop.Driver: a kernel may have taken what came already, so that it has to be
// waited for.
func (d *driver) Untouched(*loop.Conn) bool {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	return d.n.cfg.Gentle || d.n.rng.IntN(4) > 0
}

// ReadsAside implements loop.Driver.
func (d *driver) ReadsAside() bool { return d.n.cfg.Aside }

// Recover implements loop.Driver.
func (d *driver) Recover() { d.takeBack() }

// Figures implements loop.Driver.
func (d *driver) Figures() loop.Figures { return loop.Figures{} }

// Shut implements loop.Driver.
func (d *driver) Shut() error { return nil }
