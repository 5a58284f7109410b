package recorder

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// standingLog is a log that takes nothing while it stands still.
type standingLog struct {
	killable
	stands bool
}

func (s *standingLog) TryAppendAt(stream uint32, time int64, offset uint64, data []byte) (uint64, error) {
	if s.stands {
		return 0, seglog.ErrBusy
	}
	return s.killable.TryAppendAt(stream, time, offset, data)
}

// standstill is a source in another process whose log stands still.
type standstill struct {
	t       *testing.T
	log     standingLog
	iso     *isolation
	port    *port
	journal strings.Builder
	sent    uint64 // bytes that a sender was told have arrived
}

// newStandstill is one whose reader has filled the spool, and counted what it could not read.
// ends: it has come to its end since. more is behind what it has read.
func newStandstill(t *testing.T, ends bool, more ...scriptStep) *standstill {
	s := &standstill{t: t, log: standingLog{killable{rng: rand.New(rand.NewPCG(1, 1))}, true}}
	bell, err := isolate.NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	shared, err := spool.Create(spool.Config{Size: 64 << 10, Marks: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Close() })
	cfg := config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowBlock, Buffer: 2000,
	}
	l, err := newLane(cfg, &s.log, frameStream, wasteStream)
	if err != nil {
		t.Fatal(err)
	}
	play, err := newSpooled(l, shared, &s.log, spool.Steady)
	if err != nil {
		t.Fatal(err)
	}
	keeper, theirs, err := ipc.Pair(ipc.ConnConfig{}) // which says nothing by itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = keeper.Close(), theirs.Close() })
	s.iso = &isolation{
		bell: bell, stopping: make(chan struct{}), link: isolate.NewLink(keeper), asked: map[string]chan uint64{},
	}
	rm := &remote{
		iso: s.iso, lane: l, spool: shared, play: play, ended: make(chan struct{}),
		spent: make(chan struct{}),
	}
	s.iso.remotes = []*remote{rm}
	s.port, _ = newRemotePort(l, rm, slog.New(slog.NewTextHandler(&s.journal, nil)))

	p, err := shared.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	feed := script{{spool.Mark{Kind: spool.Opened}, nil}}
	for n := range uint64(40) {
		feed = append(feed, scriptStep{spool.Mark{Time: int64(n), Kind: spool.Chunk}, frames(8*n, 8)})
		s.sent += uint64(len(frames(8*n, 8)))
	}
	append(feed, more...).feed(t, p)
	for p.Note(spool.Mark{Kind: spool.Silent}) == nil { // until it has no room
	}
	last := []spool.Mark{
		{Kind: spool.Lost, A: spool.Discarded, B: 1000},
		{Kind: spool.Lost, A: spool.Discarded, B: 500},
	}
	s.sent += 1500
	if ends {
		last = append(last, spool.Mark{Kind: spool.Ended})
	}
	for _, m := range last {
		if err := p.Note(m); err != nil {
			t.Fatalf("the reader cannot write down how it has ended: %v", err)
		}
	}
	s.show()
	return s
}

// show shows what the log takes.
func (s *standstill) show() {
	l := s.port.lane
	for range 100 {
		s.iso.round()
		s.log.visible = len(s.log.all)
		l.settle(seglog.Commit{Stored: s.log.stored(), Durable: s.log.stored()}, 2e18)
	}
}

// stopped reports whether the port has, for who waits for it.
func (s *standstill) stopped() bool {
	select {
	case <-s.port.done:
		return true
	default:
		return false
	}
}

// account is that of the source once nothing more comes: what was sent is read or unread.
func (s *standstill) account() ledger.Port {
	s.t.Helper()
	p := s.port.lane.sheet()
	if got := p.Bytes.Read + p.Unread[unreadStopped]; got != s.sent || len(p.Unbalanced) > 0 {
		s.t.Errorf("%d bytes read, %d unread: %d of %d; %v", p.Bytes.Read, p.Unread[unreadStopped], got, s.sent,
			p.Unbalanced)
	}
	return p
}

// TestReloadWhileTheLogStandsStill stops a source by a reload: what its reader had read waits for
// the log, for however long, and nobody waits for it.
func TestReloadWhileTheLogStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandstill(t, true)
		go s.port.playToEnd(time.Now().Add(finishPatience), func() { close(s.port.done) })
		time.Sleep(time.Hour)
		if !s.stopped() || s.port.remote.isSpent() {
			t.Errorf("behind an hour the reload has ended: %v, its spool was given up: %v", s.stopped(),
				s.port.remote.isSpent())
		}
		s.log.stands = false
		s.show()
		synctest.Wait()
		if !s.port.remote.isSpent() {
			t.Error("its spool is shown, and it still waits")
		}
		if p := s.account(); p.Frames.Stored != 320 || p.Unread[unreadStopped] != 1500 {
			t.Errorf("%+v, unread: %v", p.Frames, p.Unread)
		}
		next, _ := testLane(t, config.OverflowBlock) // which was made when the first of them were shown
		next.resume(place{seen: []ledger.Position{{Device: 1, Epoch: 1, Last: 16}}})
		s.port.remote.after = []*port{s.port}
		close(s.port.departed)
		p, ctx := newRemotePort(next, s.port.remote, slog.New(slog.DiscardHandler))
		if seen := next.seen(); !p.founds(ctx) || next.seen()[0].Last != 319 {
			t.Errorf("the settings behind it begin at %+v, and before at %+v", next.seen(), seen)
		}
	})
}

// TestStopWhileTheLogStandsStill stops the recording, before or behind a reload that stops the
// source: all that was sent is in the account, and so is that the log did not take it.
func TestStopWhileTheLogStandsStill(t *testing.T) {
	for name, c := range map[string]struct{ ends, reloads bool }{
		"stop": {true, false}, "reload": {true, true},
		"no end": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStandstill(t, c.ends)
				if !c.reloads {
					s.iso.stop()
				}
				go s.port.playToEnd(time.Now().Add(finishPatience), func() { close(s.port.done) })
				if time.Sleep(time.Minute); c.reloads {
					s.iso.stop()
					time.Sleep(time.Minute)
				}
				if !s.port.remote.isSpent() {
					t.Fatal("the stop waits for ever")
				}
				p := s.account()
				if s.port.lane.notTaken() != p.Unread[unreadStopped] || p.Unread[unreadStopped] < 1500 {
					t.Errorf("unread: %v; of which the log did not take %d", p.Unread, s.port.lane.notTaken())
				}
				blamed := strings.Contains(s.journal.String(), "the reader")
				if blamed == c.ends || len(p.Outages) > 0 == c.ends {
					t.Errorf("the reader has ended: %v; outages: %+v; the journal:\n%s", c.ends, p.Outages, &s.journal)
				}
			})
		})
	}
}

// TestStopTellsWhenNobodyRead stops a source while the log stands still: that its spool was full,
// for how long, is in the account, though the mark that says so was not shown.
func TestStopTellsWhenNobodyRead(t *testing.T) {
	s := newStandstill(t, true, scriptStep{spool.Mark{Time: 50, Kind: spool.Unattended, A: spool.NoRoom, B: 10}, nil})
	s.port.remote.rest()
	p := s.port.lane.sheet()
	if want := (ledger.Outage{From: 50, To: 60, Cause: outageNoMemory}); len(p.Outages) != 1 || p.Outages[0] != want {
		t.Errorf("outages %+v, want %+v", p.Outages, want)
	}
}

// unreadBytes is a connection that holds bytes nobody has read.
type unreadBytes struct {
	connection
	bytes uint64
}

func (h *unreadBytes) fd() int         { return -1 }
func (h *unreadBytes) deafen()         {}
func (h *unreadBytes) discard() uint64 { return h.bytes }
func (h *unreadBytes) close() error    { return nil }

// TestStopWhileTheReaderStandsStill stops a source whose reader does not come to its end: what its
// device holds is in the account, by what the keeper finds, or by the connections of a peer, and
// the stop is one that fails.
func TestStopWhileTheReaderStandsStill(t *testing.T) {
	for name, c := range map[string]struct{ isPeer, isSilent bool }{
		"the keeper counts": {}, "a peer": {isPeer: true}, "the keeper says nothing": {isSilent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStandstill(t, false)
				s.log.stands = false
				s.show()
				var want uint64
				if c.isPeer {
					g := func(n uint64) *guest {
						want += n
						return &guest{connection: &unreadBytes{bytes: n}, giveBack: func() {}}
					}
					seat := newSeat(make(chan struct{}, 1), g(70), time.Time{})
					seat.reads, seat.passed, seat.lost, seat.rest = true, g(5), []*guest{g(1)}, []device{g(1)}
					s.port.opener = seat
				} else if !c.isSilent {
					want = 77
				}
				s.iso.stop()
				go s.port.playToEnd(time.Now().Add(finishPatience), func() {})
				for asked := false; !s.port.remote.isSpent(); time.Sleep(stallLook) {
					s.iso.told.Lock()
					asks := s.iso.asked["a"] != nil
					s.iso.told.Unlock()
					if asks && !asked && !c.isSilent {
						s.iso.hearWaits(isolate.Entry{Name: "a", Waits: true, Data: []byte("77")})
						asked = true
					}
				}
				s.sent += want
				p := s.account()
				if p.Unread[unreadStopped] != 1500+want || unended([]*port{s.port}) == nil || len(p.Outages) != 1 {
					t.Errorf("unread: %v, want %d more; it fails the stop: %v; outages %+v", p.Unread, want,
						unended([]*port{s.port}), p.Outages)
				}
				says := "77 bytes that it had not read are lost"
				if c.isSilent {
					says = "is not counted"
				}
				if !strings.Contains(s.journal.String(), says) {
					t.Errorf("the journal:\n%s", &s.journal)
				}
			})
		})
	}
}

// TestPeerIsNotGivenAConnection has the keeper not take what the reader is to be passed: it is
// counted though the reader comes to its end, and what the reader has taken is not.
func TestPeerIsNotGivenAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandstill(t, true)
		s.log.stands = false
		s.show()
		g := func(n uint64) *guest { return &guest{connection: &unreadBytes{bytes: n}, giveBack: func() {}} }
		seat := newSeat(make(chan struct{}, 1), nil, time.Time{})
		seat.hand = func(*guest) bool { return true }
		seat.begins()
		s.port.opener = seat
		seat.give(g(7))
		seat.later(g(20))
		go func() {
			time.Sleep(time.Second)
			seat.missed()
			time.Sleep(time.Second)
			seat.took()
		}()
		s.iso.stop()
		s.port.playToEnd(time.Now().Add(finishPatience), func() {})
		s.sent += 7
		if p := s.account(); p.Unread[unreadStopped] != 1507 || s.port.lane.badEnd() != badKeeper {
			t.Errorf("unread: %v, want 7 more; it fails the stop: %v", p.Unread, unended([]*port{s.port}))
		}
	})
}

// TestReaderComesToItsEndLate has the reader of a source stand still for a while when the recording
// stops: the stop fails where it has lost something meanwhile, as where it stands for ever.
func TestReaderComesToItsEndLate(t *testing.T) {
	for _, lost := range []uint64{0, 9} {
		synctest.Test(t, func(t *testing.T) {
			s := newStandstill(t, false)
			s.log.stands = false
			s.show()
			s.iso.stop()
			go s.port.playToEnd(time.Now().Add(finishPatience), func() {})
			time.Sleep(finishPatience + readerStands/2)
			s.port.lane.unread(unreadStopped, lost)
			close(s.port.remote.ended)
			synctest.Wait()
			if err := unended([]*port{s.port}); (err != nil) != (lost > 0) || !s.port.remote.isSpent() {
				t.Errorf("it has lost %d bytes: %v", lost, err)
			}
		})
	}
}

// TestKeeperDoesNotTakeASource stops a source of which its reader has never heard, for the keeper
// had no descriptors: nobody waits for that reader, and it is not what is blamed.
func TestKeeperDoesNotTakeASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandstill(t, false)
		s.log.stands = false
		s.show()
		if err := s.iso.heard(isolate.Entry{Name: isolate.LaneOf("a"), Untaken: true}); err != nil {
			t.Fatal(err)
		}
		s.iso.stop()
		began := time.Now()
		s.port.playToEnd(began.Add(finishPatience), func() {})
		if d := time.Since(began); d > finishPatience+time.Second+keeperCounts+time.Second {
			t.Errorf("the stop waits for %v", d)
		}
		err := unended([]*port{s.port})
		if err == nil || !strings.Contains(err.Error(), "ulimit") ||
			strings.Contains(s.journal.String(), "the reader did not") {
			t.Errorf("the stop says %v; the journal:\n%s", err, &s.journal)
		}
	})
}
