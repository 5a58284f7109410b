package loadgen

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// truth is how long each shape of TestTruth runs, and asks for quantiles within 2 % or 0.2 ms: for
// a machine that does nothing else. 0: short runs, of which any machine must get the counts right.
var truth = flag.Duration("truth", 0, "time of each shape of TestTruth, with narrow bounds")

// deed is what the truth server does with a request.
type deed struct {
	wait   time.Duration
	status int      // of the answer; 0: there is none, and end says what comes instead
	pieces int      // of a body in chunks, with pauses of a millisecond; 0: it has a length
	twice  bool     // the answer comes twice
	end    deedsEnd // of the connection, behind the answer or in its place
}

type deedsEnd int

const (
	goesOn deedsEnd = iota
	closes          // in order
	resets
	stays // and nothing comes any more
)

// truthServer answers as it is told, and writes down what it did: what a load measures must agree.
type truthServer struct {
	do func(n int, rng *rand.Rand) deed

	mu     sync.Mutex
	rng    *rand.Rand
	n      int
	first  time.Time // that a request came
	waits  []time.Duration
	bad    []time.Duration // as waits, of requests that came to another end
	ends   []time.Duration // since first: when each request came to an end
	counts map[string]int  // by the names that errors have in a Result; "": good answers
}

// serve handles one connection.
func (s *truthServer) serve(c net.Conn) {
	b, have, came := make([]byte, 64<<10), 0, time.Time{}
	for {
		i := bytes.Index(b[:have], []byte("\r\n\r\n"))
		if i < 0 {
			n, err := c.Read(b[have:])
			if err != nil {
				return
			}
			have, came = have+n, time.Now() // of all that are behind one another
			continue
		}
		have = copy(b, b[i+4:have])
		if !s.answer(c, came) {
			return
		}
	}
}

func (s *truthServer) answer(c net.Conn, came time.Time) (goOn bool) {
	s.mu.Lock()
	if s.n == 0 {
		s.first = came
	}
	d := s.do(s.n, s.rng)
	s.n++
	s.mu.Unlock()
	if d.wait > 0 {
		time.Sleep(d.wait) // what is to be measured
	}
	if d.status == 0 {
		s.count(map[deedsEnd]string{closes: "closed", resets: "reset", stays: timedOut}[d.end], came)
		switch d.end {
		case resets:
			_ = c.(*net.TCPConn).SetLinger(0)
		case stays:
			_, _ = io.Copy(io.Discard, c)
		}
		return false
	}
	head := fmt.Sprintf("HTTP/1.1 %d x\r\n", d.status)
	if d.end == closes {
		head += "Connection: close\r\n"
	}
	if d.pieces == 0 {
		whole := head + "Content-Length: 5\r\n\r\nhello"
		s.mu.Lock()
		if d.twice {
			whole += whole
			s.counts[unasked]++
		}
		s.mu.Unlock()
		s.count(kindOf(d.status), came) // before the last byte, which the load may count at once
		_, _ = io.WriteString(c, whole)
		return d.end == goesOn
	}
	_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n")
	for range d.pieces {
		_, _ = io.WriteString(c, "5\r\nhello\r\n")
		time.Sleep(time.Millisecond)
	}
	s.count(kindOf(d.status), came)
	_, _ = io.WriteString(c, "0\r\n\r\n")
	return d.end == goesOn
}

func kindOf(status int) string {
	if status < 400 {
		return ""
	}
	return fmt.Sprintf("status %d", status)
}

func (s *truthServer) count(kind string, came time.Time) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.counts[kind]++; kind {
	case timedOut:
		return
	case "":
		s.waits = append(s.waits, now.Sub(came))
	default:
		s.bad = append(s.bad, now.Sub(came))
	}
	s.ends = append(s.ends, now.Sub(s.first))
}

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
		"constant, closed":  {cfg: closed, do: func(int, *rand.Rand) deed { return good(ms(2)) }},
		"constant, open":    {cfg: open, do: func(int, *rand.Rand) deed { return good(ms(5)) }},
		"uniform":           {cfg: open, do: func(_ int, r *rand.Rand) deed { return good(ms(10 * r.Float64())) }},
		"exponential":       {cfg: open, do: func(_ int, r *rand.Rand) deed { return good(ms(3 * r.ExpFloat64())) }},
		"two heaps":         {cfg: open, do: func(_ int, r *rand.Rand) deed { return good(ms(1 + 49*math.Floor(r.Float64()+0.01))) }},
		"a long tail":       {cfg: open, do: func(_ int, r *rand.Rand) deed { return good(ms(min(100, math.Exp(1+r.NormFloat64())))) }},
		"in pieces":         {cfg: closed, do: func(int, *rand.Rand) deed { return deed{status: 200, pieces: 3} }},
		"closed behind it":  {cfg: open, do: func(int, *rand.Rand) deed { return deed{wait: ms(3), status: 200, end: closes} }},
		"several at a time": {cfg: Config{Connections: 4, Pipeline: 4}, do: func(int, *rand.Rand) deed { return good(ms(1)) }},
		"errors": {cfg: open, do: func(n int, _ *rand.Rand) deed {
			return deed{wait: ms(float64(n % 7)), status: []int{200, 500, 200, 404, 200}[n%5]}
		}},
		"resets": {cfg: closed, do: func(n int, _ *rand.Rand) deed {
			return []deed{good(ms(2)), good(ms(4)), {wait: ms(2), end: resets}, good(ms(1)), {end: closes}}[n%5]
		}},
		"resets, open": {cfg: open, do: func(n int, _ *rand.Rand) deed {
			return []deed{good(ms(2)), good(ms(4)), {wait: ms(20), end: resets}, good(ms(1)), {wait: ms(8), end: closes}}[n%5]
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
// the last, and the quantiles of their latencies.
func TestTruth(t *testing.T) {
	length, within := 300*time.Millisecond, func(want time.Duration) time.Duration { return max(20*time.Millisecond, want/4) }
	if *truth > 0 {
		length, within = *truth, func(want time.Duration) time.Duration { return max(200*time.Microsecond, want/50) }
	}
	all := shapes(length)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			testenv.Calm(t, func() error {
				err := all[name].try(t, length, within)
				if *truth > 0 && err != nil {
					t.Fatal(err) // a release test has no second try
				}
				return err
			})
		})
	}
}

// try runs a shape. What the machine can spoil is an error that it returns; the counts are none of
// it.
func (h shape) try(t *testing.T, length time.Duration, within func(time.Duration) time.Duration) error {
	s := &truthServer{do: h.do, rng: rand.New(rand.NewPCG(1, 2)), counts: map[string]int{}}
	cfg := h.cfg
	cfg.URL, cfg.Duration, cfg.Threads, cfg.Timeout = serveRaw(t, s.serve), length, 1, 2*length+time.Minute
	if h.due {
		cfg.Timeout = 2 * length
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := maps.Clone(r.Errors)
	got[""] = int(r.Requests + r.Late)
	if !maps.Equal(got, s.counts) {
		t.Errorf("the load counts %v, the server %v", got, s.counts)
	}
	want := int(r.Unsent) // of a machine that was held up
	if h.due {
		want = due(cfg) - s.counts[""]
	} else if cfg.Rate > 0 {
		want += len(s.bad)
	}
	if int(r.AtLeast) != want {
		t.Errorf("%d are told to have had no good answer, %d had none", r.AtLeast, want)
	}
	known := s.latencies(h, cfg, r)
	if len(known) < 20 {
		return fmt.Errorf("%d answers in %v", len(known), length)
	}
	var wrong []error
	var told strings.Builder
	for _, q := range []struct {
		name string
		part float64
		us   int64
	}{{"p50", 0.5, r.LatencyUs.P50}, {"p75", 0.75, r.LatencyUs.P75}, {"p90", 0.9, r.LatencyUs.P90}, {"p99", 0.99, r.LatencyUs.P99}, {"p99.9", 0.999, r.LatencyUs.P999}} {
		want, got := known[int(math.Ceil(q.part*float64(len(known))))-1], time.Duration(q.us)*time.Microsecond
		fmt.Fprintf(&told, " %s %v (%+d µs)", q.name, got, (got - want).Microseconds())
		if diff := (got - want).Abs(); diff > within(want) {
			wrong = append(wrong, fmt.Errorf("%s is %v, the server says %v", q.name, got, want))
		}
	}
	t.Logf("%d requests, %v:%s", s.n, s.counts, told.String())
	return errors.Join(wrong...)
}

// due is how many requests an open loop of one thread has to send.
func due(cfg Config) int { return int(math.Ceil(cfg.Rate * cfg.Duration.Seconds())) }

// latencies is what the server knows of them, in order of size.
func (s *truthServer) latencies(h shape, cfg Config, r *Result) (known []time.Duration) {
	known = slices.Clone(s.waits)
	if cfg.Rate > 0 {
		known = append(known, s.bad...)
	}
	if h.due { // request i was due i intervals after the first
		interval := time.Duration(float64(time.Second) / cfg.Rate)
		slices.Sort(s.ends)
		known = known[:0]
		for i, end := range s.ends {
			known = append(known, end-time.Duration(i)*interval)
		}
		for i := len(s.ends); i < due(cfg); i++ { // it had no answer
			until := time.Duration(r.Seconds * float64(time.Second))
			if i < len(s.ends)+s.counts[timedOut] { // it was sent, and given up behind the end
				until += min(cfg.Timeout, answersFor)
			}
			known = append(known, until-time.Duration(i)*interval)
		}
	}
	slices.Sort(known)
	return known
}
