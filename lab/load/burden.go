package load

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/lab"
)

// What others do to a machine meanwhile, by the name of the parameter "load".
const (
	None   = "none"
	CPU    = "cpu"     // as many goroutines as CPUs that compute
	Memory = "memory"  // … that copy 64 MiB to and fro
	GC     = "gc"      // a goroutine that makes garbage beside 64 MiB that live
	SameGC = "gc-same" // GC, in the contestant's own process
)

// Burden loads the machine from this process, until stop.
func Burden(kind string) (stop func()) {
	var over atomic.Bool
	var all sync.WaitGroup
	start := func(n int, work func()) {
		for range n {
			all.Go(func() {
				for !over.Load() {
					work()
				}
			})
		}
	}
	switch kind {
	case CPU:
		start(runtime.GOMAXPROCS(0), compute)
	case Memory:
		a, b := make([]byte, 64<<20), make([]byte, 64<<20)
		start(runtime.GOMAXPROCS(0), func() { // which copies win does not matter
			copy(a[:len(a)/2], b[len(b)/2:])
			runtime.Gosched()
		})
	case GC:
		live := grow(19)
		start(1, func() { garbage.Store(grow(10)) })
		return func() { over.Store(true); all.Wait(); garbage.Store(nil); runtime.KeepAlive(live) }
	}
	return func() { over.Store(true); all.Wait() }
}

var (
	garbage atomic.Pointer[node]
	spun    atomic.Uint64
)

func compute() {
	x := uint64(88172645463325252)
	for range 100_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	spun.Store(x)
}

// node is of a tree: pointers that a collector has to follow.
type node struct {
	left, right *node
	_           [6]uint64
}

func grow(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: grow(depth - 1), right: grow(depth - 1)}
}

// BurdenScene loads the machine by the cell's parameter "load" for a turn, from the laboratory's
// own process, so that what it takes counts as known.
func BurdenScene(_ *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
	stop := Burden(cell["load"])
	return &lab.Scene{Close: func() error { stop(); return nil }}, nil
}
