package loadgen

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/rt"
)

// truth is how long each shape of TestTruth runs, and asks for quantiles within 2 % or 0.2 ms: for
// a machine that does nothing else. 0: short runs, of which any machine must get the counts right.
var truth = flag.Duration("truth", 0, "time of each shape of TestTruth, with narrow bounds")

// shape is a server and a load, and how the truth about latencies is known.
type shape struct {
	cfg Config
	do  func(n int, rng *rand.Rand) deed
	due bool // the truth is when a request was due, since the server makes others wait
}

func good(wait time.Duration) deed { return deed{wait: wait, status: 200} }

func ms(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }

// shapes are for a run of some length. Those with a rate keep far from what the server can do, but
// for those that stall.
func shapes(length time.Duration) map[string]shape {
	open := Config{Rate: 500, Connections: 64}
	closed := Config{Connections: 8}
	stalled := Config{Rate: 500, Connections: 4}
	at := func(part float64) int { return int(part * length.Seconds() * stalled.Rate) }
	stall := func(d deed) shape {
		return shape{cfg: stalled, due: true, do: func(n int, _ *rand.Rand) deed {
			if k := at(0.3); n >= k && n < k+stalled.Connections { // all of them
				return d
			}
			return good(ms(1))
		}}
	}
	return map[string]shape{
		"constant, closed": {cfg: closed, do: func(int, *rand.Rand) deed { return good(ms(2)) }},
		"constant, open":   {cfg: open, do: func(int, *rand.Rand) deed { return good(ms(5)) }},
		"uniform":          {cfg: open, do: func(_ int, r *rand.Rand) deed { return good(ms(10 * r.Float64())) }},
		"exponential":      {cfg: open, do: func(_ int, r *rand.Rand) deed { return good(ms(3 * r.ExpFloat64())) }},
		"two heaps": {
			cfg: open,
			do:  func(_ int, r *rand.Rand) deed { return good(ms(1 + 49*math.Floor(r.Float64()+0.01))) },
		},
		"a long tail": {
			cfg: open,
			do:  func(_ int, r *rand.Rand) deed { return good(ms(min(100, math.Exp(1+r.NormFloat64())))) },
		},
		"in pieces": {cfg: closed, do: func(int, *rand.Rand) deed { return deed{status: 200, pieces: 3} }},
		"closed behind it": {
			cfg: open,
			do:  func(int, *rand.Rand) deed { return deed{wait: ms(3), status: 200, end: closes} },
		},
		"several at a time": {
			cfg: Config{Connections: 4, Pipeline: 4},
			do:  func(int, *rand.Rand) deed { return good(ms(1)) },
		},
		"errors": {cfg: open, do: func(n int, _ *rand.Rand) deed {
			return deed{wait: ms(float64(n % 7)), status: []int{200, 500, 200, 404, 200}[n%5]}
		}},
		"resets": {cfg: closed, do: func(n int, _ *rand.Rand) deed {
			return []deed{good(ms(2)), good(ms(4)), {wait: ms(2), end: resets}, good(ms(1)), {end: closes}}[n%5]
		}},
		"resets, open": {cfg: open, do: func(n int, _ *rand.Rand) deed {
			return []deed{
				good(ms(2)), good(ms(4)),
				{wait: ms(20), end: resets},
				good(ms(1)),
				{wait: ms(8), end: closes},
			}[n%5]
		}},
		"answers twice": {cfg: closed, do: func(n int, _ *rand.Rand) deed {
			return deed{wait: ms(2), status: 200, twice: n%3 == 0}
		}},
		"a stall":               stall(good(length / 4)),
		"a stall, then a reset": stall(deed{wait: length / 4, end: resets}),
		"a stall, then the end": stall(deed{wait: length / 4, end: closes}),
		"a stall, then errors":  stall(deed{wait: length / 4, status: 503}),
		"no answer at the end": {cfg: stalled, due: true, do: func(n int, _ *rand.Rand) deed {
			if n >= at(0.7) {
				return deed{end: stays}
			}
			return good(ms(1))
		}},
	}
}

// TestTruth holds what a load tells to what a server knows: how many requests came to which end, to
// the last, and the quantiles of their latencies. Those are never less than the server's, however
// busy the machine is: it takes a request's time from when the kernel had it until just before the
// answer goes. With -truth they are no more than that, either, within 2 % or 0.2 ms.
func TestTruth(t *testing.T) {
	length := 300 * time.Millisecond
	if *truth > 0 {
		length = *truth
	}
	all := shapes(length)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { all[name].try(t, name, length) })
	}
}

// try runs a shape.
func (h shape) try(t *testing.T, name string, length time.Duration) {
	url, settle := startTruth(t, name, length)
	cfg := h.cfg
	cfg.URL, cfg.Duration, cfg.Threads, cfg.Timeout = url, length, 1, time.Hour
	if *truth > 0 {
		cfg.RealTime = rt.TryScheduling(realTime) == nil
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := settle()
	counts := a.counts()
	got := maps.Clone(r.Errors)
	got[""] = int(r.Requests + r.Late)
	if !maps.Equal(got, counts) {
		t.Errorf("the load counts %v, the server %v", got, counts)
	}
	want := int(r.Unsent) // of a machine that was held up
	if cfg.Rate > 0 {
		want += len(a.Fates) - counts[""]
		if all := int(math.Ceil(cfg.Rate * cfg.Duration.Seconds())); len(a.Fates)+int(r.Unsent) != all {
			t.Errorf("%d came and %d were not sent, of %d that were due", len(a.Fates), r.Unsent, all)
		}
	}
	if int(r.AtLeast) != want {
		t.Errorf("%d are told to have had no good answer, %d had none", r.AtLeast, want)
	}
	known := a.latencies(h, cfg, r)
	if len(known) == 0 {
		t.Fatalf("no answer in %v", length)
	}
	var told strings.Builder
	for _, q := range []struct {
		name string
		part float64
		us   int64
	}{
		{"p50", 0.5, r.LatencyUs.P50},
		{"p75", 0.75, r.LatencyUs.P75},
		{"p90", 0.9, r.LatencyUs.P90},
		{"p99", 0.99, r.LatencyUs.P99},
		{"p99.9", 0.999, r.LatencyUs.P999},
	} {
		rank := max(int(q.part*float64(len(known))+0.5), 1) // as a histogram has it
		want, got := known[rank-1], time.Duration(q.us)*time.Microsecond
		fmt.Fprintf(&told, " %s %v (%+d µs)", q.name, got, (got - want).Microseconds())
		if got < want-want/500-10*time.Microsecond { // the two have different clocks, and a load rounds
			t.Errorf("%s is %v, less than the %v that the server says", q.name, got, want)
		}
		if *truth > 0 && got > want+max(200*time.Microsecond, want/50) {
			t.Errorf("%s is %v, the server says %v", q.name, got, want)
		}
	}
	t.Logf("%d requests, %v:%s", len(a.Fates), counts, told.String())
}

// counts are of requests by their ends, as a Result has them; good answers are "".
func (a *account) counts() map[string]int {
	counts := map[string]int{}
	for _, f := range a.Fates {
		if f.Kind == "" && f.End == 0 {
			f.Kind = "given up by the load"
		}
		counts[f.Kind]++
	}
	if a.Unasked > 0 {
		counts[unasked] = a.Unasked
	}
	return counts
}

// latencies is what the server knows of them, in order of size.
func (a *account) latencies(h shape, cfg Config, r *Result) (known []time.Duration) {
	slices.SortFunc(a.Fates, func(x, y fate) int { return cmp.Compare(x.Came, y.Came) }) // as they were sent
	interval := int64(0)
	if cfg.Rate > 0 {
		interval = int64(float64(time.Second) / cfg.Rate)
	}
	began := int64(math.MaxInt64) // no request came before it was due, and one at least did as it was
	for i, f := range a.Fates {
		began = min(began, f.Came-int64(i)*interval)
	}
	until := began + int64(r.Seconds*float64(time.Second))
	for i, f := range a.Fates {
		switch {
		case h.due:
			f.Came = began + int64(i)*interval
		case cfg.Rate == 0 && f.Kind != "":
			continue // a closed loop tells of good answers only
		}
		if f.End == 0 { // it was given up when nothing had moved for so long behind the end
			f.End = until + int64(answersFor)
		}
		known = append(known, time.Duration(f.End-f.Came))
	}
	for i := len(a.Fates); i < len(a.Fates)+int(r.Unsent); i++ {
		known = append(known, time.Duration(until-began-int64(i)*interval))
	}
	slices.Sort(known)
	return known
}
