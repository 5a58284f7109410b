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

// weighted is a value that stands for so much.
type weighted struct{ value, weight float64 }

func dispersionOf(values []weighted) (s dispersion) {
	total := 0.0
	for _, v := range values {
		total += v.weight
	}
	for _, v := range values {
		s.mean += v.value * v.weight / total
		s.max = max(s.max, v.value)
	}
	for _, v := range values {
		s.stdev += (v.value - s.mean) * (v.value - s.mean) * v.weight / total
	}
	s.stdev = math.Sqrt(s.stdev)
	for _, v := range values {
		if math.Abs(v.value-s.mean) <= s.stdev {
			s.within += 100 * v.weight / total
		}
	}
	return s
}

func moreOf(threads []*thread, latency *hdrhistogram.Histogram) more {
	var rates []weighted
	for _, t := range threads {
		rates = append(rates, t.rates()...)
	}
	return more{len(threads), latency, dispersionOf(rates)}
}

// rates are how many answers a second a thread had, in each second. What a run has beyond whole
// seconds goes with the last of them: of a piece of some 100 µs the rate is an accident.
func (t *thread) rates() (all []weighted) {
	length, seconds := t.counted.Seconds(), t.seconds.all()
	for i := range max(int(length), 1) {
		first, until, n := float64(i), float64(i+1), uint64(0)
		pieces := seconds[min(i, len(seconds)):]
		if i+1 >= int(length) { // the last
			until = length
		} else {
			pieces = pieces[:min(1, len(pieces))]
		}
		for _, s := range pieces {
			n += s.requests + s.failed
		}
		if until > first {
			all = append(all, weighted{float64(n) / (until - first), until - first})
		}
	}
	return all
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
