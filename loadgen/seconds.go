package loadgen

import "github.com/tallywheel/tallywheel/internal/hist"

// seconds keeps the latencies of a thread by the second in which they were seen. A second that is
// over takes eight bytes for each latency that it has, of which there are some hundred that differ:
// a load may last for days.
type seconds struct {
	over   []second
	open   []uint32 // by cell, of the one under way
	n      uint64   // in it
	failed uint64   // in it
}

// second is the answers of a second.
type second struct {
	requests uint64 // good ones
	failed   uint64 // others, by their status
	latency  []latencies
}

// latencies are those in a cell of [hist.Cell], of microseconds.
type latencies struct {
	cell  uint32
	count uint32
}

// record counts a latency in a second, which is no earlier than the last.
func (s *seconds) record(at int, us int64) {
	s.goTo(at)
	if s.open == nil {
		s.open = make([]uint32, hist.Cell(highest)+1)
	}
	s.open[hist.Cell(us)]++
	s.n++
}

// fail counts an answer in a second that is no good one.
func (s *seconds) fail(at int) {
	s.goTo(at)
	s.failed++
}

func (s *seconds) goTo(at int) {
	for len(s.over) < at {
		s.turn()
	}
}

// turn ends the second under way.
func (s *seconds) turn() {
	done := second{requests: s.n, failed: s.failed}
	for cell, n := range s.open {
		if n > 0 {
			done.latency = append(done.latency, latencies{uint32(cell), n})
		}
	}
	clear(s.open)
	s.over, s.n, s.failed = append(s.over, done), 0, 0
}

// all are those up to the last in which there was an answer.
func (s *seconds) all() []second {
	if s.n+s.failed > 0 {
		s.turn()
	}
	return s.over
}

// samplesOf adds the seconds of all threads up, of a run of some length in seconds: those of the
// time that was asked for, also where nothing was answered, and what came behind it while the run
// came to its end.
func samplesOf(threads []*thread, length float64) []Sample {
	samples, asked := []Sample{}, 0.0
	for _, t := range threads {
		asked = max(asked, min(t.length, t.counted).Seconds())
	}
	for i := 0; ; i++ {
		s, sum, more := Sample{Second: i, Seconds: min(1, length-float64(i))}, make([]uint64, hist.Cell(highest)+1),
			float64(i) < asked
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
