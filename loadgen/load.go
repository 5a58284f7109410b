package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Load is connections to a server that are open. It does one thing at a time: a second Run or Once
// beside one that has not returned, or a Close, is an error, and changes nothing. What [New] has
// not made, as nil, is closed.
type Load struct {
	cfg     Config
	threads []*thread

	mu    sync.Mutex // of state; no call waits while it is held
	state loadState
}

// loadState says who may touch the threads, their connections and their descriptors.
type loadState int

const (
	closed  loadState = iota // nobody: what had their numbers may be another's by now
	resting                  // who calls next
	running                  // the threads of the run
)

// ErrRunning is in the error for a call while a run has not returned.
var ErrRunning = errors.New("a run of it has not returned")

var errNoContext = errors.New("load: the context is nil")

// turn has the state go from resting to another one.
func (l *Load) turn(to loadState) error {
	if l == nil {
		return fmt.Errorf("load: %w", net.ErrClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case closed:
		return fmt.Errorf("load: %w", net.ErrClosed)
	case running:
		return fmt.Errorf("load: %w", ErrRunning)
	}
	l.state = to
	return nil
}

// begin begins a run.
func (l *Load) begin(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	return l.turn(running)
}

func (l *Load) end() {
	l.mu.Lock()
	l.state = resting
	l.mu.Unlock()
}

// New connects, to the first address of the host at which every connection can be made: of
// localhost that may be ::1. One that cannot be made within the time for an answer is an error.
func New(cfg Config) (*Load, error) { return NewContext(context.Background(), cfg) }

// NewContext is New that gives up with the end of ctx.
func NewContext(ctx context.Context, cfg Config) (*Load, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	to, requests, err := cfg.check(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, one := range to {
		l := &Load{cfg: cfg, state: resting}
		if err = l.open(ctx, one, requests); err == nil {
			return l, nil
		}
		if err = errors.Join(err, l.Close()); failed == nil {
			failed = err
		} else {
			failed = fmt.Errorf("%w; %w", failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("load: %w", failed)
}

// open connects to an address.
func (l *Load) open(ctx context.Context, to netip.AddrPort, requests [][]byte) error {
	for i := range l.cfg.Threads {
		t, err := newThread(&l.cfg, to, requests, i)
		if err != nil {
			return err
		}
		l.threads = append(l.threads, t)
	}
	for _, t := range l.threads {
		if err := t.open(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the connections, once: after that every call is an error, [net.ErrClosed]. While a
// run has not returned it is [ErrRunning], and closes nothing.
func (l *Load) Close() error {
	if err := l.turn(closed); err != nil {
		return err
	}
	for _, t := range l.threads {
		t.close()
	}
	return nil
}

// Run sends for a time, or until ctx ends, and returns when what was sent has been answered, or
// when nothing has come or gone for a second, or ctx has ended a second ago. Requests that were
// answered after the time count as late. A connection that is lost then is made again by the next
// Run. What goes wrong with a request is in the result; the error is for a Load that is closed
// ([net.ErrClosed]) or has a run already ([ErrRunning]).
func (l *Load) Run(ctx context.Context, length time.Duration) (*Result, error) {
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	defer l.end()
	return l.run(ctx, 0, length), nil
}

func (l *Load) run(ctx context.Context, warmup, length time.Duration) *Result {
	if ctx.Err() != nil {
		warmup, length = 0, 0
	}
	began := time.Now()
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i, t := range l.threads {
		t.reset(began, warmup, length, i)
		all.Go(func() { t.run(stop) })
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	if warmup > 0 {
		select {
		case <-ended:
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(warmup))):
		}
	}
	servers := watch(l.cfg.PID, ended)
	select {
	case <-ended:
	case <-ctx.Done():
		close(stop)
		<-ended
	}
	r := collect(&l.cfg, l.threads)
	for i, s := range <-servers {
		if i < len(r.Samples) {
			r.Samples[i].CPUPercent, r.Samples[i].RSSBytes = s.CPUPercent, s.RSSBytes
		}
	}
	return r
}

// Once sends one request on every connection, of those that are pipelined so many, and waits for
// the answers. It sends them all at once, also where there is a rate. Its errors are those of Run.
func (l *Load) Once(ctx context.Context) (*Result, error) {
	const patience = 10 * time.Second
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	defer l.end()
	for _, t := range l.threads {
		interval := t.interval
		t.once, t.interval = true, 0 // a rate would go on while answers are awaited
		defer func() { t.once, t.interval = false, interval }()
	}
	return l.run(ctx, 0, patience), nil
}

// Run connects, sends for the warm-up and then for the time that counts, and closes. Errors of
// single requests are in the result; the error is for what kept it from beginning.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	l, err := NewContext(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := l.begin(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r := l.run(ctx, cfg.Warmup, l.cfg.Duration)
	l.end()
	return r, l.Close()
}
