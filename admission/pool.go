package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Policy is what a pool does with work when all its goroutines work and its queue is full.
type Policy string

// The policies.
const (
	Wait       Policy = "wait"        // Submit waits for room as long as its context lasts
	Refuse     Policy = "refuse"      // Submit returns ErrFull
	CallerRuns Policy = "caller-runs" // Submit does the work itself, which slows down who submits
)

// PoolConfig is the shape of a pool; the rules are those of Java's ThreadPoolExecutor.
type PoolConfig struct {
	// Core goroutines, once started, stay. 1 to MaxLimit.
	Core int

	// Max goroutines at most: those beyond Core start when the queue is full. 0: Core.
	Max int

	// KeepAlive is how long a goroutine beyond Core stays without work. 0: 1 min.
	KeepAlive time.Duration

	// Queue is how much work waits, up to MaxLimit. 0: none; it is handed over or not.
	Queue int

	// Full is what happens when all are busy and the queue is full. "": Wait.
	Full Policy

	// Panicked is told of what a function panicked with, and the pool goes on. nil: the panic ends
	// the program, as any goroutine's does.
	Panicked func(any)
}

func (c PoolConfig) withDefaults() (PoolConfig, error) {
	if c.Max == 0 {
		c.Max = c.Core
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = time.Minute
	}
	if c.Full == "" {
		c.Full = Wait
	}
	switch {
	case c.Core < 1 || c.Core > MaxLimit:
		return c, fmt.Errorf("admission: pool: Core is %d, want 1 to %d", c.Core, MaxLimit)
	case c.Max < c.Core || c.Max > MaxLimit:
		return c, fmt.Errorf("admission: pool: Max is %d, want Core, %d, to %d", c.Max, c.Core, MaxLimit)
	case c.Queue < 0 || c.Queue > MaxLimit:
		return c, fmt.Errorf("admission: pool: Queue is %d, want 0 to %d", c.Queue, MaxLimit)
	case c.KeepAlive < 0:
		return c, fmt.Errorf("admission: pool: KeepAlive is %v, want 0 or more", c.KeepAlive)
	case c.Full != Wait && c.Full != Refuse && c.Full != CallerRuns:
		return c, fmt.Errorf("admission: pool: Full is %q, want %q, %q or %q", c.Full, Wait, Refuse, CallerRuns)
	}
	return c, nil
}

// PoolStats are the figures of a pool.
type PoolStats struct {
	Goroutines int // now
	Working    int // of those; callers that run their own are not among them
	Waiting    int // in the queue now

	Done     uint64 // by the pool
	ByCaller uint64 // by who submitted it
	Refused  uint64 // with ErrFull, ErrClosed or the error of a context
}

// Pool runs functions on a bounded number of goroutines. Its methods may be called from any
// goroutine; functions may submit others, but with Wait a pool whose functions all submit to a full
// queue stands still until their contexts end.
type Pool struct {
	cfg   PoolConfig
	queue chan func()
	ended chan struct{}  // Close was called
	all   sync.WaitGroup // the goroutines
	wait  sync.WaitGroup // callers of Submit who wait for room; none is added after closed

	mu     sync.Mutex
	stats  PoolStats
	closed bool
}

// NewPool makes a pool. It starts no goroutine before there is work.
func NewPool(cfg PoolConfig) (*Pool, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pool{cfg: cfg, queue: make(chan func(), cfg.Queue), ended: make(chan struct{})}, nil
}

// Submit has the pool do f, sooner or later. An error says that f will not be done: ErrFull with
// Refuse, ErrClosed, or with Wait the error of ctx.
func (p *Pool) Submit(ctx context.Context, f func()) error {
	if f == nil {
		return errors.New("admission: pool: a nil function")
	}
	taken, err := p.offer(f)
	if taken || err != nil {
		return err
	}
	switch p.cfg.Full {
	case CallerRuns:
		f()
		p.count(func(s *PoolStats) { s.ByCaller++ })
		return nil
	case Refuse:
		err = ErrFull
	default:
		defer p.wait.Done()
		select {
		case p.queue <- f:
			return nil
		case <-p.ended:
			err = ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	p.count(func(s *PoolStats) { s.Refused++ })
	return err
}

// offer hands f over if that needs no waiting.
func (p *Pool) offer(f func()) (taken bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		p.stats.Refused++
		return false, ErrClosed
	case p.stats.Goroutines < p.cfg.Core:
		p.start(f)
		return true, nil
	}
	select {
	case p.queue <- f:
		return true, nil
	default:
	}
	if p.stats.Goroutines < p.cfg.Max {
		p.start(f)
		return true, nil
	}
	if p.cfg.Full == Wait {
		p.wait.Add(1)
	}
	return false, nil
}

func (p *Pool) start(f func()) {
	p.stats.Goroutines++
	p.all.Go(func() { p.work(f) })
}

// work is the life of a goroutine of the pool, which begins with f; nil: with what comes.
func (p *Pool) work(f func()) {
	idle := time.NewTimer(p.cfg.KeepAlive)
	defer idle.Stop()
	for {
		if f != nil {
			p.run(f)
		}
		idle.Reset(p.cfg.KeepAlive)
		select {
		case f = <-p.queue:
			continue
		default:
		}
		select {
		case f = <-p.queue:
		case <-idle.C:
			if p.surplus() {
				return
			}
			select {
			case f = <-p.queue:
			case <-p.ended:
				f = p.rest()
			}
		case <-p.ended:
			f = p.rest()
		}
		if f == nil {
			return
		}
	}
}

// rest is what the queue still holds after Close; nil: nothing, and the goroutine ends.
func (p *Pool) rest() func() {
	select {
	case f := <-p.queue:
		return f
	default:
		p.count(func(s *PoolStats) { s.Goroutines-- })
		return nil
	}
}

// surplus reports whether there are more than Core goroutines; then the caller is no more one.
func (p *Pool) surplus() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stats.Goroutines <= p.cfg.Core {
		return false
	}
	p.stats.Goroutines--
	return true
}

// run does f. What ends f's goroutine (a panic, Goexit) ends nothing else: where the goroutine is
// lost, another takes its place.
func (p *Pool) run(f func()) {
	p.count(func(s *PoolStats) { s.Working++ })
	returned := false
	defer func() {
		p.count(func(s *PoolStats) { s.Working--; s.Done++ })
		if returned {
			return
		}
		if p.cfg.Panicked == nil {
			// A panic goes on from here and ends the program; Goexit ends this goroutine alone.
			p.replace()
			return
		}
		if r := recover(); r != nil {
			p.cfg.Panicked(r)
			return
		}
		p.replace()
	}()
	f()
	returned = true
}

// replace starts a goroutine in place of this one, which is ending.
func (p *Pool) replace() { p.all.Go(func() { p.work(nil) }) }

func (p *Pool) count(f func(*PoolStats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// Close refuses new work, waits until all that was taken is done, and returns nil; or it returns
// the error of ctx, and the work goes on. It must not be called by a function of the pool.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
	p.mu.Unlock()
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.wait.Wait()
		p.all.Wait()
		select { // somebody who waited was quicker than the news of the end
		case f := <-p.queue:
			p.count(func(s *PoolStats) { s.Goroutines++ })
			p.work(f)
		default:
		}
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("admission: pool: work goes on: %w", ctx.Err())
	}
}

// Stats are the figures of this moment.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Waiting = len(p.queue)
	return s
}
