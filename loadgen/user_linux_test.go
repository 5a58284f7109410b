package loadgen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// overTLS starts a server that answers the path /long with much, each other with itself; it counts
// the bodies that are not what was sent, and the connections.
func overTLS(t *testing.T) (url string, wrong, made *atomic.Int64) {
	t.Helper()
	var bad, connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Method == http.MethodPost && string(b) != string(spread(tlsSize)) {
			bad.Add(1)
		}
		if r.URL.Path == "/long" {
			_, _ = w.Write(spread(tlsSize))
		} else {
			_, _ = io.WriteString(w, r.URL.RequestURI())
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, &bad, &connections
}

const tlsSize = 300_000

// Over TLS, too, every request has its answer, whole and in order, whatever its length.
func TestOverTLS(t *testing.T) {
	long := Content{Pattern: pattern(), Bytes: tlsSize}
	for name, cfg := range map[string]Config{
		"short":     {Connections: 20},
		"pipelined": {Connections: 3, Pipeline: 10},
		"at a rate": {Connections: 20, Rate: 500},
		"one each":  {Connections: 4, Close: true},
		"long": {Connections: 4, Method: "POST", Exchanges: []Exchange{
			{Path: "/long", Body: spread(tlsSize), Want: long},
			{Path: "/a?b", Body: spread(tlsSize), Want: Exactly([]byte("/a?b"))},
		}},
		"users": {Connections: 20, ThinkMin: time.Millisecond, ThinkMax: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			url, wrong, connections := overTLS(t)
			cfg.URL, cfg.Duration, cfg.Timeout, cfg.TLS = url+"/x", 300*time.Millisecond, time.Minute,
				&tls.Config{InsecureSkipVerify: true}
			r, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			made := connections.Load()
			if r.Requests+r.Late == 0 || r.Failed() > 0 || wrong.Load() > 0 {
				t.Errorf("%d answered, %v failed, %d wrong for the server", r.Requests, r.Errors, wrong.Load())
			}
			if few := int64(cfg.Connections); !cfg.Close && made != few || cfg.Close && made < int64(r.Requests) {
				t.Errorf("%d connections were made for %d answers", made, r.Requests)
			}
		})
	}
}

// Who cannot be trusted, or does not speak TLS, is named before anything is sent.
func TestTLSThatFails(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for url, want := range map[string]string{
		s.URL: "certificate",
		strings.Replace(plain.URL, "http", "https", 1): "TLS",
	} {
		if _, err := Run(t.Context(), Config{URL: url, Connections: 3}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %s", url, err, want)
		}
	}
}

// A connection over TLS that breaks is made again.
func TestBrokenTLSIsMadeAgain(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n.Add(1)%10 == 0 {
			panic(http.ErrAbortHandler)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	l, err := New(Config{URL: s.URL, Connections: 4, TLS: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for end := time.Now().Add(time.Minute); n.Load() < 100; {
		if _, err := l.Run(t.Context(), 50*time.Millisecond); err != nil || time.Now().After(end) {
			t.Fatalf("%d requests in a minute, %v", n.Load(), err)
		}
	}
}

// A server that accepts nothing does not hold up who asks: neither at the beginning nor later.
func TestAServerThatDoesNotAccept(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began := time.Now()
	r, err := Run(t.Context(),
		Config{URL: "https://" + l.Addr().String(), Connections: 2, Timeout: 200 * time.Millisecond})
	if err == nil || time.Since(began) > time.Minute {
		t.Errorf("%+v, %v after %v: want an error", r, err, time.Since(began))
	}
	full := testenv.Unanswered(t)
	began = time.Now()
	if r, err = Run(t.Context(),
		Config{URL: "http://" + full, Connections: 2, Timeout: 200 * time.Millisecond}); err == nil ||
		time.Since(began) > time.Minute {
		t.Errorf("%+v, %v after %v: want an error", r, err, time.Since(began))
	}
	ctx, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer end()
	began = time.Now()
	if r, err = Run(ctx, Config{URL: "http://" + full, Connections: 2, Timeout: time.Hour}); !errors.Is(err,
		context.DeadlineExceeded) || time.Since(began) > time.Minute {
		t.Errorf("%+v, %v after %v: want the end of the context", r, err, time.Since(began))
	}
	if _, err = Run(ctx, Config{URL: "http://a.name.that.is.looked.for.invalid/", Timeout: time.Hour}); err == nil {
		t.Error("a name that nobody has")
	}
}

// TestServerThatClosesAtOnce: a connection that the server closes before anything is asked on it is
// not made again at once: that were thousands in a second.
func TestServerThatClosesAtOnce(t *testing.T) {
	var taken atomic.Int64
	url := serveRaw(t, func(net.Conn) { taken.Add(1) })
	for name, cfg := range map[string]Config{
		"at a rate": {Rate: 1},
		"users":     {ThinkMin: time.Hour, ThinkMax: time.Hour},
	} {
		before := taken.Load()
		cfg.URL, cfg.Connections, cfg.Duration = url, 2, time.Second
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		// each at the start, behind its request, and every 100 ms
		if n := taken.Load() - before; n > 2*(10*int64(r.Drained+1)+4) || n < 4 || r.Made > uint64(n) || r.Made == 0 {
			t.Errorf("%s: %d connections were taken, %d are told, errors %v", name, n, r.Made, r.Errors)
		}
	}
}

// Users think at least so long, each for itself.
func TestUsersThink(t *testing.T) {
	var asked sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := asked.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}))
	defer s.Close()
	const length, least, users = 400 * time.Millisecond, 40 * time.Millisecond, 30
	for _, each := range []bool{false, true} {
		r, err := Run(t.Context(), Config{
			URL: s.URL, Connections: users, ThinkMin: least, ThinkMax: 2 * least, Duration: length,
			Timeout: time.Minute, Close: each,
			Exchanges: []Exchange{{Path: "/a"}, {Path: "/b"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if most := uint64(users * (1 + int(time.Duration(r.Seconds*1e9)/least))); r.Requests < users/2 ||
			r.Requests > most || r.Failed() > 0 {
			t.Errorf("a connection each %v: %d answered in %.3f s, %v failed; want at most %d", each, r.Requests,
				r.Seconds, r.Errors, most)
		}
	}
	for _, path := range []string{"/a", "/b"} {
		if n, ok := asked.Load(path); !ok || n.(*atomic.Int64).Load() < users/2 {
			t.Errorf("%s was asked for %v times", path, n)
		}
	}
}

// TestUsersOutlastTheirConnections: a user who thinks for longer than the server keeps a connection
// that is idle sends when it has thought, on a connection made meanwhile. It thought anew with each
// one, and never sent again.
func TestUsersOutlastTheirConnections(t *testing.T) {
	const idle, least, users = 120 * time.Millisecond, 200 * time.Millisecond, 5
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.IdleTimeout, s.Config.ReadHeaderTimeout = idle, idle // the latter of one that was never used
	s.Start()
	defer s.Close()
	for _, each := range []bool{false, true} {
		testenv.Calm(t, func() error {
			r, err := Run(t.Context(), Config{
				URL: s.URL, Connections: users, ThinkMin: least, ThinkMax: least + least/4, Duration: 8 * least,
				Timeout: time.Minute, Close: each,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests < 5*users {
				return fmt.Errorf("a connection each %v: %d answered, want about %d; errors %v", each, r.Requests,
					7*users, r.Errors)
			}
			return nil
		})
	}
}

// What is printed for programs that read wrk's output is what they look for.
func TestWriteWrk(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	defer s.Close()
	r, err := Run(t.Context(),
		Config{URL: s.URL, Connections: 4, Threads: 2, Duration: 200 * time.Millisecond, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r.Errors = map[string]int{"connect": 1, "reset": 2, "closed": 3, timedOut: 4, "status 500": 5}
	var b strings.Builder
	if err := r.WriteWrk(&b); err != nil {
		t.Fatal(err)
	}
	number := `\s+\d+\.\d\d`
	want := `^Running \d+(s|us) test @ http://127\.0\.0\.1:\d+
  2 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   \+/- Stdev
    Latency( +\d+\.\d\d(us|ms|s)){3}` + number + `%
    Req/Sec( +\d+\.\d\dk?){3}` + number + `%
  Latency Distribution
     50% +\d+\.\d\d(us|ms)
     75% +\d+\.\d\d(us|ms)
     90% +\d+\.\d\d(us|ms)
     99% +\d+\.\d\d(us|ms)
  \d+ requests in \d+\.\d\dm?s, \d+\.\d\d[KM]?B read
  Socket errors: connect 1, read 5, write 0, timeout 4
  Non-2xx or 3xx responses: 5
Requests/sec:` + number + `
Transfer/sec:\s+\d+\.\d\d[KM]B
$`
	if !regexp.MustCompile(want).MatchString(b.String()) {
		t.Errorf("printed is\n%s", b.String())
	}
	if l := r.LatencyUs; l.P50 > l.P75 || l.P75 > l.P90 || l.StdDev < 0 {
		t.Errorf("%+v", l)
	}
}

// Who stops while connections are made is told that, and which server did not take them.
func TestStoppedWhileConnecting(t *testing.T) {
	full := testenv.Unanswered(t)
	ctx, end := context.WithCancel(t.Context())
	end()
	_, err := NewContext(ctx, Config{URL: "http://" + full + "/", Connections: 8, Timeout: time.Minute})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped while connecting to "+full) {
		t.Errorf("%v", err)
	}
}
