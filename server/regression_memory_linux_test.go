package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// liveHeap is what is left in use after the garbage collector, which has to run twice for what has
// finalizers and pools.
func liveHeap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// shortLives opens n connections, asks once on each, and leaves.
func shortLives(t *testing.T, addr string, n int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			b := make([]byte, 500)
			for left.Add(-1) >= 0 {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(soon))
				_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				if err == nil {
					_, err = c.Read(b)
				}
				_ = c.(*net.TCPConn).SetLinger(0) // no port waits
				c.Close()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestConnectionsLeaveNothingBehind: what a connection had is free when it is over, and not when
// its last time-out would have come.
func TestConnectionsLeaveNothingBehind(t *testing.T) {
	const first, connections, each = 1000, 5000, 64 // bytes
	eachWay(t, loops(httpWays(t)), func(t *testing.T, w way) {
		cfg := httpConfig(w, hello, helloLean)
		cfg.ReadTimeout, cfg.ReadHeaderTimeout, cfg.WriteTimeout, cfg.IdleTimeout = time.Hour, time.Hour, time.Hour,
			time.Hour
		r := serve(t, w, cfg)
		gone := func() bool { return r.Stats().Open == 0 }
		shortLives(t, r.addr, first) // what is needed once
		until(t, "the end of the connections", gone)
		before := liveHeap()
		shortLives(t, r.addr, connections)
		until(t, "the end of the connections", gone)
		if grown := liveHeap() - before; grown > connections*each {
			t.Errorf("%d connections that are over hold %d bytes, %d each", connections, grown, grown/connections)
		}
	})
}

// TestSentAnswersAreNotKept: the memory of an answer is free once it is sent. Many at a time are
// needed: what a loop keeps for later must not keep their memory.
func TestSentAnswersAreNotKept(t *testing.T) {
	const clients, size, bound = 24, 1 << 20, 4 << 20
	page := make([]byte, size)
	eachWay(t, ways(t, ofLean), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Lean: func(w *server.LeanResponse, _ *server.LeanRequest) { w.SetBuffer(page) }})
		ask := func() {
			var all sync.WaitGroup
			asked := make(chan bool, clients)
			for range clients {
				all.Go(func() {
					c := dial(t, r.addr)
					defer c.Close()
					_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
					if asked <- true; len(asked) < clients { // so that all answers are on their way at a time
						until(t, "the others", func() bool { return len(asked) == clients })
					}
					n, e := io.Copy(io.Discard, c)
					if err != nil || e != nil || n < size {
						t.Errorf("%d bytes, %v, %v", n, err, e)
					}
				})
			}
			all.Wait()
			until(t, "the end of the connections", func() bool { return r.Stats().Open == 0 })
		}
		before := liveHeap()
		ask()
		if grown := liveHeap() - before; grown > bound {
			t.Errorf("%d answers of %d bytes that were sent hold %d bytes", clients, size, grown)
		}
	})
}

// TestDeadlinesLeaveNothingBehind: a connection has a read and a write deadline, however often a
// handler sets an earlier or a later one.
func TestDeadlinesLeaveNothingBehind(t *testing.T) {
	const times, bound = 100_000, 400_000 // bytes in all
	far := time.Now().Add(24 * time.Hour)
	for name, at := range map[string]func(i int) time.Time{
		"earlier": func(i int) time.Time { return far.Add(time.Duration(-i) * time.Millisecond) },
		"later":   func(i int) time.Time { return far.Add(time.Duration(i) * time.Millisecond) },
		"on, off": func(i int) time.Time {
			if i%2 == 0 {
				return time.Time{}
			}
			return far.Add(time.Duration(-i) * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
				r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
					b := make([]byte, 1)
					for i := 0; ; i++ {
						if _, err := c.Read(b); err != nil { // a turn of the loop between
							return
						}
						for k := range times / 10 {
							_ = c.SetReadDeadline(at(i*times/10 + k))
							_ = c.SetWriteDeadline(at(i*times/10 + k))
							if k%100 == 0 {
								runtime.Gosched()
							}
						}
						_, _ = c.Write(b)
					}
				}})
				c := dial(t, r.addr)
				turn := func() {
					if _, err := c.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				turn()
				before := liveHeap()
				for range 9 {
					turn()
				}
				if grown := liveHeap() - before; grown > bound {
					t.Errorf("%d deadlines hold %d bytes", times, grown)
				}
			})
		})
	}
}

// TestDeadlinesOfRequestsLeaveNothingBehind is the same for what a ResponseController sets in one
// request after the other.
func TestDeadlinesOfRequestsLeaveNothingBehind(t *testing.T) {
	const requests, bound = 5000, 300_000
	far := time.Now().Add(24 * time.Hour)
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		n := 0
		r := serve(t, w, server.Config{
			ReadTimeout: 30 * time.Hour,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctl := http.NewResponseController(w)
				for range 10 {
					n++
					_ = ctl.SetReadDeadline(far.Add(time.Duration(-n) * time.Millisecond))
					_ = ctl.SetWriteDeadline(far.Add(time.Duration(-n) * time.Millisecond))
				}
				fmt.Fprint(w, r.URL.Path)
			}),
		})
		c := newClient(t, r.addr)
		c.want(t, "/", "/")
		before := liveHeap()
		for range requests {
			if got, err := c.get("/x"); err != nil || got != "/x" {
				t.Fatalf("the answer is %q, %v", got, err)
			}
		}
		if grown := liveHeap() - before; grown > bound {
			t.Errorf("the deadlines of %d requests hold %d bytes", requests, grown)
		}
	})
}
