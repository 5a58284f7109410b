package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/loadgen"
)

// loadOf runs tallywheel load, and returns what it prints and its error.
func loadOf(args ...string) (string, error) {
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(append([]string{"load"}, args...))
	err := root.Execute()
	return out.String(), err
}

// What programs read is JSON whose lists are lists; what people read says of a stall what it is.
func TestLoadSaysWhatWasNotAnswered(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	text, err := loadOf("-c", "2", "--rate", "200", "--for", "200ms", s.URL+"/", s.URL+"/bad")
	if err != nil || !strings.Contains(text, " had no good answer; each counts as long as it had waited") ||
		!strings.Contains(text, "failed: status 503 ×") {
		t.Errorf("%v: %s", err, text)
	}
	for _, path := range []string{"/", "/bad"} {
		text, err := loadOf("-c", "2", "--for", "50ms", "--json", s.URL+path)
		var r struct {
			Requests uint64           `json:"requests"`
			Errors   map[string]int   `json:"errors"`
			Latency  map[string]any   `json:"latency_us"`
			Samples  []map[string]any `json:"samples"`
		}
		if strings.Contains(text, "null") || json.Unmarshal([]byte(text), &r) != nil || r.Latency["p99.9"] == nil {
			t.Errorf("%s: %v: %s", path, err, text)
		}
		if good := path == "/"; good != (r.Requests > 0) || good != (r.Errors["status 503"] == 0) ||
			good != (err == nil) {
			t.Errorf("%s: %v: %s", path, err, text)
		}
		if path == "/bad" && (err == nil || !strings.Contains(err.Error(), "every status was 400 or above")) {
			t.Errorf("answers that say no are no silence: %v", err)
		}
	}
}

// A server that dies under a load was exit code 0, since it had answered before.
func TestLoadSaysThatTheServerHasGone(t *testing.T) {
	var served atomic.Int64
	var s *httptest.Server
	var ends sync.WaitGroup
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if served.Add(1) == 200 {
			ends.Go(func() {
				_ = s.Listener.Close()
				s.CloseClientConnections()
			})
		}
	}))
	s.Start() // behind the assignment, which the handler reads
	out, err := loadOf("-c", "4", "--for", "700ms", s.URL)
	ends.Wait()
	s.Close()
	if err == nil || !strings.Contains(err.Error(), "the server has gone") || !strings.Contains(out, "failed: ") {
		t.Errorf("%v, after %q", err, out)
	}
	if !strings.Contains(out, "connect ×") {
		t.Errorf("no failed connection is told: %q", out)
	}
}

// TestLoadFlags: each flag does what it says, as the server sees it or the result has it.
func TestLoadFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("of a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	type seen struct {
		method, body, header string
		close                bool
	}
	for args, want := range map[string]seen{
		"-X PUT":            {method: "PUT"},
		"-H X-A:1 -H X-A:2": {method: "GET", header: "1,2"},
		"-X POST -d hello":  {method: "POST", body: "hello"},
		"-d @" + file:       {method: "GET", body: "of a file"},
		"--close":           {method: "GET", close: true},
		"-k --warmup 100ms": {method: "GET"},
		"--think 5ms-10ms":  {method: "GET"},
		"--pipeline 3":      {method: "GET"},
		"--rate 100":        {method: "GET"},
		"-c 3 --threads 2":  {method: "GET"},
		"-c 5 --timeout 1m": {method: "GET"},
	} {
		t.Run(args, func(t *testing.T) {
			var served, opened atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				served.Add(1)
				body, _ := io.ReadAll(r.Body)
				if got := (seen{r.Method, string(body), strings.Join(r.Header["X-A"], ","), r.Close}); got != want {
					t.Errorf("the server got %+v, want %+v", got, want)
				}
			}))
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			if strings.Contains(args, "-k") {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			fields := strings.Fields(args)
			text, err := loadOf(append(fields, "--for", "300ms", "--json", s.URL)...)
			var r loadgen.Result
			if err = errors.Join(err, json.Unmarshal([]byte(text), &r)); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			all := int64(r.Requests + r.Late)
			if warm := strings.Contains(args, "--warmup"); all == 0 || r.Failed() > 0 ||
				!warm && all != served.Load() || warm && all >= served.Load() {
				t.Errorf("%d answered, the server has answered %d: %v", all, served.Load(), r.Errors)
			}
			connections := 64
			for i, f := range fields {
				if f == "-c" {
					connections, _ = strconv.Atoi(fields[i+1])
				}
			}
			if n := opened.Load(); r.Connections != connections || !want.close && n != int64(connections) ||
				want.close && n < all {
				t.Errorf("%d connections were made, the result has %d, want %d", n, r.Connections, connections)
			}
			if rate := strings.Contains(args, "--rate"); rate != (r.Rate == 100) ||
				rate && r.Requests+r.Late+r.Unsent != 30 {
				t.Errorf("a rate of %v, %d answered and %d not sent", r.Rate, all, r.Unsent)
			}
			if strings.Contains(args, "--pipeline") != (r.Pipeline == 3) {
				t.Errorf("pipelined %d", r.Pipeline)
			}
		})
	}
}

// TestLoadFlagsOfTime: --timeout gives up, --pid is sampled each second, and each format has its
// own look.
func TestLoadFlagsOfTime(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" {
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	text, err := loadOf("-c", "2", "--timeout", "100ms", "--for", "400ms", s.URL+"/never")
	if err == nil || !strings.Contains(text, "failed: timeout ×") {
		t.Errorf("%v: %s", err, text)
	}
	text, err = loadOf("-c", "2", "--pid", strconv.Itoa(os.Getpid()), "--for", "2200ms", "--rate", "50", "--json",
		s.URL)
	var r loadgen.Result
	if err = errors.Join(err, json.Unmarshal([]byte(text), &r)); err != nil || len(r.Samples) == 0 ||
		r.Samples[0].RSSBytes == 0 {
		t.Errorf("%v: %s", err, text)
	}
	for format, want := range map[string]string{
		"text": "answered in", "wrk": "  2 threads and 2 connections\n", "oha": "Status code distribution:\n  [200] ",
		"k6": "http_req_failed...", "json": `"statuses":{"200":`,
	} {
		if text, err := loadOf("-c", "2", "--threads", "2", "--for", "50ms", "--format", format, s.URL); err != nil ||
			!strings.Contains(text, want) {
			t.Errorf("%s: %v: %s", format, err, text)
		}
	}
}

// With --close, a server that answers and does not close is told to have answered.
func TestLoadSaysWhatWasNotClosed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			go func() { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }()
		}
	}()
	text, err := loadOf("--close", "-c", "2", "--for", "50ms", "--timeout", "100ms", "http://"+ln.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "the server closes no connection") ||
		!strings.Contains(text, "answered, and not closed by the server ×") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestPrintLoad: what people read has late answers, how many connections were made, every path that
// was asked for, and no figure that nobody measured.
func TestPrintLoad(t *testing.T) {
	samples := []loadgen.Sample{{Seconds: 1, Requests: 7, P99Us: 9}, {Second: 1, Seconds: 0.5}}
	for want, r := range map[string]loadgen.Result{
		`http://h/, 1 connection, open loop, 0.5 requests a second
7 answered in 1.50 s: 0 a second, 0.0 MB received
4 more answered by 2.50 s, when the time was over: in the latency, not in the rate
3 connections made meanwhile
latency, µs: mean 0, p50 0, p90 0, p99 0, p99.9 0, max 0
latency is at least that: 1 request had no good answer; each counts as long as it had waited
due and not sent: 1 request; more connections are needed, or a quicker server
  second  requests  p99 µs
       0         7       9
       1         0       0
`: {
			URL: "http://h/", Connections: 1, Rate: 0.5, Requests: 7, Seconds: 1.5, Drained: 2.5, Late: 4, Made: 3,
			AtLeast: 1, Unsent: 1, Samples: samples,
		},
		`http://h/, /b, 2 connections, closed loop
0 answered in 0.00 s: 0 a second, 0.0 MB received
latency, µs: mean 0, p50 0, p90 0, p99 0, p99.9 0, max 0
  second  requests  p99 µs  server CPU %  server MB
       0         7       9            12        3.0
       1         0       0             -          -
`: {
			URL: "http://h/", Paths: []string{"/", "/b"}, Connections: 2, Samples: []loadgen.Sample{
				{Seconds: 1, Requests: 7, P99Us: 9, CPUPercent: 12, RSSBytes: 3e6}, samples[1],
			},
		},
	} {
		var b strings.Builder
		if err := printLoad(&b, &r); err != nil || b.String() != want {
			t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
		}
	}
}
