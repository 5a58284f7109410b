package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// In mode coroutine a connection is its loop's: what another goroutine does to it is easily done
// behind the loop's back. Who stops a handler does so from another goroutine.

// handled serves connections by h, and gives each to another goroutine.
func handled(t *testing.T, w way, h func(c net.Conn)) (*running, <-chan net.Conn) {
	conns := make(chan net.Conn, 1)
	return serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
		conns <- c
		h(c)
	}}), conns
}

// TestCloseFromElsewhere: Close by another goroutine wakes a handler that waits for its client, to
// read and to write, with net.ErrClosed, and ends the connection; others of its loop go on.
func TestCloseFromElsewhere(t *testing.T) {
	for name, wait := range map[string]func(net.Conn) error{
		"reads": func(c net.Conn) error { _, err := c.Read(make([]byte, 10)); return err },
		"writes a little at a time": func(c net.Conn) (err error) {
			for b := make([]byte, 1000); err == nil; {
				_, err = c.Write(b)
			}
			return err
		},
		"writes much": func(c net.Conn) error { _, err := c.Write(make([]byte, 64<<20)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
				told := make(chan error, 1)
				r, conns := handled(t, w, func(c net.Conn) { told <- wait(c) })
				for range 20 {
					d := dial(t, r.addr)
					c := take(t, conns, "the connection")
					if name != "reads" {
						_, _ = io.ReadFull(d, make([]byte, 1)) // it writes
						var out uint64
						until(t, "the socket to be full", func() bool {
							before := out
							out = r.Stats().Out
							return out == before
						})
					}
					if err := c.Close(); err != nil {
						t.Errorf("Close gives %v", err)
					}
					if err := c.Close(); !errors.Is(err, net.ErrClosed) {
						t.Errorf("the second Close gives %v, want %v", err, net.ErrClosed)
					}
					if err := take(t, told, "the end of the handler"); !errors.Is(err, net.ErrClosed) {
						t.Errorf("the handler is told %v, want %v", err, net.ErrClosed)
					}
					_, _ = io.Copy(io.Discard, d)
					d.Close()
				}
				until(t, "the end of the connections", func() bool { return r.Stats().Open == 0 })
			})
		})
	}
}

// TestDeadlinesFromElsewhere: a deadline that another goroutine sets wakes a handler that waits.
func TestDeadlinesFromElsewhere(t *testing.T) {
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		told := make(chan error, 1)
		r, conns := handled(t, w, func(c net.Conn) {
			_, err := c.Read(make([]byte, 10))
			told <- err
			_, err = c.Write(make([]byte, 64<<20))
			told <- err
		})
		for range 20 {
			dial(t, r.addr)
			c := take(t, conns, "the connection")
			for _, set := range []func(time.Time) error{c.SetReadDeadline, c.SetWriteDeadline} {
				if err := set(time.Now().Add(5 * time.Millisecond)); err != nil {
					t.Error(err)
				}
				if err := take(t, told, "the deadline"); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the handler is told %v, want %v", err, os.ErrDeadlineExceeded)
				}
			}
		}
	})
}

// TestWritesFromElsewhere: while a handler waits in mode coroutine, another goroutine is refused,
// and the connection is as before.
func TestWritesFromElsewhere(t *testing.T) {
	eachWay(t, ways(t, ofConn, server.Coroutine), func(t *testing.T, w way) {
		r, conns := handled(t, w, func(c net.Conn) { _, _ = io.Copy(c, c) })
		d := dial(t, r.addr)
		c := take(t, conns, "the connection")
		echo := func(text string) {
			_, _ = io.WriteString(d, text)
			b := make([]byte, len(text))
			if _, err := io.ReadFull(d, b); err != nil || string(b) != text {
				t.Errorf("the echo is %q, %v", b, err)
			}
		}
		echo("before") // the loop has sent it: the handler waits
		for what, try := range map[string]func() error{
			"Write":       func() error { _, err := c.Write([]byte("x")); return err },
			"large Write": func() error { _, err := c.Write(make([]byte, 1<<20)); return err },
			"Read":        func() error { _, err := c.Read(make([]byte, 1)); return err },
			"CloseWrite":  func() error { return c.(interface{ CloseWrite() error }).CloseWrite() },
		} {
			if err := try(); !errors.Is(err, server.ErrElsewhere) {
				t.Errorf("%s gives %v, want %v", what, err, server.ErrElsewhere)
			}
		}
		echo("after")
	})
}

// TestCloseOfWhatAHookWasGiven: who has a connection from Config.ConnState may close it, whatever
// has become of it since.
func TestCloseOfWhatAHookWasGiven(t *testing.T) {
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		conns, told := make(chan net.Conn, 1), make(chan error, 1)
		r := serve(t, w, server.Config{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				told <- err
			}),
			ConnState: func(c net.Conn, s http.ConnState) {
				if s == http.StateActive {
					conns <- c
				}
			},
		})
		for what, head := range map[string]string{
			"idle":     "",
			"waits":    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
			"promoted": "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 9\r\n\r\nhalf",
		} {
			d := newClient(t, r.addr)
			if what == "idle" {
				d.want(t, "/", "")
				take(t, told, "the request")
			}
			_, _ = io.WriteString(d, head)
			c := take(t, conns, "the connection")
			if err := c.Close(); err != nil {
				t.Errorf("%s: Close gives %v", what, err)
			}
			if what != "idle" {
				if err := take(t, told, "the end of the handler"); err == nil {
					t.Errorf("%s: the handler got the whole body", what)
				}
			}
			_, _ = io.Copy(io.Discard, d)
		}
		until(t, "the end of the connections", func() bool { return r.Stats().Open == 0 })
	})
}
