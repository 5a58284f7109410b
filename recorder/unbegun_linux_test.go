package recorder

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ipc"
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

// A reload renews what the shelf has of a peer that is to end, as one that makes room: whoever
// comes after a kill still finds that it is.
func TestReloadKeepsThatASpoolEnds(t *testing.T) {
	ours, theirs, err := ipc.Pair(ipc.ConnConfig{MaxFiles: 4})
	if err != nil {
		t.Skipf("SKIPPED: no sockets of AF_UNIX: %v; run this where a process may make them", err)
	}
	conn, err := ipc.Inherit(theirs, ipc.ConnConfig{MaxFiles: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = ours.Close(), conn.Close() }()
	l, _ := testLane(t, config.OverflowBlock)
	s, err := spool.Create(spool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	rm := &remote{iso: &isolation{link: isolate.NewLink(conn)}, lane: l, spool: s}
	rm.told.Store(true)
	p, _ := newRemotePort(l, rm, slog.New(slog.DiscardHandler))
	by := time.Now().Add(time.Minute)
	for n, tell := range []func(){
		func() { p.tellKeeper(p.log) },
		func() { l.wasReadTo(7); _ = rm.put(&by) },
		func() { p.tellKeeper(p.log) },
	} {
		tell()
		m, err := ours.Receive()
		if err != nil {
			t.Fatal(err)
		}
		var word shelfWord
		var lane isolate.Lane
		if err := errors.Join(json.Unmarshal(m.Data, &word), json.Unmarshal(word.Data, &lane)); err != nil {
			t.Fatal(err)
		}
		ends, isReadTo := lane.GiveUp != nil && lane.GiveUp.Equal(by), lane.ReadTo == 7
		if ends != (n > 0) || isReadTo != (n > 0) {
			t.Errorf("message %d: %s", n, m.Data)
		}
	}
}
