package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Why a caller was not let in.
var (
	ErrFull   = errors.New("admission: as many are in flight and wait as may")
	ErrLate   = errors.New("admission: no place came free in time")
	ErrClosed = errors.New("admission: closed: nothing more is let in")
)

// Urgencies as RFC 9218 has them (section 4.1): 0 goes first, 7 last.
const (
	MostUrgent  = 0
	Normal      = 3 // of a request that says nothing
	LeastUrgent = 7
)

// MaxLimit bounds Config.Limit, Config.Queue and Adaptive.Max.
const MaxLimit = 1 << 20

// Config says how much a gate lets in.
type Config struct {
	// Limit is how many may be in flight at a time, up to MaxLimit. 0: no limit; they are counted.
	// With Adaptive it is where the limit begins.
	Limit int

	// Queue is how many more may wait, up to MaxLimit. When it is full, who comes displaces the
	// newest of those who are less urgent, or is refused.
	Queue int

	// Wait is the longest that anybody waits. 0: as long as the caller's context lasts.
	Wait time.Duration

	// Adaptive moves the limit by what is measured; nil keeps it.
	Adaptive *Adaptive
}

func (c Config) check() error {
	switch {
	case c.Limit < 0 || c.Limit > MaxLimit:
		return fmt.Errorf("admission: Limit is %d, want 0 to %d", c.Limit, MaxLimit)
	case c.Queue < 0 || c.Queue > MaxLimit:
		return fmt.Errorf("admission: Queue is %d, want 0 to %d", c.Queue, MaxLimit)
	case c.Queue > 0 && c.Limit == 0:
		return fmt.Errorf("admission: Queue is %d without Limit: nobody would wait", c.Queue)
	case c.Wait < 0:
		return fmt.Errorf("admission: Wait is %v, want 0 or more", c.Wait)
	case c.Adaptive != nil && c.Limit == 0:
		return errors.New("admission: Adaptive without Limit: it needs a place to begin")
	}
	return nil
}

// Stats are the figures of a gate.
type Stats struct {
	Limit    int // now
	InFlight int // now
	Waiting  int // now

	Admitted uint64 // let in, at once or after they had waited
	Waited   uint64 // of those, who had to wait
	Done     uint64 // have left again
	Full     uint64 // refused with ErrFull; the displaced among them
	Late     uint64 // refused with ErrLate
	Gone     uint64 // their context ended while they waited
	Closed   uint64 // refused with ErrClosed

	// What Adaptive goes by; 0 without it, and until it has measured.
	Latency time.Duration // of the newest window
	Base    time.Duration // when nothing queues
}

// Refused is how many were not let in, for whatever reason.
func (s Stats) Refused() uint64 { return s.Full + s.Late + s.Gone + s.Closed }

// Gate lets so many in at a time. Its methods may be called from any goroutine.
type Gate struct {
	cfg Config

	mu     sync.Mutex // all below; held for a few dozen instructions, never while anybody waits
	stats  Stats
	queues [LeastUrgent + 1]queue
	closed bool
	adapt  *adaptation // nil: the limit stays
}

// New makes a gate.
func New(cfg Config) (*Gate, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Gate{cfg: cfg, stats: Stats{Limit: cfg.Limit}}
	if cfg.Adaptive != nil {
		a, err := cfg.Adaptive.begin(cfg.Limit)
		if err != nil {
			return nil, err
		}
		g.adapt = a
		g.stats.Limit = a.now()
	}
	return g, nil
}

// Place is the right to be in flight.
type Place struct {
	gate  *Gate
	began time.Time // with Adaptive
	over  bool
}

// waiter is somebody in a queue. All of it is the gate's, under its mutex, except told.
type waiter struct {
	place      *Place
	urgency    int
	queued     bool
	prev, next *waiter
	told       chan error // has room for the one answer: nil lets in
}

// queue is first in, first out; its newest can be taken away, too.
type queue struct{ oldest, newest *waiter }

func (q *queue) push(w *waiter) {
	w.prev = q.newest
	if q.newest == nil {
		q.oldest = w
	} else {
		q.newest.next = w
	}
	q.newest = w
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.oldest = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.newest = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// Enter waits for a place, as long as the configuration and ctx allow, and returns it. Whoever has
// one calls its Done. urgency is 0 (first) to 7 (last); what is beyond counts as the nearest.
func (g *Gate) Enter(ctx context.Context, urgency int) (*Place, error) {
	p := &Place{gate: g}
	w, err := g.enter(p, min(max(urgency, MostUrgent), LeastUrgent))
	if w == nil {
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	var late <-chan time.Time
	if g.cfg.Wait > 0 {
		t := time.NewTimer(g.cfg.Wait)
		defer t.Stop()
		late = t.C
	}
	select {
	case err = <-w.told:
	case <-late:
		err = g.giveUp(w, ErrLate)
	case <-ctx.Done():
		err = g.giveUp(w, ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// TryEnter is Enter that does not wait: ErrFull says that there is no place now.
func (g *Gate) TryEnter() (*Place, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &Place{gate: g}
	switch {
	case g.closed:
		g.stats.Closed++
		return nil, ErrClosed
	case !g.room():
		g.stats.Full++
		return nil, ErrFull
	}
	g.admit(p)
	return p, nil
}

// room reports whether somebody who comes now may go in: those who wait go before.
func (g *Gate) room() bool {
	return g.stats.Waiting == 0 && (g.stats.Limit == 0 || g.stats.InFlight < g.stats.Limit)
}

func (g *Gate) admit(p *Place) {
	g.stats.InFlight++
	g.stats.Admitted++
	if g.adapt != nil {
		p.began = time.Now()
		g.adapt.entered(g.stats.InFlight)
	}
}

// enter lets p in, refuses it, or queues it: then it returns the waiter.
func (g *Gate) enter(p *Place, urgency int) (*waiter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		g.stats.Closed++
		return nil, ErrClosed
	case g.room():
		g.admit(p)
		return nil, nil
	case g.stats.Waiting >= g.cfg.Queue:
		victim := g.last()
		if victim == nil || victim.urgency <= urgency {
			g.stats.Full++
			return nil, ErrFull
		}
		g.unqueue(victim)
		g.stats.Full++
		victim.told <- ErrFull
	}
	w := &waiter{place: p, urgency: urgency, queued: true, told: make(chan error, 1)}
	g.queues[urgency].push(w)
	g.stats.Waiting++
	return w, nil
}

// last is the newest of the least urgent who wait; nil: nobody waits.
func (g *Gate) last() *waiter {
	for u := LeastUrgent; u >= MostUrgent; u-- {
		if w := g.queues[u].newest; w != nil {
			return w
		}
	}
	return nil
}

func (g *Gate) first() *waiter {
	for u := range g.queues {
		if w := g.queues[u].oldest; w != nil {
			return w
		}
	}
	return nil
}

func (g *Gate) unqueue(w *waiter) {
	g.queues[w.urgency].remove(w)
	w.queued = false
	g.stats.Waiting--
}

// giveUp takes a waiter out of its queue because of why, and returns that; unless it was decided in
// the same moment: then it has its place, or is refused, by what was decided.
func (g *Gate) giveUp(w *waiter, why error) error {
	g.mu.Lock()
	if w.queued {
		g.unqueue(w)
		if errors.Is(why, ErrLate) {
			g.stats.Late++
		} else {
			g.stats.Gone++
		}
		g.mu.Unlock()
		return why
	}
	g.mu.Unlock()
	return <-w.told
}

// Done gives the place back. A second call does nothing.
func (p *Place) Done() { p.leave(true) }

// Forget is Done for work whose latency says nothing of the server's: a stream, work that was
// cancelled, an error that came at once.
func (p *Place) Forget() { p.leave(false) }

func (p *Place) leave(counts bool) {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.over {
		return
	}
	p.over = true
	g.stats.InFlight--
	g.stats.Done++
	if g.adapt != nil {
		now := time.Now()
		if counts {
			g.adapt.left(p.began, now)
		}
		g.stats.Limit = g.adapt.look(now, g.stats.InFlight, g.stats.Waiting)
		g.stats.Latency, g.stats.Base = g.adapt.latency, g.adapt.base
	}
	g.letIn()
}

// letIn lets in who waits, as far as there is room.
func (g *Gate) letIn() {
	for g.stats.Waiting > 0 && g.stats.InFlight < g.stats.Limit {
		w := g.first()
		g.unqueue(w)
		g.stats.Waited++
		g.admit(w.place)
		w.told <- nil
	}
}

// Close refuses everybody from now on, and those who wait, with ErrClosed. Who is in flight stays.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for w := g.first(); w != nil; w = g.first() {
		g.unqueue(w)
		g.stats.Closed++
		w.told <- ErrClosed
	}
}

// Stats are the figures of this moment.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}
