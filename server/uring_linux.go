package server

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/uring"
)

// ringDriver drives a loop by a ring: one multishot receive for each connection, one send at a time, and one system call a turn for
// all of them.
type ringDriver struct {
	l       *loop
	ring    *uring.Ring
	bufs    *uring.BufferRing
	conns   []*ringConn // by index
	free    []uint32
	starved uint64

	wakeFD   int
	wakeFile *uring.File
	wakeOp   uring.Op

	socket *uring.File // listening
	accept uring.Op
	cancel uring.Op // of accept
	pause  uring.Op // before accept is tried again
	quit   bool     // no more accepting

	spare  [2][]*chunk // small and large
	arenas []*uring.Arena
	mapped uint64      // bytes of bufs and arenas
	ops    []*uring.Op // for sends, cancels and polls
	late   []*conn     // sends that found the ring full
	came   int         // receives of this turn
	quick  int         // sends that are most likely done as soon as the kernel has them
}

// ringConn is what the ring needs of a connection.
type ringConn struct {
	c          *conn
	polling    int32 // polls for room in flight
	cancelling bool  // of recv
	ending     bool
	recv       uring.Op // sends are by the driver's operations: only few are under way at a time
	file       *uring.File
}

// What an operation is about, in the lowest bits of its tag; the connection's index is above.
const (
	tagWake = iota
	tagAccept
	tagPause
	tagRecv
	tagSend
	tagRoom
	tagOther
	tagBits = 3
)

const (
	ringEntries  = 4096
	ringSpare    = 4096 // operations beyond one receive for each connection
	ringMost     = 65535
	recvBuffers  = 512
	recvSize     = 8 << 10
	arenaSmall   = 64 // chunks mapped at a time
	arenaLarge   = 16
	acceptRetry  = 10 * time.Millisecond // after the limit of descriptors was met
	ringConnsMax = ringMost - ringSpare
	quickWait    = time.Millisecond       // the most that a socket which is full after all holds up the others
	manyCame     = 8                      // receives of a turn that are a load …
	manyWait     = 200 * time.Microsecond // … and the most to wait for as many again
)

func newRingDriver(l *loop) (*ringDriver, error) {
	cfg := &l.srv.cfg
	d := &ringDriver{l: l, wakeFD: -1}
	rc := uring.Config{
		Entries:  ringEntries,
		InFlight: min(cfg.MaxConns/cfg.Loops+ringSpare, ringMost),
		Locked:   true, RegisterRing: true,
	}
	if cfg.SQPoll {
		rc.SQPoll, rc.SQPollIdle = true, cfg.SQPollIdle
	}
	var err error
	if d.ring, err = uring.New(rc); err != nil {
		return nil, err
	}
	if d.bufs, err = d.ring.NewBufferRing(recvBuffers, recvSize, true); err != nil {
		return nil, errors.Join(err, d.ring.Close())
	}
	d.mapped = recvBuffers * recvSize
	if d.wakeFD, err = sys.Eventfd(); err != nil {
		return nil, errors.Join(err, d.ring.Close())
	}
	d.wakeFile = uring.NewFile(d.wakeFD)
	d.wakeOp.Tag = tagWake
	d.accept.Tag, d.cancel.Tag, d.pause.Tag = tagAccept, tagOther, tagPause
	if err := d.ring.Push(d.wakeOp.PollEach(d.wakeFile, sys.PollReadable)); err != nil {
		return nil, errors.Join(err, d.ring.Close(), d.wakeFile.Close())
	}
	return d, nil
}

func (d *ringDriver) wake() { sys.EventfdSignal(d.wakeFD) }

func (d *ringDriver) wait(timeout time.Duration) error {
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
	default:
		err = d.ring.WaitFor(n, timeout)
	}
	if err != nil && !errors.Is(err, uring.ErrTimeout) && !errors.Is(err, uring.ErrFull) { // full: Next makes room
		return err
	}
	d.l.tick()
	for op := d.ring.Next(); op != nil; op = d.ring.Next() {
		if err := d.done(op); err != nil {
			return err
		}
	}
	return nil
}

// patience is how many completions to wait for, and if not for ever, how long. Small sends are done when the wait begins, and must not end it.
// Under load it waits for as many receives as the turn before had.
func (d *ringDriver) patience() (n int, most time.Duration) {
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
func (d *ringDriver) done(op *uring.Op) error {
	switch op.Tag & (1<<tagBits - 1) {
	case tagRecv:
		d.received(d.conns[op.Tag>>tagBits])
	case tagSend:
		rc := d.conns[op.Tag>>tagBits]
		n, err := max(int(op.Res), 0), op.Err()
		d.ops = append(d.ops, op)
		d.l.sent(rc.c, n, err)
		d.endIf(rc)
	case tagRoom:
		rc := d.conns[op.Tag>>tagBits]
		d.ops = append(d.ops, op)
		rc.polling--
		if rc.c.state == open {
			rc.c.app.writable()
		}
		d.endIf(rc)
	case tagWake:
		sys.EventfdDrain(d.wakeFD)
		if !op.More() {
			return d.ring.Push(d.wakeOp.PollEach(d.wakeFile, sys.PollReadable))
		}
	case tagAccept:
		d.accepted(op)
	case tagPause:
		d.armAccept()
	case tagOther:
		if op != &d.cancel {
			d.ops = append(d.ops, op)
		}
	}
	return nil
}

func (d *ringDriver) received(rc *ringConn) {
	op, c := &rc.recv, rc.c
	piece, ok := op.Picked()
	if ok && op.Res > 0 {
		d.came++
		d.l.received(c, piece.Bytes)
	}
	piece.Give()
	if op.More() {
		return
	}
	rc.cancelling = false
	switch err := op.Err(); {
	case rc.ending:
		d.endIf(rc)
	case op.Res > 0, err == syscall.ECANCELED:
		d.receive(rc)
	case err == syscall.ENOBUFS:
		d.starved++
		d.receive(rc)
	default: // the end of the stream, or an error
		d.l.inputEnded(c, err)
	}
}

// receive begins to receive unless the connection does not want to.
func (d *ringDriver) receive(rc *ringConn) {
	if rc.c.held || rc.c.eof || rc.ending || rc.recv.InFlight() {
		return
	}
	if err := d.ring.Push(rc.recv.RecvEach(rc.file, d.bufs)); err != nil {
		d.l.inputEnded(rc.c, err)
	}
}

func (d *ringDriver) open(c *conn) error {
	if len(d.free) == 0 {
		if len(d.conns) >= ringConnsMax {
			return fmt.Errorf("more than %d connections on one ring", ringConnsMax)
		}
		d.conns = append(d.conns, nil)
		d.free = append(d.free, uint32(len(d.conns)-1))
	}
	i := d.free[len(d.free)-1]
	rc := &ringConn{c: c, file: uring.NewFile(c.fd)}
	c.slot, c.id = rc, i
	rc.recv.Tag = uint64(i)<<tagBits | tagRecv
	if err := d.ring.Push(rc.recv.RecvEach(rc.file, d.bufs)); err != nil {
		return err
	}
	d.free = d.free[:len(d.free)-1]
	d.conns[i] = rc
	return nil
}

func (d *ringDriver) hold(c *conn) {
	rc := c.slot.(*ringConn)
	if !rc.recv.InFlight() || rc.cancelling {
		return
	}
	op := d.op(tagOther, 0)
	if err := d.ring.Push(op.Cancel(&rc.recv)); err != nil {
		d.ops = append(d.ops, op)
		return // it goes on to receive: the app's buffer grows by what is on the way
	}
	rc.cancelling = true
}

func (d *ringDriver) resume(c *conn) { d.receive(c.slot.(*ringConn)) }

func (d *ringDriver) send(c *conn) {
	rc := c.slot.(*ringConn)
	h := c.head
	op := d.op(tagSend, c.id)
	err := d.ring.Push(op.Send(rc.file, h.handle.(*uring.Buffer)).Part(h.lo, h.hi).WaitAll())
	if err != nil {
		d.ops = append(d.ops, op)
	}
	switch {
	case err == nil:
		c.sending = true
		if h.next == nil && h.hi-h.lo <= smallChunk && c.state == open {
			d.quick++
		}
	case errors.Is(err, uring.ErrFull):
		d.late = append(d.late, c)
	default:
		c.kill(err)
	}
}

// retry sends what found the ring full before.
func (d *ringDriver) retry() {
	late := d.late
	d.late = d.late[:0]
	for _, c := range late {
		if c.state != dead && !c.sending && c.head != nil {
			d.send(c)
		}
	}
}

// room is for goroutines that write by themselves.
func (d *ringDriver) room(c *conn) {
	rc := c.slot.(*ringConn)
	op := d.op(tagRoom, c.id)
	if err := d.ring.Push(op.Poll(rc.file, sys.PollWritable)); err != nil {
		d.ops = append(d.ops, op)
		c.kill(err)
		return
	}
	rc.polling++
}

func (d *ringDriver) close(c *conn) {
	rc := c.slot.(*ringConn)
	rc.ending = true
	if rc.recv.InFlight() || c.sending || rc.polling > 0 {
		sys.Hang(c.fd) // then they come back
	}
	d.endIf(rc)
}

// endIf closes a connection that is to be closed, once the kernel has nothing of it any more.
func (d *ringDriver) endIf(rc *ringConn) {
	if !rc.ending || rc.recv.InFlight() || rc.c.sending || rc.polling > 0 || d.conns[rc.c.id] != rc || !rc.c.app.mayClose() {
		return
	}
	d.conns[rc.c.id] = nil
	d.free = append(d.free, rc.c.id)
	if err := rc.file.Close(); err != nil {
		d.l.srv.fail(fmt.Errorf("server: close: %w", err))
	}
	d.l.closed(rc.c)
}

func (d *ringDriver) op(tag uint64, index uint32) *uring.Op {
	var op *uring.Op
	if n := len(d.ops); n > 0 {
		op, d.ops = d.ops[n-1], d.ops[:n-1]
	} else {
		op = new(uring.Op)
	}
	op.Tag = uint64(index)<<tagBits | tag
	return op
}

func (d *ringDriver) listen(fd int) error {
	if d.socket == nil {
		d.socket = uring.NewFile(fd)
	}
	return d.armAccept()
}

func (d *ringDriver) listenAgain() {
	if err := d.armAccept(); err != nil {
		d.l.srv.fail(fmt.Errorf("server: accept: %w", err))
	}
}

func (d *ringDriver) armAccept() error {
	if d.socket == nil || d.quit || d.accept.InFlight() || d.pause.InFlight() || d.l.srv.full() {
		return nil
	}
	return d.ring.Push(d.accept.AcceptEach(d.socket))
}

func (d *ringDriver) accepted(op *uring.Op) {
	if op.Res >= 0 {
		d.l.accepted(int(op.Res))
	}
	if op.More() {
		if d.l.srv.full() && !d.cancel.InFlight() {
			_ = d.ring.Push(d.cancel.Cancel(&d.accept)) // if it cannot be cancelled, a few more are accepted
		}
		return
	}
	switch err := op.Err(); {
	case d.quit:
		d.sweep()
	case err != nil && sys.NoDescriptors(err):
		d.l.srv.log.Warn("no connection can be accepted for the moment", "error", err)
		_ = d.ring.Push(d.pause.Timeout(acceptRetry, 0))
	default:
		d.listenAgain()
	}
}

func (d *ringDriver) unlisten() {
	if d.quit {
		return
	}
	d.quit = true
	if d.accept.InFlight() {
		if !d.cancel.InFlight() {
			_ = d.ring.Push(d.cancel.Cancel(&d.accept))
		}
		return
	}
	d.sweep()
}

// sweep accepts those who have connected already, and closes the socket.
func (d *ringDriver) sweep() {
	defer d.l.srv.unlistened()
	for d.socket != nil {
		fd, err := sys.Accept(d.socket.FD())
		if err != nil {
			break
		}
		d.l.accepted(fd)
	}
	if d.socket != nil {
		_ = d.socket.Close()
		d.socket = nil
	}
}

func (d *ringDriver) chunk(large bool) *chunk {
	k, size, n := 0, smallChunk, arenaSmall
	if large {
		k, size, n = 1, largeChunk, arenaLarge
	}
	if len(d.spare[k]) == 0 {
		a, err := uring.NewArena(n, size)
		if err != nil { // no memory can be mapped: the Go heap may still have some
			b := make([]byte, size)
			return &chunk{mem: b, large: large, handle: uring.Wrap(b)}
		}
		d.arenas = append(d.arenas, a)
		d.mapped += uint64(n * size)
		for i := range n {
			d.spare[k] = append(d.spare[k], &chunk{mem: a.Buffer(i).Bytes(), large: large, handle: a.Buffer(i)})
		}
	}
	s := d.spare[k]
	c := s[len(s)-1]
	d.spare[k] = s[:len(s)-1]
	return c
}

func (d *ringDriver) recycle(c *chunk) {
	c.lo, c.hi, c.next = 0, 0, nil
	k := 0
	if c.large {
		k = 1
	}
	d.spare[k] = append(d.spare[k], c)
}

func (d *ringDriver) figures() figures {
	s := d.ring.Stats()
	return figures{calls: s.Enters, submitted: s.Submitted, completed: s.Completed, starved: d.starved, overflows: s.Overflows, mapped: d.mapped}
}

func (d *ringDriver) shut() error {
	err := d.ring.Shutdown(nil)
	if d.socket != nil {
		err = errors.Join(err, d.socket.Close())
	}
	err = errors.Join(err, d.wakeFile.Close())
	for _, a := range d.arenas {
		err = errors.Join(err, a.Close())
	}
	return err
}
