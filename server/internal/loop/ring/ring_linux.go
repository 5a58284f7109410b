// Package ring drives a loop by io_uring: one multishot receive for each connection that has said
// something, one send at a time, and one system call a turn for all of them.
//
// TCP's urgent byte ends a receive, and a multishot receive then asks how much is left up to that
// byte (tcp_inq), which is nothing: it waits for the next arrival, though more may stand behind the
// byte already. So what a client sends behind an urgent byte, together with it, may be seen only
// with what it sends next. HTTP has no urgent data; epoll and std read on.
package ring

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/uring"
)

// Config says how the ring is made.
type Config struct {
	Conns      int // how many connections one loop may have to carry
	SQPoll     bool
	SQPollIdle time.Duration
}

type driver struct {
	l       *loop.Loop
	ring    *uring.Ring
	bufs    *uring.BufferRing
	conns   []*conn // by index
	free    []uint32
	starved uint64

	wakeFD   int
	wakeFile *uring.File
	wakeOp   uring.Op

	lns     []*listener // by index; they are never forgotten, but for their sockets
	backlog int

	spare  [2][]*loop.Chunk // small and large
	arenas []*uring.Arena
	mapped uint64      // bytes of bufs and arenas
	ops    []*uring.Op // for sends, cancels and polls
	late   []*conn     // sends, polls and ends that found the ring full
	came   int         // receives of this turn
	quick  int         // sends that are most likely done as soon as the kernel has them
	lent   uring.Piece // what a connection is looking at

	// What has come of an accept, and by what a receive has ended; tests have their own.
	taken func(*uring.Op) (conn int, err error)
	ended func(*uring.Op) error
}

// conn is what the ring needs of a connection.
type conn struct {
	c          *loop.Conn
	polling    int32 // polls for room in flight
	asked      int32 // bytes of the send under way
	short      bool  // the last send took less: the socket is full
	full       bool  // the output waits for room: to the loop it is being sent
	unasked    bool  // for a poll the ring was full
	cancelling bool  // of recv
	ending     bool
	detaching  bool
	leaving    bool      // edge is being cancelled
	recv       uring.Op  // sends are by the driver's operations: only few are under way at a time
	edge       *uring.Op // tells of each change, of a socket whose peer has ended its side
	file       *uring.File
}

// What an operation is about, in the lowest bits of its tag; the connection's or listener's index
// is above.
const (
	tagWake = iota
	tagAccept
	tagRecv
	tagSend
	tagRoom
	tagEdge
	tagCancel // of a receive
	tagOther
	tagBits = 3
)

const (
	ringEntries = 4096
	ringSpare   = 4096 // operations beyond a receive and a poll for each connection
	ringMost    = 65535
	recvMemory  = 1 << 20  // of the stock of buffers, which are used in turn: it shall fit a CPU's cache
	recvLarge   = 32 << 10 // of one buffer, where the kernel fills it by several arrivals
	recvSingly  = 4 << 20  // of the stock where each arrival uses up a buffer …
	recvSmall   = 8 << 10  // … and of one of those
	arenaSmall  = 64       // chunks mapped at a time
	arenaLarge  = 16
	maxVector   = 16 // chunks of one send
	maxSpareOps = 4096
	quickWait   = time.Millisecond       // the most that a socket which is full after all holds up the others
	manyCame    = 8                      // receives of a turn that are a load …
	manyWait    = 200 * time.Microsecond // … and the most to wait for as many again

	// MaxConns is the most connections of one ring.
	MaxConns = ringMost - ringSpare
)

// New makes a driver for a loop.
func New(l *loop.Loop, cfg Config) (loop.Driver, error) {
	d := &driver{l: l, wakeFD: -1, backlog: sys.Backlog(), taken: taken, ended: (*uring.Op).Err}
	rc := uring.Config{
		Entries:  ringEntries,
		InFlight: min(2*cfg.Conns+ringSpare, ringMost),
		Locked:   true, RegisterRing: true,
	}
	if cfg.SQPoll {
		rc.SQPoll, rc.SQPollIdle = true, cfg.SQPollIdle
	}
	var err error
	if d.ring, err = uring.New(rc); err != nil {
		return nil, err
	}
	d.mapped = recvMemory
	if d.bufs, err = d.ring.NewBufferRing(recvMemory/recvLarge, recvLarge, true); err == nil && !d.bufs.Incremental() {
		if err = d.bufs.Close(); err == nil {
			d.mapped = recvSingly
			d.bufs, err = d.ring.NewBufferRing(recvSingly/recvSmall, recvSmall, false)
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.ring.Close())
	}
	if d.wakeFD, err = sys.Eventfd(); err != nil {
		return nil, errors.Join(err, d.ring.Close())
	}
	d.wakeFile = uring.NewFile(d.wakeFD)
	d.wakeOp.Tag = tagWake
	if err := d.ring.Push(d.wakeOp.PollEach(d.wakeFile, sys.PollReadable)); err != nil {
		return nil, errors.Join(err, d.ring.Close(), d.wakeFile.Close())
	}
	return d, nil
}

// Wake implements loop.Driver.
func (d *driver) Wake() { sys.EventfdSignal(d.wakeFD) }

// Wait implements loop.Driver.
func (d *driver) Wait(timeout time.Duration, brief bool) error {
	d.retry()
	n, most := d.patience()
	if most > 0 && (timeout < 0 || timeout > most) {
		timeout = most
	}
	var err error
	switch {
	case timeout < 0:
		err = d.ring.Wait(n)
	case timeout == 0:
		err = d.ring.Wait(0)
	case brief:
		err = d.ring.WaitBriefly(n, timeout)
	default:
		err = d.ring.WaitFor(n, timeout)
	}
	if err != nil && !errors.Is(err, uring.ErrTimeout) && !errors.Is(err, uring.ErrFull) { // full: Next makes room
		return err
	}
	d.l.Tick()
	for op := d.ring.Next(); op != nil; op = d.ring.Next() {
		if err := d.done(op); err != nil {
			return err
		}
	}
	return nil
}

// patience is how many completions to wait for, and if not for ever, how long. Small sends are done
// when the wait begins, and must not end it. Under load it waits for as many receives as the turn
// before had.
func (d *driver) patience() (n int, most time.Duration) {
	n = 1
	if d.quick > 1 {
		n, most = n+d.quick, quickWait
		if d.came >= manyCame {
			n, most = n+d.came-1, manyWait
		}
	}
	d.quick, d.came = 0, 0
	return n, most
}

// done handles one completion.
func (d *driver) done(op *uring.Op) error {
	index := op.Tag >> tagBits
	switch op.Tag & (1<<tagBits - 1) {
	case tagRecv:
		d.received(d.conns[index])
	case tagSend:
		d.sent(d.conns[index], op)
	case tagRoom:
		e := d.conns[index]
		room := op.Err() != nil || op.Res&sys.PollRoom != 0
		d.keep(op)
		if e.polling--; room {
			d.room(e)
		} else { // the peer has ended its side, and that is all
			d.watch(e)
		}
		d.endIf(e)
	case tagEdge:
		e := d.conns[index]
		room := op.Res > 0 && op.Res&sys.PollRoom != 0
		if !op.More() {
			e.edge, e.leaving = nil, false
			d.keep(op)
			room = true // who waited asks again
		}
		if room {
			d.room(e)
		}
		d.endIf(e)
	case tagWake:
		sys.EventfdDrain(d.wakeFD)
		if !op.More() {
			return d.ring.Push(d.wakeOp.PollEach(d.wakeFile, sys.PollReadable))
		}
	case tagAccept:
		d.accepted(d.lns[index])
	case tagCancel:
		missed := op.Err() != nil
		d.keep(op)
		if e := d.conns[index]; missed && e != nil && e.ending && e.recv.InFlight() {
			e.c.Socket().Hang()
		}
	case tagOther:
		d.keep(op)
	}
	return nil
}

func (d *driver) received(e *conn) {
	op, c := &e.recv, e.c
	piece, ok := op.Picked()
	if ok && op.Res > 0 {
		d.came++
		d.lent = piece
		d.l.Received(c, loop.Lent(piece.Bytes))
		d.lent = uring.Piece{}
		loop.Lent(piece.Bytes).GiveBack()
	}
	piece.Give()
	if op.More() && c.Bulky() { // from now on one by one
		d.cancelReceive(e)
	}
	d.receivedOn(e)
}

// receivedOn goes on after a completion of a receive.
func (d *driver) receivedOn(e *conn) {
	op := &e.recv
	if op.More() {
		return
	}
	e.cancelling = false
	switch err := d.ended(op); {
	case e.ending:
		d.endIf(e)
	case e.detaching:
		d.detachIf(e)
	case err == nil && op.Res > 0, err == syscall.ECANCELED:
		d.receive(e)
	case err == syscall.ENOBUFS:
		d.starved++
		d.receive(e)
	case err == syscall.EAGAIN: // nothing is there yet, and the kernel did not wait
		d.await(e)
	default: // the end of the stream, or an error
		d.l.Ended(e.c, err)
	}
}

// await receives once there is something: the poll takes the place of the receive, and when it is
// done one begins.
func (d *driver) await(e *conn) {
	if e.c.Held() || e.c.InputEnded() || e.c.Deaf() {
		return // who resumes receives
	}
	if err := d.ring.Push(e.recv.Poll(e.file, sys.PollReadable)); err != nil {
		d.l.Ended(e.c, err)
	}
}

// Recover implements loop.Driver.
func (d *driver) Recover() {
	if d.lent.Bytes != nil {
		loop.Lent(d.lent.Bytes).GiveBack()
		d.lent.Give()
		d.lent = uring.Piece{}
	}
	for _, e := range d.conns { // of one of them the receive may have ended unseen
		if e != nil && !e.recv.InFlight() {
			e.cancelling = false
			d.receive(e)
			d.endIf(e)
		}
	}
}

// receive begins to receive unless the connection does not want to.
func (d *driver) receive(e *conn) {
	if e.c.Held() || e.c.InputEnded() || e.c.Deaf() || e.ending || e.detaching || e.recv.InFlight() {
		return
	}
	if e.c.Bulky() {
		e.recv.RecvFrom(e.file, d.bufs).UpTo(loop.SmallBlock)
	} else {
		e.recv.RecvEach(e.file, d.bufs)
	}
	if err := d.ring.Push(&e.recv); err != nil {
		d.l.Ended(e.c, err)
	}
}

// Open implements loop.Driver. The first receive is for one arrival: a connection that ends with
// the answer to its first request then has none under way, which would have to come back before its
// descriptor is closed.
func (d *driver) Open(c *loop.Conn) error {
	if len(d.free) == 0 {
		if len(d.conns) >= MaxConns {
			return fmt.Errorf("more than %d connections on one ring", MaxConns)
		}
		d.conns = append(d.conns, nil)
		d.free = append(d.free, uint32(len(d.conns)-1))
	}
	i := d.free[len(d.free)-1]
	e := &conn{c: c, file: uring.NewFile(c.Socket().FD())}
	c.Slot, c.ID = e, i
	e.recv.Tag = uint64(i)<<tagBits | tagRecv
	if err := d.ring.Push(e.recv.RecvFrom(e.file, d.bufs)); err != nil {
		return err
	}
	d.free = d.free[:len(d.free)-1]
	d.conns[i] = e
	return nil
}

// Hold implements loop.Driver.
func (d *driver) Hold(c *loop.Conn) { d.cancelReceive(c.Slot.(*conn)) }

func (d *driver) cancelReceive(e *conn) {
	if !e.recv.InFlight() || e.cancelling {
		return
	}
	op := d.op(tagCancel, e.c.ID)
	if err := d.ring.Push(op.Cancel(&e.recv)); err != nil {
		d.keep(op)
		return // it goes on to receive: the input grows by what is on the way
	}
	e.cancelling = true
}

// Resume implements loop.Driver.
func (d *driver) Resume(c *loop.Conn) { d.receive(c.Slot.(*conn)) }

// Untouched implements loop.Driver. A receive for each arrival takes what comes as long as it is
// under way.
func (d *driver) Untouched(c *loop.Conn) bool { return !c.Slot.(*conn).recv.InFlight() }

// ReadsAside implements loop.Driver: the kernel receives at all times.
func (d *driver) ReadsAside() bool { return false }

// Detach implements loop.Driver.
func (d *driver) Detach(c *loop.Conn) {
	e := c.Slot.(*conn)
	e.detaching = true
	d.cancelReceive(e)
	d.detachIf(e)
}

func (d *driver) detachIf(e *conn) {
	if !e.recv.InFlight() {
		d.l.Detached(e.c)
	}
}

// Close implements loop.Driver.
func (d *driver) Close(c *loop.Conn) {
	e := c.Slot.(*conn)
	if e.ending = true; d.conns[c.ID] != e {
		return // it is closed
	}
	d.unfill(e)
	d.leave(e)
	switch {
	case c.Sending() || e.polling > 0 || e.cancelling || c.Corked() && e.recv.InFlight():
		c.Socket().Hang() // then they come back, and what was held back goes out
	case c.Corked():
		_ = c.Socket().EndSending()
	case e.recv.InFlight():
		if d.cancelReceive(e); !e.cancelling {
			c.Socket().Hang()
		}
	}
	d.endIf(e)
}

// endIf closes a connection that is to be closed, once the kernel has nothing of it any more.
func (d *driver) endIf(e *conn) {
	if !e.ending || e.recv.InFlight() || e.c.Sending() || e.polling > 0 || e.edge != nil || d.conns[e.c.ID] != e ||
		!d.l.MayClose(e.c) {
		return
	}
	d.conns[e.c.ID] = nil
	d.free = append(d.free, e.c.ID)
	d.closeFile(e.file)
	d.l.Closed(e.c)
}

// closeFile closes a socket with the next call of the ring; at the end there may be none, and near
// MaxConns the descriptor has to be gone before the next connection comes.
func (d *driver) closeFile(f *uring.File) {
	if !d.l.Draining() && d.l.Room() > d.backlog {
		op := d.op(tagOther, 0)
		if d.ring.Push(op.CloseFile(f)) == nil {
			return
		}
		d.keep(op)
	}
	if err := f.Close(); err != nil {
		d.l.Group().Log().Error("a connection cannot be closed", "error", err)
	}
}

func (d *driver) op(tag uint64, index uint32) *uring.Op {
	var op *uring.Op
	if n := len(d.ops); n > 0 {
		op, d.ops = d.ops[n-1], d.ops[:n-1]
	} else {
		op = new(uring.Op)
	}
	op.Tag = uint64(index)<<tagBits | tag
	return op
}

// keep keeps an operation for later, without what it sent.
func (d *driver) keep(op *uring.Op) {
	if len(d.ops) < maxSpareOps {
		op.Reset()
		d.ops = append(d.ops, op)
	}
}
