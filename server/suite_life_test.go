package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// gate is a handler that waits until it is let go.
type gate struct {
	in, out chan struct{}
}

func newGate() *gate { return &gate{in: make(chan struct{}, 10), out: make(chan struct{})} }

func (g *gate) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.in <- struct{}{}
	<-g.out
	_, _ = io.WriteString(w, "answered")
}

// refuses waits until nobody accepts connections any more.
func (s *site) refuses(t testing.TB) {
	t.Helper()
	if !eventually(func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	}) {
		t.Error("the server accepts connections although it ends")
	}
}

// TestSuiteShutdownActive waits for handlers: Serve returns at once, Shutdown when they have
// answered; clients are told to close.
func TestSuiteShutdownActive(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		g := newGate()
		s := open(t, p, g.ServeHTTP)
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		take(t, g.in, "the request")
		down := make(chan error, 1)
		go func() { down <- s.Shutdown(within(t)) }()
		if err := take(t, s.ended, "the end of Serve"); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve gives %v", err)
		}
		s.ended <- http.ErrServerClosed // for the end of the test
		s.refuses(t)
		select {
		case err := <-down:
			t.Errorf("Shutdown ended with %v while a handler runs", err)
		default:
		}
		close(g.out)
		if r := c.reply(t, "GET"); r.body != "answered" || r.head.Get("Connection") != "close" {
			t.Errorf("the answer is %v", r)
		}
		if rest := c.rest(t); rest != "" {
			t.Errorf("after the answer came %q", rest)
		}
		if err := take(t, down, "the end of Shutdown"); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// TestSuiteShutdownIdle closes connections between requests, and those that have not sent anything,
// soon.
func TestSuiteShutdownIdle(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("ok"))
		idle := s.dial(t)
		idle.send("GET / HTTP/1.1\nHost: a\n\n")
		idle.reply(t, "GET")
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if rest := idle.rest(t); rest != "" {
			t.Errorf("the idle connection got %q", rest)
		}
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("the second Shutdown: %v", err)
		}
	})
}

// TestSuiteShutdownNew has connections that have never sent a request: net/http gives them 5 s.
func TestSuiteShutdownNew(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("ok"))
		c := s.dial(t)
		s.get(t, "/") // by now c is accepted, too
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		_ = c.SetDeadline(time.Now().Add(suitePatience))
		if rest := c.rest(t); rest != "" {
			t.Errorf("the new connection got %q", rest)
		}
	})
}

// TestSuiteShutdownGivesUp returns the context's error when a handler takes too long.
func TestSuiteShutdownGivesUp(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		g := newGate()
		defer close(g.out)
		s := open(t, p, g.ServeHTTP)
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		take(t, g.in, "the request")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown gives %v", err)
		}
	})
}

// TestSuiteShutdownHijacked does not wait for connections that were taken over.
func TestSuiteShutdownHijacked(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		taken := make(chan struct{}, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, rw := hijackHandler(t, w)
			defer c.Close()
			taken <- struct{}{}
			_, _ = rw.ReadString('\n')
		})
		c := s.dial(t)
		c.send(upgrade)
		take(t, taken, "Hijack")
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// TestSuiteShutdownKeepsHijacked leaves a connection to the handler that took it over, as net/http
// does.
func TestSuiteShutdownKeepsHijacked(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		taken := make(chan struct{}, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, rw := hijackHandler(t, w)
			defer c.Close()
			taken <- struct{}{}
			line, _ := rw.ReadString('\n')
			_, _ = io.WriteString(c, line)
		})
		c := s.dial(t)
		c.send(upgrade)
		take(t, taken, "Hijack")
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		c.send("hello\n")
		if got := c.rest(t); got != "hello\r\n" {
			t.Errorf("after Shutdown the connection said %q", got)
		}
	})
}

// TestSuiteClose ends all connections at once: new, idle and active.
func TestSuiteClose(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		ended := make(chan struct{})
		begun := make(chan struct{}, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				begun <- struct{}{}
				<-r.Context().Done()
				close(ended)
				panic(http.ErrAbortHandler)
			}
		})
		fresh, idle, active := s.dial(t), s.dial(t), s.dial(t)
		idle.send("GET / HTTP/1.1\nHost: a\n\n")
		idle.reply(t, "GET")
		active.send("GET /wait HTTP/1.1\nHost: a\n\n")
		take(t, begun, "the request")
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for name, c := range map[string]*wire{"new": fresh, "idle": idle, "active": active} {
			if rest := c.rest(t); rest != "" {
				t.Errorf("the %s connection got %q", name, rest)
			}
		}
		take(t, ended, "the end of the handler")
		if err := s.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
	})
}

// TestSuiteNoReuse does not serve again after Shutdown or Close, nor twice at a time.
func TestSuiteNoReuse(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for name, end := range map[string]func(*server.Server) error{
			"Shutdown": func(s *server.Server) error { return s.Shutdown(within(t)) },
			"Close":    (*server.Server).Close,
		} {
			for _, served := range []bool{false, true} {
				s, err := server.New(server.Config{Handler: say("ok"), Engine: p.Engine, Mode: p.Mode, Loops: 1})
				if err != nil {
					t.Fatal(err)
				}
				if served {
					ln := listen(t)
					ended := make(chan error, 1)
					go func() { ended <- s.Serve(ln) }()
					r, err := visitor(t).Get("http://" + ln.Addr().String())
					text(t, r, err)
					if err := end(s); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if err := take(t, ended, "the end of Serve"); !errors.Is(err, http.ErrServerClosed) {
						t.Errorf("%s: Serve gives %v", name, err)
					}
				} else if err := end(s); err != nil {
					t.Errorf("%s before Serve: %v", name, err)
				}
				ln := listen(t)
				if err := returns(t, func() error { return s.Serve(ln) }); !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("Serve after %s gives %v", name, err)
				}
				if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
					c.Close()
					t.Errorf("Serve after %s has left the listener open", name)
				}
				if err := returns(t, func() error { return s.ListenAndServe("127.0.0.1:0") }); !errors.Is(err,
					http.ErrServerClosed) {
					t.Errorf("ListenAndServe after %s gives %v", name, err)
				}
			}
		}
	})
}

// returns calls f, which is to return by itself.
func returns(t testing.TB, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	return take(t, done, "the return of a call")
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// TestSuiteListenerErrors gives the caller the error of a listener that was closed, or of an
// address that is taken.
func TestSuiteListenerErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		fresh := func() *server.Server {
			s, err := server.New(server.Config{
				Handler: say("ok"), Engine: p.Engine, Mode: p.Mode, Loops: 1,
				Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		ln := listen(t)
		if err := returns(t, func() error { return fresh().ListenAndServe(ln.Addr().String()) }); err == nil ||
			errors.Is(err, http.ErrServerClosed) {
			t.Errorf("an address that is taken gives %v", err)
		}
		if err := returns(t, func() error { return fresh().ListenAndServe("no such address") }); err == nil {
			t.Error("an address that is none gives nil")
		}
		closed := listen(t)
		closed.Close()
		if err := returns(t, func() error { return fresh().Serve(closed) }); err == nil ||
			errors.Is(err, http.ErrServerClosed) {
			t.Errorf("a listener that is closed gives %v", err)
		}
	})
}

// TestSuiteCallerClosesListener ends Serve with an error, although the server was not told;
// connections that are there go on.
func TestSuiteCallerClosesListener(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s, err := server.New(server.Config{
			Handler: say("ok"), Engine: p.Engine, Mode: p.Mode, Loops: 1,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		ln := listen(t)
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ln) }()
		r, err := visitor(t).Get("http://" + ln.Addr().String())
		text(t, r, err)
		ln.Close()
		if err := take(t, ended, "the end of Serve"); err == nil || errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve gives %v, want the listener's error", err)
		}
	})
}

// TestSuiteManyClients asks from many clients at once, with connections kept and not.
func TestSuiteManyClients(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, r.URL.Path+" ")
			_, _ = w.Write(b)
		})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				c := visitor(t)
				for i := range 30 {
					body := strings.Repeat("b", i*i*100)
					req, _ := http.NewRequest("POST", s.url("/p"), strings.NewReader(body))
					req.Close = i%3 == 0
					r, err := c.Do(req)
					if got := text(t, r, err); got != "/p "+body {
						t.Errorf("request %d: %d bytes came back of %d", i, len(got)-3, len(body))
						return
					}
				}
			})
		}
		all.Wait()
	})
}
