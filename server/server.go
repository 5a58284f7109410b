package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Choice is what was chosen.
type Choice struct {
	Engine Engine
	Mode   Mode
	Loops  int
	Why    string // one line, for a log
}

// Server serves any number of listeners. Make it with [New].
type Server struct {
	cfg    Config
	choice Choice
	log    *slog.Logger
	ctx    context.Context // of every TCP connection: ends with Close
	cancel context.CancelFunc

	std      *http.Server // engine std, and HTTP/2 of the others
	h2       *handed      // connections for it
	tlsReady *tls.Config
	engine   // epoll and uring

	mu         sync.Mutex
	listeners  map[net.Listener]struct{}
	stopped    atomic.Bool // Shutdown or Close has begun
	done       chan struct{}
	failure    error
	failOnce   sync.Once
	noKeep     atomic.Bool // SetKeepAlivesEnabled(false)
	onShutdown []func()

	counts []counts // by loop
	open   atomic.Int64
	tcp    openConns // of engine std
	places places    // … too
	today  atomic.Pointer[dateText]
}

// counts is what is counted outside the loops: by goroutines, and all of engine std.
type counts struct {
	accepted, answered atomic.Uint64
	latency            latency
}

// New makes a server, and finds out which engine it can have.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, done: make(chan struct{}), listeners: map[net.Listener]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.choose(); err != nil {
		return nil, err
	}
	s.counts = make([]counts, max(s.choice.Loops, 1))
	s.prepareStd()
	s.prepareEngine()
	return s, nil
}

// choose settles the engine.
func (s *Server) choose() error {
	c := Choice{Engine: s.cfg.Engine, Mode: s.cfg.Mode, Loops: s.cfg.Loops, Why: "asked for"}
	switch c.Engine {
	case Auto:
		wanted := []Engine{Uring, Epoll}
		c.Engine, c.Why = Std, "the best that is allowed here"
		if c.Mode == Goroutine {
			wanted, c.Why = wanted[1:], "the best for handlers on goroutines"
		}
		var why []error
		for _, e := range wanted {
			err := Available(e)
			if err == nil {
				c.Engine = e
				break
			}
			why = append(why, err)
		}
		if len(why) > 0 {
			c.Why = "the best that is allowed here: " + errors.Join(why...).Error()
			s.log.Warn("the server does without its best engine", "engine", c.Engine, "why", errors.Join(why...))
		}
	case Uring, Epoll:
		if err := Available(c.Engine); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	if c.Engine == Std {
		c.Mode, c.Loops = Goroutine, 0
	}
	s.choice = c
	return nil
}

// Choice says what was chosen.
func (s *Server) Choice() Choice { return s.choice }

// ListenAndServe listens on a TCP address and serves until Shutdown or Close, whose ErrClosed it
// returns.
func (s *Server) ListenAndServe(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return s.Serve(ln)
}

// Serve accepts connections on ln and serves them until Shutdown or Close, whose [ErrClosed] it
// returns at once while they go on, or until ln fails or is closed, whose error it returns; the
// server goes on then. It closes ln. It may be called for several listeners at a time. epoll and
// uring need a TCP or Unix listener of package net.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.stopped.Load() {
		s.mu.Unlock()
		return errors.Join(ErrClosed, ln.Close())
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, ln)
		s.mu.Unlock()
		_ = ln.Close()
	}()
	if s.choice.Engine == Std {
		if err := s.serveStd(ln); !s.stopped.Load() {
			return err
		}
		return ErrClosed
	}
	failed := make(chan error, 1)
	stop, err := s.listen(ln, failed)
	if err != nil {
		if s.stopped.Load() {
			return ErrClosed
		}
		return fmt.Errorf("server: %w", err)
	}
	select {
	case err := <-failed:
		stop()
		if !s.stopped.Load() {
			return fmt.Errorf("server: accept: %w", err)
		}
	case <-s.done:
	}
	if s.ctx.Err() != nil { // by Close: nothing of it is left when we return, so that the port is free
		s.wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	return ErrClosed
}

// stopping begins the end, once, and closes the listeners.
func (s *Server) stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped.Swap(true) {
		close(s.done)
	}
	if s.choice.Engine == Std && s.cfg.Conn == nil {
		return // net/http closes them
	}
	for ln := range s.listeners {
		_ = ln.Close() // the loops have descriptors of their own
	}
}

// RegisterOnShutdown registers a function that Shutdown calls, on a goroutine of its own, like
// http.Server's: to tell connections that handlers have taken over, for example. epoll and uring
// refuse new connections by then.
func (s *Server) RegisterOnShutdown(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onShutdown = append(s.onShutdown, f)
}

// firstRequest is how long a client may take to begin with its first request: net/http's.
const firstRequest = 5 * time.Second

// EndIdle ends the connections that wait for a request, so that there is room for others where
// MaxConns are open: those that have been served, those that have sent nothing for silent, 0 or
// more, since they were made, those that have not ended a request's head, or the handshake of TLS,
// for so long since they began with it, and those that were answered so long ago for the last time
// and do not leave. Those go on whose request has come as far as its head. With engine std it does
// nothing.
func (s *Server) EndIdle(silent time.Duration) { s.endIdle(silent, max(silent, 1)) }

// SetKeepAlivesEnabled says whether connections stay open for further requests; they do by default.
// Those that wait for one are closed when that ends.
func (s *Server) SetKeepAlivesEnabled(on bool) {
	s.noKeep.Store(!on)
	s.std.SetKeepAlivesEnabled(on)
	if !on {
		s.endIdle(firstRequest, 0)
	}
}

// fail ends the server because of an error that is not one connection's.
func (s *Server) fail(err error) {
	s.failOnce.Do(func() {
		s.log.Error("the server ends", "error", err)
		s.mu.Lock()
		s.failure = fmt.Errorf("server: %w", err)
		s.mu.Unlock()
		go s.Close()
	})
}

// Shutdown ends the server without losing a request: it accepts no more, but those who had
// connected before; answers every request that comes within a moment of it, or whose head has begun
// and is whole within 5 s, with Connection: close; and waits until the last connection is gone.
// Then, or when ctx ends, what is left is closed. Connections that handlers have taken over are
// left alone.
//
// Engine std ends as net/http does: a connection whose request's head it is just reading may be
// closed without an answer.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.choice.Engine == Std {
		s.tellShutdown()
		return s.shutdownStd(ctx)
	}
	return s.shutdownLoops(ctx)
}

// tellShutdown calls what RegisterOnShutdown was given.
func (s *Server) tellShutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.onShutdown {
		go f()
	}
}

// Close ends the server and all connections now. In modes coroutine and inline it waits for at most
// 2 s for handlers that hold their loops, and then returns an error; a handler that calls it is
// one.
func (s *Server) Close() error {
	s.cancel()
	if s.choice.Engine == Std {
		return s.closeStd()
	}
	return s.closeLoops()
}

// Serve serves handler on ln until ctx ends, and then shuts down, for at most 30 s. It returns nil
// if that went well.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler, cfg Config) error {
	cfg.Handler = handler
	s, err := New(cfg)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownFor)
	defer cancel()
	err = s.Shutdown(patience)
	if e := <-ended; err == nil && !errors.Is(e, ErrClosed) {
		err = e
	}
	return err
}

const shutdownFor = 30 * time.Second

// Connections is the number of open connections.
func (s *Server) Connections() int { return s.Stats().Open }

// Stats is what a server did so far. Bytes are those of the sockets, TLS and all.
type Stats struct {
	Choice
	Open     int    // connections
	Accepted uint64 // connections
	Requests uint64 // answered, HTTP; with std as well
	In, Out  uint64 // bytes; not with std
	Dropped  uint64 // connections that were closed unserved
	Stalls   uint64 // times that a handler held its loop for more than a second; modes coroutine and inline

	// system calls to wait, submit, receive and send; not with std, and not those of handlers on
	// goroutines that send
	Calls     uint64
	Submitted uint64 // entries that the rings took
	Completed uint64 // completions seen
	Starved   uint64 // receives that found the stock of buffers empty, and were tried again
	Overflows uint64 // times a completion queue was full and the kernel kept completions aside
	Mapped    uint64 // bytes of buffers outside Go's heap; what was needed once is kept for later
}

// Stats returns what the server did so far.
func (s *Server) Stats() Stats {
	st := Stats{Choice: s.choice, Open: int(s.open.Load())}
	for i := range s.counts {
		st.Accepted += s.counts[i].accepted.Load()
		st.Requests += s.counts[i].answered.Load()
	}
	s.addLoops(&st)
	return st
}

// Latency adds up how long answers took, from the arrival of the whole head to the moment when the
// answer was handed over: count, sum in seconds and, by upper bound in seconds, how many were not
// above it. Event streams are not among them: how long one is open is the client's affair.
func (s *Server) Latency() (n uint64, sum float64, buckets map[float64]uint64) {
	buckets = map[float64]uint64{}
	for i := range s.counts {
		s.counts[i].latency.addTo(&n, &sum, buckets)
	}
	return n, sum, buckets
}

// dateText is the value of Date for a second since Server.base.
type dateText struct {
	second int64
	text   []byte
}

// date is the value of the header field Date for requests that came at a time of the loops' clock.
func (s *Server) date(at int64) []byte {
	second := at / int64(time.Second)
	if d := s.today.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dateText{second, time.Now().UTC().AppendFormat(nil, http.TimeFormat)}
	s.today.Store(d)
	return d.text
}
