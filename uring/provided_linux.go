package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxProvided is the kernel's limit on the buffers of one group.
const maxProvided = 32768

// provided is a queue of buffers that the kernel takes from its head, in the order in which they
// were put at its tail: those of a BufferRing to receive into, those of a SendQueue to send.
type provided struct {
	ring    *Ring
	group   uint16
	queue   []byte // shared with the kernel
	entries []bufEntry
	tail    uint16
}

// open maps a queue of n entries and finds a group for it. The kernel knows nothing of it yet.
func (p *provided) open(r *Ring, n int) error {
	if r.closed() {
		return fmt.Errorf("ring: %w", ErrClosed)
	}
	if len(r.groups) == 1<<16 {
		return errors.New("the ring has as many as it can")
	}
	p.ring = r
	for _, used := r.groups[p.group]; used; _, used = r.groups[p.group] {
		p.group++
	}
	const prot, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	var err error
	if p.queue, err = unix.Mmap(-1, 0, n*int(unsafe.Sizeof(bufEntry{})), prot, how); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	p.entries = unsafe.Slice((*bufEntry)(unsafe.Pointer(&p.queue[0])), n)
	return nil
}

// register tells the kernel of it. It begins at the first entry.
func (p *provided) register(flags uint16) unix.Errno {
	p.tail = 0
	p.publish()
	reg := bufReg{
		ringAddr: uint64(uintptr(unsafe.Pointer(&p.queue[0]))), ringEntries: uint32(len(p.entries)), bgid: p.group,
		flags: flags,
	}
	_, e := p.ring.register(registerPBufRing, unsafe.Pointer(&reg), 1)
	return e
}

// unregister takes it from the kernel.
func (p *provided) unregister() error {
	reg := bufReg{bgid: p.group}
	if _, e := p.ring.register(unregisterPBufRing, unsafe.Pointer(&reg), 1); e != 0 {
		return p.ring.refused("io_uring_register", e)
	}
	return nil
}

// put fills the next entry; the kernel sees it once it is published.
func (p *provided) put(addr uintptr, n int, id uint16) {
	e := &p.entries[p.tail&uint16(len(p.entries)-1)]
	e.addr, e.len, e.bid = uint64(addr), uint32(n), id
	p.tail++
}

// publish stores the tail, 16 bits that share a word with the buffer id of entry 0, which only this
// side writes.
func (p *provided) publish() {
	word := (*uint32)(unsafe.Pointer(&p.entries[0].bid))
	if bigEndian {
		atomic.StoreUint32(word, uint32(p.entries[0].bid)<<16|uint32(p.tail))
		return
	}
	atomic.StoreUint32(word, uint32(p.tail)<<16|uint32(p.entries[0].bid))
}

var bigEndian = *(*byte)(unsafe.Pointer(&[1]uint16{1})) == 0

func (p *provided) unmap() {
	if p.queue != nil {
		unix.Munmap(p.queue)
	}
	p.queue, p.entries = nil, nil
}
