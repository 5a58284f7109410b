package server

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// The Go runtime collects garbage when the heap has grown to twice of what is in use, or to 4 MiB.
// A busy server with little in use fills that a hundred times a second, and each time some 2 ms of
// a CPU go to the collection. The headroom lets more garbage gather where that happens: a block
// without pointers counts as in use, so that the runtime waits for as much more. Nobody touches
// it, so it takes addresses and no memory; what takes memory is the garbage.
//
// It is the process's, as the heap is: the servers of a process share one.
type headroom struct {
	mu    sync.Mutex
	sizes map[*Server]int64 // what each server that runs allows
	// nil: there is none. One that was made stays: in the place of another the runtime would clear
	// it
	block   [][]byte
	last    time.Time     // the last collection
	gap     time.Duration // between collections, the mean of the last few
	watched bool          // a cleanup is due at the next collection
}

const (
	// of the block: the runtime clears, and so touches, what lies on used pages in part
	piece          = 1 << 20
	oftenCollected = 40 * time.Millisecond // between collections: less is too often
)

var garbage headroom

// add lets garbage gather for a server that begins.
func (h *headroom) add(s *Server, size int64) {
	if size <= 0 || tuned() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sizes == nil {
		h.sizes = map[*Server]int64{}
	}
	h.sizes[s] = size
	h.gap = max(h.gap, time.Second)
	h.watch()
}

// remove ends that.
func (h *headroom) remove(s *Server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.sizes, s); len(h.sizes) == 0 {
		h.block, h.last, h.gap = nil, time.Time{}, 0
	}
}

// tuned reports whether somebody has told the runtime how to collect: then it is left alone.
func tuned() bool {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(s)
	return s[0].Value.Kind() != metrics.KindUint64 || s[0].Value.Uint64() != 100 ||
		s[1].Value.Kind() != metrics.KindUint64 || s[1].Value.Uint64() != math.MaxInt64
}

// watch asks for a call of collected after the next collection. mu is held.
func (h *headroom) watch() {
	if h.watched || h.block != nil {
		return
	}
	h.watched = true
	runtime.AddCleanup(&sentinel{}, (*headroom).collected, h)
}

// sentinel is garbage at once: its cleanup tells of the next collection. The pointer keeps it out
// of the memory that tiny objects share.
type sentinel struct{ _ *byte }

// collected is called, on a goroutine of the runtime, after a collection.
func (h *headroom) collected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watched = false; len(h.sizes) > 0 {
		h.after(time.Now())
	}
}

// after takes note of a collection. mu is held.
func (h *headroom) after(now time.Time) {
	h.gap = (3*h.gap + min(now.Sub(h.last), time.Second)) / 4
	if h.last = now; h.gap >= oftenCollected {
		h.watch()
		return
	}
	for left := h.most(); left > 0; left -= piece {
		h.block = append(h.block, make([]byte, min(left, piece)))
	}
}

// most is what the most generous of the servers allows. mu is held.
func (h *headroom) most() (n int64) {
	for _, size := range h.sizes {
		n = max(n, size)
	}
	return n
}
