package recorder

import (
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// A peer that comes behind a source which does not leave in time has no spool when it stops: what
// it was sent is counted, and closed.
func TestPeerThatHadNoTimeToBegin(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	t.Cleanup(func() { _ = theirs.Close() })
	if _, err := theirs.Write(make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	l, _ := testLane(t, config.OverflowBlock)
	rm := &remote{
		iso: &isolation{}, lane: l, after: []*port{{departed: make(chan struct{})}},
		ended: make(chan struct{}), spent: make(chan struct{}),
	}
	p, ctx := newRemotePort(l, rm, slog.New(slog.DiscardHandler))
	returned := false
	s := newSeat(make(chan struct{}, 1), nil, time.Now())
	s.give(&guest{connection: &socket{descriptor: pair[0]}, giveBack: func() { returned = true }})
	p.opener = s
	p.until = time.Now()
	p.cancel()
	p.keepRemote(ctx)
	if n := l.sheet().Unread[unreadStopped]; n != 300 || !returned {
		t.Errorf("%d bytes are unread, its place was given back: %v", n, returned)
	}
}
