package loadgen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/uring"
)

// noRings skips a test where the error is that there is no io_uring.
func noRings(t *testing.T, err error) {
	var lacks *uring.FeatureError
	if errors.As(err, &lacks) {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
}

// TestHold: connections are open all the time, and each is asked as often as is due; what a server
// has counted is what was answered.
func TestHold(t *testing.T) {
	var asked, conns atomic.Int64
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request,
		) {
			asked.Add(1)
			fmt.Fprint(w, "hello")
		}),
		ConnState: func(_ net.Conn, st http.ConnState) {
			if st == http.StateNew {
				conns.Add(1)
			}
		},
	}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { _ = s.Close() })
	r, err := Hold(t.Context(),
		HoldConfig{
			URL: "http://" + ln.Addr().String() + "/", Connections: 200, Every: 500 * time.Millisecond,
			Duration: 2 * time.Second, Timeout: time.Minute,
		})
	if noRings(t, err); err != nil {
		t.Fatal(err)
	}
	if r.Connections != 200 || conns.Load() != 200 || int64(r.Requests) != asked.Load()-200 ||
		r.Requests+r.Failed != 200*4 || r.Requests < 200 {
		t.Errorf("%+v; the server has seen %d connections, %d requests", r, conns.Load(), asked.Load())
	}
}

// TestHoldCountsWhatIsLost: a server that closes connections, or says no, is found out.
func TestHoldCountsWhatIsLost(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var no atomic.Bool
	var asked atomic.Int64
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := asked.Add(1); n > 20 && n%2 == 0 {
			w.Header().Set("Connection", "close")
		}
		if no.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "hello")
	})}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { _ = s.Close() })
	cfg := HoldConfig{
		URL: "http://" + ln.Addr().String() + "/", Connections: 20, Every: 200 * time.Millisecond,
		Duration: time.Second, Timeout: time.Minute,
	}
	r, err := Hold(t.Context(), cfg)
	if noRings(t, err); err != nil {
		t.Fatal(err)
	}
	if r.Failed == 0 || r.Connections == 20 {
		t.Errorf("nothing is lost of a server that closes connections: %+v", r)
	}
	no.Store(true)
	if _, err := Hold(t.Context(), cfg); err == nil ||
		!strings.Contains(err.Error(), "could not be made and answered: an answer of HTTP/1.1 with status 503") {
		t.Errorf("a server that refuses: %v", err)
	}
}

// TestHoldOverAStandstill: where more requests are due than a ring has room for, they wait, for the
// server may go on. Where it does not, they have failed.
func TestHoldOverAStandstill(t *testing.T) {
	const n, room = 600, 2 * opening
	for _, goesOn := range []bool{true, false} {
		var asked atomic.Int64
		still := make(chan struct{})
		url := serveRaw(t, func(c net.Conn) {
			for r := bufio.NewReader(c); ; {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				if k := asked.Add(1); k == n+room/2 && goesOn {
					close(still)
				} else if k > n { // all are open
					<-still
				}
				if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
					return
				}
			}
		})
		cfg := HoldConfig{
			URL: url, Connections: n, Every: 300 * time.Millisecond, Duration: 300 * time.Millisecond,
			Timeout: 10 * time.Second, inFlight: room,
		}
		if !goesOn {
			cfg.Timeout = 200 * time.Millisecond
		}
		r, err := Hold(t.Context(), cfg)
		if !goesOn {
			close(still) // the server ends
		}
		if noRings(t, err); err != nil {
			t.Fatal(err)
		}
		if r.Requests+r.Failed != n || goesOn && r.Failed > 0 || !goesOn && r.Requests > 0 {
			t.Errorf("a server that goes on (%v): %+v", goesOn, r)
		}
	}
}

// TestHoldSeesWhatHasEnded: a connection that the server has closed while nothing was due on it is
// not open, and all are held until the time is over.
func TestHoldSeesWhatHasEnded(t *testing.T) {
	const n = 600
	var served atomic.Int64
	url := serveRaw(t, func(c net.Conn) {
		for r, once := bufio.NewReader(c), served.Add(1)%3 == 0; ; {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			if _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"); once {
				return
			}
		}
	})
	r, err := Hold(t.Context(), HoldConfig{
		URL: url, Connections: n, Every: time.Hour, Duration: 500 * time.Millisecond, Timeout: time.Minute,
	})
	if noRings(t, err); err != nil {
		t.Fatal(err)
	}
	if r.Connections > n-n/3 || r.Connections < n-n/3-1 || r.Requests+r.Failed != 1 || r.Seconds < 0.5 {
		t.Errorf("%+v; the server has closed %d of %d connections", r, n/3, n)
	}
}

// TestHoldSaysWhatDiffers: an answer that is longer or shorter than the first one is told to be so,
// with both lengths, and what is no HTTP with what it begins with.
func TestHoldSaysWhatDiffers(t *testing.T) {
	const one = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	const other = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello you"
	for want, answers := range map[string][]string{
		"an answer of 47 bytes or more, with its head, and the first one had 43|" +
			"43 bytes of an answer, and the first one had 47, within 200ms": {one, other},
		`an answer that begins with "garbage"`: {"garbage"},
	} {
		var asked atomic.Int64
		url := serveRaw(t, func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, answers[int(asked.Add(1))%len(answers)])
				_, _ = io.Copy(io.Discard, c)
			}
		})
		_, err := Hold(t.Context(), HoldConfig{URL: url, Connections: 20, Timeout: 200 * time.Millisecond})
		if noRings(t, err); err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%q: %v", answers, err)
		}
	}
	silent := serveRaw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	ctx, end := context.WithCancel(t.Context())
	end()
	if _, err := Hold(ctx, HoldConfig{URL: silent, Connections: 20}); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "stopped while connections were made") {
		t.Errorf("stopped: %v", err)
	}
}

// TestHoldGivesUp: a server that does not accept, or does not answer, does not hold up who opens.
func TestHoldGivesUp(t *testing.T) {
	full := testenv.Unanswered(t)
	silent := serveRaw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, url := range []string{"http://" + full, silent} {
		began := time.Now()
		_, err := Hold(t.Context(), HoldConfig{URL: url, Connections: 20, Timeout: 200 * time.Millisecond})
		if noRings(t, err); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") ||
			time.Since(began) > time.Minute {
			t.Errorf("%s: %v after %v", url, err, time.Since(began))
		}
	}
}

// TestHoldThatCannotBe is refused, with what is wrong.
func TestHoldThatCannotBe(t *testing.T) {
	for want, cfg := range map[string]HoldConfig{
		"want http://ADDRESS:PORT":  {URL: "http://localhost:80/", Connections: 1},
		`"127.0.0.1:80": want http`: {URL: "127.0.0.1:80", Connections: 1},
		`127.0.0.1:0/": want http`:  {URL: "http://127.0.0.1:0/", Connections: 1},
		"want %20 for a space":      {URL: "http://127.0.0.1:80/?q=a b", Connections: 1},
		"address without a zone":    {URL: "http://[fe80::1%25lo]:80/", Connections: 1},
		"0 connections: want":       {URL: "http://127.0.0.1:80/"},
		"65537 addresses: want":     {URL: "http://127.0.0.1:80/", Connections: 1, Spread: 65537},
		"no 2 addresses":            {URL: "http://255.255.255.255:80/", Connections: 1, Spread: 2},
		"a client has no more than": {URL: "http://127.0.0.1:80/", Connections: 100_000},
		"want 1 to 4000000":         {URL: "http://127.0.0.1:80/", Connections: 5_000_000, Spread: 5000},
		"a time is negative":        {URL: "http://127.0.0.1:80/", Connections: 1, Every: -1},
		"or longer than":            {URL: "http://127.0.0.1:80/", Connections: 1, Duration: math.MaxInt64},
	} {
		if _, err := Hold(context.Background(), cfg); !errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", cfg, err, want)
		}
	}
}
