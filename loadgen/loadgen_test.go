package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/rt"
)

func TestCountsAgreeWithTheServer(t *testing.T) {
	for name, cfg := range map[string]Config{
		"closed loop": {Connections: 10},
		"pipelined":   {Connections: 4, Pipeline: 16},
		"open loop":   {Connections: 10, Rate: 5000},
		"with a body": {Connections: 3, Method: "POST", Body: []byte("hello"), Header: http.Header{"X-A": {"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Uint64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := served.Add(1)
				if b, _ := io.ReadAll(r.Body); cfg.Body != nil && (string(b) != "hello" || r.Header.Get("X-A") != "b") {
					t.Errorf("the server got %q and %v", b, r.Header)
				}
				switch n % 5 { // every shape of an answer
				case 0:
					w.WriteHeader(http.StatusNoContent)
				case 1:
					fmt.Fprint(w, "short")
				case 2:
					fmt.Fprint(w, strings.Repeat("long ", 5000))
				case 3:
					fmt.Fprint(w, "0\r\n\r\n")
					_ = http.NewResponseController(w).Flush()
					fmt.Fprint(w, "in chunks")
				default:
					w.WriteHeader(http.StatusTeapot)
				}
			}))
			defer s.Close()
			cfg.URL, cfg.Duration, cfg.Timeout, cfg.PID = s.URL, 300*time.Millisecond, time.Minute, os.Getpid()
			r, err := Run(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Requests + uint64(r.Failed())
			most := served.Load()
			if least := most - uint64(cfg.Connections*max(cfg.Pipeline, 1)); got > most || got < least || got == 0 {
				t.Errorf("%d answers are counted, %d were given", got, most)
			}
			if teapots := uint64(r.Errors["status 418"]); teapots > most/5+1 || teapots+20 < got/5 ||
				len(r.Errors) > 1 {
				t.Errorf("failures are %v of %d", r.Errors, got)
			}
			var sum uint64
			for _, s := range r.Samples {
				sum += s.Requests
			}
			if sum != r.Requests {
				t.Errorf("the seconds add up to %d, want %d", sum, r.Requests)
			}
		})
	}
}

// A server that stalls is charged for all requests that were due meanwhile, not only for those that
// it had taken.
func TestStallsAreCharged(t *testing.T) {
	const rate, stall = 1000, 400 * time.Millisecond
	testenv.Calm(t, func() error {
		began := time.Now()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(max(0, time.Until(began.Add(stall)))) // what is to be seen
		}))
		defer s.Close()
		r, err := Run(context.Background(), Config{URL: s.URL, Connections: 2, Rate: rate, Duration: 2 * stall})
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests < 500 || r.LatencyUs.P90 < (stall/4).Microseconds() ||
			r.LatencyUs.Max > (4*stall).Microseconds() {
			return fmt.Errorf("a stall of %v with %d requests a second: %+v", stall, rate, r)
		}
		return nil
	})
}

// What is sent before the time that counts is not counted, and how long it took is in no figure.
func TestWarmupIsNotCounted(t *testing.T) {
	var served atomic.Uint64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if served.Add(1) == 1 {
			time.Sleep(300 * time.Millisecond) // what is to be left out
		}
	}))
	defer s.Close()
	testenv.Calm(t, func() error {
		served.Store(0)
		r, err := Run(t.Context(),
			Config{
				URL: s.URL, Connections: 2, Rate: 200, Warmup: 500 * time.Millisecond,
				Duration: 200 * time.Millisecond, Timeout: time.Minute,
			})
		if err != nil {
			t.Fatal(err)
		}
		if n := r.Requests + r.Late + r.Unsent; n != 40 || served.Load() <= n || r.Failed() > 0 {
			t.Errorf("%d counted of %d: %+v", n, served.Load(), r)
		}
		if r.LatencyUs.Max > 250_000 {
			return fmt.Errorf("the stall of the warm-up is in the figures: %+v", r.LatencyUs)
		}
		return nil
	})
}

func TestLostConnectionsAreCountedAndMadeAgain(t *testing.T) {
	var n atomic.Uint64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch k := n.Add(1); {
		case k%100 == 50:
			panic(http.ErrAbortHandler)
		case k%100 == 0:
			w.Header().Set("Connection", "close")
		}
	}))
	defer s.Close()
	testenv.Calm(t, func() error {
		r, err := Run(context.Background(), Config{URL: s.URL, Connections: 4, Duration: 300 * time.Millisecond})
		if err != nil || r.Requests < 200 || r.Failed() == 0 {
			return fmt.Errorf("%+v, %w: want answers after failures", r, err)
		}
		return nil
	})
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []Config{
		{URL: "ftp://127.0.0.1/"},
		{URL: "http://127.0.0.1:1/", ThinkMin: 2, ThinkMax: 1},
		{URL: "http://127.0.0.1:1/", ThinkMin: -1, ThinkMax: 1},
		{URL: "http://127.0.0.1:1/", ThinkMax: 1, Rate: 5},
		{URL: "http://127.0.0.1:1/", ThinkMax: 1, Pipeline: 2},
		{URL: "http://127.0.0.1:1/", Exchanges: []Exchange{{Path: "a"}}},
		{URL: "http://127.0.0.1:1/", Exchanges: []Exchange{{Path: "/a b"}}},
		{URL: "nonsense"},
		{URL: "http://127.0.0.1:1/"},
		{URL: "http://127.0.0.1:1/", Connections: -1},
		{URL: "http://127.0.0.1:1/", Rate: 1, Pipeline: 2},
		{URL: "http://127.0.0.1:1/", Rate: -1},
	} {
		if _, err := Run(context.Background(), c); err == nil {
			t.Errorf("%+v is no error", c)
		}
	}
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	for _, c := range []Config{ // of which some never ended, or ended the program
		{Rate: 1e-10},
		{Rate: math.NaN()},
		{Rate: math.Inf(1)},
		{Duration: math.MaxInt64},
		{Warmup: math.MaxInt64},
		{Timeout: math.MaxInt64},
		{ThinkMax: math.MaxInt64},
		{Duration: -1},
		{Timeout: -1},
	} {
		c.URL = s.URL
		if _, err := Run(t.Context(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if r, err := Run(t.Context(),
		Config{URL: s.URL, Rate: minRate, Threads: 2, Connections: 64, Duration: 50 * time.Millisecond}); err != nil ||
		r.Failed() != 1 || r.Unsent != 0 {
		t.Errorf("the least rate: %+v, %v", r, err)
	}
	for _, c := range []Config{ // which were sent, as something else
		{Method: "GE T"},
		{Method: "GET / HTTP/1.1\r\nX: "},
		{Header: http.Header{"Content-Length": {"5"}}},
		{Header: http.Header{"transfer-encoding": {"chunked"}}},
		{Header: http.Header{"X Y": {"z"}}},
		{Header: http.Header{"X": {"a\r\nY: b"}}},
		{URL: strings.Replace(s.URL, "//", "//user:secret@", 1)},
	} {
		c.URL, c.Connections, c.Duration = cmp.Or(c.URL, s.URL), 1, time.Millisecond
		if _, err := Run(context.Background(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestHeadOfARequest: a Host of the header goes instead of the URL's, and not beside it; a method
// that has a body says how long it is, even if that is nothing.
func TestHeadOfARequest(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "", "POST": "Content-Length: 0\r\n", "PUT": "Content-Length: 0\r\n", "PATCH": "Content-Length: 0\r\n",
	} {
		c := Config{
			URL: "http://127.0.0.1:1/a?b", Method: method,
			Header: http.Header{"Host": {"example.org"}, "X": {"y"}},
		}
		_, requests, err := c.check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := string(requests[0]); got != method+" /a?b HTTP/1.1\r\nHost: example.org\r\nX: y\r\n"+want+"\r\n" {
			t.Errorf("%q", got)
		}
	}
}

// TestTimeOfSending: a request of a closed loop counts from when it is sent, and not from when the
// thread began to read the many answers before it.
func TestTimeOfSending(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	defer syscall.Close(pair[1])
	x := &thread{
		cfg: &Config{Pipeline: 2, Exchanges: []Exchange{{}}}, bursts: [][]byte{[]byte("hello")},
		began: time.Now().Add(-time.Second),
	}
	c := &conn{fd: pair[0]}
	if x.sendBurst(c); len(c.due) != 2 || c.due[0] < time.Second || x.sent != 5 {
		t.Errorf("they count from %v, and were sent a second after the beginning; %d bytes", c.due, x.sent)
	}
}

// TestWaitsEndEarly: a wait ends earlier by what waits are late, and a thread turns for no more
// than a tenth of its time.
func TestWaitsEndEarly(t *testing.T) {
	for _, c := range []struct {
		interval, late, least, most time.Duration
	}{
		{2 * time.Millisecond, 60 * time.Microsecond, 58 * time.Microsecond, 62 * time.Microsecond},
		{2 * time.Millisecond, 10 * time.Millisecond, 200 * time.Microsecond, 200 * time.Microsecond},
		{time.Second, 10 * time.Millisecond, earliest, earliest},
		{100 * time.Microsecond, 60 * time.Microsecond, 9 * time.Microsecond, 10 * time.Microsecond},
		{2 * time.Millisecond, 0, 0, 0},
		{0, 60 * time.Microsecond, 0, 0},
	} {
		x := &thread{interval: float64(c.interval), early: 100 * time.Microsecond}
		for range 1000 {
			x.learn(c.late)
		}
		if x.early < c.least || x.early > c.most {
			t.Errorf("every %v, late by %v: %v early, want %v to %v", c.interval, c.late, x.early, c.least, c.most)
		}
	}
}

// TestRealTime: threads that send are before others for as long as they do, where that is allowed;
// else the error says what is missing.
func TestRealTime(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	r, err := Run(t.Context(),
		Config{
			URL: s.URL, Connections: 1, Rate: 100, RealTime: true, Duration: 50 * time.Millisecond,
			Timeout: time.Minute,
		})
	switch allowed := rt.TryScheduling(realTime) == nil; {
	case !allowed:
		if missing := (*rt.NotAllowedError)(nil); !errors.As(err, &missing) {
			t.Errorf("%v: want it to say which right is missing", err)
		}
	case err != nil || r.Requests+r.Late+r.Unsent != 5:
		t.Errorf("%+v, %v", r, err)
	}
	testenv.Until(t, time.Minute, "no thread is before others any more", func() bool { // those that only tried end
		tasks, err := filepath.Glob("/proc/self/task/*")
		return err == nil && !slices.ContainsFunc(tasks, func(task string) bool {
			tid, _ := strconv.Atoi(filepath.Base(task))
			s, err := rt.GetScheduling(tid)
			return err == nil && s.Policy != rt.Other
		})
	})
}

// Once is one request on each connection also where there is a rate, which then goes on with all of
// them; a run whose context has ended asks nothing.
func TestOnceBesideARate(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer s.Close()
	const connections, rate = 6, 5000
	l, err := New(Config{URL: s.URL + "/", Connections: connections, Threads: 2, Rate: rate, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 5 {
		before := asked.Load()
		r, err := l.Once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := asked.Load() - before; n != connections || r.Requests+r.Late != connections || r.Unsent != 0 ||
			r.AtLeast != 0 || r.Failed() != 0 {
			t.Errorf("once on %d connections: the server had %d requests; %+v", connections, n, r)
		}
		before = asked.Load()
		if r, err = l.Run(t.Context(), 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if n := uint64(asked.Load() - before); n != r.Requests+r.Late || n+r.Unsent != rate/50 || r.Failed() != 0 {
			t.Errorf("at %d a second for 20 ms: the server had %d requests; %+v", rate, n, r)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	before := asked.Load()
	for _, rate := range []float64{0, rate} {
		r, err := Run(ended, Config{URL: s.URL + "/", Connections: connections, Rate: rate, Timeout: time.Minute})
		if err == nil && (r.Requests+r.Late+r.Unsent != 0 || r.LatencyUs.Max != 0) {
			t.Errorf("when the context has ended: %+v", r)
		}
		if r, err := l.Run(ended, time.Second); err != nil || r.Requests+r.Late+r.Unsent != 0 {
			t.Errorf("when the context has ended: %+v, %v", r, err)
		}
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("when the context had ended, the server had %d requests", n)
	}
}

// What is due in a time is the rate's share of it, to the request, where no interval is a whole
// number of nanoseconds, too.
func TestDueInASecond(t *testing.T) {
	for _, rate := range []float64{
		1, 3, 7, 300, 600, 700, 900, 1100, 3000, 6000, 7000, 9000, 33_333, 70_000,
		1_100_000,
	} {
		for threads := 1; threads <= 4; threads++ {
			due := 0
			for i := range threads {
				one := thread{cfg: &Config{Threads: threads}, interval: 1e9 * float64(threads) / rate}
				for one.reset(time.Time{}, 0, time.Second, i); one.due() < one.length; one.asks++ {
					due++
				}
			}
			if due != int(rate) {
				t.Errorf("of %v a second by %d threads: %d are due in one second", rate, threads, due)
			}
		}
	}
}

// The rate goes on through the end of a warm-up: a stall over it is charged to what was due behind
// it, and no more than that counts.
func TestStallOverTheEndOfAWarmup(t *testing.T) {
	const warmup, length, rate = 400 * time.Millisecond, 600 * time.Millisecond, 200
	var began atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began.CompareAndSwap(0, time.Now().UnixNano())
		since := time.Since(time.Unix(0, began.Load()))
		if stall := warmup - 100*time.Millisecond; since > stall && since < warmup+200*time.Millisecond {
			time.Sleep(warmup + 200*time.Millisecond - since)
		}
	}))
	defer s.Close()
	r, err := Run(t.Context(), Config{
		URL: s.URL, Connections: 200, Rate: rate, Warmup: warmup, Duration: length, Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	due := uint64(rate * length.Seconds())
	if got := r.Requests + r.Late + r.Unsent; got != due || len(r.Errors) > 0 {
		t.Errorf("%d requests count, %d were due; errors %v", got, due, r.Errors)
	}
	if r.LatencyUs.Max < 150_000 || r.LatencyUs.P75 < 1000 {
		t.Errorf("the stall is not in it: %+v", r.LatencyUs)
	}
	if r.Seconds < length.Seconds() {
		t.Errorf("it counted for %.2f s", r.Seconds)
	}
}

// Once is one request on each connection, however they are used otherwise, and also where the
// server ends every other one behind its answer.
func TestOnceIsOnce(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 0 {
			w.Header().Set("Connection", "close")
		}
	}))
	defer s.Close()
	for name, cfg := range map[string]Config{
		"plain": {}, "one each": {Close: true}, "users": {ThinkMin: time.Millisecond, ThinkMax: 5 * time.Millisecond},
		"users, one each": {Close: true, ThinkMin: time.Millisecond, ThinkMax: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.URL, cfg.Connections, cfg.Threads, cfg.Timeout = s.URL+"/", 5, 2, time.Minute
			l, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for i := range 20 {
				before := asked.Load()
				r, err := l.Once(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if n := asked.Load() - before; n != 5 || r.Requests+r.Late != 5 || r.Failed() > 0 {
					t.Fatalf("call %d: the server had %d requests, %d are answered, errors %v", i, n, r.Requests+r.Late,
						r.Errors)
				}
			}
		})
	}
}
