package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BufferRing is a stock of buffers from which the kernel picks one when data arrives: RecvFrom,
// RecvEach. What it has picked is the caller's until Give puts it back.
type BufferRing struct {
	ring        *Ring
	group       uint16
	incremental bool
	size        int
	mem         []byte // of the buffers
	queue       []byte // shared with the kernel
	entries     []bufEntry
	tail        uint16
	taken       []taken
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
	place uint16   // in the queue, where it was put last
}

// arrival says where the newest completion of an operation has left its bytes.
type arrival struct {
	at, n int // in the buffer
	piece uint32
	rest  int // of a bundle: bytes in the buffers behind this one
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
	if n < 1 || n > 32768 || n&(n-1) != 0 || size < 1 || size > 1<<30/n {
		return nil, fmt.Errorf("uring: buffer ring of %d × %d bytes: want a power of two up to 32768 and at most 1 GiB", n, size)
	}
	const prot, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	g := &BufferRing{ring: r, size: size, taken: make([]taken, n)}
	for _, used := r.groups[g.group]; used; _, used = r.groups[g.group] {
		g.group++
	}
	var err error
	if g.queue, err = unix.Mmap(-1, 0, n*int(unsafe.Sizeof(bufEntry{})), prot, how); err != nil {
		return nil, fmt.Errorf("uring: buffer ring: %w", os.NewSyscallError("mmap", err))
	}
	if g.mem, err = unix.Mmap(-1, 0, n*size, prot, how); err != nil {
		unix.Munmap(g.queue)
		return nil, fmt.Errorf("uring: buffer ring of %d × %d bytes: %w", n, size, os.NewSyscallError("mmap", err))
	}
	reg := bufReg{ringAddr: uint64(uintptr(unsafe.Pointer(&g.queue[0]))), ringEntries: uint32(n), bgid: g.group}
	e := unix.EINVAL
	if incremental {
		reg.flags = pbufRingInc
		_, e = r.register(registerPBufRing, unsafe.Pointer(&reg), 1)
		g.incremental = e == 0
	}
	if e == unix.EINVAL {
		reg.flags = 0
		_, e = r.register(registerPBufRing, unsafe.Pointer(&reg), 1)
	}
	if e != 0 {
		g.unmap()
		if e == unix.EINVAL {
			return nil, notSupported("ring of buffers", "5.19")
		}
		return nil, fmt.Errorf("uring: buffer ring: %w", r.refused("io_uring_register", e))
	}
	g.entries = unsafe.Slice((*bufEntry)(unsafe.Pointer(&g.queue[0])), n)
	for i := range n {
		g.put(uint16(i))
	}
	g.publish()
	if r.groups == nil {
		r.groups = map[uint16]*BufferRing{}
	}
	r.groups[g.group] = g
	return g, nil
}

// Incremental reports whether the kernel fills buffers by several arrivals.
func (g *BufferRing) Incremental() bool { return g.incremental }

// Free is the number of buffers that the kernel can still pick, as far as Next has seen.
func (g *BufferRing) Free() int { return g.free }

func (g *BufferRing) put(id uint16) {
	e := &g.entries[g.tail&uint16(len(g.entries)-1)]
	e.addr = uint64(uintptr(unsafe.Pointer(&g.mem[int(id)*g.size])))
	e.len, e.bid = uint32(g.size), id
	t := &g.taken[id]
	clear(t.given)
	*t = taken{given: t.given, round: t.round + 1, place: g.tail}
	g.tail++
	g.free++
}

// publish stores the tail, 16 bits that share a word with the buffer id of entry 0, which only this
// side writes.
func (g *BufferRing) publish() {
	word := (*uint32)(unsafe.Pointer(&g.entries[0].bid))
	if bigEndian {
		atomic.StoreUint32(word, uint32(g.entries[0].bid)<<16|uint32(g.tail))
		return
	}
	atomic.StoreUint32(word, uint32(g.tail)<<16|uint32(g.entries[0].bid))
}

var bigEndian = *(*byte)(unsafe.Pointer(&[1]uint16{1})) == 0

// arrive notes what a completion brings, for each of them, so that the stock is counted rightly
// whether somebody asks for the piece or not. One that nobody has asked for goes back.
func (o *Op) arrive(res int32, flags uint32) {
	o.forget()
	if g := o.from; g != nil && flags&cqeBuffer != 0 {
		id, n := uint16(flags>>cqeBufferShift), max(int(res), 0)
		o.at = g.arrived(id, n, flags&cqeBufMore == 0)
		if o.Code() == OpRecv && o.e.ioprio&recvSendBundle != 0 {
			o.at.rest = n - o.at.n
			for rest := o.at.rest; rest > 0; {
				id = g.behind(id)
				rest -= g.arrived(id, rest, true).n
			}
		}
	}
}

// check says why an operation of a ring cannot have the stock.
func (g *BufferRing) check(r *Ring, e *sqe) error {
	switch {
	case g.ring != r:
		return errors.New("ring of buffers: of another ring")
	case Opcode(e.opcode) == OpRecv && e.ioprio&recvSendBundle != 0 && r.feats&featBundle == 0:
		return notSupported(string(ReceiveBundles), "6.10")
	}
	return nil
}

// behind is the buffer that stands behind another one in the queue: where the kernel goes on with a
// bundle. Nothing is put there before all of the bundle has been given back.
func (g *BufferRing) behind(id uint16) uint16 {
	return g.entries[(g.taken[id].place+1)&uint16(len(g.entries)-1)].bid
}

func (g *BufferRing) arrived(id uint16, n int, ended bool) arrival {
	t := &g.taken[id]
	n = min(n, g.size-t.used) // of a datagram the result may be its length
	a := arrival{at: t.used, n: n, piece: t.made}
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

// forget gives back the piece that nobody has asked for.
func (o *Op) forget() {
	for o.flags&cqeBuffer != 0 {
		p, _ := o.Picked()
		p.Give()
	}
}

// Picked is what the newest completion of a RecvFrom or RecvEach received, and false if it took no
// buffer: at the end of the stream, or on an error. It is the caller's, to be given back; the
// second call for one completion returns false, or of a Bundle the piece behind. A piece that was
// not asked for goes back when the operation completes again, or is filled or pushed.
func (o *Op) Picked() (Piece, bool) {
	g := o.from
	if g == nil || o.flags&cqeBuffer == 0 {
		return Piece{}, false
	}
	o.flags &^= cqeBuffer
	if g.mem == nil {
		return Piece{}, false
	}
	id := uint16(o.flags >> cqeBufferShift)
	lo := int(id)*g.size + o.at.at
	hi := lo + o.at.n
	g.lent++
	p := Piece{g.mem[lo:hi:hi], id, o.at.piece, g.taken[id].round, g}
	if rest := o.at.rest; rest > 0 {
		n := min(rest, g.size)
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
		reg := bufReg{bgid: g.group}
		if _, e := g.ring.register(unregisterPBufRing, unsafe.Pointer(&reg), 1); e != 0 {
			return fmt.Errorf("uring: buffer ring: %w", g.ring.refused("io_uring_register", e))
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
	for _, m := range [][]byte{g.mem, g.queue} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	g.mem, g.queue, g.entries = nil, nil, nil
}
