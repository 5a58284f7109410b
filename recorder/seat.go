package recorder

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// guest is the connection of a peer. The hub looks at it while the peer's port reads and closes it.
type guest struct {
	connection
	giveBack func() // its place
	came     uint64 // how many had come by then, with it; 0: another recorder had it before. The hub's

	mu     sync.Mutex
	closed bool
}

// guestsCame is how many connections hubs of this process have heard of.
var guestsCame atomic.Uint64

func (g *guest) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	defer g.giveBack()
	return g.connection.close()
}

// hang ends it; what it holds can still be read.
func (g *guest) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.deafen()
	}
}

// unread is how many bytes wait in it.
func (g *guest) unread() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0
	}
	return g.connection.unread()
}

// onceRead is how much is in the books of a peer once all is read that its connection holds now.
func (p *port) onceRead(g *guest) uint64 {
	n := p.lane.bytesRead() // from the books to the kernel: no byte counts twice
	n += p.remote.unshown()
	return n + g.unread()
}

// ending reports whether nothing more will be sent, though what was sent may still wait.
func (g *guest) ending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed || g.connection.ending()
}

// seat is the opener of a peer: it waits for the connection that the hub gives it.
//
// Where another process reads the peer, the seat passes connections on to it, one at a time: the
// keeper's shelf has one place for them, and whoever is killed leaves no more than what is there.
// The next one is passed once that process has taken the one before. Until then it has its own
// entry on the shelf.
type seat struct {
	freed chan<- struct{}
	next  chan device
	moved chan struct{} // has a signal when another process has taken a connection

	mu    sync.Mutex
	guest *guest // nil: the seat is free
	left  time.Time
	rest  []device // to be read behind guest, and when the peer stops
	// gives a connection to the process that reads the peer; nil: this one does. false: the keeper
	// has ended
	hand   func(*guest) bool
	reads  bool     // … which knows the peer
	passed *guest   // … and has not taken this one yet; nil: it has taken all that it was given
	lost   []*guest // … and will never hear of these: the keeper could not take them
	ends   bool     // … and the peer stops: a connection ends before the next one is read
}

// newSeat makes a seat for a guest, or one that is free since left.
func newSeat(freed chan<- struct{}, g *guest, left time.Time) *seat {
	return &seat{
		freed: freed, next: make(chan device, 1), moved: make(chan struct{}, 1), guest: g, left: left,
	}
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
		s.rest = append(s.rest, g)
		s.pass()
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
		s.rest = append([]device{d}, s.rest...)
	default:
	}
	s.pass()
}

// pass gives the next connection to the process that reads the peer, unless that has one in hand.
// mu is held.
func (s *seat) pass() {
	if s.reads && s.passed == nil && len(s.rest) > 0 {
		if g := s.rest[0].(*guest); s.hand(g) {
			s.passed, s.rest = g, s.rest[1:]
		}
	}
	if s.guest == nil {
		s.guest = s.passed
	}
	if s.ends && s.passed != nil && s.passed != s.guest { // only its end brings the next one
		s.guest.hang()
	}
}

// took says that the process that reads the peer has taken the connection that it was passed.
func (s *seat) took() {
	s.mu.Lock()
	before := s.guest
	if s.passed == nil || before == s.passed {
		before = nil
	}
	if s.passed != nil {
		s.guest, s.passed = s.passed, nil
		s.pass()
	}
	s.mu.Unlock()
	s.move()
	if before != nil { // its end was not told
		_ = before.close()
	}
}

// missed says that the keeper could not take the connection that was passed: nobody reads it.
func (s *seat) missed() {
	s.mu.Lock()
	if g := s.passed; g != nil {
		s.passed, s.lost = nil, append(s.lost, g)
		if s.guest == g {
			s.guest, s.left = nil, time.Now()
		}
		s.pass()
	}
	s.mu.Unlock()
	s.move()
}

// seatTold is how long it may take to hear what has become of a connection that was passed, once
// the process that reads the peer has come to its end.
const seatTold = 2 * time.Second

// settle waits until it is known what has become of the connection that was passed, and gives those
// to the caller that nobody has read.
func (s *seat) settle() (lost []device) {
	late := time.NewTimer(seatTold)
	defer late.Stop()
	for isLate := false; ; {
		s.mu.Lock()
		if s.passed == nil || isLate {
			for _, g := range s.lost {
				lost = append(lost, g)
			}
			s.lost = nil
			s.mu.Unlock()
			return lost
		}
		s.mu.Unlock()
		select {
		case <-s.moved:
		case <-late.C:
			isLate = true
		}
	}
}

// move tells whoever waits that a connection was taken.
func (s *seat) move() {
	select {
	case s.moved <- struct{}{}:
	default: // it is told
	}
}

// finish has each connection end, but the last one, so that all are read. waits: one has not been
// passed yet.
func (s *seat) finish() (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = true
	s.pass()
	return len(s.rest) > 0
}

// vacate says that the process that reads the peer has read the guest to its end. What it was
// passed and has not taken is no such guest: it tells of an end behind that.
func (s *seat) vacate() {
	s.mu.Lock()
	g := s.guest
	if g == nil || g == s.passed {
		s.mu.Unlock()
		return
	}
	if s.guest = s.passed; s.guest == nil {
		s.left = time.Now()
	}
	isFree := s.guest == nil
	s.mu.Unlock()
	_ = g.close() // this process's own descriptor of it
	if isFree {
		s.free()
	}
}

func (s *seat) free() {
	select {
	case s.freed <- struct{}{}:
	default: // it is told
	}
}

// taken is the guest, nil: the seat is free, and since when.
func (s *seat) taken() (*guest, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest, s.left
}

// later has a connection read when the peer stops, behind those that it has.
func (s *seat) later(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guest == nil || s.hand == nil {
		s.guest = g
	}
	s.rest = append(s.rest, g)
	s.pass()
}

// has lists the connections that are not read to their ends.
func (s *seat) has() (all []*guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// list is has with mu held.
func (s *seat) list() (all []*guest) {
	add := func(g *guest) {
		if g != nil && !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	add(s.guest)
	add(s.passed)
	for _, g := range s.lost {
		add(g)
	}
	for _, d := range s.rest {
		add(d.(*guest))
	}
	return all
}

// clear empties the seat, and gives what it had to the caller, to be closed.
func (s *seat) clear() (all []*guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.next: // it is the guest
	default:
	}
	all = s.list()
	if s.guest != nil {
		s.left = time.Now()
	}
	s.guest, s.passed, s.rest, s.lost = nil, nil, nil, nil
	return all
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

var (
	_ device = (*guest)(nil)
	_ opener = (*seat)(nil)
)
