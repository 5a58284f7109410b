package prefork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/admission"
)

// Worker is what the function that Run is given works with. Its methods may be called from any
// goroutine.
type Worker struct {
	cfg       Config
	slot      int
	listeners []net.Listener
	gate      *admission.Gate
	places    chan struct{}                // for connections; nil: no limit
	open      atomic.Int64                 // connections, of package net/http
	conns     atomic.Pointer[func() int64] // how many are open; nil: not known

	draining context.Context // ends when the worker is to end
	drain    context.CancelFunc
	master   toMaster // nil: there is none

	mu       sync.Mutex
	lent     map[int][]net.Listener // by slot, of those that have no worker
	serve    func(net.Listener)     // begins to accept from what is lent; nil: not yet, or no more
	granted  chan struct{}          // the master lets the worker serve
	readyErr error
	once     sync.Once
}

// toMaster is what a worker tells its master.
type toMaster interface {
	ready(takes bool) error // takes: the worker can accept from sockets that are lent
}

// Server is what servers of package net/http and of package server have in common.
type Server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

func newWorker(cfg Config, slot int, listeners []net.Listener) (*Worker, error) {
	gate, err := admission.New(admission.Config{Limit: cfg.InFlight, Queue: cfg.Queue})
	if err != nil {
		return nil, fmt.Errorf("prefork: %w", err)
	}
	w := &Worker{
		cfg: cfg, slot: slot, gate: gate,
		lent: map[int][]net.Listener{}, granted: make(chan struct{}),
	}
	if cfg.MaxConns > 0 {
		w.places = make(chan struct{}, cfg.MaxConns)
	}
	w.listeners = w.limit(listeners)
	w.draining, w.drain = context.WithCancel(context.Background())
	return w, nil
}

// limit puts the limit of connections before listeners.
func (w *Worker) limit(listeners []net.Listener) []net.Listener {
	if w.places == nil {
		return listeners
	}
	listeners = slices.Clone(listeners)
	for i, ln := range listeners {
		listeners[i] = &limited{Listener: ln, places: w.places, closed: make(chan struct{})}
	}
	return listeners
}

// Slot is the worker's number, from 0. Its successor after a crash or a restart has the same.
func (w *Worker) Slot() int { return w.slot }

// Listeners are the worker's sockets, in the order of Config.Listen. They are of package net,
// unless Config.MaxConns is set.
func (w *Worker) Listeners() []net.Listener { return w.listeners }

// Context ends when the worker is to end: it should accept no more, let its clients leave, and
// return from its function within Config.DrainFor.
func (w *Worker) Context() context.Context { return w.draining }

// Handler puts Config.InFlight before h, and has the worker's clients leave once it is to end: each
// answer says Connection: close then.
func (w *Worker) Handler(h http.Handler) http.Handler {
	h = w.gate.Handler(h, admission.HTTP{RetryAfter: w.cfg.RetryAfter})
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if w.draining.Err() != nil {
			out.Header().Set("Connection", "close")
		}
		h.ServeHTTP(out, r)
	})
}

// Ready tells the master that this worker can serve, and returns when it may: after an upgrade,
// when all new workers are ready. Serve calls it.
func (w *Worker) Ready() error { return w.ready(false) }

func (w *Worker) ready(takes bool) error {
	w.once.Do(func() {
		if w.master == nil {
			return
		}
		if w.readyErr = w.master.ready(takes); w.readyErr != nil {
			return
		}
		select {
		case <-w.granted:
		case <-w.draining.Done(): // the master has changed its mind
		}
	})
	return w.readyErr
}

// Serve has s serve the worker's listeners, and those of slots whose worker has died. When the
// worker is to end it closes them, lets clients leave for Config.LameDuck at most, shuts s down,
// and returns nil; an error, if requests have not ended after nine tenths of Config.DrainFor. s is
// an *http.Server, or one of package server, with a handler from Worker.Handler.
func (w *Worker) Serve(s Server) error {
	w.countOf(s)
	if err := w.ready(true); err != nil {
		return err
	}
	failed := make(chan error, len(w.listeners))
	for _, ln := range w.listeners {
		go func() { failed <- s.Serve(ln) }()
	}
	// its listener is closed when it is taken back
	w.setServe(func(ln net.Listener) { go func() { _ = s.Serve(ln) }() })
	select {
	case err := <-failed:
		w.setServe(nil)
		return errors.Join(fmt.Errorf("prefork: worker %d: %w", w.slot, err), s.Close())
	case <-w.draining.Done():
	}
	w.setServe(nil)
	for _, ln := range w.listeners {
		_ = ln.Close() // the master's goes on: nobody who waits at the socket is turned away
	}
	given := w.cfg.DrainFor - w.cfg.DrainFor/10 // what is left is for the program's own end
	ctx, cancel := context.WithTimeout(context.Background(), given)
	defer cancel()
	w.lameDuck()
	err := s.Shutdown(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("requests did not end within %v: %w", given, err)
	case errors.Is(err, net.ErrClosed): // of a listener that was closed above, which s has not noticed yet
		return nil
	}
	return errors.Join(fmt.Errorf("prefork: worker %d: %w", w.slot, err), s.Close())
}

// countOf finds out how the connections of a server are counted.
func (w *Worker) countOf(s Server) {
	var open func() int64
	switch s := s.(type) {
	case *http.Server:
		countConns(s, &w.open)
		open = w.open.Load
	case interface{ Connections() int }:
		open = func() int64 { return int64(s.Connections()) }
	default:
		return
	}
	w.conns.Store(&open)
}

// lameDuck waits until no connection is open, for a time.
func (w *Worker) lameDuck() {
	open := func() int64 { return 1 } // not known: the whole time
	if f := w.conns.Load(); f != nil {
		open = *f
	}
	const look = 10 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	enough := time.NewTimer(w.cfg.LameDuck)
	defer enough.Stop()
	for none := 0; none < 2; { // one look may fall between accept and count
		select {
		case <-tick.C:
			if none++; open() > 0 {
				none = 0
			}
		case <-enough.C:
			return
		}
	}
}

// setServe says how to accept from what is lent. nil ends that.
func (w *Worker) setServe(serve func(net.Listener)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve = serve
	for slot, listeners := range w.lent {
		for _, ln := range listeners {
			if serve != nil {
				serve(ln)
			} else {
				_ = ln.Close()
			}
		}
		if serve == nil {
			delete(w.lent, slot)
		}
	}
}

// take accepts from the sockets of a slot whose worker has died.
func (w *Worker) take(slot int, listeners []net.Listener) {
	listeners = w.limit(listeners)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining.Err() != nil {
		for _, ln := range listeners {
			_ = ln.Close()
		}
		return
	}
	w.lent[slot] = append(w.lent[slot], listeners...)
	if w.serve != nil {
		for _, ln := range listeners {
			w.serve(ln)
		}
	}
}

// giveBack ends that.
func (w *Worker) giveBack(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ln := range w.lent[slot] {
		_ = ln.Close()
	}
	delete(w.lent, slot)
}

// Count is what workers have done so far.
type Count struct {
	Answered, Refused         uint64 // requests that Worker.Handler let in and that ended, and that got 503
	InFlight, Waiting, Opened int64  // requests now; connections open now, as far as the server says
}

func (w *Worker) count() Count {
	s := w.gate.Stats()
	n := Count{
		Answered: s.Done, Refused: s.Refused(),
		InFlight: int64(s.InFlight), Waiting: int64(s.Waiting),
	}
	if open := w.conns.Load(); open != nil {
		n.Opened = (*open)()
	}
	return n
}

// runAlone is Run where there are no workers: one process that listens and serves until ctx or a
// signal ends it.
func runAlone(ctx context.Context, cfg Config, worker func(*Worker) error) error {
	var listeners []net.Listener
	for _, addr := range cfg.Listen {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			for _, ln := range listeners {
				_ = ln.Close()
			}
			return err
		}
		listeners = append(listeners, ln)
	}
	if len(listeners) == 0 {
		return errors.New("prefork: Config.Listen is empty: name an address")
	}
	w, err := newWorker(cfg, 0, listeners)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, w.drain)()
	err = worker(w)
	for _, ln := range w.listeners {
		_ = ln.Close()
	}
	return err
}
