package loadgen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestRequestsDue: a rate is so many requests in a time, none more. Due times that were added up
// were a bit too early for the one that is due when the time is over.
func TestRequestsDue(t *testing.T) {
	ended := make(chan struct{})
	url := serveRaw(t, func(net.Conn) { <-ended })
	t.Cleanup(func() { close(ended) }) // before serveRaw waits for its goroutines
	const length = 100 * time.Millisecond
	for _, cfg := range []Config{
		{Rate: 120, Threads: 1},
		{Rate: 240, Threads: 2},
		{Rate: 370, Threads: 4},
		{Rate: 300, Threads: 2},
	} {
		cfg.URL, cfg.Connections, cfg.Duration, cfg.Timeout = url, 4, length, length
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if want := uint64(cfg.Rate * length.Seconds()); r.AtLeast != want {
			t.Errorf("%v requests a second of %d threads: %d were due in %v, want %d", cfg.Rate, cfg.Threads, r.AtLeast,
				length, want)
		}
	}
}

// TestServersThatNeverStop: the time, a time-out and the end of the context act, however much a
// server sends. Over TLS a connection that always had something to read kept its thread for good.
func TestServersThatNeverStop(t *testing.T) {
	const soon, wait, late = 200 * time.Millisecond, 2 * time.Second, 8 * time.Second // connecting may take wait, too
	flood := func(w io.Writer, b []byte) {
		for err := error(nil); err == nil; {
			_, err = w.Write(b)
		}
	}
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	secured := &tls.Config{Certificates: certificate.TLS.Certificates}
	early := bytes.Repeat([]byte("HTTP/1.1 102 Processing\r\n\r\n"), 1<<14)
	tlsURL := strings.Replace(serveRaw(t, func(c net.Conn) { flood(tls.Server(c, secured), early) }), "http:", "https:",
		1)
	body := append([]byte("HTTP/1.1 200 OK\r\n\r\n"), spread(1<<16)...)
	url := serveRaw(t, func(c net.Conn) { flood(c, body) })
	for name, c := range map[string]struct {
		cfg  Config
		stop bool
	}{
		"TLS":             {cfg: Config{URL: tlsURL, Duration: soon, Timeout: wait}},
		"TLS, at a rate":  {cfg: Config{URL: tlsURL, Duration: soon, Timeout: wait, Rate: 100}},
		"TLS, stopped":    {cfg: Config{URL: tlsURL, Duration: time.Hour, Timeout: time.Hour}, stop: true},
		"stopped":         {cfg: Config{URL: url, Duration: time.Hour, Timeout: time.Hour}, stop: true},
		"stopped, behind": {cfg: Config{URL: url, Duration: soon / 2, Timeout: time.Hour}, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Connections, c.cfg.Threads, c.cfg.TLS = 2, 1, &tls.Config{InsecureSkipVerify: true}
			l, err := NewContext(t.Context(), c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if c.stop {
				time.AfterFunc(soon, end) // once all are connected
			}
			began := time.Now()
			r, err := l.Run(ctx, c.cfg.Duration)
			if err = errors.Join(err, l.Close()); err != nil {
				t.Error(err)
			}
			// at a rate, the server may speak before one is due
			if took := time.Since(began); took > late || r.Errors[timedOut]+r.Errors[unanswered]+r.Errors[unasked] < 2 {
				t.Errorf("it took %v: %+v", took, r)
			}
		})
	}
}

// TestStopOfAnOpenLoop: what is due when a run is stopped is sent, if there is a connection for it.
// A thread that woke for it saw that it was to stop, and called it unsent: one of each thread.
func TestStopOfAnOpenLoop(t *testing.T) {
	var asked atomic.Int64
	var stop atomic.Pointer[context.CancelFunc]
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1)%5 == 0 { // it is answered then, and the next ones are not due
			time.AfterFunc(time.Millisecond, *stop.Load())
		}
	}))
	defer s.Close()
	l, err := New(Config{URL: s.URL, Connections: 64, Threads: 2, Rate: 200, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 20 {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		stop.Store(&end)
		before := asked.Load()
		r, err := l.Run(ctx, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if n := uint64(asked.Load() - before); n != r.Requests+r.Late || n == 0 || r.Unsent+r.AtLeast > 0 {
			t.Fatalf("the server had %d requests, and connections were idle: %+v", n, r)
		}
	}
}

// TestUnansweredAtTheEnd: what is given up because the time is over, sooner than its time-out, is
// no time-out.
func TestUnansweredAtTheEnd(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, rate := range []float64{0, 200} {
		r, err := Run(t.Context(),
			Config{URL: url, Connections: 3, Rate: rate, Duration: 50 * time.Millisecond, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors["unanswered at the end"] != 3 || len(r.Errors) != 1 {
			t.Errorf("at a rate of %v: %v", rate, r.Errors)
		}
	}
}

// TestTimeoutsBehindTheEnd: a request whose time-out passes when the time is over is given up then.
// It was waited for as long as one that had been sent last, if only something came.
func TestTimeoutsBehindTheEnd(t *testing.T) {
	url := serveRaw(t, func(c net.Conn) {
		for err := error(nil); err == nil; <-time.After(10 * time.Millisecond) {
			_, err = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
		}
	})
	const length, patience = 900 * time.Millisecond, time.Second
	testenv.Calm(t, func() error {
		r, err := Run(t.Context(), Config{URL: url, Connections: 1, Rate: 1, Duration: length, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors[timedOut] != 1 || r.AtLeast != 1 {
			t.Errorf("%+v", r)
		}
		if most := (patience + 500*time.Millisecond).Microseconds(); r.LatencyUs.Max > most {
			return fmt.Errorf("it was waited for %d µs, want %v", r.LatencyUs.Max, patience)
		}
		return nil
	})
}

// TestBodyThatTLSCutsOff: a body that goes on until the connection ends is whole only if TLS says
// that it ends (RFC 9112, 9.8). It was a good answer without that.
func TestBodyThatTLSCutsOff(t *testing.T) {
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	secured := &tls.Config{Certificates: certificate.TLS.Certificates}
	for name, ends := range map[string]bool{"ended": true, "cut off": false} {
		t.Run(name, func(t *testing.T) {
			url := serveRaw(t, func(raw net.Conn) {
				c := tls.Server(raw, secured)
				if _, err := c.Read(make([]byte, 4096)); err != nil {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nok")
				if ends {
					_ = c.CloseWrite()
				}
			})
			l, err := New(Config{
				URL: strings.Replace(url, "http:", "https:", 1), TLS: &tls.Config{InsecureSkipVerify: true},
				Connections: 4, Threads: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Once(t.Context())
			if err = errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			good, cut := 4, 0
			if !ends {
				good, cut = 0, 4
			}
			if r.Requests+r.Late != uint64(good) || r.Errors[cutOff] != cut || r.Failed() != cut {
				t.Errorf("%d answers, errors %v", r.Requests+r.Late, r.Errors)
			}
		})
	}
}

// TestNothingIsMadeBehindTheEnd: when the time is over no connection is made in the place of one
// that is lost: no request would follow. The next run makes it. Threads made each of them at once.
func TestNothingIsMadeBehindTheEnd(t *testing.T) {
	const connections, length = 3, 50 * time.Millisecond
	for name, answer := range map[string]string{
		"no answer":          "",
		"an answer, late":    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"half of one, late":  "HTTP/1.1 200 OK\r\n",
		"one too many, late": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n",
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		taken := make(chan string, 1000) // from where, in the order in which they were made
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				taken <- c.RemoteAddr().String()
				all.Go(func() {
					defer c.Close()
					b := make([]byte, 4096)
					if _, err := c.Read(b); err != nil || answer == "" {
						_, _ = c.Read(b) // until the client ends it
						return
					}
					time.Sleep(3 * length) // of a run that had begun before the request: its time is over
					_, _ = io.WriteString(c, answer)
				})
			}
		})
		l, err := New(Config{
			URL: "http://" + ln.Addr().String(), Connections: connections, Threads: 2, Timeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := l.Run(t.Context(), length); err != nil {
				t.Fatal(err)
			}
		}
		last, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for <-taken != last.LocalAddr().String() {
			n++
		}
		if n != 2*connections {
			t.Errorf("%s: two runs of %d connections made %d", name, connections, n)
		}
		if err := errors.Join(last.Close(), l.Close(), ln.Close()); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}
