package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// much is more than the sockets of both sides hold.
const much = 16 << 20

// onlyOnce checks that after the head of an answer there is nothing but its body's x, so no second
// answer either.
func onlyOnce(t *testing.T, c net.Conn) {
	t.Helper()
	got := ended(t, c)
	_, body, ok := bytes.Cut(got, []byte("\r\n\r\n"))
	if !ok && len(got) > 0 { // a reset may take all of it
		t.Errorf("the answer is %.200q", got)
	}
	if i := bytes.IndexFunc(body, func(r rune) bool { return r != 'x' }); i >= 0 {
		t.Errorf("at %d of the body stands %.80q", i, body[i:])
	}
}

// TestAFailedSendStays: after a write has passed its deadline in the middle of an answer every
// later Write and Flush fails, whatever becomes of the deadline, and the connection ends.
func TestAFailedSendStays(t *testing.T) {
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		failed := make(chan string, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/much" {
				_, _ = io.WriteString(w, "the pipelined answer")
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(2*much))
			ctl := http.NewResponseController(w)
			_ = ctl.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, first := w.Write(bytes.Repeat([]byte("x"), much))
			_ = ctl.SetWriteDeadline(time.Now().Add(time.Second)) // time enough for what must fail at once
			var wrong []string
			for i, err := range []error{
				first, wrote(w, 10), ctl.Flush(), wrote(w, 10), ctl.Flush(), wrote(w, 100_000),
				ctl.Flush(), wrote(w, much),
			} {
				if err == nil {
					wrong = append(wrong, fmt.Sprint(i))
				}
			}
			failed <- strings.Join(wrong, ", ")
		})})
		c := dial(t, r.addr)
		_, _ = io.WriteString(c, "GET /much HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n")
		if wrong := take(t, failed, "the end of the handler"); wrong != "" { // the client reads nothing until then
			t.Errorf("calls %s gave no error after a send had failed", wrong)
		}
		onlyOnce(t, c)
	})
}

func wrote(w io.Writer, n int) error {
	_, err := w.Write(bytes.Repeat([]byte("x"), n))
	return err
}

// TestNoAnswerStandsInAnother: a handler that does not look at the error of a write which took too
// long has ended its connection.
func TestNoAnswerStandsInAnother(t *testing.T) {
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		done := make(chan bool, 2)
		r := serve(t, w, server.Config{
			WriteTimeout: 100 * time.Millisecond,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/much" {
					w.Header().Set("Content-Length", fmt.Sprint(160*100_000))
					for range 160 {
						_ = wrote(w, 100_000)
					}
					done <- true
					return
				}
				_, _ = io.WriteString(w, "the pipelined answer")
			}),
		})
		c := dial(t, r.addr)
		_, _ = io.WriteString(c,
			"GET /much HTTP/1.1\r\nHost: a\r\n\r\n"+strings.Repeat("GET /next HTTP/1.1\r\nHost: a\r\n\r\n", 20))
		take(t, done, "the end of the handler")
		onlyOnce(t, c)
	})
}

// TestWriteFailsSoonAfterTheClientHasGone: a handler that writes and flushes until an error comes
// is over soon after its client has left, whether it looks at Write or at Flush.
func TestWriteFailsSoonAfterTheClientHasGone(t *testing.T) {
	for name, step := range map[string]func(w http.ResponseWriter) error{
		"Write": func(w http.ResponseWriter) error {
			_, err := io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			return err
		},
		"Flush": func(w http.ResponseWriter) error {
			_, _ = io.WriteString(w, "data: x\n\n")
			return http.NewResponseController(w).Flush()
		},
	} {
		for _, reset := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/reset=%v", name, reset), func(t *testing.T) {
				eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
					over := make(chan bool, 1)
					r := serve(t, w,
						server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							for end := time.Now().Add(soon / 2); time.Now().Before(end); {
								if step(w) != nil {
									over <- true
									return
								}
							}
							over <- false
						})})
					c := dial(t, r.addr)
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
					if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
						t.Fatal(err)
					}
					if reset {
						_ = c.SetLinger(0)
					}
					c.Close()
					if !take(t, over, "the end of the handler") {
						t.Error("writes to a client that has gone do not fail")
					}
				})
			})
		}
	}
}

// TestShutdownWaitsForHandlersWithoutClient: Shutdown does not report success while a handler runs,
// although its client has gone.
func TestShutdownWaitsForHandlersWithoutClient(t *testing.T) {
	check := func(t *testing.T, r *running, request string, inside chan bool, release chan bool) {
		c := dial(t, r.addr)
		_, _ = io.WriteString(c, request)
		take(t, inside, "the handler")
		_ = c.SetLinger(0)
		c.Close()
		take(t, inside, "the handler to know that the client has gone")
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		short := make(chan error, 1)
		go func() { short <- r.Shutdown(ctx) }()
		select {
		case err := <-short:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown gives %v while a handler runs, want that its context has ended", err)
			}
			close(release)
		case <-ctx.Done(): // a Shutdown that still closes what is left may wait for the handler to do so
			close(release)
			if err := <-short; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown gives %v, want that its context has ended", err)
			}
		}
	}
	t.Run("http", func(t *testing.T) {
		eachWay(t, ways(t, ofHTTP, server.Goroutine), func(t *testing.T, w way) {
			inside, release := make(chan bool), make(chan bool)
			check(t, serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside <- true
				<-r.Context().Done()
				inside <- true
				<-release
			})}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n", inside, release)
		})
	})
	t.Run("conn", func(t *testing.T) {
		eachWay(t, ways(t, ofConn, server.Goroutine), func(t *testing.T, w way) {
			inside, release := make(chan bool), make(chan bool)
			check(t, serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				inside <- true
				_, _ = c.Read(make([]byte, 1))
				inside <- true
				<-release
			}}), "x", inside, release)
		})
	})
}

// TestWritesAfterTheHandlerAreRefused: what is written by a ResponseWriter whose handler has
// returned is refused with an error, and stands in no stream. In the next handler that is the same
// thread, so it goes for mode coroutine, too.
func TestWritesAfterTheHandlerAreRefused(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		var mu sync.Mutex
		var old http.ResponseWriter
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path == "/late" {
				if errs := writeLate(old); len(errs) > 0 {
					t.Error(strings.Join(errs, "; "))
				}
			}
			old = w
			_, _ = io.WriteString(w, r.URL.Path)
		})})
		c, other := newClient(t, r.addr), newClient(t, r.addr)
		for range 3 {
			c.want(t, "/one", "/one")
			c.want(t, "/late", "/late") // the same connection's
			other.want(t, "/late", "/late")
		}
		c.want(t, "/last", "/last")
	})
}

// TestWritesOfAGoroutineAfterTheHandlerAreRefused is the same for a goroutine that a handler left
// behind, on a connection that goes on and on one that is over.
func TestWritesOfAGoroutineAfterTheHandlerAreRefused(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP, server.Goroutine)), func(t *testing.T, w way) {
		writers := make(chan http.ResponseWriter, 1)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Path)
			if r.URL.Path == "/one" {
				writers <- w
			}
		})})
		late := func() {
			t.Helper()
			if errs := writeLate(take(t, writers, "the handler")); len(errs) > 0 {
				t.Error(strings.Join(errs, "; "))
			}
		}
		c := newClient(t, r.addr)
		for range 3 {
			c.want(t, "/one", "/one")
			late()
			c.want(t, "/two", "/two")
		}
		c.want(t, "/one", "/one")
		c.Close()
		until(t, "the end of the connection", func() bool { return r.Stats().Open == 0 })
		late()
		newClient(t, r.addr).want(t, "/two", "/two")
	})
}

// writeLate tries everything by which bytes could get into a stream, and reports what was allowed.
func writeLate(w http.ResponseWriter) (allowed []string) {
	defer func() {
		if p := recover(); p != nil {
			allowed = append(allowed, fmt.Sprintf("a late write panics: %v", p))
		}
	}()
	ctl := http.NewResponseController(w)
	for _, n := range []int{1, 100, 10_000} {
		if _, err := w.Write(bytes.Repeat([]byte("LATE"), n)); err == nil {
			allowed = append(allowed, fmt.Sprintf("a late Write of %d bytes gives no error", 4*n))
		}
		if _, err := io.WriteString(w, "LATE"); err == nil {
			allowed = append(allowed, "a late WriteString gives no error")
		}
		if _, err := io.Copy(w, strings.NewReader("LATE")); err == nil {
			allowed = append(allowed, "a late copy gives no error")
		}
		if ctl.Flush() == nil {
			allowed = append(allowed, "a late Flush gives no error")
		}
	}
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusTeapot)
	if _, _, err := ctl.Hijack(); err == nil {
		allowed = append(allowed, "a late Hijack gives no error")
	}
	return allowed
}
