package ring

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/uring"
)

// A send never waits in the kernel: what the socket does not take waits here for room, by a poll.
// Once a peer has ended its side, that is an event of every poll, and a send that waits in the
// kernel for something else is tried again in a row, then fails or holds a thread. A poll that
// tells of nothing else is followed by one that stays, and tells of each change: see watch.

// Send implements loop.Driver.
func (d *driver) Send(c *loop.Conn) {
	e := c.Slot.(*conn)
	if e.short {
		e.short, e.full = false, true
		c.SetSending()
		d.AwaitRoom(c)
		return
	}
	k := c.Output()
	op := d.op(tagSend, c.ID)
	if k.Next() == nil {
		n := loop.AtOnce(k.Hi - k.Lo)
		e.asked = int32(n)
		op.Send(e.file, handle(k)).Part(k.Lo, k.Lo+n)
		if c.LastSend() {
			op.Followed()
		}
	} else {
		d.vector(op, e, k)
	}
	err := d.ring.Push(op.Flags(syscall.MSG_DONTWAIT))
	if err != nil {
		d.keep(op)
	}
	switch {
	case err == nil:
		c.SetSending()
		if k.Next() == nil && k.Hi-k.Lo <= loop.SmallChunk && c.State() == loop.Open {
			d.quick++
		}
	case errors.Is(err, uring.ErrFull):
		d.late = append(d.late, e)
	default:
		c.Kill(err)
	}
}

// vector makes a send of several chunks.
func (d *driver) vector(op *uring.Op, e *conn, k *loop.Chunk) {
	var room [maxVector]*uring.Buffer
	n := 0
	bufs := room[:0]
	for ; k != nil && len(bufs) < maxVector; k = k.Next() {
		b := k.Bytes()
		if k.Next() == nil || len(bufs) == maxVector-1 {
			b = b[:loop.AtOnce(len(b))]
		}
		bufs = append(bufs, uring.Wrap(b))
		n += len(b)
	}
	e.asked = int32(n)
	op.SendMsg(e.file, netip.AddrPort{}, nil, bufs...)
}

// handle is the ring's name for a chunk's memory.
func handle(k *loop.Chunk) *uring.Buffer {
	b, ok := k.Handle.(*uring.Buffer)
	if !ok {
		b = uring.Wrap(k.Mem)
		k.Handle = b
	}
	return b
}

// sent goes on after a send. One that took less than it was given has filled the socket.
func (d *driver) sent(e *conn, op *uring.Op) {
	n, err := max(int(op.Res), 0), op.Err()
	if err == syscall.EAGAIN {
		err = nil
	}
	e.short = n < int(e.asked)
	d.keep(op)
	d.l.Sent(e.c, n, err)
	d.endIf(e)
}

// CancelSend implements loop.Driver. What is not waiting for room is over soon.
func (d *driver) CancelSend(c *loop.Conn) { d.unfill(c.Slot.(*conn)) }

// retry does what found the ring full before.
func (d *driver) retry() {
	late := d.late
	d.late = d.late[:0]
	for _, e := range late {
		switch c := e.c; {
		case c.State() == loop.Dead:
			d.Close(c)
		case e.unasked:
			e.unasked = false
			d.AwaitRoom(c)
		case !c.Sending() && c.Output() != nil:
			d.Send(c)
		}
	}
}

// AwaitRoom implements loop.Driver.
func (d *driver) AwaitRoom(c *loop.Conn) {
	e := c.Slot.(*conn)
	if d.pushPoll(e, d.op(tagRoom, c.ID).Poll(e.file, sys.PollWritable)) {
		e.polling++
	}
}

// room goes on with those who wait for room in a socket.
func (d *driver) room(e *conn) {
	d.unfill(e)
	d.l.Writable(e.c)
}

// unfill lets the loop send again what waits for room.
func (d *driver) unfill(e *conn) {
	if e.full {
		e.full = false
		d.l.Sent(e.c, 0, nil)
	}
}

// watch begins to be told of each change of a socket. The first thing told is how it is.
func (d *driver) watch(e *conn) {
	if e.edge != nil || e.ending {
		return
	}
	op := d.op(tagEdge, e.c.ID)
	if d.pushPoll(e, op.PollEach(e.file, sys.PollWritable)) {
		e.edge = op
	}
}

// pushPoll pushes a poll for room, and reports whether it is under way. If the ring is full, retry
// asks for room again.
func (d *driver) pushPoll(e *conn, op *uring.Op) bool {
	err := d.ring.Push(op)
	if err == nil {
		return true
	}
	d.keep(op)
	if errors.Is(err, uring.ErrFull) {
		e.unasked = true
		d.late = append(d.late, e)
	} else {
		e.c.Kill(err)
	}
	return false
}

// leave ends what watch began. If the ring is full, retry closes again.
func (d *driver) leave(e *conn) {
	if e.edge == nil || e.leaving {
		return
	}
	op := d.op(tagOther, 0)
	if err := d.ring.Push(op.Cancel(e.edge)); err != nil {
		d.keep(op)
		d.late = append(d.late, e)
		return
	}
	e.leaving = true
}
