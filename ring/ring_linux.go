package ring

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Ring is a byte queue for one producer and one consumer. Make it with [New]; it must not be
// copied.
//
// head and tail count bytes since the start and never wrap in practice (2^64). The producer alone
// stores head, after the bytes; the consumer alone stores tail, after it has done with the bytes.
// Each reads the other's by an atomic load, which orders it after that store: what lies between
// tail and head is whole.
type Ring struct {
	mem  []byte // twice the size: mem[i] and mem[i+size] are one byte
	size uint64

	_    [64]byte // head and tail on lines of their own: each is written by another thread
	head atomic.Uint64
	_    [56]byte
	tail atomic.Uint64
	_    [56]byte
}

// New makes a ring of at least size bytes, rounded up to a power of two of at least one page.
func New(size int) (*Ring, error) {
	if size <= 0 || size > MaxSize {
		return nil, fmt.Errorf("ring of %d bytes: want 1 to %d", size, MaxSize)
	}
	n := os.Getpagesize()
	for n < size {
		n *= 2
	}
	mem, err := sys.DoubleMap("tallywheel-ring", n)
	if err != nil {
		return nil, fmt.Errorf("ring of %d bytes: %w", n, err)
	}
	return &Ring{mem: mem, size: uint64(n)}, nil
}

// Close releases the memory; views of it must not be used any more.
func (r *Ring) Close() error {
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	return sys.Unmap(mem)
}

// Size is the number of bytes that the ring holds.
func (r *Ring) Size() int { return int(r.size) }

// Len is the number of bytes published and not released.
func (r *Ring) Len() int { return int(r.head.Load() - r.tail.Load()) }

// Space is the free part of the ring, in one piece, for the producer to fill from its front.
func (r *Ring) Space() []byte {
	head := r.head.Load()
	free := r.size - (head - r.tail.Load())
	at := head & (r.size - 1)
	return r.mem[at : at+free : at+free]
}

// Publish hands the first n bytes of Space to the consumer.
func (r *Ring) Publish(n int) {
	head := r.head.Load()
	if n < 0 || uint64(n) > r.size-(head-r.tail.Load()) {
		panic(fmt.Sprintf("ring: Publish(%d) with %d bytes free", n, r.size-(head-r.tail.Load())))
	}
	r.head.Store(head + uint64(n))
}

// Rewind makes an empty ring start at the front of its memory again, so that a reader that keeps up
// uses the same few cache lines and pages all the time. It is for owners that are producer and
// consumer at once; a ring that is not empty is left alone.
func (r *Ring) Rewind() {
	head := r.head.Load()
	if at := head & (r.size - 1); at != 0 && head == r.tail.Load() {
		head += r.size - at
		r.head.Store(head)
		r.tail.Store(head)
	}
}

// View is all that was published and not released, in one piece, for the consumer.
func (r *Ring) View() []byte {
	tail := r.tail.Load()
	n := r.head.Load() - tail
	at := tail & (r.size - 1)
	return r.mem[at : at+n : at+n]
}

// Release gives the first n bytes of View back to the producer; views of them must not be used any
// more.
func (r *Ring) Release(n int) {
	tail := r.tail.Load()
	if n < 0 || uint64(n) > r.head.Load()-tail {
		panic(fmt.Sprintf("ring: Release(%d) with %d bytes held", n, r.head.Load()-tail))
	}
	r.tail.Store(tail + uint64(n))
}
