package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

const handshakeFor = 10 * time.Second // where no time-out of the configuration says otherwise

// handed is a listener whose connections are handed to it: those that speak HTTP/2.
type handed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newHanded(addr net.Addr) *handed {
	return &handed{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// Accept implements net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handed) Addr() net.Addr { return h.addr }

func (h *handed) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// tlsConfig is the configuration with the protocols that we speak.
func (s *Server) tlsConfig() *tls.Config {
	c := s.cfg.TLS.Clone()
	if len(c.NextProtos) == 0 && s.cfg.Conn == nil {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	return c
}

// startH2 serves HTTP/2 by net/http on the connections that are handed to it, unless the server has
// been ended meanwhile: whoever did that has looked for what is to be ended already.
func (s *Server) startH2(addr net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.TLS == nil || s.tlsReady != nil || s.stopped.Load() {
		return
	}
	s.tlsReady = s.tlsConfig()
	if s.cfg.Conn != nil {
		return
	}
	s.h2 = newHanded(addr)
	s.std.TLSConfig = s.tlsReady
	go func() { _ = s.std.Serve(s.h2) }() // the connections are TLS already
}

func (s *Server) stopH2(ctx context.Context) error {
	s.mu.Lock()
	none := s.h2 == nil
	s.mu.Unlock()
	if none {
		return nil
	}
	err := s.std.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.std.Close())
	}
	return err
}

// handshake shakes hands with the client of c, which t is the TLS of.
func (s *Server) handshake(c net.Conn, t *tls.Conn) error {
	patience := handshakeFor
	if d := s.cfg.ReadHeaderTimeout; d > 0 {
		patience = d
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := t.HandshakeContext(s.ctx); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Time{})
	return nil
}

func speaksH2(t *tls.Conn) bool { return t.ConnectionState().NegotiatedProtocol == "h2" }
