package recorder

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
)

// What a peer's connections hold is counted as the recorder stops, and that is killed: as the first
// connection leaves the keeper's shelf, and behind that. The next recorder knows what was counted
// of one that is gone, and that the stop ends badly; what it finds on the shelf it takes back, for
// it is read, or counted again.
func TestWhatIsThrownAwayIsCountedOnce(t *testing.T) {
	bell, err := isolate.NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	shared, err := spool.Create(spool.Config{Room: spool.MaxRoom})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Close() })
	log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
	cfg := killedSource("tally128", false)
	born := func() (*lane, *spooled) { // of another recorder, with what the spool says
		l, err := newLane(cfg, log, frameStream, wasteStream)
		if err != nil {
			t.Fatal(err)
		}
		play, err := newSpooled(l, shared, log, spool.Steady)
		if err != nil {
			t.Fatal(err)
		}
		return l, play
	}
	l, play := born()
	rm := &remote{
		iso: &isolation{bell: bell, stopping: make(chan struct{})}, lane: l, spool: shared, play: play,
		ended: make(chan struct{}), spent: make(chan struct{}),
	}
	rm.told.Store(true)
	rm.iso.remotes = []*remote{rm}
	p, _ := newRemotePort(l, rm, slog.New(slog.DiscardHandler))

	var fds []int
	s := newSeat(make(chan struct{}, 1), nil, time.Now())
	p.opener = s
	gone := 0
	for n, text := range []string{"one", "and two"} {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs := os.NewFile(uintptr(pair[1]), "theirs")
		t.Cleanup(func() { _ = theirs.Close() })
		if _, err := theirs.WriteString(text); err != nil {
			t.Fatal(err)
		}
		shelved, err := syscall.Dup(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(shelved) })
		fds = append(fds, shelved)
		s.later(&guest{giveBack: func() {}, connection: &socket{descriptor: pair[0], unshelve: func() {
			gone++
			next, _ := born()
			next.takesBack(fds[n+1:])
			want := uint64(len("one"))
			if n > 0 {
				want += uint64(len("and two"))
			}
			if got := next.sheet().Unread[unreadStopped]; got != want {
				t.Errorf("killed as connection %d leaves the shelf: %d bytes are counted, want %d", n, got, want)
			}
		}}})
	}
	l.ends()
	p.leftUnread()
	if gone != 2 {
		t.Fatalf("%d connections have left the shelf", gone)
	}
	for _, c := range []struct {
		there []int
		want  uint64
		bad   string
	}{
		{nil, uint64(len("one" + "and two")), badReader},
		{fds[1:], uint64(len("one")), badReader},
		{fds, 0, ""},
	} {
		next, _ := born()
		next.takesBack(c.there)
		next.ends()
		if got := next.sheet().Unread[unreadStopped]; got != c.want || next.badEnd() != c.bad {
			t.Errorf("%d of 2 are on the shelf: %d bytes are counted, want %d, and it ends by %q, want %q",
				len(c.there), got, c.want, next.badEnd(), c.bad)
		}
		if err := unended([]*port{{lane: next}}); (err != nil) != (c.bad != "") {
			t.Errorf("%d of 2 are on the shelf: the stop says %v", len(c.there), err)
		}
	}
}
