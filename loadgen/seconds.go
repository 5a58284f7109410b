package loadgen

import "github.com/tallywheel/tallywheel/internal/hist"

// seconds keeps the latencies of a thread by the second in which they were seen. A second that is
// over takes eight bytes for each latency that it has, of which there are some hundred that differ:
// a load may last for days.
type seconds struct {
	over []second
	open []uint32 // by cell, of the one under way
	n    uint64   // in it
}

// second is the good answers of a second.
type second struct {
	requests uint64
	latency  []latencies
}

// latencies are those in a cell of [hist.Cell], of microseconds.
type latencies struct {
	cell  uint32
	count uint32
}

// record counts a latency in a second, which is no earlier than the last.
func (s *seconds) record(at int, us int64) {
	for len(s.over) < at {
		s.turn()
	}
	if s.open == nil {
		s.open = make([]uint32, hist.Cell(highest)+1)
	}
	s.open[hist.Cell(us)]++
	s.n++
}

// turn ends the second under way.
func (s *seconds) turn() {
	done := second{requests: s.n}
	for cell, n := range s.open {
		if n > 0 {
			done.latency = append(done.latency, latencies{uint32(cell), n})
		}
	}
	clear(s.open)
	s.over, s.n = append(s.over, done), 0
}

// all are those up to the last in which there was an answer.
func (s *seconds) all() []second {
	if s.n > 0 {
		s.turn()
	}
	return s.over
}

// samplesOf adds the seconds of all threads up, of a run of some length in seconds.
func samplesOf(threads []*thread, length float64) []Sample {
	samples := []Sample{}
	for i := 0; ; i++ {
		s, sum, more := Sample{Second: i, Seconds: min(1, length-float64(i))}, make([]uint64, hist.Cell(highest)+1),
			false
		for _, t := range threads {
			if i >= len(t.seconds.all()) {
				continue
			}
			more = true
			one := t.seconds.over[i]
			s.Requests += one.requests
			for _, l := range one.latency {
				sum[l.cell] += uint64(l.count)
			}
		}
		if !more {
			return samples
		}
		s.P99Us = p99(sum, s.Requests)
		samples = append(samples, s)
	}
}

// p99 is the 99th percentile of n latencies by cell, at most 0.8 % from the truth.
func p99(sum []uint64, n uint64) int64 {
	rank := (99*n + 99) / 100
	for cell, k := range sum {
		if k >= rank && k > 0 {
			return min(hist.Middle(cell), highest)
		}
		rank -= min(k, rank)
	}
	return 0
}
