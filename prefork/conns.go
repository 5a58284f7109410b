package prefork

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// limited is a listener of which at most so many connections are open at a time.
type limited struct {
	net.Listener
	places chan struct{} // of the worker: all its listeners share them
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, places: l.places}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	places chan struct{}
	once   sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.places })
	return err
}

// countConns counts the connections of a server of package net/http, which tells of them.
func countConns(s *http.Server, open *atomic.Int64) {
	next := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
		if next != nil {
			next(c, state)
		}
	}
}
