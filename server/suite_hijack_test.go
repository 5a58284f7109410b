package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// hijackHandler takes the connection over; an error is the test's.
func hijackHandler(t testing.TB, w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		panic(http.ErrAbortHandler)
	}
	return c, rw
}

const upgrade = "GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: test\n\n"

// TestSuiteHijack talks on a connection that a handler took over, with input that came with the
// request. In coroutine mode this takes a request with Upgrade.
func TestSuiteHijack(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, rw := hijackHandler(t, w)
			defer c.Close()
			line, err := rw.ReadString('\n')
			fmt.Fprintf(rw, "first %q %v\n", line, err)
			_ = rw.Flush()
			line, err = rw.ReadString('\n')
			fmt.Fprintf(c, "second %q %v", line, err)
		})
		for _, early := range []string{"", "one\n", "one\ntwo\n"} {
			c := s.dial(t)
			c.send(upgrade + early)
			if early == "" {
				c.send("one\n")
			}
			if line, err := c.r.ReadString('\n'); line != "first \"one\\r\\n\" <nil>\n" {
				t.Errorf("%q: the handler said %q, %v", early, line, err)
			}
			if early != "one\ntwo\n" {
				c.send("two\n")
			}
			if got := c.rest(t); got != `second "two\r\n" <nil>` {
				t.Errorf("%q: the handler said %q", early, got)
			}
		}
	})
}

// TestSuiteHijackedConn says what the connection can do: it is a *net.TCPConn, or has its methods
// that proxies and tunnels look for.
func TestSuiteHijackedConn(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, _ := hijackHandler(t, w)
			defer c.Close()
			for name, ok := range map[string]bool{
				"CloseRead":   is[interface{ CloseRead() error }](c),
				"CloseWrite":  is[interface{ CloseWrite() error }](c),
				"io.ReadFrom": is[io.ReaderFrom](c),
			} {
				if !ok {
					t.Errorf("%T lacks %s", c, name)
				}
			}
			if c.RemoteAddr().String() != r.RemoteAddr || c.LocalAddr() == nil {
				t.Errorf("addresses are %v and %v, want %v", c.LocalAddr(), c.RemoteAddr(), r.RemoteAddr)
			}
		})
		c := s.dial(t)
		c.send(upgrade)
		c.rest(t)
	})
}

// TestSuiteHijackedIsTCPConn asks for the very type, which is what callers of SetNoDelay,
// SyscallConn or splice assert.
func TestSuiteHijackedIsTCPConn(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, _ := hijackHandler(t, w)
			defer c.Close()
			if !is[*net.TCPConn](c) {
				t.Errorf("the connection is a %T, want *net.TCPConn", c)
			}
		})
		c := s.dial(t)
		c.send(upgrade)
		c.rest(t)
	})
}

// TestSuiteHijackCloseWrite ends one side, and reads on.
func TestSuiteHijackCloseWrite(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		heard := make(chan string, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, rw := hijackHandler(t, w)
			defer c.Close()
			_, _ = io.WriteString(c, "bye")
			cw, ok := c.(interface{ CloseWrite() error })
			if !ok {
				heard <- fmt.Sprintf("%T lacks CloseWrite", c)
				return
			}
			if err := cw.CloseWrite(); err != nil {
				t.Errorf("CloseWrite: %v", err)
			}
			b, err := io.ReadAll(rw)
			heard <- fmt.Sprint(len(b), err)
		})
		c := s.dial(t)
		c.send(upgrade)
		if got := c.rest(t); got != "bye" {
			t.Errorf("the client got %q", got)
		}
		_, _ = c.Write(make([]byte, 40_000))
		_ = c.CloseWrite()
		if got := take(t, heard, "the end of the input"); got != "40000 <nil>" {
			t.Errorf("after CloseWrite the handler heard %s", got)
		}
	})
}

// TestSuiteHijackReadFrom copies from one hijacked connection to another, both ways, as proxies do.
func TestSuiteHijackReadFrom(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const size = 1 << 20
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, rw := hijackHandler(t, w)
			defer c.Close()
			n, err := io.Copy(c, io.LimitReader(rw, size))
			if n != size || err != nil {
				t.Errorf("%d bytes were copied, %v", n, err)
			}
		})
		c := s.dial(t)
		c.send(upgrade)
		go func() { _, _ = c.Write(make([]byte, size)) }()
		if got := c.rest(t); len(got) != size {
			t.Errorf("%d bytes came back of %d", len(got), size)
		}
	})
}

// TestSuiteHijackDeadlines lets a deadline of the server go, and keeps those that the handler sets.
func TestSuiteHijackDeadlines(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		said := make(chan error, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, _ := hijackHandler(t, w)
			defer c.Close()
			said <- func() error {
				b := make([]byte, 10)
				for range 2 {
					_ = c.SetDeadline(time.Now().Add(10 * time.Millisecond))
					if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
						return fmt.Errorf("a read gives %w, want a deadline", err)
					}
					if _, err := c.Write(b); !errors.Is(err, os.ErrDeadlineExceeded) {
						return fmt.Errorf("a write gives %w, want a deadline", err)
					}
				}
				_ = c.SetDeadline(time.Time{})
				if _, err := c.Write([]byte("on")); err != nil {
					return err
				}
				_, err := io.ReadFull(c, b[:2])
				return err
			}()
		})
		c := s.dial(t)
		c.send(upgrade)
		b := make([]byte, 2)
		if _, err := io.ReadFull(c.r, b); err != nil || string(b) != "on" {
			t.Errorf("the client got %q, %v", b, err)
		}
		c.send("ok")
		if err := take(t, said, "the end of the handler"); err != nil {
			t.Error(err)
		}
	})
}

// TestSuiteAfterHijack uses the ResponseWriter after it gave its connection away.
func TestSuiteAfterHijack(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, _ := hijackHandler(t, w)
			defer c.Close()
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("Write gives %v", err)
			}
			if _, err := w.Write(nil); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("Write of nothing gives %v", err)
			}
			w.WriteHeader(500)
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("the second Hijack gives %v", err)
			}
			_, _ = io.WriteString(c, "mine")
		})
		c := s.dial(t)
		c.send(upgrade)
		if got := c.rest(t); got != "mine" {
			t.Errorf("the client got %q", got)
		}
		if log := s.log.String(); !strings.Contains(log, "suite_hijack_test.go:") {
			t.Errorf("the log does not name the line of the handler that wrote after Hijack: %s", log)
		}
	})
}

// TestSuiteHijackAfterFlush takes over after a part of an answer has gone out.
func TestSuiteHijackAfterFlush(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "6")
			_, _ = io.WriteString(w, "Hello,")
			flush(w)
			c, _ := hijackHandler(t, w)
			defer c.Close()
			_, _ = io.WriteString(c, " world")
		})
		c := s.dial(t)
		c.send(upgrade)
		if got := c.rest(t); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") ||
			!strings.HasSuffix(got, "\r\n\r\nHello, world") {
			t.Errorf("the client got %q", got)
		}
	})
}

// TestSuiteHijackWithBody takes over with a body that was read, in part, or not: the rest is input
// of the connection.
func TestSuiteHijackWithBody(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		said := make(chan string, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			var body []byte
			if r.URL.Path == "/read" {
				body, _ = io.ReadAll(r.Body)
			}
			c, rw := hijackHandler(t, w)
			defer c.Close()
			rest, err := io.ReadAll(rw)
			said <- fmt.Sprintf("%s+%s %v", body, rest, err)
		})
		for path, want := range map[string]string{"/read": "body+rest <nil>", "/unread": "+bodyrest <nil>"} {
			c := s.dial(t)
			c.send("POST " + path +
				" HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: test\nContent-Length: 4\n\nbodyrest")
			_ = c.CloseWrite()
			if got := take(t, said, "the end of the input"); got != want {
				t.Errorf("%s: the handler heard %q, want %q", path, got, want)
			}
		}
	})
}

// TestSuiteHijackInTheMiddleOfABody: what of a body was fetched for small reads, and not read, goes
// with the connection, before what comes behind it.
func TestSuiteHijackInTheMiddleOfABody(t *testing.T) {
	const size, piece = 300_000, 100
	everywhere(t, func(t *testing.T, p place) {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7 / 5)
		}
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			got := make([]byte, size)
			for n := range 150 {
				if _, err := io.ReadFull(r.Body, got[n*piece:][:piece]); err != nil {
					t.Error(err)
				}
			}
			c, rw := hijackHandler(t, w)
			defer c.Close()
			if _, err := io.ReadFull(rw, got[150*piece:]); err != nil {
				t.Error(err)
			}
			fmt.Fprintf(c, "same: %v", bytes.Equal(got, body))
		})
		c := s.dial(t)
		c.send(fmt.Sprintf("POST / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: test\nContent-Length: %d\n\n",
			size))
		if _, err := c.Write(body); err != nil {
			t.Fatal(err)
		}
		if got := c.rest(t); got != "same: true" {
			t.Errorf("the handler said %q", got)
		}
	})
}

// TestSuiteHijackOutlives uses a connection after its handler has returned, and panics after a
// takeover, which must not close it for net/http does not either.
func TestSuiteHijackOutlives(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		taken := make(chan net.Conn, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			c, _ := hijackHandler(t, w)
			taken <- c
			if r.URL.Path == "/panic" {
				panic("as ordered")
			}
		})
		for _, path := range []string{"/", "/panic"} {
			c := s.dial(t)
			c.send("GET " + path + " HTTP/1.1\nHost: a\n\n")
			server := take(t, taken, "Hijack")
			if server == nil {
				return
			}
			if path == "/panic" {
				s.log.await(t, "as ordered")
			}
			if _, err := io.WriteString(server, "hello"); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			c.send("there")
			b := make([]byte, 5)
			if _, err := io.ReadFull(server, b); err != nil || string(b) != "there" {
				t.Errorf("%s: the server got %q, %v", path, b, err)
			}
			server.Close()
			if got := c.rest(t); got != "hello" {
				t.Errorf("%s: the client got %q", path, got)
			}
		}
	})
}

// TestSuiteSwitchingProtocols answers 101 by hand and through WriteHeader.
func TestSuiteSwitchingProtocols(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			set(w, "Connection", "Upgrade", "Upgrade", "test")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, _ := hijackHandler(t, w)
			defer c.Close()
			_, _ = io.WriteString(c, "switched")
		})
		c := s.dial(t)
		c.send(upgrade)
		r := c.reply(t, "GET")
		if got := r.String(); got != "HTTP/1.1 101 Switching Protocols; Connection: Upgrade; Upgrade: test | " {
			t.Errorf("the answer is %q", got)
		}
		if got := c.rest(t); got != "switched" {
			t.Errorf("behind it came %q", got)
		}
	})
}
