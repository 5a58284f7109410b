package uring

import "errors"

// AddressOf is an address of the same ring with another number.
func AddressOf(a Address, name uint64) Address { return Address{a.door, name} }

// EndEach is how the probe ends what completes again and again.
var EndEach = endEach

// ProbeAgain probes another time.
func ProbeAgain() { probe() }

// FDOf is the ring's descriptor.
func FDOf(r *Ring) int { return r.fd }

// Mapped is a buffer of memory outside the Go heap.
func Mapped(mem []byte) *Buffer { return &Buffer{mem: mem, mapped: true} }

// NameOf is the name of an operation in flight.
func NameOf(o *Op) uint64 { return o.userData() }

// EndsChain is what this package knows of a failure within a chain.
func EndsChain(o Opcode) bool { return o.endsChain() }

// WithoutBundles has a ring do as on a kernel that lacks them.
func WithoutBundles(r *Ring) { r.feats &^= featBundle }

// LeftOut tells a queue that the kernel has sent n bytes, and goes on behind the buffer.
func LeftOut(q *SendQueue, n int32) { q.sent(n, cqeMore|cqeBuffer); q.sent(1, cqeBuffer) }

// ProbeSocketsWithoutEnter tries what the probe tries with sockets, on a ring whose calls fail.
func ProbeSocketsWithoutEnter(r *Ring) error {
	fd, flags := r.enterFd, r.regular
	r.enterFd, r.regular = ^uintptr(0), 0
	defer func() { r.enterFd, r.regular = fd, flags }()
	return errors.Join(tryMessages(r), tryAccept(r))
}
