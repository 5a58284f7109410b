package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestALostListenerTakesNobodyAlong: a listening socket is shut down from outside, and its
// descriptor's number is a connection's a moment later. That connection is served.
func TestALostListenerTakesNobodyAlong(t *testing.T) {
	eachWay(t, loops(ways(t, ofLean)), func(t *testing.T, w way) {
		hold, held := make(chan struct{}), make(chan struct{})
		r := serve(t, w, server.Config{Loops: 1, Lean: func(w *server.LeanResponse, r *server.LeanRequest) {
			if string(r.Path()) == "/hold" {
				close(held)
				<-hold
			}
			_, _ = w.Write(r.Path())
		}})
		doomed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Serve(doomed) }()
		newClient(t, doomed.Addr().String()).want(t, "/x", "/x")
		holder := newClient(t, r.addr)
		fmt.Fprintf(holder, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
		take(t, held, "the handler")
		raw, _ := doomed.(*net.TCPListener).SyscallConn()
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
		var all []*client
		for range 20 { // they wait to be accepted
			all = append(all, newClient(t, r.addr))
		}
		close(hold)
		take(t, ended, "the end of Serve")
		for i, c := range all {
			_ = c.SetDeadline(time.Now().Add(soon))
			if got, err := c.get("/y"); err != nil || got != "/y" {
				t.Fatalf("connection %d is deaf: %q, %v", i, got, err)
			}
		}
	})
}

// TestCloseClosesListenersThatWaitForRoom: a listener that came while there were MaxConns
// connections is closed like any other.
func TestCloseClosesListenersThatWaitForRoom(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(hello), MaxConns: 1})
		newClient(t, r.addr).want(t, "/x", "/x")
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		before := openFiles(t)
		go func() { ended <- r.Serve(ln) }()
		until(t, "the second descriptor of the listener", func() bool { return openFiles(t) > before })
		time.Sleep(20 * time.Millisecond)
		_ = r.Close()
		take(t, ended, "the end of Serve")
		if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			c.Close()
			t.Error("the server is closed, and its port still takes connections")
		}
	})
}

// TestShutdownLetsABodyCome: a request that came within a moment of Shutdown is answered, even if
// its body takes longer.
func TestShutdownLetsABodyCome(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		var c *client
		var down chan error
		const moment = 500 * time.Millisecond // for which a connection without a request is kept
		inTime(t, moment, func() error {
			r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %v", b, err)
			})})
			ended := make(chan error, 1)
			c, down = newClient(t, r.addr), ended
			c.want(t, "/", " <nil>")
			before := r.Stats().In
			go func() { ended <- r.Shutdown(context.Background()) }()
			take(t, r.ended, "the begin of the end")
			time.Sleep(100 * time.Millisecond)
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
			until(t, "the request or the end", func() bool { return r.Stats().In > before || r.Stats().Open == 0 })
			return nil
		})
		time.Sleep(700 * time.Millisecond)
		fmt.Fprintf(c, "cd")
		if got, err := c.answer("POST"); got != "abcd <nil>" {
			t.Errorf("the answer is %q, %v", got, err)
		}
		take(t, down, "the end of Shutdown")
	})
}

// TestAnAnswerOutlivesABodyThatNobodyReads: the client sends all of a large body, and reads the
// answer then.
func TestAnAnswerOutlivesABodyThatNobodyReads(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusForbidden)
		})})
		const readsOn = 500 * time.Millisecond // so long the server takes what it does not read
		for range 3 {
			inTime(t, readsOn, func() error {
				c := newClient(t, r.addr)
				defer c.Close()
				const size = 4 << 20
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
				if _, err := c.Write(make([]byte, size)); err != nil {
					return fmt.Errorf("the body is not taken: %w", err)
				}
				if line, err := c.in.ReadString('\n'); !strings.Contains(line, "403") {
					return fmt.Errorf("the answer is %q, %w", line, err)
				}
				return nil
			})
		}
	})
}

// TestAHeadBesideItsContinue: one goroutine reads the body of a client that waits for 100-continue,
// while the handler writes the head.
func TestAHeadBesideItsContinue(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			done := make(chan struct{})
			go func() { _, _ = io.ReadAll(r.Body); close(done) }()
			w.Header().Set("X-Long", strings.Repeat("x", 500))
			w.WriteHeader(http.StatusOK)
			<-done
			_, _ = io.WriteString(w, "ok")
		})})
		for range 300 {
			c := newClient(t, r.addr)
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab")
			line, err := c.in.ReadString('\n')
			if strings.Contains(line, "100") {
				_, _ = c.in.ReadString('\n')
			} else if err == nil {
				c.in = bufio.NewReader(io.MultiReader(strings.NewReader(line), c.in))
			}
			if got, err := c.answer("POST"); got != "ok" {
				t.Fatalf("the answer is %q, %v", got, err)
			}
			c.Close()
		}
	})
}

// TestTheContextOfAHijackedRequestEnds when the handler returns, as in net/http: else whatever
// follows it stays for ever.
func TestTheContextOfAHijackedRequestEnds(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
		ctxs := make(chan context.Context, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				defer c.Close()
			}
			ctxs <- r.Context()
		})})
		fmt.Fprintf(dial(t, r.addr), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		select {
		case <-take(t, ctxs, "the handler").Done():
		case <-time.After(soon):
			t.Error("the context goes on")
		}
	})
}

// TestUrgentDataHoldsNothingUp: a receive ends at an urgent byte, and there is more behind it. By
// io_uring that may be seen only when the next bytes arrive: see package ring.
func TestUrgentDataHoldsNothingUp(t *testing.T) {
	eachWay(t, httpWays(t), func(t *testing.T, w way) {
		r := serve(t, w, httpConfig(w, hello, helloLean))
		c := newClient(t, r.addr)
		c.want(t, "/", "/")
		raw, _ := c.SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1)
			_, _ = syscall.Write(int(fd), []byte("GET /x HTTP/1.1\r\n"))
			_ = syscall.Sendto(int(fd), []byte("!"), syscall.MSG_OOB, nil)
			_, _ = syscall.Write(int(fd), []byte("Host: a\r\n\r\n"))
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 0)
		})
		_ = c.SetDeadline(time.Now().Add(soon))
		answered := make(chan struct{})
		if w.Engine == server.Uring {
			go func() { // one more may have come before the first is received: it would not be seen either
				for range time.Tick(50 * time.Millisecond) {
					select {
					case <-answered:
						return
					default:
						fmt.Fprint(c, "GET /y HTTP/1.1\r\nHost: a\r\n\r\n")
					}
				}
			}()
		}
		if got, err := c.answer("GET"); got != "/x" {
			t.Errorf("the answer is %q, %v", got, err)
		}
		close(answered)
	})
}

// TestALongTimeoutIsLong: the longest time-out is none that has passed.
func TestALongTimeoutIsLong(t *testing.T) {
	eachWay(t, httpWays(t), func(t *testing.T, w way) {
		cfg := httpConfig(w, hello, helloLean)
		cfg.WriteTimeout, cfg.ReadTimeout = math.MaxInt64, math.MaxInt64
		r := serve(t, w, cfg)
		c := newClient(t, r.addr)
		fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got, err := c.answer("GET"); got != "/x" {
			t.Errorf("the answer is %q, %v", got, err)
		}
	})
}

// TestOneThatTakesAllLeavesTimeForOthers: a client that takes an endless answer as fast as it comes
// does not keep the loop from others.
func TestOneThatTakesAllLeavesTimeForOthers(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Coroutine), func(t *testing.T, w way) {
		var stop atomic.Bool
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/x" {
				hello(w, r)
				return
			}
			b := make([]byte, 32<<10)
			for !stop.Load() {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		})})
		c := dial(t, r.addr)
		fmt.Fprintf(c, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n")
		go func() {
			for b := make([]byte, 1<<20); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
			}
		}()
		worst := time.Duration(0)
		for range 30 {
			d := newClient(t, r.addr)
			began := time.Now()
			d.want(t, "/x", "/x")
			worst = max(worst, time.Since(began))
			d.Close()
		}
		stop.Store(true)
		if worst > soon {
			t.Errorf("another client waited for %v", worst)
		}
	})
}
