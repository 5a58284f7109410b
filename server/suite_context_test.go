package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestSuiteContextEndsWithHandler cancels a request's context when its handler has returned, and
// not before.
func TestSuiteContextEndsWithHandler(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		contexts := make(chan context.Context, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if err := r.Context().Err(); err != nil {
				t.Errorf("the context of a request that has just come: %v", err)
			}
			contexts <- r.Context()
		})
		c := s.dial(t)
		for range 2 {
			c.send("GET / HTTP/1.1\nHost: a\n\n")
			c.reply(t, "GET")
			ctx := take(t, contexts, "the request")
			take(t, ctx.Done(), "the end of the context")
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("the context ends with %v", ctx.Err())
			}
		}
	})
}

// TestSuiteContextEndsWithClient cancels the context of a handler that waits when its client
// leaves: by FIN, by RST, with the body read.
func TestSuiteContextEndsWithClient(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		began, ended := make(chan struct{}, 1), make(chan error, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			began <- struct{}{}
			select {
			case <-r.Context().Done():
				ended <- r.Context().Err()
			case <-time.After(suitePatience):
				ended <- errors.New("it was not cancelled")
			}
		})
		for _, send := range []string{
			"GET / HTTP/1.1\nHost: a\n\n",
			"POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody",
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n",
		} {
			for _, reset := range []bool{false, true} {
				c := s.dial(t)
				c.send(send)
				take(t, began, "the request")
				if reset {
					_ = c.SetLinger(0)
				}
				c.Close()
				if err := take(t, ended, "the end of the handler"); !errors.Is(err, context.Canceled) {
					t.Errorf("%.20q, reset %v: %v", send, reset, err)
				}
			}
		}
	})
}

// TestSuiteContextEndsWithFailedWrite cancels the context when a write of the answer has failed,
// though the client is there: nobody can be told of what the handler still does.
func TestSuiteContextEndsWithFailedWrite(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		said := make(chan error, 2)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			said <- r.Context().Err()
			if err := rc.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(make([]byte, 1000))
			if err := rc.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Flush gives %v, want a deadline", err)
			}
			said <- r.Context().Err() // the failure itself ends it
		})
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		if err := take(t, said, "the request"); err != nil {
			t.Errorf("before a write has failed: %v", err)
		}
		if err := take(t, said, "the end of the answer"); !errors.Is(err, context.Canceled) {
			t.Errorf("after a write has failed: %v, want %v", err, context.Canceled)
		}
		c.rest(t)
	})
}

// TestSuiteContextOfPipelined does not end while a next request waits in the input.
func TestSuiteContextOfPipelined(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				t.Error("the context ended although the client is there")
			case <-time.After(10 * time.Millisecond):
			}
			say("ok")(w, r)
		})
		c := s.dial(t)
		c.send(strings.Repeat("GET / HTTP/1.1\nHost: a\n\n", 3))
		for range 3 {
			c.reply(t, "GET")
		}
	})
}

// TestSuiteContextValues gives the server and the local address.
func TestSuiteContextValues(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if hs, ok := r.Context().Value(http.ServerContextKey).(*http.Server); !ok || hs == nil {
				t.Errorf("http.ServerContextKey gives %v", r.Context().Value(http.ServerContextKey))
			}
			a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			if !ok {
				t.Error("http.LocalAddrContextKey gives no address")
				return
			}
			fmt.Fprint(w, a, " ", r.RemoteAddr)
		})
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		if got, want := c.reply(t, "GET").body, s.addr+" "+c.LocalAddr().String(); got != want {
			t.Errorf("addresses are %q, want %q", got, want)
		}
	})
}

// TestSuiteContextOfOthers derives contexts, waits for them in other goroutines, and leaves none of
// them behind.
func TestSuiteContextOfOthers(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		done := make(chan error, 3)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			context.AfterFunc(ctx, func() { done <- ctx.Err() })
			child, cancel := context.WithCancelCause(ctx)
			_ = cancel
			go func() { <-child.Done(); done <- context.Cause(child) }()
			late, stop := context.WithTimeout(ctx, time.Hour)
			_ = stop
			go func() { <-late.Done(); done <- late.Err() }()
		})
		s.get(t, "/")
		for range 3 {
			if err := take(t, done, "the end of a context"); !errors.Is(err, context.Canceled) {
				t.Errorf("a context ended with %v", err)
			}
		}
	})
}

// TestSuiteCloseNotifier is for old handlers, which are told by a channel that the client has left.
func TestSuiteCloseNotifier(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		began, told := make(chan bool, 1), make(chan bool, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			//lint:ignore SA1019 it is deprecated, and still used
			n, ok := w.(http.CloseNotifier) //nolint:staticcheck // old handlers use it
			began <- ok
			if !ok {
				return
			}
			select {
			case told <- <-n.CloseNotify():
			case <-time.After(suitePatience):
			}
		})
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		if !take(t, began, "the request") {
			t.Fatal("the ResponseWriter is no http.CloseNotifier")
		}
		c.Close()
		if !take(t, told, "the notice") {
			t.Error("the notice is false")
		}
	})
}

// TestSuiteDeadlines sets deadlines by http.ResponseController.
func TestSuiteDeadlines(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		said := make(chan error, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if r.URL.Path == "/read" {
				if err := rc.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
					t.Error(err)
				}
				_, err := io.ReadAll(r.Body)
				said <- err
				return
			}
			if err := rc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			for {
				if _, err := w.Write(make([]byte, 100_000)); err != nil {
					said <- err
					return
				}
			}
		})
		for _, path := range []string{"/read", "/write"} {
			c := s.dial(t)
			body := "\n"
			if path == "/read" {
				body = "Content-Length: 10\n\nhalf"
			}
			c.send("POST " + path + " HTTP/1.1\nHost: a\n" + body)
			if err := take(t, said, "the deadline"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s gives %v, want a deadline", path, err)
			}
			c.rest(t)
		}
	})
}

// TestSuiteDeadlineIsOneRequests does not leave a handler's deadlines to the next request.
func TestSuiteDeadlineIsOneRequests(t *testing.T) {
	const limit = 150 * time.Millisecond
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			at := time.Now().Add(limit)
			switch r.URL.Path {
			case "/write":
				_ = rc.SetWriteDeadline(at)
			case "/read":
				_ = rc.SetReadDeadline(at)
			}
			say("ok")(w, r)
		})
		for _, path := range []string{"/write", "/read"} {
			t.Run(path[1:], func(t *testing.T) {
				var c *wire
				inTime(t, limit, func() error {
					c = s.dial(t)
					c.send("GET " + path + " HTTP/1.1\nHost: a\n\n")
					_, err := readReply(c.r, "GET")
					return err
				})
				time.Sleep(limit * 4 / 3) // past the deadline
				c.stays(t)
			})
		}
	})
}

// TestSuiteTimeouts says when a connection ends on its own, and that those which may wait are left
// alone. A limit of zero is none.
func TestSuiteTimeouts(t *testing.T) {
	const (
		short = 100 * time.Millisecond
		later = 4 * short // than what would have happened by then
		first = "GET / HTTP/1.1\nHost: a\n\n"
	)
	cases := []struct {
		name    string
		cfg     server.Config
		send    string
		answers int
		ends    bool
	}{
		{"idle, silent at first", server.Config{IdleTimeout: short}, "", 0, false},
		{"idle, half a head at first", server.Config{IdleTimeout: short}, "GET / HT", 0, false},
		{"idle after a request", server.Config{IdleTimeout: short}, first, 1, true},
		{"idle after a request, one byte more", server.Config{IdleTimeout: short}, first + "G", 1, true},
		{"idle after a request, half a head", server.Config{IdleTimeout: short}, first + "GET / HT", 1, false},
		{"header, silent at first", server.Config{ReadHeaderTimeout: short, IdleTimeout: time.Hour}, "", 0, true},
		{
			"header, half a head at first",
			server.Config{ReadHeaderTimeout: short, IdleTimeout: time.Hour},
			"GET / HT", 0,
			true,
		},
		{
			"header after a request, silent",
			server.Config{ReadHeaderTimeout: short, IdleTimeout: time.Hour},
			first, 1,
			false,
		},
		{
			"header after a request, half a head",
			server.Config{ReadHeaderTimeout: short, IdleTimeout: time.Hour},
			first + "GET / HT", 1, true,
		},
		{"header alone, silent after a request", server.Config{ReadHeaderTimeout: short}, first, 1, false},
		{"read, silent at first", server.Config{ReadTimeout: short, IdleTimeout: time.Hour}, "", 0, true},
		{"read stands for idle", server.Config{ReadTimeout: short}, first, 1, true},
		{"write", server.Config{WriteTimeout: short}, first, 1, false},
		{"none", server.Config{}, first, 1, false},
	}
	everywhere(t, func(t *testing.T, p place) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := open(t, p, say("ok"), func(cfg *server.Config) {
					cfg.ReadTimeout, cfg.ReadHeaderTimeout = c.cfg.ReadTimeout, c.cfg.ReadHeaderTimeout
					cfg.WriteTimeout, cfg.IdleTimeout = c.cfg.WriteTimeout, c.cfg.IdleTimeout
				})
				var conn *wire
				inTime(t, short, func() error {
					conn = s.dial(t)
					conn.send(c.send)
					for range c.answers {
						if r, err := readReply(conn.r, "GET"); err != nil || r.body != "ok" {
							return fmt.Errorf("the answer is %v, %w", r, err)
						}
					}
					return nil
				})
				if !c.ends {
					_ = conn.SetReadDeadline(time.Now().Add(later))
				}
				b, err := io.ReadAll(conn.r)
				open := errors.Is(err, os.ErrDeadlineExceeded)
				if open == c.ends {
					t.Errorf("is the connection open: %v", open)
				}
				if got := string(b); got != "" && !strings.HasPrefix(got, "HTTP/1.1 40") { // see TestSuiteHalfAHead
					t.Errorf("the server said %q", got)
				}
			})
		}
	})
}

// TestSuiteHalfAHead sends a part of a head, and no more. RFC 9110, section 15.5.9, has 408 for it.
// net/http says 400 to half a request line, and nothing to half of the fields.
func TestSuiteHalfAHead(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("ok"), func(c *server.Config) { c.ReadHeaderTimeout = 50 * time.Millisecond })
		for _, half := range []string{"GET / HT", "GET / HTTP/1.1\nHost: a\nX"} {
			c := s.dial(t)
			c.send(half)
			got := c.rest(t)
			if p.std() {
				t.Logf("%q: net/http says %.40q", half, got)
			} else if !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Connection: close\r\n") {
				t.Errorf("%q: the server says %q, want 408", half, got)
			}
		}
	})
}

// TestSuiteReadTimeout counts ReadTimeout from the beginning of a request, not from the end of its
// head.
func TestSuiteReadTimeout(t *testing.T) {
	const limit = time.Second
	everywhere(t, func(t *testing.T, p place) {
		inTime(t, limit*14/10, func() error { // from the end of the head it would be limit*16/10
			said := make(chan error, 1)
			s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				said <- err
			}, func(c *server.Config) { c.ReadTimeout = limit })
			c := s.dial(t)
			c.send("POST / HTTP/1.1\nHost: a\n")
			time.Sleep(limit * 6 / 10)
			c.send("Content-Length: 10\n\nhalf")
			select {
			case err := <-said:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					return fmt.Errorf("the body ended with %w, want a deadline", err)
				}
				return nil
			case <-time.After(2 * limit):
				return errors.New("the body does not end")
			}
		})
	})
}

// TestSuiteWriteTimeout gives each request its own time to be answered.
func TestSuiteWriteTimeout(t *testing.T) {
	const limit = 300 * time.Millisecond
	onGoroutines(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				time.Sleep(limit * 3 / 2)
			}
			say("ok")(w, r)
		}, func(c *server.Config) { c.WriteTimeout = limit })
		var c *wire
		inTime(t, 4*limit/3+limit, func() error { // so each of them less than limit
			c = s.dial(t)
			for range 4 { // all together they take longer
				c.send("GET / HTTP/1.1\nHost: a\n\n")
				if _, err := readReply(c.r, "GET"); err != nil {
					return err
				}
				time.Sleep(limit / 3)
			}
			return nil
		})
		c.send("GET /late HTTP/1.1\nHost: a\n\n")
		if got := c.rest(t); got != "" {
			t.Errorf("an answer that is too late is %q", got)
		}
	})
}

// TestSuiteTimeoutHandler bounds a handler by http.TimeoutHandler.
func TestSuiteTimeoutHandler(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		late := make(chan error, 1)
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			set(w, "A", "b")
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
				for end := time.Now().Add(suitePatience); ; { // the answer is its own only a moment later
					_, err := w.Write([]byte("late"))
					if err != nil || time.Now().After(end) {
						late <- err
						return
					}
				}
			}
			say("in time")(w, r)
		})
		const limit = 300 * time.Millisecond
		s := open(t, p, http.TimeoutHandler(slow, limit, "too late").ServeHTTP)
		inTime(t, limit, func() error {
			if got := s.get(t, "/").String(); got != "HTTP/1.1 200 OK; A: b; Connection: close; Content-Length: 7; "+
				plain+" | in time" {
				return fmt.Errorf("the answer is %q", got)
			}
			return nil
		})
		if r := s.get(t, "/slow"); r.status() != 503 || r.body != "too late" {
			t.Errorf("the answer is %v", r)
		}
		if err := take(t, late, "the late handler"); !errors.Is(err, http.ErrHandlerTimeout) {
			t.Errorf("a late Write gives %v", err)
		}
	})
}
