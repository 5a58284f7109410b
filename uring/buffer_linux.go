package uring

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffer is memory that operations read or write. It knows whether the kernel holds it: while an
// operation that uses it is in flight, Bytes and Reset panic, and an operation that would write
// where another reads or writes is refused with ErrBusy. The zero value is empty; give it Go memory
// with [Wrap] or Reset, or take one of an [Arena].
type Buffer struct {
	mem    []byte
	arena  *Arena
	index  uint16 // in its arena
	mapped bool   // not Go memory: need not be pinned
	reads  int32  // operations in flight that read it
	writes int32  // … and that write it
}

// Wrap makes a buffer of Go memory. The memory is pinned while an operation uses it.
func Wrap(mem []byte) *Buffer { return &Buffer{mem: mem} }

// Reset gives the buffer other memory.
func (b *Buffer) Reset(mem []byte) {
	b.mustBeIdle()
	if b.arena != nil {
		panic("uring: a buffer of an arena keeps its memory")
	}
	b.mem = mem
}

// Bytes is the memory; nil of an arena that was closed. The slice must not be used once an
// operation with this buffer has been pushed, or its arena closed.
func (b *Buffer) Bytes() []byte {
	b.mustBeIdle()
	return b.mem
}

// Len is the number of bytes.
func (b *Buffer) Len() int { return len(b.mem) }

// InFlight reports whether an operation uses the buffer.
func (b *Buffer) InFlight() bool { return b.reads+b.writes > 0 }

func (b *Buffer) mustBeIdle() {
	if b.InFlight() {
		panic("uring: the buffer is in flight: the kernel may still use its memory")
	}
}

// check: any number of operations may read a buffer; one that writes it must be alone.
func (b *Buffer) check(write bool) error {
	if b.writes > 0 || write && b.reads > 0 {
		return fmt.Errorf("buffer: %w", ErrBusy)
	}
	if b.arena != nil && b.arena.mem == nil {
		return fmt.Errorf("buffer: arena: %w", ErrClosed)
	}
	return nil
}

func (b *Buffer) take(write bool) {
	if write {
		b.writes++
	} else {
		b.reads++
	}
}

func (b *Buffer) letGo(write bool) {
	if write {
		b.writes--
	} else {
		b.reads--
	}
}

// Arena is page-aligned memory outside the Go heap, cut into buffers of one size: what O_DIRECT
// needs, and what can be registered with a ring.
type Arena struct {
	mem     []byte
	buffers []Buffer
	ring    *Ring // that it is registered with
}

// maxRegistered is the kernel's limit on registered buffers.
const maxRegistered = 1 << 14

// NewArena maps n buffers of size bytes: 1 to 16384, of 1 GiB together at most. Sizes that are
// multiples of the page keep every buffer aligned to one.
func NewArena(n, size int) (*Arena, error) {
	if n < 1 || n > maxRegistered || size < 1 || size > 1<<30/n {
		return nil, fmt.Errorf("uring: arena of %d × %d bytes: want 1 to %d buffers and at most 1 GiB", n, size,
			maxRegistered)
	}
	mem, err := unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("uring: arena of %d × %d bytes: %w", n, size, os.NewSyscallError("mmap", err))
	}
	a := &Arena{mem: mem, buffers: make([]Buffer, n)}
	for i := range a.buffers {
		a.buffers[i] = Buffer{mem: mem[i*size : (i+1)*size : (i+1)*size], arena: a, index: uint16(i), mapped: true}
	}
	return a, nil
}

// Len is the number of buffers.
func (a *Arena) Len() int { return len(a.buffers) }

// Buffer returns buffer i, from 0 to Len-1.
func (a *Arena) Buffer(i int) *Buffer { return &a.buffers[i] }

// Close unmaps the memory. It refuses with ErrBusy while a buffer is in flight or the arena is
// registered with an open ring.
func (a *Arena) Close() error {
	if a.mem == nil {
		return nil
	}
	if a.ring != nil {
		return fmt.Errorf("uring: arena: registered with an open ring: %w", ErrBusy)
	}
	if err := a.idle(); err != nil {
		return fmt.Errorf("uring: arena: %w", err)
	}
	mem := a.mem
	a.mem = nil
	for i := range a.buffers {
		a.buffers[i].mem = nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(mem))
}

// idle says which buffer is in flight.
func (a *Arena) idle() error {
	for i := range a.buffers {
		if a.buffers[i].InFlight() {
			return fmt.Errorf("buffer %d: %w", i, ErrBusy)
		}
	}
	return nil
}

// RegisterArena tells the kernel of the arena's buffers once, which spares every read and write the
// look-up and locking of their pages. One arena can be registered with a ring, and it must outlive
// the ring. It refuses with ErrBusy while a buffer is in flight: an Advise would throw away the
// pages that were registered. The memory counts against ulimit -l.
func (r *Ring) RegisterArena(a *Arena) error {
	switch {
	case a == nil:
		return errors.New("uring: register arena: none")
	case r.arena != nil || a.ring != nil:
		return fmt.Errorf("uring: register arena: one is registered already: %w", ErrBusy)
	case a.mem == nil || r.closed():
		return fmt.Errorf("uring: register arena: %w", ErrClosed)
	}
	if err := a.idle(); err != nil {
		return fmt.Errorf("uring: register arena: %w", err)
	}
	iov := make([]unix.Iovec, len(a.buffers))
	for i := range a.buffers {
		iov[i].Base = unsafe.SliceData(a.buffers[i].mem)
		iov[i].SetLen(len(a.buffers[i].mem))
	}
	if _, e := r.register(registerBuffers, unsafe.Pointer(&iov[0]), len(iov)); e != 0 {
		if e == unix.ENOMEM {
			return fmt.Errorf("uring: register %d bytes: %w; raise ulimit -l", len(a.mem), e)
		}
		return fmt.Errorf("uring: register arena: %w", r.refused("io_uring_register", e))
	}
	r.arena, a.ring = a, r
	return nil
}
