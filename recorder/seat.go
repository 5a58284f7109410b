package recorder

import (
	"context"
	"slices"
	"sync"
	"time"
)

// seat is the opener of a peer: it waits for the connection that the hub gives it.
type seat struct {
	freed chan<- struct{}
	next  chan device

	mu    sync.Mutex
	guest *guest // nil: the seat is free
	left  time.Time
	rest  []device // to be read when the peer stops
	// gives a connection to the process that reads the peer; nil: this one does. false: the keeper
	// has ended
	hand  func(*guest) bool
	reads bool // … which knows the peer
}

// newSeat makes a seat for a guest, or one that is free since left.
func newSeat(freed chan<- struct{}, g *guest, left time.Time) *seat {
	return &seat{freed: freed, next: make(chan device, 1), guest: g, left: left}
}

func (s *seat) open(ctx context.Context) (device, error) {
	s.mu.Lock()
	if s.guest != nil && len(s.next)+len(s.rest) == 0 { // else it was free, or has the next one already
		s.guest, s.left = nil, time.Now()
	}
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case d := <-s.next:
		return d, nil
	}
}

// give seats a guest; the seat is free.
func (s *seat) give(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guest = g
	if s.reads {
		s.hand(g)
		return
	}
	s.next <- g // has room, for the seat is free
}

// begins says that another process reads the peer from now on.
func (s *seat) begins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = true
	select {
	case d := <-s.next:
		s.hand(d.(*guest))
	default:
	}
	s.rest = slices.DeleteFunc(s.rest, func(d device) bool { return s.hand(d.(*guest)) })
}

// vacate frees a seat whose connection another process has read to its end.
func (s *seat) vacate() {
	s.mu.Lock()
	g := s.guest
	if g != nil {
		s.guest, s.left = nil, time.Now()
	}
	s.mu.Unlock()
	if g == nil {
		return
	}
	_ = g.close() // this process's own descriptor of it
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// taken returns who has the seat, nil if it is free, and since when it is free.
func (s *seat) taken() (*guest, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest, s.left
}

// later has a connection read when the peer stops. Until then the seat is taken: a peer that made
// room for another one would read it too late for its books.
func (s *seat) later(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads && s.hand(g) { // behind the one that it has
		_ = g.close()
		return
	}
	if s.guest == nil || !s.reads {
		s.guest = g
	}
	s.rest = append(s.rest, g)
}

func (s *seat) replaced() <-chan struct{} { return nil }

func (s *seat) close(bool) (rest []device, more bool, err error) {
	select {
	case d := <-s.next:
		rest = append(rest, d)
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest, s.rest = append(rest, s.rest...), nil
	return rest, false, nil
}

var _ opener = (*seat)(nil)
