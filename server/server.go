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

// Server serves one listener at a time. Make it with [New].
type Server struct {
	cfg    Config
	choice Choice
	log    *slog.Logger
	base   time.Time       // of the loops' clocks
	ctx    context.Context // of every request: ends with Close
	cancel context.CancelFunc

	std      *http.Server // engine std, and HTTP/2 of the others
	h2       *handed      // connections for it
	tlsReady *tls.Config
	engine

	mu       sync.Mutex
	listener net.Listener
	serving  bool
	stopped  atomic.Bool // Shutdown or Close has begun
	done     chan struct{}
	failure  error
	failOnce sync.Once

	shared    []published // by loop
	latencies []latency
	conns     atomic.Int64 // open, all loops
	tcp       openConns    // of engine std
	today     atomic.Pointer[dateText]
}

// published is what a loop lets others see.
type published struct {
	accepted, requests, in, out, dropped                    atomic.Uint64
	answered, wrote                                         atomic.Uint64 // on goroutines: requests, bytes
	stalls                                                  atomic.Uint64
	calls, submitted, completed, starved, overflows, mapped atomic.Uint64
	_                                                       [2]uint64 // loops do not share cache lines
}

// New makes a server, and finds out which engine it can have.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, base: time.Now(), done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.choose(); err != nil {
		return nil, err
	}
	s.shared, s.latencies = make([]published, max(s.choice.Loops, 1)), make([]latency, max(s.choice.Loops, 1))
	s.prepareStd()
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

// ListenAndServe listens on a TCP address and serves until Shutdown or Close, whose ErrClosed it returns.
func (s *Server) ListenAndServe(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return s.Serve(ln)
}

// Serve accepts connections on ln and serves them until Shutdown or Close, whose [ErrClosed] it returns at once while they go on. It
// closes ln. epoll and uring need a TCP or Unix listener of package net.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	switch {
	case s.stopped.Load():
		s.mu.Unlock()
		return errors.Join(ErrClosed, ln.Close())
	case s.serving:
		s.mu.Unlock()
		return errors.New("server: serves already")
	}
	s.serving, s.listener = true, ln
	s.mu.Unlock()
	if s.choice.Engine == Std {
		return s.serveStd(ln)
	}
	if err := s.startLoops(ln); err != nil {
		return errors.Join(fmt.Errorf("server: %w", err), ln.Close())
	}
	<-s.done
	if s.ctx.Err() != nil { // by Close: nothing of it is left when we return, so that the port is free
		s.wait()
	}
	if s.failure != nil {
		return s.failure
	}
	return ErrClosed
}

// fail ends the server because of an error that is not one connection's.
func (s *Server) fail(err error) {
	s.failOnce.Do(func() {
		s.log.Error("the server ends", "error", err)
		s.failure = err
		go s.Close()
	})
}

// Shutdown ends the server without losing a request: it accepts no more, but those who had connected before; answers every request
// that comes within a moment of it, with Connection: close; and waits until the last connection is gone. Then, or when ctx ends, what is
// left is closed. Hijacked connections are not waited for.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.choice.Engine == Std {
		return s.shutdownStd(ctx)
	}
	return s.stopLoops(ctx, true)
}

// Close ends the server and all connections now.
func (s *Server) Close() error {
	s.cancel()
	if s.choice.Engine == Std {
		return s.closeStd()
	}
	return s.stopLoops(context.Background(), false)
}

// Serve serves handler on ln until ctx ends, and then shuts down, for at most 30 s. It returns nil if that went well.
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

func (s *Server) clock() int64 { return int64(time.Since(s.base)) }

// Stats is what a server did so far. Bytes are those of the sockets, TLS and all.
type Stats struct {
	Choice
	Open     int    // connections
	Accepted uint64 // connections
	Requests uint64 // answered, HTTP; with std as well
	In, Out  uint64 // bytes; not with std
	Dropped  uint64 // connections that were closed unserved
	Stalls   uint64 // times that a handler held its loop for more than a second; modes coroutine and inline

	Calls     uint64 // system calls to wait, submit, receive and send; not with std, and not those of handlers on goroutines that send
	Submitted uint64 // entries that the rings took
	Completed uint64 // completions seen
	Starved   uint64 // receives that found the stock of buffers empty, and were tried again
	Overflows uint64 // times a completion queue was full and the kernel kept completions aside
	Mapped    uint64 // bytes of buffers outside Go's heap; what was needed once is kept for later
}

// Stats returns what the server did so far.
func (s *Server) Stats() Stats {
	st := Stats{Choice: s.choice, Open: int(s.conns.Load())}
	for i := range s.shared {
		p := &s.shared[i]
		st.Accepted += p.accepted.Load()
		st.Requests += p.requests.Load() + p.answered.Load()
		st.In += p.in.Load()
		st.Out += p.out.Load() + p.wrote.Load()
		st.Dropped += p.dropped.Load()
		st.Stalls += p.stalls.Load()
		st.Calls += p.calls.Load()
		st.Submitted += p.submitted.Load()
		st.Completed += p.completed.Load()
		st.Starved += p.starved.Load()
		st.Overflows += p.overflows.Load()
		st.Mapped += p.mapped.Load()
	}
	return st
}

// Latency adds up how long answers took, from the arrival of the whole head to the moment when the answer was handed over: count, sum in
// seconds and, by upper bound in seconds, how many were not above it.
func (s *Server) Latency() (n uint64, sum float64, buckets map[float64]uint64) {
	buckets = map[float64]uint64{}
	for i := range s.latencies {
		s.latencies[i].addTo(&n, &sum, buckets)
	}
	return n, sum, buckets
}
