package uring

import (
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
}

// taken is the state of a buffer that the kernel picked.
type taken struct {
	used  int  // incremental: bytes of it handed out
	views int  // … and pieces not given back
	ended bool // the kernel has done with it
}

// Piece is a part of a buffer that holds what one completion received. Its bytes are valid until
// Give.
type Piece struct {
	Bytes []byte
	id    uint16
	group *BufferRing
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

// Free is the number of buffers that the kernel can still pick.
func (g *BufferRing) Free() int { return g.free }

func (g *BufferRing) put(id uint16) {
	e := &g.entries[g.tail&uint16(len(g.entries)-1)]
	e.addr = uint64(uintptr(unsafe.Pointer(&g.mem[int(id)*g.size])))
	e.len, e.bid = uint32(g.size), id
	g.taken[id] = taken{}
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

// Picked is what the newest completion of a RecvFrom or RecvEach received, and false if it took no
// buffer: at the end of the stream, or on an error. It must be asked once per completion, before
// the next call of Next, and given back.
func (o *Op) Picked() (Piece, bool) {
	if o.from == nil || o.flags&cqeBuffer == 0 {
		return Piece{}, false
	}
	g, id := o.from, uint16(o.flags>>cqeBufferShift)
	t := &g.taken[id]
	lo := int(id)*g.size + t.used
	n := max(int(o.Res), 0)
	t.views++
	if g.incremental {
		t.used += n
	}
	if o.flags&cqeBufMore == 0 {
		t.ended = true
		g.free--
	}
	return Piece{g.mem[lo : lo+n : lo+n], id, g}, true
}

// Give gives the memory of the piece back to the kernel; its bytes must not be used any more. A
// buffer goes back into the stock once the kernel has filled it and all its pieces have been given
// back.
func (p Piece) Give() {
	if p.group == nil {
		return
	}
	t := &p.group.taken[p.id]
	if t.views <= 0 {
		panic("uring: the piece was given back before")
	}
	if t.views--; t.views == 0 && t.ended {
		p.group.put(p.id)
		p.group.publish()
	}
}

// Close takes the buffers from the kernel and unmaps them. Operations that receive into them must
// have ended.
func (g *BufferRing) Close() error {
	if g.mem == nil {
		return nil
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

func (g *BufferRing) unmap() {
	for _, m := range [][]byte{g.mem, g.queue} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	g.mem, g.queue, g.entries = nil, nil, nil
}
