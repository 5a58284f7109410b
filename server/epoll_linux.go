package server

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// epollDriver drives a loop by epoll and plain calls: one to wait, and one for each receive and send.
type epollDriver struct {
	l      *loop
	epoll  *sys.Epoll
	wakeFD int
	socket int // listening; -1: none
	paused bool
	conns  []*epollConn // by index
	free   []uint32
	buf    []byte
	retry  int64 // when to accept again; 0: now
	calls  uint64
	spare  [2][]*chunk
}

// epollConn is what epoll needs of a connection.
type epollConn struct {
	c    *conn
	gen  uint32 // of the place in the table: an event that was fetched before the place changed hands is not for the new one
	mask uint32 // what is watched for
	want bool   // writable is wanted by goroutines
}

const (
	idWake   = ^uint64(0)
	idListen = ^uint64(0) - 1
	maxBatch = 512
)

func newEpollDriver(l *loop) (*epollDriver, error) {
	d := &epollDriver{l: l, socket: -1, wakeFD: -1, buf: make([]byte, 64<<10)}
	var err error
	if d.epoll, err = sys.NewEpoll(maxBatch); err != nil {
		return nil, err
	}
	if d.wakeFD, err = sys.Eventfd(); err == nil {
		err = d.epoll.Add(d.wakeFD, sys.Readable, idWake)
	}
	if err != nil {
		return nil, errors.Join(err, d.shut())
	}
	return d, nil
}

func (d *epollDriver) wake() { sys.EventfdSignal(d.wakeFD) }

func (d *epollDriver) wait(timeout time.Duration) error {
	if d.retry > 0 {
		if left := time.Duration(d.retry - d.l.now); timeout < 0 || left < timeout {
			timeout = max(left, 0)
		}
	}
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	d.calls++
	n, err := d.epoll.Wait(ms)
	if err != nil {
		return err
	}
	d.l.tick()
	if d.retry > 0 && d.l.now >= d.retry {
		d.retry = 0
		if err := d.armAccept(); err != nil {
			return err
		}
	}
	for i := range n {
		events, id := d.epoll.Event(i)
		switch id {
		case idWake:
			sys.EventfdDrain(d.wakeFD)
		case idListen:
			d.accept()
		default:
			if e := d.conns[uint32(id)]; e != nil && e.gen == uint32(id>>32) {
				d.ready(e, events)
			}
		}
	}
	return nil
}

func (d *epollDriver) ready(e *epollConn, events uint32) {
	c := e.c
	if events&(sys.Readable|sys.Gone) != 0 && !c.eof && (!c.held || events&sys.Gone != 0) && c.state != dead {
		d.receive(e)
	} else if events&sys.Gone != 0 && c.state != dead {
		c.kill(syscall.ECONNRESET)
	}
	if events&sys.Writable != 0 && c.state != dead {
		if e.want {
			e.want = false
			c.app.writable()
		}
		c.sending = false
		if c.head != nil {
			d.send(c)
		}
	}
	if c.state != dead {
		d.aim(e)
	}
}

func (d *epollDriver) receive(e *epollConn) {
	d.calls++
	n, err := sys.Receive(e.c.fd, d.buf)
	switch {
	case sys.Pending(err):
	case err != nil:
		d.l.inputEnded(e.c, err)
	case n == 0:
		d.l.inputEnded(e.c, nil)
	default:
		d.l.received(e.c, d.buf[:n])
	}
}

// aim watches for what is of use now.
func (d *epollDriver) aim(e *epollConn) {
	c := e.c
	mask := uint32(0)
	if !c.eof && !c.held {
		mask |= sys.Readable
	}
	if e.want || c.sending {
		mask |= sys.Writable
	}
	if mask == e.mask {
		return
	}
	e.mask = mask
	d.calls++
	if err := d.epoll.Set(c.fd, mask, d.idOf(e)); err != nil {
		c.kill(err)
	}
}

func (d *epollDriver) idOf(e *epollConn) uint64 { return uint64(e.gen)<<32 | uint64(e.c.id) }

func (d *epollDriver) open(c *conn) error {
	if len(d.free) == 0 {
		d.conns = append(d.conns, nil)
		d.free = append(d.free, uint32(len(d.conns)-1))
	}
	i := d.free[len(d.free)-1]
	c.id = i
	e := &epollConn{c: c, gen: uint32(d.l.tally.accepted) & (1<<31 - 1), mask: sys.Readable}
	d.calls++
	if err := d.epoll.Add(c.fd, e.mask, d.idOf(e)); err != nil {
		return err
	}
	d.free = d.free[:len(d.free)-1]
	d.conns[i] = e
	c.slot = e
	return nil
}

func (d *epollDriver) hold(c *conn)   { d.aim(c.slot.(*epollConn)) }
func (d *epollDriver) resume(c *conn) { d.aim(c.slot.(*epollConn)) }

func (d *epollDriver) room(c *conn) {
	e := c.slot.(*epollConn)
	e.want = true
	d.aim(e)
}

// send sends until the socket takes no more; then it waits for the socket.
func (d *epollDriver) send(c *conn) {
	for c.head != nil && c.state != dead {
		h := c.head
		d.calls++
		n, err := sys.Send(c.fd, h.mem[h.lo:h.hi])
		if sys.Pending(err) {
			c.sending = true
			d.aim(c.slot.(*epollConn))
			return
		}
		d.l.sent(c, n, err)
	}
}

func (d *epollDriver) close(c *conn) {
	if d.conns[c.id] != c.slot.(*epollConn) {
		return // long done
	}
	if !c.app.mayClose() {
		sys.Hang(c.fd)
		return
	}
	d.conns[c.id] = nil
	d.free = append(d.free, c.id)
	d.calls++
	_ = sys.CloseFD(c.fd)
	d.l.closed(c)
}

func (d *epollDriver) listen(fd int) error {
	if d.socket < 0 {
		d.socket = fd
		d.paused = true
	}
	return d.armAccept()
}

func (d *epollDriver) listenAgain() {
	if err := d.armAccept(); err != nil {
		d.l.srv.fail(fmt.Errorf("server: accept: %w", err))
	}
}

func (d *epollDriver) armAccept() error {
	if !d.paused || d.socket < 0 || d.retry > 0 || d.l.srv.full() {
		return nil
	}
	d.paused = false
	return d.epoll.Add(d.socket, sys.Readable, idListen)
}

func (d *epollDriver) accept() {
	for range maxBatch {
		if d.l.srv.full() {
			d.pause()
			return
		}
		d.calls++
		fd, err := sys.Accept(d.socket)
		switch {
		case err == nil:
			d.l.accepted(fd)
		case sys.Pending(err):
			return
		case sys.NoDescriptors(err):
			d.l.srv.log.Warn("no connection can be accepted for the moment", "error", err)
			d.pause()
			d.retry = d.l.now + int64(acceptRetry)
			return
		default:
			d.l.srv.fail(fmt.Errorf("server: accept: %w", err))
			d.pause()
			return
		}
	}
}

func (d *epollDriver) pause() {
	d.paused = true
	_ = d.epoll.Remove(d.socket)
}

func (d *epollDriver) unlisten() {
	defer d.l.srv.unlistened()
	if d.socket < 0 {
		return
	}
	for {
		fd, err := sys.Accept(d.socket)
		if err != nil {
			break
		}
		d.l.accepted(fd)
	}
	_ = sys.CloseFD(d.socket)
	d.socket = -1
}

func (d *epollDriver) chunk(large bool) *chunk {
	k, size := 0, smallChunk
	if large {
		k, size = 1, largeChunk
	}
	if n := len(d.spare[k]); n > 0 {
		c := d.spare[k][n-1]
		d.spare[k] = d.spare[k][:n-1]
		return c
	}
	return &chunk{mem: make([]byte, size), large: large}
}

func (d *epollDriver) recycle(c *chunk) {
	c.lo, c.hi, c.next = 0, 0, nil
	k := 0
	if c.large {
		k = 1
	}
	if len(d.spare[k]) < 1024 {
		d.spare[k] = append(d.spare[k], c)
	}
}

func (d *epollDriver) figures() figures { return figures{calls: d.calls} }

func (d *epollDriver) shut() error {
	if d.socket >= 0 {
		_ = sys.CloseFD(d.socket)
	}
	if d.wakeFD >= 0 {
		_ = sys.CloseFD(d.wakeFD)
	}
	return d.epoll.Close()
}
