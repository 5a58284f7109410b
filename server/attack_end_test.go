package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestALateReadOfABodyReachesNobodyElse: a handler panics while another goroutine of its own has
// the body of a client that waits for 100-continue. What that goroutine does later is nothing to
// other clients.
func TestALateReadOfABodyReachesNobodyElse(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP, server.Goroutine)), func(t *testing.T, w way) {
		bodies := make(chan io.Reader, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				bodies <- r.Body
				panic(http.ErrAbortHandler)
			}
			select {
			case b := <-bodies:
				done := make(chan struct{})
				go func() { _, _ = b.Read(make([]byte, 1)); close(done) }()
				select {
				case <-done:
				case <-time.After(20 * time.Millisecond): // net/http's waits
				}
			default:
			}
			_, _ = io.WriteString(w, "mine")
		})})
		for range 50 { // the pool of sessions' memory need not give the same twice
			c := dial(t, r.addr)
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
			d := dial(t, r.addr)
			fmt.Fprintf(d, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if line, err := bufio.NewReader(d).ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
				t.Fatalf("a client that asked for nothing of the kind got %q, %v", line, err)
			}
			d.Close()
		}
	})
}

// TestAnAbortWhileTheBodyIsReadEndsOneConnection: what a proxy does whose backend fails while it
// still reads the request.
func TestAnAbortWhileTheBodyIsReadEndsOneConnection(t *testing.T) {
	if !inChild(t) {
		return
	}
	eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
		var readers atomic.Int64 // a handler may begin when all clients have gone: no WaitGroup
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, "/")
				return
			}
			began := make(chan struct{})
			readers.Add(1)
			go func() {
				defer readers.Add(-1)
				b := make([]byte, 100)
				for n := 0; ; n++ {
					if n == 3 {
						close(began)
					}
					if _, err := r.Body.Read(b); err != nil {
						break
					}
				}
			}()
			<-began
			panic(http.ErrAbortHandler)
		})})
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				for range 150 {
					c, err := net.Dial("tcp", r.addr)
					if err != nil {
						t.Error(err)
						return
					}
					_ = c.SetDeadline(time.Now().Add(soon))
					chunk := "2\r\nab\r\n"
					fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s",
						strings.Repeat(chunk, 30))
					for range 2000 {
						if _, err := io.WriteString(c, chunk); err != nil {
							break
						}
					}
					c.Close()
				}
			})
		}
		clients.Wait()
		until(t, "readers end", func() bool { return readers.Load() == 0 })
		newClient(t, r.addr).want(t, "/", "/")
	})
}

// TestAClientThatLeavesIsNoticed, when the head of its request came in two pieces, too.
func TestAClientThatLeavesIsNoticed(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
		in, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			in <- struct{}{}
			select {
			case <-r.Context().Done():
				gone <- struct{}{}
			case <-time.After(soon):
			}
		})})
		for range 5 {
			c := dial(t, r.addr)
			fmt.Fprintf(c, "GET / HTTP/1.1\r\n")
			until(t, "the first piece", func() bool { return r.Stats().In > 0 || w.Engine == server.Std })
			time.Sleep(20 * time.Millisecond) // any time will do
			fmt.Fprintf(c, "Host: a\r\n\r\n")
			take(t, in, "the handler")
			c.Close()
			select {
			case <-gone:
			case <-time.After(soon):
				t.Fatal("the context does not end when the client leaves")
			}
		}
	})
}

// TestHooksThatEndTheirGoroutine: ConnState calls runtime.Goexit for some connections. The others
// are served, and the server can be closed.
func TestHooksThatEndTheirGoroutine(t *testing.T) {
	for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle, http.StateClosed} {
		t.Run(state.String(), func(t *testing.T) {
			eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
				var armed atomic.Bool
				armed.Store(true)
				r := serve(t, w,
					server.Config{
						Handler: http.HandlerFunc(hello), Loops: 2, MaxConns: 4,
						ConnState: func(_ net.Conn, s http.ConnState) {
							if s == state && armed.Load() {
								runtime.Goexit()
							}
						},
					})
				var all []net.Conn
				for range 12 {
					c, err := net.Dial("tcp", r.addr)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
					all = append(all, c)
				}
				time.Sleep(50 * time.Millisecond)
				for _, c := range all {
					c.Close()
				}
				time.Sleep(50 * time.Millisecond)
				armed.Store(false)
				for range 6 {
					c := newClient(t, r.addr)
					_ = c.SetDeadline(time.Now().Add(soon))
					if got, err := c.get("/x"); got != "/x" {
						t.Errorf("no answer: %q %v", got, err)
						break
					}
					c.Close()
				}
				until(t, "no connection", func() bool { return r.Stats().Open == 0 })
			})
		})
	}
}

// TestAPanicOfAHookIsNotTheEnd: net/http recovers from it in StateActive and StateIdle, and says so
// in the log.
func TestAPanicOfAHookIsNotTheEnd(t *testing.T) {
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		if !inChild(t) {
			return
		}
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(hello), ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateActive {
				panic("hook")
			}
		}})
		c := newClient(t, r.addr)
		_, _ = c.get("/")
		until(t, "a line in the log", func() bool { return len(r.log.all()) > 0 })
	})
}

// TestTwoReadersGetAll: two goroutines read from a connection; what is there wakes both.
func TestTwoReadersGetAll(t *testing.T) {
	eachWay(t, ways(t, ofConn, server.Goroutine), func(t *testing.T, w way) {
		got := make(chan int, 2)
		r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					n, _ := c.Read(make([]byte, 10))
					got <- n
				})
			}
			time.Sleep(50 * time.Millisecond) // both wait by now
			_, _ = c.Write([]byte("x"))
			both.Wait()
		}})
		c := dial(t, r.addr)
		_, _ = c.Write([]byte("1"))
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write(make([]byte, 20))
		for range 2 {
			select {
			case <-got:
			case <-time.After(soon):
				t.Fatal("10 bytes are there, and a Read waits for them")
			}
		}
	})
}
