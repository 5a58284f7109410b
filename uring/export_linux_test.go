package uring

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
