package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// states notes the life of each connection.
type states struct {
	mu    sync.Mutex
	lives map[net.Conn][]http.ConnState
	order []net.Conn
}

func (s *states) note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lives == nil {
		s.lives = map[net.Conn][]http.ConnState{}
	}
	if s.lives[c] == nil {
		s.order = append(s.order, c)
	}
	s.lives[c] = append(s.lives[c], state)
}

// life is that of the nth connection.
func (s *states) life(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= len(s.order) {
		return ""
	}
	return strings.Trim(fmt.Sprint(s.lives[s.order[n]]), "[]")
}

func (s *states) tune(c *server.Config) { c.ConnState = s.note }

// TestSuiteConnState tells of each connection what net/http would.
func TestSuiteConnState(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/hijack":
			c, _ := hijackHandler(t, w)
			c.Close()
		case "/hijack-panic":
			c, _ := hijackHandler(t, w)
			c.Close()
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			say("ok")(w, r)
		}
	}
	get := func(path, fields string) string { return "GET " + path + " HTTP/1.1\nHost: a\n" + fields + "\n" }
	cases := []struct{ name, send, want string }{
		{"nothing", "", "new closed"},
		{"a part of a head", "GE", "new active closed"},
		{"no request", "hello\n\n", "new active closed"},
		{"one request", get("/", ""), "new active idle closed"},
		{"one request that closes", get("/", "Connection: close\n"), "new active closed"},
		{"two requests", get("/", "") + get("/", "Connection: close\n"), "new active idle active closed"},
		{"a body", "POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody", "new active idle closed"},
		{"a panic", get("/panic", ""), "new active closed"},
		{"a panic later", get("/", "") + get("/panic", ""), "new active idle active closed"},
		{"hijack", get("/hijack", "Connection: Upgrade\nUpgrade: x\n"), "new active hijacked"},
		{"hijack and panic", get("/hijack-panic", "Connection: Upgrade\nUpgrade: x\n"), "new active hijacked"},
		{
			"hijack later", get("/", "") + get("/hijack", "Connection: Upgrade\nUpgrade: x\n"),
			"new active idle active hijacked",
		},
	}
	everywhere(t, func(t *testing.T, p place) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				var seen states
				s := open(t, p, h, seen.tune)
				conn := s.dial(t)
				if c.send == "" { // accepted before it leaves
					eventually(func() bool { return seen.life(0) != "" })
				}
				conn.send(c.send)
				_ = conn.CloseWrite()
				conn.rest(t)
				if !eventually(func() bool { return seen.life(0) == c.want }) {
					t.Errorf("the connection was %s, want %s", seen.life(0), c.want)
				}
			})
		}
	})
}

// TestSuiteHijackedAtOnce: a connection is told of as taken over when it is, and not when the
// handler returns, which may be much later; a panic after it leaves the connection alone.
func TestSuiteHijackedAtOnce(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		var seen states
		taken, leave := make(chan net.Conn, 1), make(chan struct{})
		s := open(t, p, func(w http.ResponseWriter, _ *http.Request) {
			c, _ := hijackHandler(t, w)
			taken <- c
			<-leave
			panic(http.ErrAbortHandler)
		}, seen.tune)
		conn := s.dial(t)
		conn.send("GET / HTTP/1.1\nHost: a\n\n")
		c := take(t, taken, "the connection")
		if got := seen.life(0); got != "new active hijacked" {
			t.Errorf("while the handler runs the connection is %s", got)
		}
		close(leave)
		if !eventually(func() bool { return s.Stats().Open == 0 }) {
			t.Error("the connection is counted on")
		}
		_, _ = io.WriteString(c, "still here")
		c.Close()
		if got := conn.rest(t); got != "still here" {
			t.Errorf("after a panic the one who has it could send %q", got)
		}
	})
}

// TestSuiteConnStateLean is TestSuiteConnState for a LeanHandler. Inline there is no net.Conn that
// could be told of.
func TestSuiteConnStateLean(t *testing.T) {
	everyLean(t, func(t *testing.T, p place) {
		if p.Mode == server.Inline {
			hook := func(net.Conn, http.ConnState) {}
			if _, err := server.New(server.Config{Lean: leanly, Engine: p.Engine, ConnState: hook}); err == nil {
				t.Error("mode inline takes a hook that it does not call")
			}
			return
		}
		for send, want := range map[string]string{
			"GET / HTTP/1.1\nHost: a\n\n":                       "new active idle closed",
			"GET / HTTP/1.1\nHost: a\nConnection: close\n\n":    "new active closed",
			"GET /panic HTTP/1.1\nHost: a\n\n":                  "new active closed",
			"hello\n\n":                                         "new active closed",
			strings.Repeat("GET / HTTP/1.1\nHost: a\n\n", 2):    "new active idle active idle closed",
			"POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbo": "new active closed",
		} {
			var seen states
			s := openLean(t, p, leanly, seen.tune)
			c := s.dial(t)
			c.send(send)
			_ = c.CloseWrite()
			c.rest(t)
			if !eventually(func() bool { return seen.life(0) == want }) {
				t.Errorf("%q: the connection was %s, want %s", send, seen.life(0), want)
			}
		}
	})
}

// TestSuiteConnStateConn hands over a connection that can be told from others, and looked at.
func TestSuiteConnStateConn(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		addrs := make(chan string, 20)
		s := open(t, p, say("ok"), func(c *server.Config) {
			c.ConnState = func(c net.Conn, state http.ConnState) {
				if state == http.StateNew || state == http.StateActive {
					addrs <- c.RemoteAddr().String()
				}
			}
		})
		for range 2 {
			c := s.dial(t)
			c.send("GET / HTTP/1.1\nHost: a\nConnection: close\n\n")
			c.rest(t)
			for range 2 {
				if got, want := take(t, addrs, "ConnState"), c.LocalAddr().String(); got != want {
					t.Errorf("the connection is from %s, want %s", got, want)
				}
			}
		}
	})
}

// TestSuiteConnStateOfOthers tells of connections that the server ends: by Close, by a time-out
// while TLS shakes hands.
func TestSuiteConnStateOfOthers(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		var seen states
		s := open(t, p, say("ok"), seen.tune)
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		c.reply(t, "GET")
		s.dial(t)
		eventually(func() bool { return seen.life(1) == "new" })
		_ = s.Close()
		for n, want := range []string{"new active idle closed", "new closed"} {
			if !eventually(func() bool { return seen.life(n) == want }) {
				t.Errorf("connection %d was %s, want %s", n, seen.life(n), want)
			}
		}
	})
}

type (
	keyOfBase struct{}
	keyOfConn struct{}
)

// TestSuiteContexts gives requests the context of their connection, and connections that of the
// server.
func TestSuiteContexts(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		var addr atomic.Value
		var conns atomic.Int64
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Context().Value(keyOfBase{}), " ", r.Context().Value(keyOfConn{}))
			if is[*http.Server](r.Context().Value(http.ServerContextKey)) &&
				is[net.Addr](r.Context().Value(http.LocalAddrContextKey)) {
				return
			}
			t.Error("the context lacks the values of net/http")
		}, func(c *server.Config) {
			c.BaseContext = func(ln net.Listener) context.Context {
				addr.Store(ln.Addr().String())
				return context.WithValue(context.Background(), keyOfBase{}, "base")
			}
			c.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
				if ctx.Value(keyOfBase{}) != "base" || !is[*http.Server](ctx.Value(http.ServerContextKey)) {
					t.Error("ConnContext gets a context without the server's values")
				}
				return context.WithValue(ctx, keyOfConn{}, fmt.Sprint(conns.Add(1), " ", c.RemoteAddr()))
			}
		})
		for i := range 2 {
			c := s.dial(t)
			for range 2 {
				c.send("GET / HTTP/1.1\nHost: a\n\n")
				if got, want := c.reply(t, "GET").body, fmt.Sprint("base ", i+1, " ", c.LocalAddr()); got != want {
					t.Errorf("the context says %q, want %q", got, want)
				}
			}
		}
		if addr.Load() != s.addr {
			t.Errorf("BaseContext got a listener of %q, want %q", addr.Load(), s.addr)
		}
	})
}

// TestSuiteBaseContextEnds ends the contexts of requests with the base, and with what ConnContext
// made of it.
func TestSuiteBaseContextEnds(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		for _, by := range []string{"base", "conn"} {
			began, ended := make(chan struct{}, 1), make(chan error, 1)
			base, cancel := context.WithCancel(context.Background())
			defer cancel()
			s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				<-r.Context().Done()
				ended <- context.Cause(r.Context())
			}, func(c *server.Config) {
				if by == "base" {
					c.BaseContext = func(net.Listener) context.Context { return base }
				} else {
					c.ConnContext = func(context.Context, net.Conn) context.Context { return base }
				}
			})
			c := s.dial(t)
			c.send("GET / HTTP/1.1\nHost: a\n\n")
			take(t, began, "the request")
			cancel()
			if err := take(t, ended, "the end of the context"); err == nil {
				t.Errorf("%s: the context ended with nil", by)
			}
		}
	})
}

// TestSuiteContextsOverTLS gives hooks the connection of TLS, for both versions of HTTP.
func TestSuiteContextsOverTLS(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		var seen states
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.Context().Value(keyOfBase{}), " ", r.Context().Value(keyOfConn{}))
		}, tune, seen.tune, func(c *server.Config) {
			c.BaseContext = func(net.Listener) context.Context {
				return context.WithValue(context.Background(), keyOfBase{}, "base")
			}
			c.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, keyOfConn{}, is[*tls.Conn](c))
			}
		})
		for _, two := range []bool{false, true} {
			tr := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: two}
			if !two {
				tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
			}
			r, err := (&http.Client{Transport: tr, Timeout: suitePatience}).Get("https://" + s.addr)
			want := "HTTP/1.1 base true"
			if two {
				want = "HTTP/2.0 base true"
			}
			if got := text(t, r, err); got != want {
				t.Errorf("the answer is %q, want %q", got, want)
			}
			tr.CloseIdleConnections()
		}
		c := s.dial(t) // says nothing, and leaves
		eventually(func() bool { return seen.life(2) == "new" })
		c.Close()
		for n, begins := range []string{"new active idle", "new active idle", "new"} {
			whole := func() bool {
				return strings.HasPrefix(seen.life(n), begins) && strings.HasSuffix(seen.life(n), " closed")
			}
			if !eventually(whole) {
				t.Errorf("connection %d was %s, want %s … closed", n, seen.life(n), begins)
			}
		}
	})
}

// TestSuiteOnShutdown calls every function when Shutdown begins, each on a goroutine of its own,
// and not when Close does.
func TestSuiteOnShutdown(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("ok"))
		s.get(t, "/")
		told := make(chan int, 4)
		meet := make(chan struct{}) // each waits for the other
		s.RegisterOnShutdown(func() {
			if c, err := net.Dial("tcp", s.addr); err == nil && !p.std() {
				t.Error("a connection is made although the server has ended")
				c.Close()
			}
			meet <- struct{}{}
			told <- 1
		})
		s.RegisterOnShutdown(func() { <-meet; told <- 2 })
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if sum := take(t, told, "a call") + take(t, told, "a call"); sum != 3 {
			t.Errorf("the calls add up to %d, want 3", sum)
		}
		closed := open(t, p, say("ok"))
		closed.RegisterOnShutdown(func() { told <- 3 })
		closed.get(t, "/")
		_ = closed.Close()
		select {
		case <-told:
			t.Error("Close calls what is for Shutdown")
		default:
		}
	})
}

// TestSuiteKeepAlivesOff closes connections after their answers, and those that are idle at once,
// until keep-alives are on again.
func TestSuiteKeepAlivesOff(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("ok"))
		idle := s.dial(t)
		idle.send("GET / HTTP/1.1\nHost: a\n\n")
		idle.reply(t, "GET")
		s.SetKeepAlivesEnabled(false)
		if rest := idle.rest(t); rest != "" {
			t.Errorf("the idle connection got %q", rest)
		}
		for _, send := range []string{
			"GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\nHost: a\nConnection: keep-alive\n\n",
			"GET / HTTP/1.0\nConnection: keep-alive\n\n",
		} {
			c := s.dial(t)
			c.send(send)
			r := c.reply(t, "GET")
			if r.line[:8] == "HTTP/1.1" && r.head.Get("Connection") != "close" {
				t.Errorf("%q: the answer is %v", send, r)
			}
			if rest := c.rest(t); rest != "" {
				t.Errorf("%q: after the answer came %q", send, rest)
			}
		}
		s.set(func(w http.ResponseWriter, r *http.Request) { // an upgrade stays one
			set(w, "Connection", "Upgrade", "Upgrade", "x")
			w.WriteHeader(101)
			c, _ := hijackHandler(t, w)
			c.Close()
		})
		if r := s.ask(t, upgrade); r.head.Get("Connection") != "Upgrade" {
			t.Errorf("the answer to an upgrade is %v", r)
		}
		s.set(say("ok"))
		s.SetKeepAlivesEnabled(true)
		c := s.dial(t)
		c.stays(t)
		c.stays(t)
	})
}

// TestSuiteKeepAlivesOffNew leaves connections alone on which a first request may be on its way.
func TestSuiteKeepAlivesOffNew(t *testing.T) {
	check := func(t *testing.T, s *site) {
		c := s.dial(t)
		if !eventually(func() bool { return s.Stats().Open == 1 }) {
			t.Fatal("the connection is not accepted")
		}
		s.SetKeepAlivesEnabled(false)
		s.SetKeepAlivesEnabled(false)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		if r := c.reply(t, "GET"); r.status() != 200 || r.head.Get("Connection") != "close" {
			t.Errorf("the answer is %v", r)
		}
		c.rest(t)
	}
	t.Run("handlers", func(t *testing.T) {
		everywhere(t, func(t *testing.T, p place) {
			check(t, open(t, p, say("ok")))
			var seen states
			check(t, open(t, p, say("ok"), seen.tune))
		})
	})
	t.Run("lean", func(t *testing.T) {
		everyLean(t, func(t *testing.T, p place) { check(t, openLean(t, p, leanly)) })
	})
}

// TestSuiteKeepAlivesOffActive lets a handler that runs end its answer, with Connection: close.
func TestSuiteKeepAlivesOffActive(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		g := newGate()
		s := open(t, p, g.ServeHTTP)
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		take(t, g.in, "the request")
		s.SetKeepAlivesEnabled(false)
		close(g.out)
		if r := c.reply(t, "GET"); r.body != "answered" || r.head.Get("Connection") != "close" {
			t.Errorf("the answer is %v", r)
		}
		c.rest(t)
	})
}

// TestSuiteKeepAlivesOffLean is TestSuiteKeepAlivesOff for a LeanHandler.
func TestSuiteKeepAlivesOffLean(t *testing.T) {
	everyLean(t, func(t *testing.T, p place) {
		s := openLean(t, p, leanly)
		idle := s.dial(t)
		idle.send("GET / HTTP/1.1\nHost: a\n\n")
		idle.reply(t, "GET")
		s.SetKeepAlivesEnabled(false)
		idle.rest(t)
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		if r := c.reply(t, "GET"); r.head.Get("Connection") != "close" {
			t.Errorf("the answer is %v", r)
		}
		c.rest(t)
	})
}
