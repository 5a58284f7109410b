package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/server"
)

// TestCloseWhileTLSStarts: nothing is left of a server that was closed while its first listener
// began.
func TestCloseWhileTLSStarts(t *testing.T) {
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS()
	cfg := ts.TLS.Clone()
	ts.Close()
	cfg.NextProtos = nil
	eachWay(t, loops(ways(t, ofHTTP, server.Goroutine)), func(t *testing.T, w way) {
		before := runtime.NumGoroutine()
		for i := range 200 {
			s, err := server.New(server.Config{Handler: http.HandlerFunc(hello), TLS: cfg, Engine: w.Engine, Loops: 1})
			if err != nil {
				t.Fatal(err)
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ln) }()
			for end := time.Now().Add(time.Duration(i%50) * 10 * time.Microsecond); time.Now().Before(end); {
				runtime.Gosched()
			}
			_ = s.Close()
			take(t, ended, "the end of Serve")
		}
		until(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// TestAHandlerMayLockItsThread for as long as it runs, as one does that calls into the kernel or C.
// A coroutine must not: package iter ends the process.
func TestAHandlerMayLockItsThread(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
		if !inChild(t) {
			return
		}
		in := make(chan struct{}, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			in <- struct{}{}
			_, _ = io.Copy(w, r.Body)
		})})
		c := newClient(t, r.addr)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
		take(t, in, "the handler")
		fmt.Fprintf(c, "cd")
		if got, err := c.answer("POST"); got != "abcd" {
			t.Errorf("the answer is %q, %v", got, err)
		}
	})
}

// TestAHandlerMayCloseTheServer: Close returns, whoever calls it.
func TestAHandlerMayCloseTheServer(t *testing.T) {
	eachWay(t, httpWays(t), func(t *testing.T, w way) {
		if !inChild(t) {
			return
		}
		var s atomic.Pointer[server.Server]
		closed := make(chan struct{})
		quit := func() { _ = s.Load().Close(); close(closed) }
		cfg := httpConfig(w, func(http.ResponseWriter, *http.Request) { quit() },
			func(*server.LeanResponse, *server.LeanRequest) { quit() })
		r := serve(t, w, cfg)
		s.Store(r.Server)
		fmt.Fprintf(dial(t, r.addr), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		take(t, closed, "the end of Close")
	})
}

// TestAHijackedStreamIsWhole: what the client sends right behind its request is the handler's, to
// the last byte.
func TestAHijackedStreamIsWhole(t *testing.T) {
	const size = 1 << 20
	s := newStream(3)
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		results := make(chan error, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				results <- err
				return
			}
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(soon))
			b := make([]byte, size)
			n, err := io.ReadFull(rw, b)
			if e := s.check(b[:n], 0); e != nil {
				err = e
			}
			if err != nil {
				err = fmt.Errorf("%w after %d", err, n)
			}
			results <- err
		})})
		all := append([]byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
			bytes.Repeat(s.block, 2)[:size]...)
		for i := range testenv.Rounds(800, 100) {
			c := dial(t, r.addr)
			go func() { _, _ = c.Write(all) }()
			if err := take(t, results, "the handler"); err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			c.Close()
		}
	})
}

// TestTheLastBodyCounts: SetBuffer after SetStatic sets the body, in whatever memory it is.
func TestTheLastBodyCounts(t *testing.T) {
	eachWay(t, ways(t, ofLean), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Lean: func(w *server.LeanResponse, _ *server.LeanRequest) {
			w.Reserve(10)
			b := append(w.Buffer(), "last"...)
			w.SetStatic([]byte("first"))
			w.SetBuffer(b)
		}})
		newClient(t, r.addr).want(t, "/", "last")
	})
}

// TestReadTimeoutHoldsForAFlood: a body that always has more to read ends by ReadTimeout, too.
func TestReadTimeoutHoldsForAFlood(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
		ended := make(chan error, 1)
		r := serve(t, w, server.Config{
			ReadTimeout: 200 * time.Millisecond,
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				b := make([]byte, 4<<10)
				for {
					if _, err := r.Body.Read(b); err != nil {
						ended <- err
						return
					}
					time.Sleep(time.Millisecond)
				}
			}),
		})
		c := dial(t, r.addr)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n")
		go func() {
			for b := make([]byte, 64<<10); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
		select {
		case <-ended:
		case <-time.After(soon):
			t.Error("the body goes on long after ReadTimeout")
		}
		c.Close()
	})
}

// TestBothWaysFull: echo with both directions full, at random sizes, on many connections: nobody
// hangs.
func TestBothWaysFull(t *testing.T) {
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Loops: 2, Conn: func(_ context.Context, c net.Conn) {
			b := make([]byte, 7001)
			for {
				n, err := c.Read(b)
				if _, e := c.Write(b[:n]); err != nil || e != nil {
					return
				}
			}
		}})
		var all sync.WaitGroup
		for k := range 8 {
			all.Go(func() {
				c := dial(t, r.addr)
				s, total := newStream(uint64(k)), 6<<20
				all.Go(func() {
					for off := 0; off < total; {
						n := min(1+off*7919%200_000, total-off, len(s.block)-off%len(s.block))
						_, err := c.Write(s.block[off%len(s.block):][:n])
						if err != nil {
							t.Error("write: ", err)
							return
						}
						off += n
					}
					_ = c.CloseWrite()
				})
				got, b := 0, make([]byte, 50_000)
				for {
					n, err := c.Read(b[:1+got%len(b)])
					if e := s.check(b[:n], got); e != nil {
						t.Error(e)
						return
					}
					if got += n; err != nil {
						if !errors.Is(err, io.EOF) || got != total {
							t.Errorf("%d of %d: %v", got, total, err)
						}
						return
					}
				}
			})
		}
		all.Wait()
	})
}
