// Package hist is a latency histogram with a memory of the last moments: quantiles of the last full
// window, and counts of all time.
//
// A recorder has one for each port, and counts in it for each read. So it is small, 6 KB, and a
// count touches two lines of the cache: docs/design/2026-11-25-a-histogram-of-our-own.md.
package hist

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

const (
	lowest  = 1 // µs
	highest = 60_000_000

	// A cell covers one value up to cells, and then 1/cells of a power of two: a quantile is the
	// middle of its cell, and at most 0.8 % from the truth.
	cells    = 64
	cellBits = 6
)

// allCells is one more than the cell of the highest value.
var allCells = Cell(highest) + 1

// bounds are the upper bounds of the buckets of all time, in µs.
var bounds = [...]int64{
	50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
	1_000_000, 10_000_000,
}

// Histogram counts durations from 1 µs to 60 s; longer ones count as 60 s. It is safe for
// concurrent use. Make it with [New].
type Histogram struct {
	mu sync.Mutex // what it guards and Record touches is in one line of the cache, but for the counts themselves

	// The window that is open.
	counts []uint32 // by cell; one that is full stays so
	most   int64    // the longest, µs; 0: there is none
	least  int64    // the shortest

	total   uint64
	sum     time.Duration
	buckets [len(bounds)]uint64

	last Summary // of the last full window
}

// New returns an empty histogram.
func New() *Histogram { return &Histogram{counts: make([]uint32, allCells)} }

// Cell is the cell of a value of any unit, at least 0: one value wide up to 64, and then a 64th of
// a power of two.
func Cell(v int64) int {
	shift := max(bits.Len64(uint64(v))-cellBits-1, 0)
	return shift*cells + int(v>>shift)
}

// Middle is the value in the middle of a cell, at most 0.8 % from any other there.
func Middle(cell int) int64 {
	shift := max(cell/cells-1, 0)
	return int64(cell-shift*cells)<<shift + int64(1)<<shift/2
}

// Record counts d, n times.
func (h *Histogram) Record(d time.Duration, n int64) {
	us := min(max(d.Microseconds(), lowest), highest)
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &h.counts[Cell(us)]
	*c = uint32(min(uint64(*c)+uint64(n), math.MaxUint32))
	if h.most = max(h.most, us); h.least == 0 || us < h.least {
		h.least = us
	}
	h.total += uint64(n)
	h.sum += d * time.Duration(n)
	if i, _ := slices.BinarySearch(bounds[:], us); i < len(bounds) {
		h.buckets[i] += uint64(n)
	}
}

// Turn ends a window, which [Histogram.Last] has from then on, and begins the next.
func (h *Histogram) Turn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = Summary{}
	if h.most == 0 {
		return
	}
	first := Cell(h.least)
	used := h.counts[first : Cell(h.most)+1]
	for _, c := range used {
		h.last.N += int64(c)
	}
	quantile := func(percent int64) int64 {
		rank := (h.last.N*percent + 99) / 100 // at least 1, for there is one
		for i, c := range used {
			if rank -= int64(c); rank <= 0 {
				return min(max(Middle(first+i), h.least), h.most)
			}
		}
		return h.most
	}
	h.last.P50, h.last.P99, h.last.Max = quantile(50), quantile(99), h.most
	clear(used)
	h.most, h.least = 0, 0
}

// Summary is a full window, in microseconds.
type Summary struct {
	N   int64 `json:"n"`
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
	Max int64 `json:"max_us"`
}

// Last summarises the last full window.
func (h *Histogram) Last() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Cumulative returns the count and sum of all time and, by upper bound in seconds, how many were
// not above it.
func (h *Histogram) Cumulative() (n uint64, sumSeconds float64, buckets map[float64]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	buckets = make(map[float64]uint64, len(bounds))
	var below uint64
	for i, b := range bounds {
		below += h.buckets[i]
		buckets[float64(b)/1e6] = below
	}
	return h.total, h.sum.Seconds(), buckets
}
