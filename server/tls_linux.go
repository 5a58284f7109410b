package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/h1"
	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// serveTLS is the life of a TLS connection.
func (s *Server) serveTLS(g *loop.GoConn) {
	g.AwaitHead(true) // a client that never ends the handshake is one that never ends a head
	w := &wire{GoConn: g}
	t := tls.Server(w, s.tlsReady)
	s.tell(t, http.StateNew)
	err := s.handshake(g, t)
	g.AwaitHead(false)
	if err != nil {
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
			_, _ = io.WriteString(g,
				"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
			_ = g.End(true)
		}
		s.log.Warn("a TLS handshake failed", "from", g.RemoteAddr(), "error", err)
		_ = g.Close()
		s.tell(t, http.StateClosed)
		return
	}
	switch {
	case s.cfg.Conn != nil:
		s.serveTCP(t)
	case speaksH2(t):
		g.TakeOver() // net/http ends it, and tells of it from now on
		if !s.h2.give(t) {
			_ = t.Close()
			s.tell(t, http.StateClosed)
		}
	default:
		sess := h1.NewSession(&s.http, newTLSStream(s, t, w))
		state := t.ConnectionState()
		sess.Secure = func(r *http.Request) { r.TLS = &state }
		s.attend(sess, t, g.Origin())
		s.serveSession(sess)
	}
}

// looksLikeHTTP reports whether the first five bytes of a connection are those of an HTTP request.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

// wire is a connection as TLS sees it.
type wire struct {
	*loop.GoConn
	look func() // not nil: Read does not wait, and has look called when there is more
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	if w.look != nil {
		return w.ReadNow(b, w.look)
	}
	return w.GoConn.Read(b)
}

// tlsStream is a session's connection with TLS between.
//
// A client that leaves says so by a record of TLS, which only TLS can tell from a request. So
// somebody must read on behind a request, while its handler runs: look does, each time that
// something has come. It never waits, so nobody has to get it out of the way.
type tlsStream struct {
	*tls.Conn
	under *wire
	s     *Server
	idle  bool
	left  func() // OnGone's
	again func() // look, made once

	mu    sync.Mutex // guards what follows, and under.look; held while look reads
	looks bool       // look may read: a request was read to its end, and nobody reads the next
	one   [1]byte    // what it has read of that …
	next  []byte     // … in one
}

func newTLSStream(s *Server, t *tls.Conn, under *wire) *tlsStream {
	stream := &tlsStream{Conn: t, under: under, s: s}
	stream.again = stream.look
	return stream
}

// WaitInput cannot tell what TLS has buffered: Read waits instead.
func (t *tlsStream) WaitInput() (bool, error) {
	t.idle = true
	t.under.SetIdle(true)
	return true, nil
}

// Read implements net.Conn.
func (t *tlsStream) Read(b []byte) (n int, err error) {
	if next := t.lookNoMore(); len(next) > 0 {
		n = copy(b, next) // it fits: sessions never read into an empty slice
	} else {
		n, err = t.Conn.Read(b)
	}
	if t.idle {
		t.idle = false
		t.under.SetIdle(false)
	}
	return n, err
}

// look reads what has come behind a request, and tells if the client has left.
func (t *tlsStream) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.looks {
		t.lookOn()
	}
}

// lookOn is look with t.mu held.
func (t *tlsStream) lookOn() {
	t.under.look = t.again
	n, err := t.Conn.Read(t.one[:])
	t.under.look = nil
	if err == os.ErrDeadlineExceeded { // nothing yet
		return
	}
	t.looks, t.next = false, t.one[:n]
	if err != nil {
		t.left()
	}
}

// lookNoMore keeps look from reading, and returns what it has read.
func (t *tlsStream) lookNoMore() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.next
	t.looks, t.next = false, nil
	return next
}

// BodyRead implements h1.Stream. The client's goodbye may have come with the request.
func (t *tlsStream) BodyRead() {
	t.under.BodyRead()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.looks = len(t.next) == 0; t.looks {
		t.lookOn()
	}
}

// OnGone implements h1.Stream. f may be called twice.
func (t *tlsStream) OnGone(f func()) {
	t.left = f
	t.under.OnGone(f)
}

// ReadPart implements h1.Stream. TLS has buffers of its own.
func (t *tlsStream) ReadPart(b []byte, _ int64) (int, error) { return t.Read(b) }

func (t *tlsStream) AwaitHead(on bool)                   { t.under.AwaitHead(on) }
func (t *tlsStream) Draining() bool                      { return t.under.Draining() }
func (t *tlsStream) Came() int64                         { return t.under.Came() }
func (t *tlsStream) Count(came int64, n int, timed bool) { t.s.count(t.under.Loop(), came, n, timed) }

// WriteLast implements h1.Stream: TLS has a goodbye of its own.
func (t *tlsStream) WriteLast(b []byte) (int, error) { return t.Write(b) }

// WriteMore implements h1.Stream: there is no SendFile.
func (t *tlsStream) WriteMore(b []byte) (int, error) { return t.Write(b) }

// WriteAll implements h1.Stream.
func (t *tlsStream) WriteAll(bufs net.Buffers) error {
	for _, b := range bufs {
		if _, err := t.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// SendFile implements h1.Stream: TLS must see the bytes.
func (t *tlsStream) SendFile(*os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

// Hijack implements h1.Stream: the handler gets the TLS connection.
func (t *tlsStream) Hijack() (net.Conn, []byte, error) {
	t.under.TakeOver()
	return t.Conn, t.lookNoMore(), nil
}

// End implements h1.Stream.
func (t *tlsStream) End(linger bool) error {
	_ = t.under.SetWriteDeadline(time.Now().Add(loop.LingerFor)) // for the goodbye of TLS
	_ = t.Conn.CloseWrite()
	return t.under.End(linger)
}
