package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/h1"
)

// prepareStd makes the net/http server: the engine std, and the one that serves HTTP/2 for the
// others.
func (s *Server) prepareStd() {
	s.places = make(places, s.cfg.MaxConns)
	c := &s.cfg
	handler := c.Handler
	if c.Lean != nil {
		handler = leanOnStd{c.Lean, c.MaxBodyBytes}
	}
	if c.MaxBodyBytes > 0 && c.Lean == nil && handler != nil {
		handler = limited{handler, c.MaxBodyBytes}
	}
	if handler == nil {
		handler = http.NotFoundHandler()
	}
	s.cfg.Handler = handler
	s.std = &http.Server{
		Handler:           counted{s, handler},
		ReadTimeout:       c.ReadTimeout,
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		WriteTimeout:      c.WriteTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		TLSConfig:         c.TLS,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),

		DisableGeneralOptionsHandler: c.Lean != nil,

		BaseContext: s.baseContext,
		ConnContext: c.ConnContext,
		ConnState:   s.stdState,
	}
}

// baseContext is the context of the connections of a listener.
func (s *Server) baseContext(ln net.Listener) context.Context {
	if f := s.cfg.BaseContext; f != nil {
		ctx := f(ln)
		if ctx == nil {
			panic("server: BaseContext returned nil")
		}
		return ctx
	}
	return context.Background()
}

// stdState counts the connections of engine std, and tells of them and of those that were handed to
// it, which are told to be new already.
func (s *Server) stdState(c net.Conn, state http.ConnState) {
	if s.choice.Engine == Std {
		switch state {
		case http.StateNew:
			s.counts[0].accepted.Add(1)
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
			s.places.leave()
		}
	} else if state == http.StateNew {
		return
	}
	if f := s.cfg.ConnState; f != nil {
		f(c, state)
	}
}

// counted counts what net/http answers.
type counted struct {
	s    *Server
	next http.Handler
}

func (c counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	defer func() {
		c.s.counts[0].answered.Add(1)
		if !h1.IsEventStream(w.Header().Get("Content-Type")) {
			c.s.counts[0].latency.record(time.Since(began), 1)
		}
	}()
	c.next.ServeHTTP(w, r)
}

// limited refuses bodies that are too large.
type limited struct {
	next http.Handler
	max  int64
}

func (l limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > l.max {
		w.Header().Set("Connection", "close")
		http.Error(w, "413 Request Entity Too Large: body too large", http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, l.max)
	l.next.ServeHTTP(w, r)
}

func (s *Server) serveStd(ln net.Listener) error {
	ln = limitedListener{ln, s}
	if s.cfg.Conn != nil {
		if s.cfg.TLS != nil {
			ln = tls.NewListener(ln, s.cfg.TLS)
		}
		return s.serveStdConns(ln)
	}
	if s.cfg.TLS != nil {
		return s.std.ServeTLS(ln, "", "")
	}
	return s.std.Serve(ln)
}

// places are those of MaxConns that are taken. The connections themselves stay what package net
// made them, which handlers may ask for.
type places chan struct{}

func (p places) leave() { <-p }

// limitedListener accepts when there is a place.
type limitedListener struct {
	net.Listener
	s *Server
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	select {
	case l.s.places <- struct{}{}:
	case <-l.s.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		l.s.places.leave()
	}
	return c, err
}

func (s *Server) shutdownStd(ctx context.Context) error {
	s.stopping()
	if s.cfg.Conn == nil {
		err := s.std.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, s.std.Close())
		}
		s.cancel()
		return err
	}
	s.cancel()
	return s.tcp.wait(ctx)
}

func (s *Server) closeStd() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.std.Close()
	if e := s.shutdownStd(ctx); !errors.Is(e, context.Canceled) {
		err = errors.Join(err, e)
	}
	return err
}

// serveStdConns serves TCP by a goroutine for each connection.
func (s *Server) serveStdConns(ln net.Listener) error {
	for delay := time.Millisecond; ; {
		c, err := ln.Accept()
		if err != nil {
			if s.stopped.Load() {
				return ErrClosed
			}
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
				errors.Is(err, syscall.ECONNABORTED) {
				s.log.Warn("no connection can be accepted for the moment", "error", err)
				select {
				case <-time.After(delay):
				case <-s.done:
				}
				delay = min(2*delay, time.Second)
				continue
			}
			return err
		}
		delay = time.Millisecond
		s.counts[0].accepted.Add(1)
		s.open.Add(1)
		if !s.tcp.add(c) {
			_ = c.Close()
			s.open.Add(-1)
			s.places.leave()
			continue
		}
		go func() {
			defer s.places.leave()
			defer s.open.Add(-1)
			defer s.tcp.done(c)
			s.serveTCP(c)
		}()
	}
}

// serveTCP runs the handler of a TCP connection. A panic ends the connection and nothing else.
func (s *Server) serveTCP(c net.Conn) {
	returned := false
	defer func() {
		if !returned {
			if p := recover(); p != nil {
				s.log.Error("a handler of a connection panicked", "from", c.RemoteAddr(), "panic", p, "stack",
					string(debug.Stack()))
			}
		}
		_ = c.Close()
	}()
	s.cfg.Conn(s.ctx, c)
	returned = true
}

// openConns are the connections of handlers, to be closed at the end.
type openConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
	empty chan struct{}
}

func (o *openConns) add(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	if o.conns == nil {
		o.conns = map[net.Conn]struct{}{}
	}
	o.conns[c] = struct{}{}
	return true
}

func (o *openConns) done(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
	if len(o.conns) == 0 && o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
}

// wait waits for the handlers, and closes what is left when ctx ends.
func (o *openConns) wait(ctx context.Context) error {
	o.mu.Lock()
	o.ended = true
	if len(o.conns) == 0 {
		o.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	o.empty = empty
	o.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	o.mu.Lock()
	for c := range o.conns {
		_ = c.Close()
	}
	o.mu.Unlock()
	return ctx.Err()
}
