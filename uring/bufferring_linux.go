package uring

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BufferRing is a stock of buffers from which the kernel picks one when data arrives: RecvFrom,
// RecvEach. What it has picked is the caller's until Give puts it back.
type BufferRing struct {
	provided
	incremental bool
	size        int
	mem         []byte // of the buffers
	taken       []taken
	last        uint16 // put last
	free        int
	lent        int   // pieces that the caller has
	uses        int32 // operations in flight
	ended       bool  // with its ring
}

// taken is the state of a buffer that the kernel picked.
type taken struct {
	used  int      // incremental: bytes of it handed out
	views int      // pieces not given back
	made  uint32   // pieces handed out
	given []uint64 // which of them came back, a bit each
	ended bool     // the kernel has done with it
	round uint32   // times that the buffer was put into the stock
	next  uint16   // the buffer that was put behind it
}

// arrival says where the newest completion of an operation has left its bytes.
type arrival struct {
	at, n uint32 // in the buffer
	piece uint32
	rest  uint32 // of a bundle: bytes in the buffers behind this one
}

// Piece is a part of a buffer that holds what one completion received. Its bytes are valid until
// Give.
type Piece struct {
	Bytes        []byte
	id           uint16
	piece, round uint32
	group        *BufferRing
}

// NewBufferRing gives the ring n buffers (a power of two, at most 32768) of size bytes, outside the
// Go heap. incremental lets the kernel fill a buffer by several arrivals before it takes the next
// one, which wastes less with small messages; where it cannot (before Linux 6.12) the buffers are
// used up one arrival each. Linux 5.19.
func (r *Ring) NewBufferRing(n, size int, incremental bool) (*BufferRing, error) {
	if n < 1 || n > maxProvided || n&(n-1) != 0 || size < 1 || size > 1<<30/n {
		return nil, fmt.Errorf("uring: buffer ring of %d × %d bytes: want a power of two up to %d and at most 1 GiB", n,
			size, maxProvided)
	}
	g := &BufferRing{size: size, taken: make([]taken, n)}
	if err := g.open(r, n); err != nil {
		return nil, fmt.Errorf("uring: buffer ring: %w", err)
	}
	const prot, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	var err error
	if g.mem, err = unix.Mmap(-1, 0, n*size, prot, how); err != nil {
		g.unmap()
		return nil, fmt.Errorf("uring: buffer ring of %d × %d bytes: %w", n, size, os.NewSyscallError("mmap", err))
	}
	e := unix.EINVAL
	if incremental {
		e = g.register(pbufRingInc)
		g.incremental = e == 0
	}
	if e == unix.EINVAL {
		e = g.register(0)
	}
	if e != 0 {
		g.unmap()
		if e == unix.EINVAL {
			return nil, notSupported("ring of buffers", "5.19")
		}
		return nil, fmt.Errorf("uring: buffer ring: %w", r.refused("io_uring_register", e))
	}
	for i := range n {
		g.put(uint16(i))
	}
	g.publish()
	r.addGroup(g.group, g)
	return g, nil
}

// Incremental reports whether the kernel fills buffers by several arrivals.
func (g *BufferRing) Incremental() bool { return g.incremental }

// Free is the number of buffers that the kernel can still pick, as far as Next has seen.
func (g *BufferRing) Free() int { return g.free }

func (g *BufferRing) put(id uint16) {
	g.taken[g.last].next, g.last = id, id
	t := &g.taken[id]
	clear(t.given)
	*t = taken{given: t.given, round: t.round + 1}
	g.provided.put(uintptr(unsafe.Pointer(&g.mem[int(id)*g.size])), g.size, id)
	g.free++
}

// arrive notes what a completion brings, for each of them, so that the stock is counted rightly
// whether somebody asks for the piece or not. One that nobody has asked for goes back. It returns
// the flags that the operation is to have.
func (o *Op) arrive(res int32, flags uint32) uint32 {
	if m := o.side; m != nil && m.queue != nil {
		return m.queue.sent(res, flags)
	}
	o.forget()
	if g := o.from; g != nil && flags&cqeBuffer != 0 {
		id, n := uint16(flags>>cqeBufferShift), max(int(res), 0)
		if o.Code() == OpRecv && o.e.len > 0 {
			n = min(n, int(o.e.len)) // UpTo: the result of a datagram may be its length
		}
		o.at = g.arrived(id, n, flags&cqeBufMore == 0)
		if o.Code() == OpRecv && o.e.ioprio&recvSendBundle != 0 {
			o.at.rest = uint32(n) - o.at.n
			for rest := o.at.rest; rest > 0; {
				id = g.behind(id)
				rest -= g.arrived(id, int(rest), true).n
			}
		}
	}
	return flags
}

// uncounted reports that the result of an operation will not say how far the kernel has gone in the
// stock, where it takes more or less than a buffer for a completion. With MSG_TRUNC the result is
// the length of a datagram. With MSG_WAITALL the kernel counts anew each time that it goes on. A
// worker thread counts what it could receive before it has received anything; what completes many
// times does not run there.
func (g *BufferRing) uncounted(e *entry) bool {
	if Opcode(e.opcode) != OpRecv || !g.incremental && e.ioprio&recvSendBundle == 0 {
		return false
	}
	return e.opFlags&(unix.MSG_TRUNC|unix.MSG_WAITALL) != 0 || e.flags&sqeAsync != 0 && e.ioprio&recvMultishot == 0
}

// check says why an operation of a ring cannot have the stock.
func (g *BufferRing) check(r *Ring, e *entry) error {
	switch {
	case g.mem == nil: // another may have its group by now
		return fmt.Errorf("ring of buffers: %w", ErrClosed)
	case g.ring != r:
		return errors.New("ring of buffers: of another ring")
	case Opcode(e.opcode) == OpRecv && e.ioprio&recvSendBundle != 0 && r.feats&featBundle == 0:
		return notSupported(string(ReceiveBundles), "6.10")
	case g.uncounted(e):
		return errors.New("MSG_TRUNC, WaitAll or Async: not with a bundle or an incremental ring of buffers")
	}
	return nil
}

// behind is the buffer that stood behind another one in the queue: where the kernel goes on with a
// bundle. The queue itself may have a later one in that place by now.
func (g *BufferRing) behind(id uint16) uint16 { return g.taken[id].next }

func (g *BufferRing) arrived(id uint16, n int, ended bool) arrival {
	t := &g.taken[id]
	n = min(n, g.size-t.used) // of a datagram the result may be its length
	a := arrival{at: uint32(t.used), n: uint32(n), piece: t.made}
	t.views++
	t.made++
	if g.incremental {
		t.used += n
	}
	if ended {
		t.ended = true
		g.free--
	}
	return a
}

// forget gives back the pieces that nobody has asked for.
func (o *Op) forget() {
	if o.flags&cqeBuffer != 0 { // else it is no more than this, wherever it stands
		o.giveAll()
	}
}

func (o *Op) giveAll() {
	for p, ok := o.Picked(); ok; p, ok = o.Picked() {
		p.Give()
	}
}

// Picked is what the newest completion of a RecvFrom or RecvEach received, and false if it took no
// buffer: at the end of the stream, or on an error. It is the caller's, to be given back; the
// second call for one completion returns false, or of a Bundle the piece behind. A piece that was
// not asked for goes back when the operation completes again, or is filled or pushed. A copy of the
// operation has none.
func (o *Op) Picked() (Piece, bool) {
	g := o.from
	if g == nil || o.flags&cqeBuffer == 0 || o.self != o {
		return Piece{}, false
	}
	o.flags &^= cqeBuffer
	if g.mem == nil {
		return Piece{}, false
	}
	id := uint16(o.flags >> cqeBufferShift)
	lo := int(id)*g.size + int(o.at.at)
	hi := lo + int(o.at.n)
	g.lent++
	p := Piece{g.mem[lo:hi:hi], id, o.at.piece, g.taken[id].round, g}
	if rest := o.at.rest; rest > 0 {
		n := min(rest, uint32(g.size))
		o.at = arrival{n: n, rest: rest - n}
		o.flags = o.flags&^(1<<32-1<<cqeBufferShift) | uint32(g.behind(id))<<cqeBufferShift | cqeBuffer
	}
	return p, true
}

// Give gives the memory of the piece back to the kernel; its bytes must not be used any more. A
// buffer goes back into the stock once the kernel has filled it and all its pieces have been given
// back.
func (p Piece) Give() {
	g := p.group
	if g == nil || g.mem == nil {
		return
	}
	t := &g.taken[p.id]
	if t.round != p.round || !t.back(p.piece) {
		panic("uring: the piece was given back before")
	}
	g.lent--
	switch t.views--; {
	case g.ended:
		if g.lent == 0 {
			g.unmap()
		}
	case t.views == 0 && t.ended:
		g.put(p.id)
		g.publish()
	}
}

// back marks a piece as given back; false: it was before.
func (t *taken) back(piece uint32) bool {
	i, bit := int(piece/64), uint64(1)<<(piece%64)
	for len(t.given) <= i {
		t.given = append(t.given, 0)
	}
	if t.given[i]&bit != 0 {
		return false
	}
	t.given[i] |= bit
	return true
}

// Close takes the buffers from the kernel and unmaps them. It refuses with ErrBusy while operations
// receive into them, or pieces have not been given back.
func (g *BufferRing) Close() error {
	switch {
	case g.mem == nil:
		return nil
	case g.uses > 0:
		return fmt.Errorf("uring: buffer ring: %d operations: %w", g.uses, ErrBusy)
	case g.lent > 0:
		return fmt.Errorf("uring: buffer ring: %d pieces: %w", g.lent, ErrBusy)
	}
	if g.ring.fd >= 0 {
		if err := g.unregister(); err != nil {
			return fmt.Errorf("uring: buffer ring: %w", err)
		}
		delete(g.ring.groups, g.group)
	}
	g.unmap()
	return nil
}

// end unmaps the buffers of a ring that has ended; where pieces of them are out, the last that
// comes back does.
func (g *BufferRing) end() {
	if g.ended = true; g.lent == 0 {
		g.unmap()
	}
}

func (g *BufferRing) unmap() {
	g.provided.unmap()
	if g.mem != nil {
		unix.Munmap(g.mem)
	}
	g.mem = nil
}
