package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

const halfSize = 40_000

// late is a handler that ends its side, waits until the client has sent all and has ended its side,
// too, and reads only then.
type late struct {
	t    *testing.T
	sent chan bool  // the client has done
	read chan error // what the handler found
	c    chan int   // … in so many bytes
}

func newLate(t *testing.T) *late {
	return &late{t: t, sent: make(chan bool), read: make(chan error, 1), c: make(chan int, 1)}
}

func (l *late) serve(c net.Conn) {
	cw, ok := c.(interface{ CloseWrite() error })
	if !ok {
		l.t.Errorf("%T has no CloseWrite", c)
		return
	}
	if err := cw.CloseWrite(); err != nil {
		l.t.Errorf("CloseWrite: %v", err)
	}
	<-l.sent // it holds the loop up in mode coroutine, which is rude, and no reason to lose a byte
	s, b, n := newStream(1), make([]byte, 1500), 0
	for {
		m, err := c.Read(b)
		if e := s.check(b[:m], n); e != nil {
			err = e
		}
		if n += m; err != nil {
			l.c <- n
			l.read <- err
			return
		}
	}
}

// check sends, ends the client's side, and looks at what the handler got. probe passes through the
// loop, which has then seen it all.
func (l *late) check(t *testing.T, c *net.TCPConn, probe func()) {
	t.Helper()
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 { // the handler's side has ended
		t.Errorf("the client read %q, %v", b, err)
	}
	if _, err := c.Write(newStream(1).block[:halfSize]); err != nil {
		t.Error(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	for range 3 {
		probe()
	}
	close(l.sent)
	if n, err := take(t, l.c, "the handler"), <-l.read; n != halfSize || err != io.EOF {
		t.Errorf("the handler read %d bytes of %d and then %v, want EOF", n, halfSize, err)
	}
}

// TestAHandlerThatHalfClosesReadsAllThatCame: bytes that came before the end of a stream are read
// before it, also when both sides have ended meanwhile.
func TestAHandlerThatHalfClosesReadsAllThatCame(t *testing.T) {
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		l, first := newLate(t), make(chan bool, 1)
		first <- true
		r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
			select {
			case <-first:
				l.serve(c)
			default:
				_, _ = io.Copy(c, c)
			}
		}})
		c := dial(t, r.addr)
		probe := func() {}
		if w.Mode == server.Goroutine {
			probe = func() { echoOnce(t, r.addr) }
		}
		l.check(t, c, probe)
	})
}

// echoOnce sends a byte to an echo and waits for it.
func echoOnce(t *testing.T, addr string) {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestATunnelThatHalfClosesReadsAllThatCame is the same for a connection that a handler has taken
// over.
func TestATunnelThatHalfClosesReadsAllThatCame(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		l := newLate(t)
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect {
				return
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			l.serve(c)
		})})
		c := dial(t, r.addr)
		if _, err := io.WriteString(c, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"); err != nil {
			t.Error(err)
		}
		l.check(t, c, func() { newClient(t, r.addr).want(t, "/", "") })
	})
}

// TestAClientThatHalfClosesGetsAll: a client that has ended its side gets everything that a handler
// still writes, which reads late.
func TestAClientThatHalfClosesGetsAll(t *testing.T) {
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		sent := make(chan bool)
		r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
			<-sent
			b, err := io.ReadAll(c)
			if err != nil {
				t.Errorf("the handler read %d bytes and then %v", len(b), err)
			}
			for len(b) > 0 {
				n, err := c.Write(b[:min(len(b), 1500)])
				if err != nil {
					t.Errorf("Write: %v", err)
					return
				}
				b = b[n:]
			}
		}})
		c, s := dial(t, r.addr), newStream(2)
		if _, err := c.Write(s.block[:halfSize]); err != nil {
			t.Error(err)
		}
		_ = c.CloseWrite()
		close(sent)
		b, err := io.ReadAll(c)
		if err == nil {
			err = s.check(b, 0)
		}
		if err != nil || len(b) != halfSize {
			t.Errorf("the client got %d bytes of %d, %v", len(b), halfSize, err)
		}
	})
}
