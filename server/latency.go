package server

import (
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the buckets of latencies, in microseconds.
var bounds = [...]int64{
	10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
	1_000_000, 10_000_000,
}

// latency counts durations, from any number of goroutines. It takes no lock: it is on the way of
// every request.
type latency struct {
	sumNs   atomic.Int64
	buckets [len(bounds) + 1]atomic.Uint64 // the last is for what is longer
}

func (l *latency) record(d time.Duration, n int64) {
	l.sumNs.Add(int64(d) * n)
	us, i := d.Microseconds(), 0
	for i < len(bounds) && us > bounds[i] {
		i++
	}
	l.buckets[i].Add(uint64(n))
}

// addTo adds the counts to cumulative ones.
func (l *latency) addTo(n *uint64, sum *float64, buckets map[float64]uint64) {
	var below uint64
	for i := range l.buckets {
		below += l.buckets[i].Load()
		if i < len(bounds) {
			buckets[float64(bounds[i])/1e6] += below
		}
	}
	*n += below
	*sum += time.Duration(l.sumNs.Load()).Seconds()
}
