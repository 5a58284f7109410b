package reader

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// goroutines is the strategies blocking and polling: each port has a goroutine.
type goroutines struct {
	cfg   Config
	slots chan struct{} // polling: the semaphore

	mu     sync.Mutex
	live   map[*goHandle]bool
	closed bool
}

func newGoroutines(cfg Config) *goroutines {
	return &goroutines{cfg: cfg, slots: make(chan struct{}, cfg.Readers), live: map[*goHandle]bool{}}
}

type goHandle struct {
	g      *goroutines
	f      *feed
	resume chan struct{}
	finish chan struct{}
	stop   chan struct{}
	calmed time.Time
	wake   int // eventfd that ends a wait in poll(2)
	once   sync.Once
	ended  chan struct{}
}

// Add implements Reader.
func (g *goroutines) Add(p Port) (Handle, error) {
	f, err := newFeed(p)
	if err != nil {
		return nil, err
	}
	h := &goHandle{
		g: g, f: f, resume: make(chan struct{}, 1), finish: make(chan struct{}, 1),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	if h.wake, err = sys.Eventfd(); err == nil {
		g.mu.Lock()
		if g.closed {
			err = fmt.Errorf("reader is closed")
			_ = sys.CloseFD(h.wake)
		} else {
			g.live[h] = true
		}
		g.mu.Unlock()
	}
	if err != nil {
		f.close()
		return nil, err
	}
	go h.run()
	return h, nil
}

// Close implements Reader.
func (g *goroutines) Close() error {
	g.mu.Lock()
	g.closed = true
	var all []*goHandle
	for h := range g.live {
		all = append(all, h)
	}
	g.mu.Unlock()
	for _, h := range all {
		h.Remove()
	}
	return nil
}

// Resume implements Handle.
func (h *goHandle) Resume() {
	select {
	case h.resume <- struct{}{}:
	default:
	}
}

// Remove implements Handle.
func (h *goHandle) Remove() {
	h.once.Do(func() {
		close(h.stop)
		h.signal()
	})
	<-h.ended
}

// Finish implements Handle.
func (h *goHandle) Finish() {
	select {
	case h.finish <- struct{}{}:
		h.signal()
	default: // asked already
	}
}

// signal ends a wait in poll(2).
func (h *goHandle) signal() {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	if h.g.live[h] { // else the eventfd is closed already
		sys.EventfdSignal(h.wake)
	}
}

func (h *goHandle) run() {
	err := h.read()
	h.f.end(err)
	h.g.mu.Lock()
	delete(h.g.live, h)
	_ = sys.CloseFD(h.wake)
	h.g.mu.Unlock()
	close(h.ended)
}

// read reads until the port ends or is removed.
func (h *goHandle) read() error {
	h.f.begin()
	for {
		select {
		case <-h.stop:
			return ErrRemoved
		case <-h.finish:
			h.f.finish = true
		default:
		}
		if h.f.paused {
			select {
			case <-h.stop:
				return ErrRemoved
			case <-h.resume:
				h.f.show(0)
			}
			continue
		}
		var err error
		switch {
		case h.f.finish:
			var v visit
			if v, err = h.f.pull(plainRead, clock()); err == nil && h.f.finished(v) {
				return ErrRemoved
			}
		case h.g.cfg.Strategy == Polling:
			err = h.poll()
		default:
			err = h.block()
		}
		if err != nil {
			return err
		}
	}
}

// calmEvery is how often a goroutine that goes from system call to system call yields. The
// runtime's monitor takes the P from one that has done so for 10 ms, at every look, which costs it
// four context switches a read.
const calmEvery = 5 * time.Millisecond

// block waits for input, or for the end of a pause.
func (h *goHandle) block() error {
	if now := time.Now(); now.Sub(h.calmed) > calmEvery {
		h.calmed = now
		runtime.Gosched()
	}
	wait := h.f.silence(clock())
	ready, _, err := sys.PollIn(h.f.FD, h.wake, wait)
	if err != nil || !ready {
		return err
	}
	_, err = h.f.pull(plainRead, clock())
	return err
}

// retryTaken is how soon a port tries again when the limit of readers is reached.
const retryTaken = 5 * time.Millisecond

// poll waits a tick, takes a slot and reads what there is; without a slot in time it tries again
// soon.
func (h *goHandle) poll() error {
	tick := time.NewTimer(h.g.cfg.Tick)
	defer tick.Stop()
	select {
	case <-h.stop:
		return nil
	case <-h.finish:
		h.f.finish = true
		return nil
	case <-tick.C:
	}
	taken := time.NewTimer(retryTaken)
	defer taken.Stop()
	for {
		select {
		case <-h.stop:
			return nil
		case h.g.slots <- struct{}{}:
			_, err := h.f.pull(plainRead, clock())
			<-h.g.slots
			h.f.silence(clock())
			return err
		case <-taken.C:
			taken.Reset(retryTaken)
		}
	}
}
