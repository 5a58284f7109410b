package ring

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/uring"
)

// listener is what the ring needs of a listening socket.
type listener struct {
	ln     *loop.Listener
	file   *uring.File // nil: closed; the descriptor is the loop.Listener's, which tells of its end
	op     uring.Op
	paused bool
	ending bool
	sweep  bool
}

// Accept implements loop.Driver. The sockets do not block: the ring would not mind, but sendfile is
// an ordinary call. A multishot accept takes all who wait at the socket before it can be cancelled,
// so near the limit of connections they are accepted one by one.
func (d *driver) Accept(ln *loop.Listener) error {
	a, ok := ln.Slot.(*listener)
	if !ok {
		a = &listener{ln: ln, file: uring.NewFile(ln.FD)}
		a.op.Tag = uint64(len(d.lns))<<tagBits | tagAccept
		d.lns = append(d.lns, a)
		ln.Slot = a
	}
	a.paused = false
	if a.op.InFlight() { // a cancelled one has not come back yet: accepted goes on then
		return nil
	}
	if d.l.Room() > d.backlog {
		return d.ring.Push(a.op.AcceptEach(a.file).NonBlocking())
	}
	return d.ring.Push(a.op.Accept(a.file).NonBlocking())
}

// Pause implements loop.Driver.
func (d *driver) Pause(ln *loop.Listener) {
	a := ln.Slot.(*listener)
	a.paused = true
	d.cancelAccept(a)
}

func (d *driver) cancelAccept(a *listener) {
	if !a.op.InFlight() {
		return
	}
	op := d.op(tagOther, 0)
	if err := d.ring.Push(op.Cancel(&a.op)); err != nil {
		d.keep(op) // a few more are accepted
	}
}

func taken(op *uring.Op) (conn int, err error) { return int(op.Res), op.Err() }

func (d *driver) accepted(a *listener) {
	op := &a.op
	fd, err := d.taken(op)
	if err == nil {
		options(a.ln, fd)
		d.l.Accepted(a.ln, loop.NewSocket(fd, netip.AddrPort{}))
	}
	if op.More() {
		if !a.paused && !a.ending && d.l.Room() <= d.backlog {
			d.cancelAccept(a)
		}
		return
	}
	switch {
	case a.ending:
		d.close(a)
	case a.paused:
	case err == nil || errors.Is(err, syscall.ECANCELED):
		d.l.Unarmed(a.ln)
	default:
		d.l.AcceptFailed(a.ln, err, sys.PassingAccept(err), sys.NoDescriptors(err))
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
	if !ok {
		a = &listener{ln: ln, file: uring.NewFile(ln.FD)}
		ln.Slot = a
	}
	if a.file == nil {
		return
	}
	a.ending, a.sweep = true, a.sweep || sweep
	if a.op.InFlight() {
		d.cancelAccept(a)
		return
	}
	d.close(a)
}

// close accepts those who have connected already, if they are wanted, and closes the socket.
func (d *driver) close(a *listener) {
	for a.sweep {
		fd, peer, err := sys.Accept(a.file.FD())
		if err != nil {
			break
		}
		options(a.ln, fd)
		d.l.Accepted(a.ln, loop.NewSocket(fd, peer))
	}
	a.file = nil
	_ = a.ln.Close()
	d.l.Unlistened(a.ln)
}

// Chunk implements loop.Driver.
func (d *driver) Chunk(large bool) *loop.Chunk {
	k, size, n := 0, loop.SmallChunk, arenaSmall
	if large {
		k, size, n = 1, loop.LargeChunk, arenaLarge
	}
	if len(d.spare[k]) == 0 {
		a, err := uring.NewArena(n, size)
		if err != nil { // no memory can be mapped: the Go heap may still have some
			b := make([]byte, size)
			return &loop.Chunk{Mem: b, Large: large, Handle: uring.Wrap(b)}
		}
		d.arenas = append(d.arenas, a)
		d.mapped += uint64(n * size)
		for i := range n {
			d.spare[k] = append(d.spare[k], &loop.Chunk{Mem: a.Buffer(i).Bytes(), Large: large, Handle: a.Buffer(i)})
		}
	}
	s := d.spare[k]
	c := s[len(s)-1]
	d.spare[k] = s[:len(s)-1]
	return c
}

// Recycle implements loop.Driver.
func (d *driver) Recycle(c *loop.Chunk) {
	c.Lo, c.Hi = 0, 0
	k := 0
	if c.Large {
		k = 1
	}
	d.spare[k] = append(d.spare[k], c)
}

// Figures implements loop.Driver.
func (d *driver) Figures() loop.Figures {
	s := d.ring.Stats()
	return loop.Figures{
		Calls: s.Enters, Submitted: s.Submitted, Completed: s.Completed, Starved: d.starved, Overflows: s.Overflows,
		Mapped: d.mapped,
	}
}

// Shut implements loop.Driver.
func (d *driver) Shut() error {
	err := d.ring.Shutdown(nil)
	for _, a := range d.lns {
		if a.file != nil {
			err = errors.Join(err, a.ln.Close())
		}
	}
	err = errors.Join(err, d.wakeFile.Close())
	for _, a := range d.arenas {
		err = errors.Join(err, a.Close())
	}
	return err
}
