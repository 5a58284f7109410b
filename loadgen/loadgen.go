// Package loadgen sends HTTP/1.1 requests to a server and measures how long answers take.
//
// # Open and closed loop
//
// With a rate the load is open-loop: when a request is due does not depend on whether earlier ones
// were answered, and its latency counts from that moment, so a server that stalls is charged for
// all that it delays; what it never answers, or with an error, counts as long as it was waited for.
// Without a rate it is closed-loop, as of wrk: every connection sends its next request when the
// last is answered; that finds the most a server can do, and says little about latency, since a
// stalled server is not asked. Its latencies are those of good answers. A thread then looks for
// answers for 50 µs before it sleeps, and gives way to whoever waits for its CPU: it takes up to a
// whole CPU, and the server need not wake it.
//
// # What is checked
//
// An [Exchange] says what must come back: an answer of another length or content is an error, and
// so is one that comes before its request has been sent. Without exchanges a body is counted and
// not looked at. Where an answer ends is as RFC 9112 says: a head that says two things of it is an
// error. So is an answer without a request; it is known by coming behind another one, or while
// nothing is due.
//
// # What it does not do
//
// No HTTP/2, no redirects. A response body is not kept. Linux only.
package loadgen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/net/http/httpguts"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
)

// Config says what to send. URL must be set.
type Config struct {
	URL    string      // http://host:port/path, or https://
	TLS    *tls.Config // of https; nil: the roots of this machine are trusted. HTTP/1.1 is what is asked for
	Method string      // "" is GET
	// Host in it goes instead of the URL's; Content-Length and Transfer-Encoding are made from the
	// body
	Header http.Header
	Body   []byte // of every request
	// instead of Body: each connection sends them in turn, the first another one than its
	// neighbour's; one with Pipeline
	Exchanges []Exchange
	// a connection for each request, which asks for its end: it is answered once the server has
	// closed it
	Close       bool
	Connections int           // 0: 64
	Pipeline    int           // requests on a connection before the first answer, closed-loop only; 0: 1
	Rate        float64       // requests a second; 0: closed-loop
	ThinkMin    time.Duration // closed-loop: a connection is a user, who thinks before each request, from so long …
	// … to so long, at random; before the first one from 0. With Close the connection is made
	// after that
	ThinkMax time.Duration
	Duration time.Duration // 0: 10 s
	Warmup   time.Duration // before it: sent and not counted
	Threads  int           // 0: one for each CPU, at most 4
	// threads run before all ordinary ones (SCHED_FIFO), so that latencies have less of this
	// machine's own delays; it needs a right, and a CPU for the server
	RealTime bool
	PID      int           // of the server: its CPU time and memory are sampled each second; 0: not
	Timeout  time.Duration // for one answer, which is then given up with its connection, and for making one; 0: 10 s
}

// realTime is how threads run with RealTime. A thread that Go starts from one of them is ordinary.
var realTime = rt.Scheduling{Policy: rt.FIFO, Priority: 1, ResetOnFork: true}

// Limits of a configuration.
const (
	maxConnections = 60_000 // of one address: a client has no more ports
	maxPipeline    = 1024
	maxThreads     = 64
	maxRate        = 10e6
	minRate        = 1e-6 // a request in twelve days
	maxTime        = 10_000 * time.Hour
)

// Result is what came of it.
type Result struct {
	URL string `json:"url"`
	// of exchanges that are several, in their order; the URL's own is where one has none
	Paths       []string `json:"paths,omitempty"`
	Connections int      `json:"connections"`
	Pipeline    int      `json:"pipeline"`
	Rate        float64  `json:"rate"` // asked for; 0: closed-loop
	Seconds     float64  `json:"seconds"`
	Drained     float64  `json:"drained_seconds"` // until the last answer, the late ones too

	Requests uint64         `json:"requests"` // answered, by status below 400
	PerSec   float64        `json:"requests_per_second"`
	Late     uint64         `json:"late"`             // sent in time and answered after it, not in Requests
	Unsent   uint64         `json:"unsent"`           // due and not sent when the time was over
	Made     uint64         `json:"connections_made"` // in this run, beside those that were there
	Down     int            `json:"down"`             // connections that could not be made again by the end
	Bytes    uint64         `json:"bytes"`            // received, without what TLS adds
	Sent     uint64         `json:"sent"`             // bytes, too
	Statuses map[int]uint64 `json:"statuses"`         // answers, late ones too, by status
	// by kind: connect, reset, timeout, status 500, answer without a request, unanswered at the end
	// (sooner than a time-out) …
	Errors map[string]int `json:"errors"`

	LatencyUs Latency `json:"latency_us"` // of the late ones, too
	// of an open loop: requests in LatencyUs that had no good answer, by how long they had waited
	// when that was known
	AtLeast uint64   `json:"at_least"`
	Samples []Sample `json:"samples"`

	more more
}

// Latency is in microseconds; what is longer than an hour counts as an hour.
type Latency struct {
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stdev"`
	Min    int64   `json:"min"`
	P50    int64   `json:"p50"`
	P75    int64   `json:"p75"`
	P90    int64   `json:"p90"`
	P95    int64   `json:"p95"`
	P99    int64   `json:"p99"`
	P999   int64   `json:"p99.9"`
	Max    int64   `json:"max"`
}

// Sample is one second, or what there is of the last.
type Sample struct {
	Second   int     `json:"second"`
	Seconds  float64 `json:"seconds"`
	Requests uint64  `json:"requests"`
	P99Us    int64   `json:"p99_us"`
	// of the server, where Config.PID says which that is; 100 is one CPU. Of a second without
	// RSSBytes neither is known
	CPUPercent float64 `json:"cpu_percent,omitempty"`
	RSSBytes   int64   `json:"rss_bytes,omitempty"`
}

// Failed is how many errors there were: requests without a good answer, connections that could not
// be made, and answers that nobody had asked for.
func (r *Result) Failed() (n int) {
	for _, k := range r.Errors {
		n += k
	}
	return n
}

// ErrConfig is in the error for a [Config] that no load can have.
var ErrConfig = errors.New("wrong configuration")

type configError struct{ error }

func (configError) Is(target error) bool { return target == ErrConfig }

// check fills in what is left out, and returns the addresses and the requests.
func (c *Config) check(ctx context.Context) (to []netip.AddrPort, requests [][]byte, err error) {
	u, err := c.settle()
	if err != nil {
		return to, nil, configError{fmt.Errorf("load: %w", err)}
	}
	if c.RealTime {
		if err := rt.TryScheduling(realTime); err != nil {
			return to, nil, fmt.Errorf("load: %w", err)
		}
	}
	if to, err = resolve(ctx, u, c.Timeout); err != nil {
		return to, nil, fmt.Errorf("load: %w", err)
	}
	for i := range c.Exchanges {
		requests = append(requests, c.request(u, &c.Exchanges[i]))
	}
	return to, requests, nil
}

func (c *Config) settle() (*url.URL, error) {
	u, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" {
		c.TLS = nil
	} else {
		if c.TLS = c.TLS.Clone(); c.TLS == nil {
			c.TLS = &tls.Config{}
		}
		c.TLS.NextProtos, c.TLS.ServerName = []string{"http/1.1"},
			cmp.Or(c.TLS.ServerName, withoutZone(u.Hostname()))
	}
	for _, n := range []struct {
		name  string
		value *int
		def   int
		max   int
	}{
		{"connections", &c.Connections, 64, maxConnections},
		{"pipeline", &c.Pipeline, 1, maxPipeline},
		{"threads", &c.Threads, min(runtime.NumCPU(), 4), maxThreads},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < 1 || *n.value > n.max {
			return nil, fmt.Errorf("%s %d: want 1 to %d", n.name, *n.value, n.max)
		}
	}
	c.Threads = min(c.Threads, c.Connections)
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Rate != 0 && !(c.Rate >= minRate && c.Rate <= maxRate) {
		return nil, fmt.Errorf("rate %v: want %v to %.0f requests a second, or 0 for as many as are answered", c.Rate,
			minRate, maxRate)
	}
	if err := c.checkTimes(); err != nil {
		return nil, err
	}
	if c.Rate > 0 && c.Pipeline > 1 {
		return nil, errors.New("pipelining goes without a rate")
	}
	if c.PID != 0 {
		if _, _, err := sys.ProcessUsage(c.PID); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("there is no process %d", c.PID)
			}
			return nil, fmt.Errorf("process %d: %w", c.PID, err)
		}
	}
	c.Method = cmp.Or(c.Method, http.MethodGet)
	if err := c.checkHead(u); err != nil {
		return nil, err
	}
	return u, c.checkExchanges()
}

func (c *Config) checkTimes() error {
	for _, d := range []time.Duration{c.Duration, c.Warmup, c.Timeout, c.ThinkMin, c.ThinkMax} {
		if d < 0 || d > maxTime {
			return fmt.Errorf("a time of %v: want 0 to %v", d, maxTime)
		}
	}
	switch think := c.ThinkMin != 0 || c.ThinkMax != 0; {
	case think && c.ThinkMax < c.ThinkMin:
		return fmt.Errorf("users think from %v to %v: want the longer time last", c.ThinkMin, c.ThinkMax)
	case think && (c.Rate > 0 || c.Pipeline > 1):
		return errors.New("users think without a rate, and without pipelining")
	}
	return nil
}

// checkHead says what could not be sent as it is meant.
func (c *Config) checkHead(u *url.URL) error {
	if !httpguts.ValidHeaderFieldName(c.Method) { // a method is a token, as a name is
		return fmt.Errorf("method %q: want a word, as GET", c.Method)
	}
	if u.User != nil {
		return errors.New("a user in the URL is not sent: want a header Authorization")
	}
	for name, values := range c.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Transfer-Encoding":
			return fmt.Errorf("header %s: it is made from the body", name)
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("header %q: a name cannot have that", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("header %s: %q: a value cannot have that", name, v)
			}
		}
	}
	return nil
}

// checkExchanges makes Body one exchange if there are none.
func (c *Config) checkExchanges() error {
	switch {
	case len(c.Exchanges) == 0:
		c.Exchanges = []Exchange{{Body: c.Body}}
	case len(c.Body) > 0:
		return errors.New("want Body or Exchanges, not both")
	case len(c.Exchanges) > 1 && c.Pipeline > 1:
		return errors.New("pipelining goes with one exchange only")
	}
	if c.Close && c.Pipeline > 1 {
		return errors.New("nothing can be pipelined on a connection for one request")
	}
	for i := range c.Exchanges {
		if err := c.Exchanges[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) request(u *url.URL, e *Exchange) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", c.Method, cmp.Or(e.Path, u.RequestURI()),
		cmp.Or(c.Header.Get("Host"), hostOf(u)))
	_ = c.Header.WriteSubset(&b, map[string]bool{"Host": true}) // into memory
	if c.Close {
		b.WriteString("Connection: close\r\n")
	}
	if len(e.Body) > 0 || c.Method == http.MethodPost || c.Method == http.MethodPut || c.Method == http.MethodPatch {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(e.Body))
	}
	b.WriteString("\r\n")
	return append([]byte(b.String()), e.Body...)
}

// Range and precision of latencies, in microseconds.
const (
	lowest  = 1
	highest = 3600_000_000
	digits  = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(lowest, highest, digits) }

// collect adds the threads up.
func collect(cfg *Config, threads []*thread) *Result {
	r := &Result{
		URL: cfg.URL, Connections: cfg.Connections, Pipeline: cfg.Pipeline, Rate: cfg.Rate,
		Statuses: map[int]uint64{}, Errors: map[string]int{},
	}
	if len(cfg.Exchanges) > 1 {
		for _, e := range cfg.Exchanges {
			r.Paths = append(r.Paths, e.Path)
		}
	}
	whole := newHistogram()
	for _, t := range threads {
		whole.Merge(t.latency)
		r.Requests += t.answered
		r.Late += t.late
		r.Unsent += t.unsent
		r.AtLeast += t.atLeast
		r.Made += t.made
		r.Down += t.down()
		r.Bytes += t.received
		r.Sent += t.sent
		for status, n := range t.statuses {
			if n > 0 {
				r.Statuses[status] += n
			}
		}
		for k, n := range t.errors {
			r.Errors[k] += n
		}
		r.Seconds = max(r.Seconds, t.counted.Seconds())
		r.Drained = max(r.Drained, t.counted.Seconds(), t.lastAnswer.Seconds())
	}
	r.Samples = samplesOf(threads, r.Seconds)
	r.more = moreOf(threads, whole)
	if r.Seconds > 0 {
		r.PerSec = float64(r.Requests) / r.Seconds
	}
	r.LatencyUs = latencyOf(whole)
	return r
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		Mean: h.Mean(), StdDev: h.StdDev(), Min: h.Min(), P50: h.ValueAtQuantile(50), P75: h.ValueAtQuantile(75),
		P90: h.ValueAtQuantile(90),
		P95: h.ValueAtQuantile(95), P99: h.ValueAtQuantile(99), P999: h.ValueAtQuantile(99.9), Max: h.Max(),
	}
}

// watch samples a process each second until it is told to end.
func watch(pid int, ended <-chan struct{}) <-chan []Sample {
	out := make(chan []Sample, 1)
	go func() {
		var all []Sample
		defer func() { out <- all }()
		if pid == 0 {
			return
		}
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, _, err := sys.ProcessUsage(pid)
		for err == nil {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			var cpu time.Duration
			var rss int64
			if cpu, rss, err = sys.ProcessUsage(pid); err == nil {
				all = append(all, Sample{CPUPercent: 100 * (cpu - last).Seconds(), RSSBytes: rss})
				last = cpu
			}
		}
	}()
	return out
}
