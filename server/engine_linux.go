package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/beat"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/h1"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/epoll"
	"github.com/tallywheel/tallywheel/server/internal/loop/ring"
	"github.com/tallywheel/tallywheel/uring"
)

// engine is the loops of a server.
type engine struct {
	group   *loop.Group
	http    h1.Config
	budget  h1.Budget
	begin   sync.Once
	started bool // Server.mu guards it
	failed  error
}

// Available says whether an engine can be had here, and why not.
func Available(e Engine) error {
	switch e {
	case Std, Epoll:
		return nil
	case Uring:
		p := uring.Probe()
		for _, f := range []uring.Feature{
			uring.Rings, uring.BufferRings, uring.MultishotAccept,
			uring.MultishotReceive,
		} {
			if err := p.Has(f); err != nil {
				return fmt.Errorf("uring: %w: %w", ErrUnavailable, err)
			}
		}
		return nil
	}
	return fmt.Errorf("%s: %w: no such engine", e, ErrUnavailable)
}

func (s *Server) prepareEngine() {
	c := &s.cfg
	s.http = h1.Config{
		Handler: c.Handler, PlainSlash: c.Lean != nil,
		ReadTimeout: c.ReadTimeout, ReadHeaderTimeout: c.ReadHeaderTimeout, WriteTimeout: c.WriteTimeout,
		IdleTimeout:    c.IdleTimeout,
		MaxHeaderBytes: c.MaxHeaderBytes, MaxBodyBytes: c.MaxBodyBytes,
		Log: c.Log, Server: s.std, Date: s.date, Closes: s.noKeep.Load,
	}
	s.budget.Limit = c.MaxBodyMemory
	if s.choice.Engine == Std {
		return
	}
	onLoop := c.Mode != Goroutine
	s.group = loop.New(loop.Config{
		Loops: s.choice.Loops, MaxConns: c.MaxConns, FlushFor: c.WriteTimeout, Log: c.Log,
		Locked: onLoop || s.choice.Engine == Uring, // a ring completes on the thread that asked
		OnLoop: onLoop,

		NewDriver: s.newDriver, NewApp: s.newApp, Turned: s.turned, Failed: s.fail,
	})
}

func (s *Server) newDriver(l *loop.Loop) (loop.Driver, error) {
	if s.choice.Mode == Inline {
		t := &h1.Tools{Config: &s.http, Handler: &leanOnLoop{handler: s.cfg.Lean}, Budget: &s.budget}
		l.Data = t
	} else {
		l.Data = &turnCount{}
	}
	if s.choice.Engine == Uring {
		return ring.New(l, ring.Config{
			Conns: s.cfg.MaxConns / s.choice.Loops, SQPoll: s.cfg.SQPoll,
			SQPollIdle: s.cfg.SQPollIdle,
		})
	}
	return epoll.New(l)
}

func (s *Server) newApp(c *loop.Conn) loop.App {
	switch s.choice.Mode {
	case Inline:
		return h1.NewInline(c, c.Loop().Data.(*h1.Tools))
	case Coroutine:
		return s.newCoroutine(c)
	}
	g := loop.NewGoConn(c, s.serveConn)
	// else somebody wants to know of it now
	if k := &s.cfg; k.TLS == nil && k.Conn == nil && k.ConnState == nil && k.ConnContext == nil {
		g.AwaitInput(k.ReadHeaderTimeout)
	}
	return g
}

// turnCount is what coroutines have answered in a turn, whose latency is that of the turn.
type turnCount struct{ answers int64 }

// turned records the latency of what was answered on the loop in the turn that ends.
func (s *Server) turned(l *loop.Loop) {
	var n *int64
	switch d := l.Data.(type) {
	case *h1.Tools:
		n = &d.Answers
	case *turnCount:
		n = &d.answers
	}
	if *n > 0 {
		s.counts[l.Index()].latency.record(time.Duration(s.group.Clock()-l.Now()), *n)
		*n = 0
	}
}

// listen begins to accept from ln. failed hears of its end; stop ends it.
func (s *Server) listen(ln net.Listener, failed chan<- error) (stop func(), err error) {
	sc, ok := ln.(syscall.Conn)
	if _, tcp := ln.(*net.TCPListener); !ok || !tcp && ln.Addr().Network() != "unix" {
		return nil,
			fmt.Errorf("engine %s needs a TCP or Unix listener of package net, not %T: use engine std; for TLS Config.TLS, for a limit of connections Config.MaxConns", s.choice.Engine, ln)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := sys.SocketOf(sc)
	if err != nil {
		return nil, err
	}
	s.startH2(ln.Addr()) // before there can be connections
	if err := s.startLoops(); err != nil {
		return nil, errors.Join(err, s.stopH2(context.Background()), sys.CloseFD(fd))
	}
	sys.NoDelay(fd) // what is accepted from now on inherits it
	sys.KeepAlive(fd)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	l := &loop.Listener{FD: fd, Origin: s.baseContext(ln), Short: ln.Addr().Network() == "unix"}
	gone := make(chan struct{})
	s.group.Listen(l, sys.Backlogged(fd), func() error { defer close(gone); return sys.CloseFD(fd) }, fail)
	go s.watchListener(raw, fail)
	return func() {
		s.group.Unlisten(l)
		late := time.NewTimer(unlistens)
		defer late.Stop()
		select { // nobody can connect any more when Serve has returned
		case <-gone:
		case <-s.done:
		case <-late.C: // a handler may hold the loop
		}
	}, nil
}

const unlistens = time.Second

const listenerLook = time.Second // an idle server wakes no more often for it

// watchListener notices that somebody has closed the listener. The loops' descriptor of the socket
// stays open then, and package net tells of a close only who accepts by it; so it is asked now and
// then.
func (s *Server) watchListener(raw syscall.RawConn, closed func(error)) {
	next := time.NewTimer(beat.Next(listenerLook))
	defer next.Stop()
	for ; ; next.Reset(beat.Next(listenerLook)) {
		select {
		case <-s.done:
			return
		case <-next.C:
		}
		if err := raw.Control(func(uintptr) {}); err != nil {
			closed(net.ErrClosed)
			return
		}
	}
}

// startLoops starts the loops with the first listener.
func (s *Server) startLoops() error {
	s.begin.Do(func() {
		s.failed = s.group.Start()
		s.mu.Lock()
		s.started = s.failed == nil
		late := s.started && s.stopped.Load() // the server was ended while they started
		s.mu.Unlock()
		if late {
			_ = s.group.Stop()
			s.failed = ErrClosed
		} else if s.failed == nil {
			garbage.add(s, s.cfg.Headroom)
			context.AfterFunc(s.ctx, func() { garbage.remove(s) }) // also at once, if it has been ended meanwhile
		}
	})
	return s.failed
}

func (s *Server) wait() { s.group.Wait() }

// running reports whether there are loops.
func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

func (s *Server) shutdownLoops(ctx context.Context) error {
	s.stopping()
	if !s.running() {
		s.tellShutdown()
		return s.stopH2(ctx)
	}
	go func() {
		select {
		case <-s.group.Halted():
		case <-s.ctx.Done(): // the loops are gone
		}
		s.tellShutdown()
	}()
	err := s.group.Drain(ctx)
	if err == nil {
		err = s.stopH2(ctx)
		s.cancel()
		return err
	}
	s.cancel()
	return errors.Join(err, s.group.Stop(), s.stopH2(ctx))
}

func (s *Server) closeLoops() error {
	s.stopping()
	if !s.running() {
		return s.stopH2(context.Background())
	}
	return errors.Join(s.group.Stop(), s.stopH2(context.Background()))
}

func (s *Server) endIdle(first, head time.Duration) {
	if s.running() {
		s.group.EndIdle(first, head)
	}
}

// addLoops adds what the loops have counted.
func (s *Server) addLoops(st *Stats) {
	if s.group == nil {
		return
	}
	st.Open += s.group.Conns()
	for i := range s.group.Published() {
		p := &s.group.Published()[i]
		st.Accepted += p.Accepted.Load()
		st.Requests += p.Requests.Load()
		st.In += p.In.Load() + p.Read.Load()
		st.Out += p.Out.Load() + p.Wrote.Load()
		st.Dropped += p.Dropped.Load()
		st.Stalls += p.Stalls.Load()
		st.Calls += p.Calls.Load()
		st.Submitted += p.Submitted.Load()
		st.Completed += p.Completed.Load()
		st.Starved += p.Starved.Load()
		st.Overflows += p.Overflows.Load()
		st.Mapped += p.Mapped.Load()
	}
}
