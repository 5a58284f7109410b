package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
)

// prepareStd makes the net/http server: the engine std, and the one that serves HTTP/2 for the others.
func (s *Server) prepareStd() {
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

		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
	if s.choice.Engine == Std {
		s.std.ConnState = s.stdState
	}
}

// stdState counts the connections of engine std.
func (s *Server) stdState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.shared[0].accepted.Add(1)
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
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
		c.s.shared[0].answered.Add(1)
		c.s.latencies[0].record(time.Since(began), 1)
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
	ln = netutil.LimitListener(ln, s.cfg.MaxConns)
	if s.cfg.Conn != nil {
		return s.serveStdConns(ln)
	}
	if s.cfg.TLS != nil {
		return s.std.ServeTLS(ln, "", "")
	}
	return s.std.Serve(ln)
}

func (s *Server) shutdownStd(ctx context.Context) error {
	s.mu.Lock()
	first, ln := !s.stopped.Swap(true), s.listener
	s.mu.Unlock()
	if first {
		close(s.done)
	}
	if s.cfg.Conn == nil {
		err := s.std.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, s.std.Close())
		}
		s.cancel()
		return err
	}
	if ln != nil {
		_ = ln.Close()
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
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
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
		s.shared[0].accepted.Add(1)
		s.conns.Add(1)
		if !s.tcp.add(c) {
			_ = c.Close()
			s.conns.Add(-1)
			continue
		}
		go func() {
			defer s.conns.Add(-1)
			defer s.tcp.done(c)
			defer c.Close()
			s.cfg.Conn(s.ctx, c)
		}()
	}
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
