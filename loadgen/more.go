package loadgen

import (
	"math"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// more is what other programs print, and a [Result] has in no field.
type more struct {
	threads int
	latency *hdrhistogram.Histogram // in microseconds; nil: no run made the Result
	rate    dispersion              // of requests in a second of a thread
}

// dispersion is how values spread.
type dispersion struct{ mean, stdev, max, within float64 }

func dispersionOf(values []float64) (s dispersion) {
	if len(values) == 0 {
		return s
	}
	for _, v := range values {
		s.mean += v / float64(len(values))
		s.max = max(s.max, v)
	}
	for _, v := range values {
		s.stdev += (v - s.mean) * (v - s.mean) / float64(len(values))
	}
	s.stdev = math.Sqrt(s.stdev)
	for _, v := range values {
		if math.Abs(v-s.mean) <= s.stdev {
			s.within += 100 / float64(len(values))
		}
	}
	return s
}

func moreOf(threads []*thread, latency *hdrhistogram.Histogram) more {
	var rates []float64
	for _, t := range threads {
		for i, s := range t.seconds.all() {
			if whole := t.counted.Seconds() - float64(i); whole > 0 {
				rates = append(rates, float64(s.requests)/min(1, whole))
			}
		}
	}
	return more{len(threads), latency, dispersionOf(rates)}
}

// within is the share of latencies within a standard deviation of the mean, in percent.
func (m *more) within() float64 {
	h := m.histogram()
	mean, stdev, count := h.Mean(), h.StdDev(), int64(0)
	for _, bar := range h.Distribution() {
		if math.Abs(float64(bar.From+bar.To)/2-mean) <= stdev {
			count += bar.Count
		}
	}
	return 100 * float64(count) / float64(max(h.TotalCount(), 1))
}

// histogram is of the latencies, empty if there are none.
func (m *more) histogram() *hdrhistogram.Histogram {
	if m.latency == nil {
		return newHistogram()
	}
	return m.latency
}

// ends are the ways in which requests come to no good answer, as other programs tell them apart.
type ends struct {
	statuses uint64 // an answer, of 400 or more
	broken   uint64 // none: the connection, or what came, was not what it should be
	timeouts uint64
	connects uint64 // no connection, and so no request
	unasked  uint64 // an answer to no request
}

func (r *Result) ends() (e ends) {
	for kind, n := range r.Errors {
		switch n := uint64(n); {
		case strings.HasPrefix(kind, "status "):
			e.statuses += n
		case kind == timedOut || kind == unanswered: // those programs have one word for both
			e.timeouts += n
		case kind == "connect" || kind == "tls":
			e.connects += n
		case kind == unasked:
			e.unasked += n
		default:
			e.broken += n
		}
	}
	return e
}
