package recorder

import (
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// passing is a peer whose reader is a fake: it takes one connection from the place that the
// keeper's shelf has for it, and the next one once that has ended.
type passing struct {
	t    *testing.T
	port *port
	seat *seat
	over chan struct{}

	mu        sync.Mutex
	there     *guest // in the place; nil: nothing
	displaced int    // how many were there when another one was put
	got       string // what was read
	returned  int    // places of connections that were given back
}

func newPassing(t *testing.T) *passing {
	l, _ := testLane(t, config.OverflowBlock)
	s := &passing{t: t, over: make(chan struct{})}
	rm := &remote{
		iso: &isolation{over: s.over}, lane: l, ended: make(chan struct{}),
		spent: make(chan struct{}),
	}
	s.port, _ = newRemotePort(l, rm, slog.New(slog.DiscardHandler))
	s.seat = newSeat(make(chan struct{}, 1), nil, time.Now())
	s.seat.hand = func(g *guest) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.there != nil {
			s.displaced++
		}
		s.there = g
		return true
	}
	s.port.opener = s.seat
	s.seat.begins()
	return s
}

// connection is one that has sent a text, and stays open.
func (s *passing) connection(text string) *guest {
	s.t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	s.t.Cleanup(func() { _ = theirs.Close() })
	if _, err := theirs.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
	return &guest{connection: &socket{descriptor: pair[0]}, giveBack: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.returned++
	}}
}

// take has the reader take what is in the place; nil: nothing is.
func (s *passing) take() *guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.there
	s.there = nil
	return g
}

// read reads a connection to its end, which is as far as the recorder lets it be.
func (s *passing) read(g *guest, fd int) {
	testenv.Until(s.t, time.Minute, "the connection ends", func() bool {
		b := make([]byte, 100)
		n, err := sys.Receive(fd, b)
		s.mu.Lock()
		s.got += string(b[:max(0, n)])
		s.mu.Unlock()
		return n == 0 && err == nil
	})
	_ = sys.CloseFD(fd)
	s.seat.vacate()
}

// TestConnectionsArePassedOneByOne stops a peer that reads one connection, with more behind it:
// the reader is passed the next one once it has taken the one before, and none ends but behind
// what it holds. The last one is the reader's to end.
func TestConnectionsArePassedOneByOne(t *testing.T) {
	s := newPassing(t)
	first := s.connection("a")
	s.seat.give(first)
	for _, text := range []string{"b", "c", "d"} {
		s.seat.later(s.connection(text))
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range 3 {
			var g *guest
			testenv.Until(t, time.Minute, "a connection is passed", func() bool { g = s.take(); return g != nil })
			fd, err := sys.Dup(g.fd())
			if err != nil {
				t.Error(err)
				return
			}
			s.seat.took()
			s.read(g, fd)
		}
	}()
	s.port.areGiven(time.Now().Add(time.Minute))
	<-read
	last := s.take()
	if last == nil || sys.PeerEnded(last.fd()) {
		t.Fatal("the last one was not passed, or has ended")
	}
	if s.got != "abc" || s.displaced > 0 || s.returned != 3 {
		t.Errorf("read: %q; %d were displaced, %d are closed", s.got, s.displaced, s.returned)
	}
	if g, _ := s.seat.taken(); g != last {
		t.Error("the seat has another one, or is free")
	}
	s.seat.took()
	s.seat.vacate()
	if g, _ := s.seat.taken(); g != nil || s.returned != 4 {
		t.Errorf("all are read, and the seat is not free; %d are closed", s.returned)
	}
	if n := s.port.lane.sheet().Unread[unreadStopped]; n > 0 {
		t.Errorf("%d bytes are unread", n)
	}
}

// TestConnectionsThatNobodyTakes stops a peer whose reader takes nothing: what was not passed by
// the end of the stop is counted. Where the reader has ended, so is what it was passed.
func TestConnectionsThatNobodyTakes(t *testing.T) {
	s := newPassing(t)
	s.seat.give(s.connection("a"))
	s.seat.later(s.connection("bb"))
	s.seat.later(s.connection("cccc"))
	s.port.areGiven(time.Now())
	if n := s.port.lane.sheet().Unread[unreadStopped]; n != 6 || s.displaced > 0 {
		t.Errorf("%d bytes are unread, %d were displaced", n, s.displaced)
	}
	s.seat.later(s.connection("dddddddd"))
	close(s.over)
	s.port.areGiven(time.Now().Add(time.Minute))
	s.port.unseated()
	if n := s.port.lane.sheet().Unread[unreadStopped]; n != 15 || s.returned != 4 {
		t.Errorf("%d bytes are unread; %d are closed", n, s.returned)
	}
}

// TestEndsOfEarlierConnections tells a seat of an end while the reader has a connection in hand: it
// is not of that one.
func TestEndsOfEarlierConnections(t *testing.T) {
	s := newPassing(t)
	g := s.connection("a")
	s.seat.give(g)
	s.seat.vacate()
	if at, _ := s.seat.taken(); at != g {
		t.Fatal("the guest has left, and nobody has read it")
	}
	s.seat.took()
	if s.seat.vacate(); s.returned != 1 {
		t.Error("the guest was read, and is not closed")
	}
}

// TestConnectionsThatARecorderHasPassed has a recorder killed while the reader reads one connection
// of a peer, and has another one in hand: the next recorder knows of both.
func TestConnectionsThatARecorderHasPassed(t *testing.T) {
	s := newPassing(t)
	a, b := s.connection("a"), s.connection("b")
	same, err := sys.Dup(a.fd())
	if err != nil {
		t.Fatal(err)
	}
	of := func(fd int) *guest { return &guest{connection: &socket{descriptor: fd}, giveBack: func() {}} }
	for _, c := range []struct {
		name          string
		left          []leftConnection
		reads, passed int // descriptors; -1: none
	}{
		{"nothing", []leftConnection{{source: "y", fd: a.fd()}}, -1, -1},
		{"one that is read", []leftConnection{{source: "x", fd: a.fd()}}, a.fd(), -1},
		{"one in hand", []leftConnection{{source: "x", fd: a.fd(), next: true}}, a.fd(), a.fd()},
		{"both", []leftConnection{{source: "x", fd: a.fd()}, {source: "x", fd: b.fd(), next: true}}, a.fd(), b.fd()},
		{
			"one that is taken",
			[]leftConnection{{source: "x", fd: same, next: true}, {source: "x", fd: a.fd()}},
			a.fd(), a.fd(),
		},
	} {
		left := leftConnections{readings: c.left}
		reads, passed := left.reading("x", of)
		fd := func(g *guest) int {
			if g == nil {
				return -1
			}
			return g.fd()
		}
		if fd(reads) != c.reads || fd(passed) != c.passed || (c.reads == c.passed) != (reads == passed) {
			t.Errorf("%s: %d is read, %d is in hand; want %d and %d", c.name, fd(reads), fd(passed), c.reads, c.passed)
		}
	}
}

// TestDismissalWhileTheRecorderIsReplaced dismisses a peer that is gone while another recorder is
// about to go on: that one has the peer's spool, and nobody waits for the end of it here.
func TestDismissalWhileTheRecorderIsReplaced(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	defer stop(t, r)
	s := newPassing(t)
	close(s.port.done)
	yields := make(chan struct{})
	h := &hub{r: &Recorder{log: r.log, iso: &isolation{yields: yields}}}
	dismissed := make(chan bool)
	go func() { dismissed <- h.dismiss(s.port, time.Now()) }()
	close(yields)
	select {
	case is := <-dismissed:
		if is || s.port.hasDeparted() {
			t.Error("it is dismissed, and its spool is the next recorder's")
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for a spool that is shown to nobody")
	}
}
