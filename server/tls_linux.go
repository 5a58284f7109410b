package server

import (
	"crypto/tls"
	"net/http"
	"time"
)

// serveTLS is the life of a TLS connection.
func (s *Server) serveTLS(g *goConn) {
	t, err := s.handshake(g)
	if err != nil {
		s.log.Debug("a TLS handshake failed", "from", g.RemoteAddr(), "error", err)
		_ = g.Close()
		return
	}
	switch {
	case s.cfg.Conn != nil:
		defer t.Close()
		s.cfg.Conn(s.ctx, t)
	case speaksH2(t):
		g.takeOver() // net/http ends it
		if !s.h2.give(t) {
			_ = t.Close()
		}
	default:
		sess := newSession(s, &tlsStream{Conn: t, under: g})
		state := t.ConnectionState()
		sess.secure = func(r *http.Request) { r.TLS = &state }
		s.serveSession(sess, g)
	}
}

// tlsStream is a session's connection with TLS between.
type tlsStream struct {
	*tls.Conn
	under *goConn
	idle  bool
}

// waitInput cannot tell what TLS has buffered: Read waits instead.
func (t *tlsStream) waitInput() error {
	t.idle = true
	t.under.setIdle(true)
	return nil
}

// Read implements net.Conn.
func (t *tlsStream) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if t.idle {
		t.idle = false
		t.under.setIdle(false)
	}
	return n, err
}

func (t *tlsStream) onGone(f func())   { t.under.onGone(f) }
func (t *tlsStream) draining() bool    { return t.under.draining() }
func (t *tlsStream) takeOver()         { t.under.takeOver() }
func (t *tlsStream) came() int64       { return t.under.came() }
func (t *tlsStream) count(began int64) { t.under.count(began) }

func (t *tlsStream) end(linger bool) error {
	_ = t.under.SetWriteDeadline(time.Now().Add(lingerFor)) // for the goodbye of TLS
	_ = t.Conn.CloseWrite()
	return t.under.end(linger)
}

// setIdle says whether the connection is between requests, and may be ended with the server.
func (g *goConn) setIdle(idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = idle
	if idle && g.duck.Load() {
		g.leaveSoon()
	}
}
