package loadgen

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// pattern is bytes with a period that is no multiple of anything.
func pattern() []byte {
	b := make([]byte, 1009)
	for i := range b {
		b[i] = byte(i*i>>3 ^ i)
	}
	return b
}

// spread is so many bytes of the pattern.
func spread(n int) []byte {
	var b []byte
	for len(b) < n {
		b = append(b, pattern()...)
	}
	return b[:n]
}

func kinds(r *Result) []string { return slices.Sorted(maps.Keys(r.Errors)) }

// TestAnswersAreChecked: an answer that is not what was asked for is an error, whichever way it
// comes.
func TestAnswersAreChecked(t *testing.T) {
	const size = 100_000
	right := spread(size)
	change := func(f func([]byte) []byte) []byte { return f(slices.Clone(right)) }
	for name, c := range map[string]struct {
		body   []byte
		chunks bool
		status int
		want   string
	}{
		"right":            {body: right},
		"right, in chunks": {body: right, chunks: true},
		"short":            {body: right[:size-1], want: "wrong length"},
		"short, in chunks": {body: right[:size-1], chunks: true, want: "wrong length"},
		"long":             {body: spread(size + 1), want: "wrong length"},
		"long, in chunks":  {body: spread(size + 1), chunks: true, want: "wrong length"},
		"none":             {want: "wrong length"},
		"last byte":        {body: change(func(b []byte) []byte { b[size-1]++; return b }), want: "wrong content"},
		"first byte, chunks": {
			body: change(func(b []byte) []byte { b[0]++; return b }), chunks: true,
			want: "wrong content",
		},
		"a page moved": {
			body: change(func(b []byte) []byte { copy(b[4096:8192], b); return b }),
			want: "wrong content",
		},
		"another error": {body: right[:7], status: 500, want: "status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !c.chunks {
					w.Header().Set("Content-Length", fmt.Sprint(len(c.body)))
				}
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = w.Write(c.body) // an error is the client's leaving
			}))
			defer s.Close()
			r, err := Run(t.Context(), Config{
				URL: s.URL, Connections: 3, Timeout: time.Minute, Duration: 50 * time.Millisecond,
				Exchanges: []Exchange{{Want: Content{Pattern: pattern(), Bytes: size}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" && (r.Failed() > 0 || r.Requests+r.Late == 0) {
				t.Errorf("%d answered, errors %v: want no errors", r.Requests, r.Errors)
			}
			if c.want != "" && (!slices.Equal(kinds(r), []string{c.want}) || r.Requests+r.Late > 0) {
				t.Errorf("%d answered, errors %v: want %q alone", r.Requests, r.Errors, c.want)
			}
		})
	}
}

// TestExactlyNothing: an answer that must be empty is one that must be.
func TestExactlyNothing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer s.Close()
	r, err := Run(t.Context(), Config{
		URL: s.URL, Connections: 1, Timeout: time.Minute, Duration: 50 * time.Millisecond,
		Exchanges: []Exchange{{Want: Exactly(nil)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests > 0 || r.Errors["wrong length"] == 0 {
		t.Errorf("%d answered, errors %v", r.Requests, r.Errors)
	}
}

// TestExchangesGoRound: connections send all exchanges, and an answer that belongs to another one
// is found out.
func TestExchangesGoRound(t *testing.T) {
	var exchanges []Exchange
	for i := range 3 {
		b := spread(50_000 + i)[i:]
		exchanges = append(exchanges, Exchange{Body: b, Want: Exactly(b)})
	}
	var mu sync.Mutex
	seen, last, stale := map[byte]int{}, []byte{}, false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client gave it up
		}
		mu.Lock()
		defer mu.Unlock()
		seen[b[0]]++
		if stale {
			b, last = last, b
		}
		_, _ = w.Write(b)
	}))
	defer s.Close()
	run := func() *Result {
		r, err := Run(t.Context(),
			Config{
				URL: s.URL, Method: "POST", Connections: 3, Exchanges: exchanges, Timeout: time.Minute,
				Duration: 50 * time.Millisecond,
			})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := run()
	mu.Lock()
	if r.Failed() > 0 || len(seen) != 3 {
		t.Errorf("the server saw %v, errors %v: want three bodies and no errors", seen, r.Errors)
	}
	stale = true
	mu.Unlock()
	if r := run(); r.Errors["wrong content"] == 0 {
		t.Errorf("errors %v of a server that answers with the body before", r.Errors)
	}
}

// serveRaw accepts connections until the test ends.
func serveRaw(t *testing.T, each func(net.Conn)) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			all.Go(func() { each(c); _ = c.Close() })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return "http://" + ln.Addr().String() + "/"
}

const small = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestClose: each request has a connection of its own, and is answered when the server has closed
// it.
func TestClose(t *testing.T) {
	var served atomic.Uint64
	var places sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if _, twice := places.LoadOrStore(r.RemoteAddr, true); twice || !r.Close {
			t.Errorf("a request on a connection that had one, or that goes on: %s, close %v", r.RemoteAddr, r.Close)
		}
		fmt.Fprint(w, "ok")
	}))
	defer s.Close()
	l, err := New(Config{
		URL: s.URL, Connections: 4, Close: true, Timeout: time.Minute,
		Exchanges: []Exchange{{Want: Exactly([]byte("ok"))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var counted uint64
	for range 2 { // the second run makes its own connections
		r, err := l.Run(t.Context(), 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if r.Failed() > 0 || r.Requests+r.Late < 4 {
			t.Errorf("%d answered, errors %v", r.Requests, r.Errors)
		}
		counted += r.Requests + r.Late
	}
	if n := served.Load(); n != counted {
		t.Errorf("%d were served, %d counted", n, counted)
	}
}

// TestCloseIsWhatCounts: servers that answer and do not close, or send more than the answer.
func TestCloseIsWhatCounts(t *testing.T) {
	for answer, want := range map[string]string{
		small: NotClosed, small + "!": "more than the answer",
		small[:len(small)-1]: "timeout",
	} {
		url := serveRaw(t, func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, answer)
				_, _ = io.Copy(io.Discard, c)
			}
		})
		patience := time.Minute
		if want == "timeout" || want == NotClosed {
			patience = 100 * time.Millisecond
		}
		r, err := Run(t.Context(),
			Config{URL: url, Connections: 1, Close: true, Duration: 20 * time.Millisecond, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests+r.Late > 0 || !slices.Equal(kinds(r), []string{want}) {
			t.Errorf("%q: %d answered, errors %v: want %q", answer, r.Requests, r.Errors, want)
		}
	}
}

// TestTooEarly: a server that answers before it has the request has not read it.
func TestTooEarly(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, small)
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	})
	r, err := Run(t.Context(),
		Config{URL: url, Method: "POST", Body: make([]byte, 64<<20), Connections: 1, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	early := slices.DeleteFunc(kinds(r), func(kind string) bool { // the last may come when nothing is sent any more
		return !strings.HasPrefix(kind, "answered before the request was sent") && kind != "reset"
	})
	if r.Requests > 0 || len(early) == 0 {
		t.Errorf("%d answered, errors %v", r.Requests, r.Errors)
	}
}

// TestPipelinedBeyondTheSocket: the first of many requests are answered while the last wait for the
// socket to take them. That was "answered before the request was sent".
func TestPipelinedBeyondTheSocket(t *testing.T) {
	const pipeline, size = 64, 256 << 10
	var asked atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); n == size && err == nil {
			asked.Add(1)
		}
	}))
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(s.Config.Handler)
	defer plain.Close()
	for _, url := range []string{plain.URL, s.URL} {
		before := asked.Load()
		r, err := Run(t.Context(), Config{
			URL: url, TLS: &tls.Config{InsecureSkipVerify: true}, Method: "POST", Body: make([]byte, size),
			Connections: 1, Pipeline: pipeline, Duration: 200 * time.Millisecond, Timeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := asked.Load() - before; r.Failed() > 0 || n < pipeline || int64(r.Requests+r.Late) != n {
			t.Errorf("%s: the server had %d requests, %d are answered, errors %v", url, n, r.Requests+r.Late, r.Errors)
		}
	}
}

// TestInformational: an answer that comes together with one of 1xx is read at once.
func TestInformational(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+small); err != nil {
				return
			}
		}
	})
	r, err := Run(t.Context(), Config{URL: url, Connections: 2, Timeout: time.Minute, Duration: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests+r.Late == 0 || r.Failed() > 0 {
		t.Errorf("%d answered, errors %v", r.Requests, r.Errors)
	}
}

// TestLate: what is answered after the time is counted apart, and waited for while anything moves.
func TestLate(t *testing.T) {
	const length = 100 * time.Millisecond
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 14 { // 1.4 s in all, never a second of silence
			<-time.After(length)
			fmt.Fprint(w, i)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer s.Close()
	testenv.Calm(t, func() error {
		r, err := Run(t.Context(), Config{URL: s.URL, Connections: 2, Duration: length})
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != 0 || r.Late != 2 || r.Failed() > 0 || r.Drained < 1.3 || r.Seconds > 1.3 ||
			r.LatencyUs.P50 < 1_300_000 {
			return fmt.Errorf("%+v: want two late answers", r)
		}
		return nil
	})
}

func TestBadExchanges(t *testing.T) {
	two := []Exchange{{}, {}}
	for _, c := range []Config{
		{Body: []byte("a"), Exchanges: two},
		{Pipeline: 2, Exchanges: two},
		{Pipeline: 2, Close: true},
		{Exchanges: []Exchange{{Want: Content{Bytes: 5}}}},
		{Exchanges: []Exchange{{Want: Content{Pattern: []byte{1}, Bytes: -1}}}},
	} {
		c.URL = "http://127.0.0.1:1/"
		if _, _, err := c.check(t.Context()); err == nil {
			t.Errorf("%+v is no error", c)
		}
	}
}
