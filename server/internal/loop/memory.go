package loop

import (
	"math/bits"
	"sync"
)

// Memory is where large requests and answers are: pieces with sizes of powers of two, which are
// used again. What nobody has used for a while is the garbage collector's. The zero value is ready;
// all of them share one stock.
type Memory struct{}

const (
	leastMemory   = 4 << 10
	memoryClasses = 12 // 4 KiB to 8 MiB; what is larger is not kept
)

var stock [memoryClasses]sync.Pool

func memoryClass(n int) int {
	return bits.Len(uint(max(n, leastMemory)-1)) - bits.Len(uint(leastMemory-1))
}

// MemoryFor is the size of the memory that Get gives for n bytes.
func MemoryFor(n int) int {
	if k := memoryClass(n); k < memoryClasses {
		return leastMemory << k
	}
	return n
}

// Get returns an empty slice with room for n bytes or more.
func (m *Memory) Get(n int) []byte {
	k := memoryClass(n)
	if k >= memoryClasses {
		return make([]byte, 0, n)
	}
	if b, ok := stock[k].Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, leastMemory<<k)
}

// Put takes memory back that Get gave. Nobody may use it any more.
func (m *Memory) Put(b []byte) {
	k := memoryClass(cap(b))
	if cap(b) < leastMemory || k >= memoryClasses || cap(b) != leastMemory<<k {
		return
	}
	b = b[:0]
	Lent(b[:cap(b)]).GiveBack()
	stock[k].Put(&b)
}

// Grow returns memory that has room for n bytes and begins with b, which it takes back.
func (m *Memory) Grow(b []byte, n int) []byte {
	larger := append(m.Get(max(n, 2*cap(b))), b...)
	m.Put(b)
	return larger
}
