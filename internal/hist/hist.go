// Package hist is a latency histogram with a memory of the last moments: quantiles of all time and
// of the last full window.
package hist

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	lowest  = 1 // µs
	highest = 60_000_000
	digits  = 2 // two significant figures: 1 % of error
)

// Histogram counts durations from 1 µs to 60 s; longer ones count as 60 s. It is safe for
// concurrent use.
type Histogram struct {
	mu            sync.Mutex
	now, last     *hdrhistogram.Histogram
	total         int64
	sum           time.Duration
	worst         time.Duration
	bucketsUs     []int64
	bucketsCounts []uint64
}

// New returns an empty histogram.
func New() *Histogram {
	bounds := []int64{50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 10_000_000}
	return &Histogram{
		now: hdrhistogram.New(lowest, highest, digits), last: hdrhistogram.New(lowest, highest, digits),
		bucketsUs: bounds, bucketsCounts: make([]uint64, len(bounds)),
	}
}

// Record counts d, n times.
func (h *Histogram) Record(d time.Duration, n int64) {
	us := min(max(d.Microseconds(), lowest), highest)
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.now.RecordValues(us, n) // us is in range
	h.total += n
	h.sum += d * time.Duration(n)
	h.worst = max(h.worst, d)
	for i, b := range h.bucketsUs {
		if us <= b {
			h.bucketsCounts[i] += uint64(n)
			break
		}
	}
}

// Turn ends a window and begins the next.
func (h *Histogram) Turn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.last = h.last, h.now
	h.now.Reset()
}

// Summary is the last full window, in microseconds.
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
	return Summary{h.last.TotalCount(), h.last.ValueAtQuantile(50), h.last.ValueAtQuantile(99), h.last.Max()}
}

// Cumulative returns the count and sum of all time and, by upper bound in seconds, how many were
// not above it.
func (h *Histogram) Cumulative() (n uint64, sumSeconds float64, buckets map[float64]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	buckets = make(map[float64]uint64, len(h.bucketsUs))
	var below uint64
	for i, b := range h.bucketsUs {
		below += h.bucketsCounts[i]
		buckets[float64(b)/1e6] = below
	}
	return uint64(h.total), h.sum.Seconds(), buckets
}
