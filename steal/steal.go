package steal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Task is work to do. The worker is who does it, to spawn others; it is valid until the task ends.
type Task func(*Worker)

// Config is the shape of a pool.
type Config struct {
	Workers int // goroutines, 1 to 1024; 0: GOMAXPROCS
	Local   int // tasks that wait at each worker, 2 to 1<<20; 0: 256
	Global  int // tasks that wait in the common queue, 1 to 1<<20; 0: 8192

	// Panicked is told of what a task panicked with, and the worker goes on. nil: the panic ends
	// the program.
	Panicked func(any)
}

const (
	maxWorkers = 1024
	maxWaiting = 1 << 20

	// fair is how often a worker looks at the common queue first: a prime, so that it does not beat
	// with what tasks do regularly.
	fair = 61
)

// ErrNoTask is the error of Submit without a task, and what Spawn panics with.
var ErrNoTask = errors.New("steal: the task is nil")

// ErrClosed is the error of Submit after Close.
var ErrClosed = errors.New("steal: the pool is closed")

// Stats are the figures of a pool so far.
type Stats struct {
	Done    uint64 // tasks
	Stolen  uint64 // of those, by a worker that had not spawned it, from the one that had
	Spilled uint64 // moved from a full queue to the common one
	Nested  uint64 // done at once by Spawn: all queues were full
}

// Pool is workers and their queues. Its methods may be called from any goroutine.
type Pool struct {
	cfg     Config
	workers []*Worker
	ended   sync.WaitGroup

	// idle counts workers that sleep or are about to. Who has put a task somewhere loads it
	// afterwards; who is about to sleep adds itself and looks for tasks afterwards. So one of them
	// sees the other. It changes under mu.
	idle atomic.Int32
	// waking is set while a worker has been woken and has not yet looked around: nobody else needs
	// to be. It clears it before it looks, and wakes the next when it has found something.
	waking atomic.Bool

	mu     sync.Mutex // may be held when a worker's lock is taken, never the other way round
	wake   sync.Cond
	common queue
	room   chan struct{} // closed when the common queue has room again; nil: nobody waits for that
	closed bool          // no more tasks are taken
	over   bool          // and none is left, nor anyone who could spawn one: the workers end
}

// Worker is one of a pool's goroutines.
type Worker struct {
	pool *Pool
	turn uint

	mu  sync.Mutex
	own queue

	done, stolen, spilled, nested atomic.Uint64
	_                             [64]byte // the next worker's fields are another CPU's
}

// New starts a pool.
func New(cfg Config) (*Pool, error) {
	if cfg.Workers == 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.Local == 0 {
		cfg.Local = 256
	}
	if cfg.Global == 0 {
		cfg.Global = 8192
	}
	switch {
	case cfg.Workers < 1 || cfg.Workers > maxWorkers:
		return nil, fmt.Errorf("steal: Workers is %d, want 1 to %d", cfg.Workers, maxWorkers)
	case cfg.Local < 2 || cfg.Local > maxWaiting:
		return nil, fmt.Errorf("steal: Local is %d, want 2 to %d", cfg.Local, maxWaiting)
	case cfg.Global < 1 || cfg.Global > maxWaiting:
		return nil, fmt.Errorf("steal: Global is %d, want 1 to %d", cfg.Global, maxWaiting)
	}
	p := &Pool{cfg: cfg, common: newQueue(cfg.Global)}
	p.wake.L = &p.mu
	for range cfg.Workers {
		p.workers = append(p.workers, &Worker{pool: p, own: newQueue(cfg.Local)})
	}
	for i, w := range p.workers {
		p.ended.Go(func() { w.run(i) })
	}
	return p, nil
}

// Submit puts a task at the end of the common queue, and waits for room there as long as ctx lasts.
// An error says that it will not be done. Tasks should not call it: when all wait for room, nobody
// makes any.
func (p *Pool) Submit(ctx context.Context, t Task) error {
	if t == nil {
		return ErrNoTask
	}
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return ErrClosed
		}
		if p.common.push(t) {
			p.mu.Unlock()
			p.rouse()
			return nil
		}
		if p.room == nil {
			p.room = make(chan struct{})
		}
		room := p.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close takes no more tasks, and returns when all that were taken, and what they have spawned, are
// done. No task may call it.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
	p.wake.Broadcast()
	p.mu.Unlock()
	p.ended.Wait()
}

// Stats are the figures so far.
func (p *Pool) Stats() (s Stats) {
	for _, w := range p.workers {
		s.Done += w.done.Load()
		s.Stolen += w.stolen.Load()
		s.Spilled += w.spilled.Load()
		s.Nested += w.nested.Load()
	}
	return s
}

// rouse wakes a worker for what has just been put somewhere, if one sleeps and none is about to
// look.
func (p *Pool) rouse() {
	if p.idle.Load() > 0 && p.waking.CompareAndSwap(false, true) {
		p.mu.Lock()
		if p.idle.Load() == 0 { // it has woken for another reason: nobody clears the mark
			p.waking.Store(false)
		}
		p.wake.Signal()
		p.mu.Unlock()
	}
}

// Spawn has a task done, sooner or later: by this worker, or by one that has nothing to do. It
// never waits; where all queues are full it does the task itself. Only a task may call it, on the
// worker that it was given.
func (w *Worker) Spawn(t Task) {
	if t == nil {
		panic(ErrNoTask)
	}
	w.mu.Lock()
	full := !w.own.push(t)
	var half []Task
	if full {
		half = w.own.takeOldest(w.pool.cfg.Local / 2)
		w.own.push(t)
	}
	w.mu.Unlock()
	if full {
		w.spill(half)
	}
	w.pool.rouse()
}

// spill moves tasks to the common queue, and does what has no room there.
func (w *Worker) spill(tasks []Task) {
	p := w.pool
	p.mu.Lock()
	n := 0
	for n < len(tasks) && p.common.push(tasks[n]) {
		n++
	}
	p.mu.Unlock()
	w.spilled.Add(uint64(n))
	for _, t := range tasks[n:] {
		w.nested.Add(1)
		w.do(t)
	}
}

// run is the goroutine of worker i.
func (w *Worker) run(i int) {
	for {
		t := w.find(i)
		if t == nil {
			if w.rest() {
				return
			}
			continue
		}
		w.do(t)
	}
}

func (w *Worker) do(t Task) {
	if w.pool.cfg.Panicked != nil {
		defer func() {
			if v := recover(); v != nil {
				w.done.Add(1)
				w.pool.cfg.Panicked(v)
			}
		}()
	}
	t(w)
	w.done.Add(1)
}

// find takes a task from wherever there is one; nil: nowhere.
func (w *Worker) find(i int) Task {
	if w.turn++; w.turn%fair == 0 {
		if t := w.fromCommon(1); t != nil {
			return t
		}
		w.mu.Lock()
		oldest := w.own.takeOldest(1)
		w.mu.Unlock()
		if len(oldest) > 0 {
			return oldest[0]
		}
	}
	w.mu.Lock()
	t := w.own.takeNewest()
	w.mu.Unlock()
	if t == nil {
		t = w.fromCommon(w.pool.cfg.Local / 2)
	}
	for k := 1; t == nil && k < len(w.pool.workers); k++ {
		t = w.steal(w.pool.workers[(i+k)%len(w.pool.workers)])
	}
	return t
}

// fromCommon takes this worker's share of the common queue, most tasks at most.
func (w *Worker) fromCommon(most int) Task {
	p := w.pool
	p.mu.Lock()
	tasks := p.common.takeOldest(min(most, p.common.n/len(p.workers)+1))
	if p.room != nil && len(tasks) > 0 {
		close(p.room)
		p.room = nil
	}
	p.mu.Unlock()
	return w.keep(tasks)
}

// steal takes the older half of what another worker has waiting.
func (w *Worker) steal(from *Worker) Task {
	from.mu.Lock()
	tasks := from.own.takeOldest((from.own.n + 1) / 2)
	from.mu.Unlock()
	w.stolen.Add(uint64(len(tasks)))
	return w.keep(tasks)
}

// keep returns the first of tasks and keeps the others, in their order: this worker's own queue was
// empty, or it took one.
func (w *Worker) keep(tasks []Task) Task {
	if len(tasks) == 0 {
		return nil
	}
	if len(tasks) > 1 {
		w.mu.Lock()
		for i := len(tasks) - 1; i > 0; i-- { // the newest is done first, so the oldest is put last
			w.own.push(tasks[i])
		}
		w.mu.Unlock()
		w.pool.rouse() // there is work for another, too
	}
	return tasks[0]
}

// rest sleeps until there may be something to do. It reports whether the worker is to end.
func (w *Worker) rest() (end bool) {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle.Add(1)
	defer p.idle.Add(-1)
	for !p.anything() {
		// A worker that does a task may still spawn others, and wait for them: all stay until none
		// does one.
		if p.closed && int(p.idle.Load()) == len(p.workers) && !p.over {
			p.over = true
			p.wake.Broadcast()
		}
		if p.over {
			return true
		}
		p.wake.Wait()
		p.waking.Store(false)
	}
	return false
}

// anything reports whether a task waits anywhere. The caller holds mu.
func (p *Pool) anything() bool {
	if p.common.n > 0 {
		return true
	}
	for _, w := range p.workers {
		w.mu.Lock()
		n := w.own.n
		w.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}
