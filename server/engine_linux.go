package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/uring"
)

// engine is the loops of a server.
type engine struct {
	loops   []*loop
	running sync.WaitGroup
	turn    atomic.Uint64 // of the next connection
	refused atomic.Bool   // accepting rests because there are MaxConns
	halted  atomic.Bool   // unlistened was told
}

// Available says whether an engine can be had here, and why not.
func Available(e Engine) error {
	switch e {
	case Std, Epoll:
		return nil
	case Uring:
		p := uring.Probe()
		for _, f := range []uring.Feature{uring.Rings, uring.BufferRings, uring.MultishotAccept, uring.MultishotReceive} {
			if err := p.Has(f); err != nil {
				return fmt.Errorf("uring: %w: %w", ErrUnavailable, err)
			}
		}
		return nil
	}
	return fmt.Errorf("%s: %w: no such engine", e, ErrUnavailable)
}

func (s *Server) newDriver(l *loop) (driver, error) {
	if s.choice.Engine == Uring {
		return newRingDriver(l)
	}
	return newEpollDriver(l)
}

func (s *Server) newApp(c *conn) app {
	switch s.choice.Mode {
	case Inline:
		return newInline(c)
	case Coroutine:
		return newCoConn(c)
	}
	return newGoConn(c)
}

func (s *Server) startLoops(ln net.Listener) error {
	sc, ok := ln.(syscall.Conn)
	if _, tcp := ln.(*net.TCPListener); !ok || !tcp && ln.Addr().Network() != "unix" {
		return fmt.Errorf("engine %s needs a TCP or Unix listener of package net, not %T: use engine std, and Config.TLS for TLS", s.choice.Engine, ln)
	}
	fd, err := sys.SocketOf(sc)
	if err != nil {
		return err
	}
	s.startH2(ln.Addr())
	sys.NoDelay(fd) // what is accepted from now on inherits it
	sys.KeepAlive(fd)
	loops := make([]*loop, s.choice.Loops)
	for i := range loops {
		l := &loop{srv: s, index: i, latency: &s.latencies[i], drained: make(chan struct{})}
		ready := make(chan error, 1)
		s.running.Go(func() { l.run(ready) })
		if err := <-ready; err != nil {
			_ = sys.CloseFD(fd)
			for _, l := range loops[:i] {
				l.post(post{what: postStop})
			}
			s.running.Wait()
			return fmt.Errorf("loop %d: %w", i, err)
		}
		loops[i] = l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loops = loops
	if s.stopped.Load() { // while they started
		_ = sys.CloseFD(fd)
		for _, l := range loops {
			l.post(post{what: postStop})
		}
		return nil
	}
	loops[0].post(post{what: postListen, fd: fd})
	return nil
}

func (s *Server) wait() { s.running.Wait() }

// place says which loop gets the next connection.
func (s *Server) place() *loop {
	s.conns.Add(1)
	return s.loops[s.turn.Add(1)%uint64(len(s.loops))]
}

// left says that a connection is gone.
func (s *Server) left() {
	if s.conns.Add(-1) < int64(s.cfg.MaxConns) && s.refused.CompareAndSwap(true, false) {
		s.loops[0].post(post{what: postRoom})
	}
}

// full reports whether there are as many connections as may be; accepting then rests until one has left.
func (s *Server) full() bool {
	if s.conns.Load() < int64(s.cfg.MaxConns) {
		return false
	}
	s.refused.Store(true)
	return s.conns.Load() >= int64(s.cfg.MaxConns) // one may have left meanwhile
}

// stopLoops ends the loops.
func (s *Server) stopLoops(ctx context.Context, graceful bool) error {
	s.mu.Lock()
	first := !s.stopped.Swap(true)
	if first {
		close(s.done)
	}
	loops, ln := s.loops, s.listener
	s.mu.Unlock()
	if ln != nil {
		_ = ln.Close() // the loops have a descriptor of their own
	}
	if len(loops) == 0 {
		return nil
	}
	var err error
	if graceful {
		loops[0].post(post{what: postListens})
		for _, l := range loops {
			select {
			case <-l.drained:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err == nil {
			err = s.stopH2(ctx)
			s.cancel()
			return err
		}
	}
	s.cancel()
	for _, l := range loops {
		l.post(post{what: postStop})
	}
	s.running.Wait()
	return errors.Join(err, s.stopH2(ctx))
}

// unlistened says that everybody who had connected has been accepted, and that nobody else will be.
func (s *Server) unlistened() {
	if s.halted.Swap(true) {
		return
	}
	for _, l := range s.loops {
		l.post(post{what: postDrain})
	}
}
