package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// gathered is a client's connection that may hold back what is written to it.
type gathered struct {
	*net.TCPConn
	holds bool
	held  bytes.Buffer
}

// Write implements net.Conn.
func (g *gathered) Write(b []byte) (int, error) {
	if g.holds {
		return g.held.Write(b)
	}
	return g.TCPConn.Write(b)
}

// SetWriteDeadline implements net.Conn. TLS sets one that has passed behind its goodbye.
func (g *gathered) SetWriteDeadline(time.Time) error { return nil }

// let sends n bytes of what is held back.
func (g *gathered) let(t testing.TB, n int) {
	t.Helper()
	if _, err := g.TCPConn.Write(g.held.Next(n)); err != nil {
		t.Error(err)
	}
}

// secretly dials a server of TLS, and has shaken hands.
func (s *site) secretly(t testing.TB, trust *tls.Config) (*tls.Conn, *gathered) {
	t.Helper()
	g := &gathered{TCPConn: s.dial(t).TCPConn}
	c := tls.Client(g, trust)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c, g
}

// versions are a client's configurations for each version of TLS.
func versions(trust *tls.Config) []*tls.Config {
	old := trust.Clone()
	old.MaxVersion = tls.VersionTLS12
	return []*tls.Config{trust, old}
}

// awaitsLeaving is a handler that waits for the end of its request's context, and says how that
// came.
func awaitsLeaving(began chan<- struct{}, ended chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		select {
		case <-r.Context().Done():
			ended <- r.Context().Err()
		case <-time.After(suitePatience):
			ended <- errors.New("it was not cancelled")
		}
	}
}

// TestSuiteTLSContextEndsWithClient: a client that leaves by the goodbye of TLS, with the end of
// its side behind it or without, has left.
func TestSuiteTLSContextEndsWithClient(t *testing.T) {
	leave := map[string]func(*tls.Conn, *gathered){
		"close":   func(c *tls.Conn, _ *gathered) { _ = c.Close() },
		"goodbye": func(c *tls.Conn, _ *gathered) { _ = c.CloseWrite() },
		"end":     func(_ *tls.Conn, g *gathered) { _ = g.CloseWrite() },
		"reset":   func(_ *tls.Conn, g *gathered) { _ = g.SetLinger(0); _ = g.Close() },
		"nonsense": func(_ *tls.Conn, g *gathered) {
			_, _ = g.TCPConn.Write([]byte("\x17\x03\x03\x00\x20 this is no record of this client"))
		},
	}
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		began, ended := make(chan struct{}, 1), make(chan error, 1)
		s := open(t, p, awaitsLeaving(began, ended), tune)
		for _, trust := range versions(trust) {
			for how, leave := range leave {
				for _, send := range []string{
					"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
					"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
					"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
				} {
					c, g := s.secretly(t, trust)
					_, _ = io.WriteString(c, send)
					take(t, began, "the request")
					leave(c, g)
					if err := take(t, ended, "the end of the handler"); !errors.Is(err, context.Canceled) {
						t.Errorf("%.20q, TLS up to %x, %s: %v", send, trust.MaxVersion, how, err)
					}
					_ = g.Close()
				}
			}
		}
	})
}

// TestSuiteTLSGoodbyeWithRequest: the goodbye may come in one piece with the request, or in two.
func TestSuiteTLSGoodbyeWithRequest(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		began, ended := make(chan struct{}, 1), make(chan error, 1)
		s := open(t, p, awaitsLeaving(began, ended), tune)
		for _, trust := range versions(trust) {
			for _, late := range []int{0, 1, 7} { // bytes of the goodbye
				if late > 0 && trust.MaxVersion == tls.VersionTLS12 {
					break // crypto/tls waits for all of it before it hands the request over
				}
				c, g := s.secretly(t, trust)
				g.holds = true
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				_ = c.CloseWrite()
				g.let(t, g.held.Len()-late)
				take(t, began, "the request")
				if late > 0 {
					select {
					case err := <-ended:
						t.Errorf("without %d bytes of the goodbye: %v", late, err)
					case <-time.After(10 * time.Millisecond):
					}
					g.let(t, late)
				}
				if err := take(t, ended, "the end of the handler"); !errors.Is(err, context.Canceled) {
					t.Errorf("%d bytes late, TLS up to %x: %v", late, trust.MaxVersion, err)
				}
				_ = g.Close()
			}
		}
	})
}

// TestSuiteTLSContextOfPipelined: what comes behind a request while its handler runs, whole or in
// part, is no goodbye, and is answered.
func TestSuiteTLSContextOfPipelined(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			began <- struct{}{}
			<-goOn
			if err = errors.Join(err, r.Context().Err()); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(append(b, r.URL.Path...))
		}, tune)
		for _, trust := range versions(trust) {
			for _, late := range []int{0, 1, 60, 140} { // bytes of what comes meanwhile that come behind the answer
				c, g := s.secretly(t, trust)
				_, _ = io.WriteString(c, "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
				take(t, began, "the request")
				g.holds = true
				for i := range 3 {
					_, _ = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i+2)
				}
				g.let(t, g.held.Len()-late)
				goOn <- struct{}{}
				br := bufio.NewReader(c)
				for i, want := range []string{"body/1", "/2", "/3", "/4"} {
					if i > 0 {
						take(t, began, "the next request")
						goOn <- struct{}{}
					}
					if r, err := readReply(br, "GET"); err != nil || r.body != want {
						t.Errorf("%d bytes late: answer %d is %v, %v", late, i, r, err)
					}
					if i == 0 {
						g.let(t, late)
					}
				}
				_ = c.Close()
			}
		}
	})
}

// TestSuiteTLSUpgradeWithMore: what has come behind a request that takes the connection over,
// before it does, is the connection's.
func TestSuiteTLSUpgradeWithMore(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			<-goOn
			c, rw := hijackHandler(t, w)
			defer c.Close()
			for range 2 {
				line, _ := rw.ReadString('\n')
				fmt.Fprint(c, line)
			}
		}, tune)
		for _, trust := range versions(trust) {
			c, _ := s.secretly(t, trust)
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			take(t, began, "the request")
			fmt.Fprint(c, "hel")
			fmt.Fprint(c, "lo\n")
			goOn <- struct{}{}
			fmt.Fprint(c, "world\n")
			if b, err := io.ReadAll(c); string(b) != "hello\nworld\n" || err != nil {
				t.Errorf("the connection that was taken over said %q, %v", b, err)
			}
			_ = c.Close()
		}
	})
}

// TestSuiteTLSContextEndsLate: a client may leave when the time for its request has long passed.
func TestSuiteTLSContextEndsLate(t *testing.T) {
	const limit = time.Second
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		s := open(t, p, nil, tune, func(c *server.Config) { c.ReadTimeout = limit })
		var c *tls.Conn
		var ended chan error
		inTime(t, limit, func() error {
			began := make(chan struct{}, 1)
			ended = make(chan error, 1)
			s.set(awaitsLeaving(began, ended))
			c, _ = s.secretly(t, trust)
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			select {
			case <-began:
				return nil
			case <-time.After(2 * limit):
				return errors.New("the request is not answered")
			}
		})
		time.Sleep(limit * 5 / 4) // past the deadline
		_ = c.Close()
		if err := take(t, ended, "the end of the handler"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestSuiteContextOfUpgradeEndsWithClient: so does that of a request which asks for an upgrade, and
// is answered on a goroutine in each mode, though nobody takes the connection over.
func TestSuiteContextOfUpgradeEndsWithClient(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		began, ended := make(chan struct{}, 1), make(chan error, 1)
		s := open(t, p, awaitsLeaving(began, ended))
		for _, reset := range []bool{false, true} {
			c := s.dial(t)
			c.send("GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: x\n\n")
			take(t, began, "the request")
			if reset {
				_ = c.SetLinger(0)
			}
			c.Close()
			if err := take(t, ended, "the end of the handler"); !errors.Is(err, context.Canceled) {
				t.Errorf("reset %v: %v", reset, err)
			}
		}
	})
}
