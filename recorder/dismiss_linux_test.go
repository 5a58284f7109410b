package recorder

import (
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// crowd is peers of one address that another process reads, and their hub. Nothing runs.
type crowd struct {
	t   *testing.T
	log *standingLog
	iso *isolation
	hub *hub
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	bell, err := isolate.NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	c := &crowd{t: t, log: &standingLog{killable: killable{rng: rand.New(rand.NewPCG(1, 1))}}}
	c.iso = &isolation{bell: bell, stopping: make(chan struct{}), yields: make(chan struct{})}
	source, _ := testLane(t, config.OverflowBlock)
	p, _ := newRemotePort(source, nil, slog.New(slog.DiscardHandler))
	c.hub = &hub{r: &Recorder{iso: c.iso, places: map[string]place{}}, p: p, max: 2}
	return c
}

// peer adds one that is free, and returns what writes into its spool.
func (c *crowd) peer(id string) (*port, *spool.Spool, *spool.Producer) {
	c.t.Helper()
	s, err := spool.Create(spool.Config{Size: 64 << 10, Marks: 256})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = s.Close() })
	rm := c.remote(id, s)
	p, _ := newRemotePort(rm.lane, rm, slog.New(slog.DiscardHandler))
	p.opener = newSeat(make(chan struct{}, 1), nil, time.Now())
	c.iso.remotes = append(c.iso.remotes, rm)
	c.hub.p.peers = append(c.hub.p.peers, p)
	producer, err := s.Producer(0)
	if err != nil {
		c.t.Fatal(err)
	}
	return p, s, producer
}

// remote is a life of a recorder on a spool.
func (c *crowd) remote(id string, s *spool.Spool) *remote {
	c.t.Helper()
	l, err := newLane(config.Source{
		ID: id, TCP: &config.Net{}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowBlock, Buffer: 2000,
	}, c.log, frameStream, wasteStream)
	if err != nil {
		c.t.Fatal(err)
	}
	play, err := newSpooled(l, s, c.log, spool.Steady)
	if err != nil {
		c.t.Fatal(err)
	}
	play.rest = time.Hour // so that a kill finds no checkpoint by chance
	return &remote{
		iso: c.iso, lane: l, spool: s, play: play, ended: make(chan struct{}), spent: make(chan struct{}),
	}
}

// store has the log store what it has taken.
func (c *crowd) store() {
	c.log.visible = len(c.log.all)
	for _, rm := range c.iso.remotes {
		rm.lane.settle(seglog.Commit{Stored: c.log.stored(), Durable: c.log.stored()}, 2e18)
	}
}

// brief is what a connection brings that ends.
func brief(from, n uint64) script {
	return script{
		{spool.Mark{Time: 1, Kind: spool.Opened, B: 1}, nil},
		{spool.Mark{Time: 2, Kind: spool.Chunk, B: 2}, frames(from, n)},
		{spool.Mark{Time: 3, Kind: spool.Closed, B: 3}, nil},
	}
}

// A peer whose connection has ended stays while its spool has something that its lane was not
// shown, and while the log has not stored all of that.
func TestPeerStaysUntilItsSpoolIsShown(t *testing.T) {
	c := newCrowd(t)
	p, _, producer := c.peer("a/127.0.0.2")
	brief(0, 10).feed(t, producer)
	if gone, _ := c.hub.longestGone(); gone != nil {
		t.Error("it may leave, and nothing of its spool is shown")
	}
	c.log.stands = true
	c.iso.round()
	if gone, _ := c.hub.longestGone(); gone != nil {
		t.Error("it may leave, and its lane has taken nothing of what it was shown")
	}
	c.log.stands = false
	for range 10 {
		p.lane.settle(seglog.Commit{}, 2e18)
		c.iso.round()
	}
	if gone, _ := c.hub.longestGone(); gone != nil {
		t.Error("it may leave, and the log has stored nothing")
	}
	c.store()
	if gone, _ := c.hub.longestGone(); gone != p {
		t.Error("the log has all, and it may not leave")
	}
	if f := p.lane.sheet().Frames; f.Stored != 10 {
		t.Errorf("%+v; want 10 frames", f)
	}
}

// A connection that has no place is not refused while somebody is gone of whom the log does not
// have all yet: it waits for that.
func TestArrivalWaitsForAPeerThatIsGone(t *testing.T) {
	c := newCrowd(t)
	c.hub.max = 1
	_, _, producer := c.peer("a/127.0.0.2")
	brief(0, 10).feed(t, producer)
	c.iso.round()
	a := &arrival{guest: &guest{connection: &socket{}}, id: "a/127.0.0.3", since: time.Now().Add(-time.Hour)}
	for range 2 {
		if c.hub.seat(a, time.Now()) || a.guest.closed {
			t.Fatal("it is seated, or refused")
		}
	}
	if refused := c.hub.p.lane.sheet().Refused; len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// What a peer is taught before it gets a connection outlives a kill right behind that: the numbers
// that came over another connection of its address.
func TestLessonsOutliveAKill(t *testing.T) {
	c := newCrowd(t)
	_, memory, producer := c.peer("a/127.0.0.2")
	_, _, other := c.peer("a/127.0.0.2/2")
	brief(0, 10).feed(t, producer)
	brief(10, 10).feed(t, other)
	for range 4 {
		c.iso.round()
	}
	a := &arrival{guest: &guest{connection: &socket{}}, id: "a/127.0.0.2"}
	if c.hub.seat(a, time.Now()) {
		t.Error("it gets a connection, and the log has not stored what it is taught, nor what it has")
	}
	c.store()
	given := false
	for range 4 { // a checkpoint waits for the log
		if given = c.hub.seat(a, time.Now()); given {
			break
		}
	}
	if !given {
		t.Fatal("it does not get the connection")
	}
	brief(20, 10).feed(t, producer)
	next := c.remote("a/127.0.0.2", memory) // the one before is killed
	c.iso.remotes = []*remote{next}
	for range 4 {
		c.iso.round()
	}
	c.store()
	if f := next.lane.sheet().Frames; f.Stored != 20 || f.Missing+f.Duplicate > 0 {
		t.Errorf("behind the kill it has %+v; want 20 frames, and nothing missing", f)
	}
}

// A connection beside one that is open is not read before the log has what had come over that: its
// numbers could not be taught.
func TestArrivalWaitsForFramesInFlight(t *testing.T) {
	c := newCrowd(t)
	p, _, producer := c.peer("a/127.0.0.2")
	p.opener.(*seat).guest = &guest{closed: true}
	append(brief(0, 10)[:2], brief(10, 10)[1]).feed(t, producer)
	a := &arrival{
		guest: &guest{connection: &socket{}}, id: "a/127.0.0.2", behind: map[*port]uint64{p: 20 * 128},
		frames: map[*port]uint64{},
	}
	if !c.hub.isBehind(a) {
		t.Error("nothing of what had come is shown, and nothing is awaited")
	}
	c.log.stands = true
	c.iso.round()
	if !c.hub.isBehind(a) {
		t.Error("its lane has taken nothing of what it was shown, and nothing is awaited")
	}
	c.log.stands = false
	for range 4 {
		p.lane.settle(seglog.Commit{}, 2e18)
		c.iso.round()
	}
	if c.hub.isBehind(a) || a.knows(p) {
		t.Errorf("all is shown: something is awaited: %v; the log has stored nothing, and its numbers are known: %v",
			c.hub.isBehind(a), a.knows(p))
	}
	if c.store(); !a.knows(p) {
		t.Error("the log has all frames, and their numbers are not known")
	}
}

// A connection that waits at a stop is read behind what is open of its address, else by a peer that
// knows the numbers of the others.
func TestConnectionThatWaitsAtAStopIsReadInOrder(t *testing.T) {
	c := newCrowd(t)
	first, _, producer := c.peer("a/127.0.0.2")
	second, _, other := c.peer("a/127.0.0.2/2")
	brief(0, 10).feed(t, producer)
	brief(10, 10).feed(t, other)
	for range 4 {
		c.iso.round()
	}
	c.store()
	if p := c.hub.stays("a/127.0.0.2", time.Now()); p != first || first.lane.seen()[0].Last != 19 {
		t.Errorf("%s reads it, and the first one has come to %+v; want that, behind 19", p.lane.cfg.ID, first.lane.seen())
	}
	second.opener.(*seat).guest = &guest{closed: true}
	if p := c.hub.stays("a/127.0.0.2", time.Now()); p != second {
		t.Errorf("%s reads it, and another one reads a connection of the device", p.lane.cfg.ID)
	}
}

// When a peer that has made room is taken off the keeper's shelf, the sheet on disk has its counts,
// and names its book: whoever comes behind a kill at any moment counts it once.
func TestDismissedPeerIsOnDiskBeforeItsSpoolGoes(t *testing.T) {
	dir := t.TempDir()
	first := isolate.LaneOf(peer("plant", 1))
	var book uint64
	looked := make(chan struct{})
	g, shelf, stop := startOnShelf(t, dir, func(m shelfWord) {
		if m.Name != first {
			return
		}
		if m.Op == "put" && book == 0 {
			var l isolate.Lane
			if err := json.Unmarshal(m.Data, &l); err != nil {
				t.Error(err)
			}
			book = l.Book
		} else if m.Op == "drop" {
			defer close(looked)
			s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			if hub := portIn(s.Sheet, "plant"); hub.Frames.Stored != 10 || !slices.Contains(s.Dismissed, book) {
				t.Errorf("the sheet on disk has %d frames of the source itself, and names books %v; want 10, and %d",
					hub.Frames.Stored, s.Dismissed, book)
			}
		}
	}, all("plant", 2))
	addr := shelf.address("plant")
	for d := range uint64(3) {
		c := dialFrom(t, int(d)+1, addr)
		write(t, c, of(uint32(d+1), 0, 10))
		_ = c.Close()
		storedInAll(t, g, "plant", 10*(d+1))
	}
	testenv.Until(t, 20*time.Second, "the first has made room", func() bool {
		select {
		case <-looked:
			return true
		default:
			return false
		}
	})
	s := g.Sheet()
	if f, read, _ := total(t, s, "plant"); f.Stored != 30 || f.Missing > 0 || read != 30*128 {
		t.Errorf("%+v, %d bytes; want 30 frames", f, read)
	}
	stop()
}

// At a stop a peer that is gone makes room until the deadline, and no longer: with thousands that
// wait, and a sheet on disk for each place, the stop would take minutes.
func TestNobodyMakesRoomBehindTheDeadlineOfAStop(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	defer stop(t, r)
	c := newCrowd(t)
	c.hub.r.log = r.log
	c.hub.max = 1
	gone, _, producer := c.peer("a/127.0.0.2")
	brief(0, 10).feed(t, producer)
	for range 2 {
		c.iso.round()
	}
	c.store()
	close(gone.done) // its reading ends as soon as it is told to
	close(gone.remote.spent)
	if c.hub.roomBy(time.Now().Add(-time.Second)) || len(c.hub.p.peers) != 1 {
		t.Error("a peer makes room behind the deadline")
	}
	if !c.hub.roomBy(time.Now().Add(time.Minute)) || len(c.hub.p.peers) != 0 {
		t.Error("a peer makes no room before the deadline")
	}
}

// Until the keeper has taken a peer off the shelf that has made room, every sheet names its book:
// where the keeper is killed before that, the next start finds the peer there, and has it counted
// already.
func TestDismissedPeerIsNamedUntilTheKeeperForgetsIt(t *testing.T) {
	dir := t.TempDir()
	first := isolate.LaneOf(peer("plant", 1))
	looks, goesOn := make(chan struct{}), make(chan struct{})
	g, shelf, stop := startOnShelf(t, dir, func(m shelfWord) {
		if m.Name == first && m.Op == "drop" {
			close(looks)
			<-goesOn
		}
	}, all("plant", 2))
	addr := shelf.address("plant")
	for d := range uint64(3) {
		c := dialFrom(t, int(d)+1, addr)
		write(t, c, of(uint32(d+1), 0, 10))
		_ = c.Close()
		if d < 2 {
			storedInAll(t, g, "plant", 10*(d+1))
		}
	}
	select {
	case <-looks:
	case <-time.After(time.Minute):
		t.Fatal("the first has not made room")
	}
	onDisk := func() *archive.StartSheet {
		s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	save := func() {
		g.saving.Lock()
		g.saved = savedSheet{} // so that there is something new
		g.saving.Unlock()
		if err := g.save(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the sheets that come while the keeper is busy
		save()
		if s := onDisk(); len(s.Dismissed) != 1 {
			t.Errorf("the sheet names books %v; want the one that is on the shelf", s.Dismissed)
		}
	}
	close(goesOn)
	storedInAll(t, g, "plant", 30)
	testenv.Until(t, 20*time.Second, "no sheet names the book any more", func() bool {
		save()
		return len(onDisk().Dismissed) == 0
	})
	stop()
}

// More devices than there are places connect, send, close and come again: all that they sent is in
// the books, which balance at every moment, and nothing is missing.
func TestCrowdMakesRoom(t *testing.T) {
	g, shelf, stop := startOnShelf(t, t.TempDir(), nil, all("plant", 8))
	addr := shelf.address("plant")
	const callers, rounds, each = 40, 3, 50
	calls := make(chan [2]uint64)
	var calling sync.WaitGroup
	for range 3 { // at once: who is gone counts until the log has its frames
		calling.Go(func() {
			for call := range calls {
				c := dialFrom(t, int(call[0]), addr)
				write(t, c, of(uint32(call[0]), call[1]*each, each))
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c) // until all is read
				_ = c.Close()
			}
		})
	}
	for round := range uint64(rounds) {
		for device := range uint64(callers) {
			calls <- [2]uint64{device + 1, round}
			for _, p := range g.Sheet().Ports {
				if len(p.Unbalanced) > 0 {
					t.Errorf("%s: %v", p.ID, p.Unbalanced)
				}
			}
		}
	}
	close(calls)
	calling.Wait()
	storedInAll(t, g, "plant", callers*rounds*each)
	if f, _, unread := total(t, g.Sheet(), "plant"); f.Missing+f.Duplicate > 0 || unread > 0 {
		t.Errorf("%+v, %d bytes unread", f, unread)
	}
	stop()
}

// A recorder that was killed between the sheet that has the counts of a peer in those of its
// source, and the end of the peer's spool, lets that spool go.
func TestKillBehindTheSheetOfADismissedPeer(t *testing.T) {
	ours, theirs, err := ipc.Pair(ipc.ConnConfig{})
	if err != nil {
		t.Skipf("SKIPPED: no sockets of AF_UNIX: %v; run this where a process may make them", err)
	}
	defer ours.Close()
	conn, err := ipc.Inherit(theirs, ipc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dir := t.TempDir()
	g := start(t, dir, nil, all("a", 2))
	r := &Recorder{
		cfg: g.cfg, log: g.log, streams: g.streams, slog: g.slog, places: map[string]place{}, missed: missed{},
		iso: &isolation{link: isolate.NewLink(conn), left: map[string]*leftSpool{}},
	}
	const made, stays = 1 << 40, 1<<40 - 1
	for id, book := range map[string]uint64{"a/127.0.0.2": made, "a/127.0.0.3": stays} {
		s, err := spool.Create(spool.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r.iso.left[id] = &leftSpool{spool: s, book: book, lane: isolate.Lane{Book: book}}
	}
	e := &archive.StartSheet{Dismissed: []uint64{made}, Sheet: ledger.NewSheet(1, 1, nil)}
	before := lanesMade.Load()
	defer func() { lanesMade.Store(before) }()
	r.goOn(e)
	if got := r.iso.sources(); len(got) != 1 || got[0] != "a/127.0.0.3" {
		t.Errorf("the spools of %q go on; want that of the one that is there", got)
	}
	if lanesMade.Load() < made {
		t.Error("the number of its book may be given again, and its sheet is on disk")
	}
	stop(t, g)
}

// A peer that makes room, and whose reader takes its time, holds nobody up: the hub seats others
// meanwhile, and the peer leaves once its reading has ended.
func TestHubGoesOnWhileAPeerLeaves(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	defer stop(t, r)
	c := newCrowd(t)
	c.hub.r.log = r.log
	slow, _, producer := c.peer("a/127.0.0.2")
	brief(0, 10).feed(t, producer)
	for range 2 {
		c.iso.round()
	}
	c.store()
	free, _, _ := c.peer("a/127.0.0.3")
	was := free.opener.(*seat)
	c.hub.max = 2
	newcomer := &arrival{guest: &guest{connection: &socket{}}, id: "a/127.0.0.4", since: time.Now()}
	other := &arrival{guest: &guest{connection: &socket{}}, id: "a/127.0.0.3", since: time.Now()}
	slow.opener.(*seat).left = time.Now().Add(-time.Hour) // it has been gone for longest
	c.hub.waiting = []*arrival{newcomer, other}
	seated := make(chan struct{})
	go func() {
		defer close(seated)
		c.hub.seatAll(time.Now())
	}()
	select {
	case <-seated:
	case <-time.After(time.Minute):
		close(slow.remote.spent) // or the goroutine stays
		t.Fatal("the hub waits for the reader of a peer that leaves")
	}
	if g, _ := was.taken(); g != other.guest || len(c.hub.waiting) != 1 || c.hub.leaving != slow {
		t.Errorf("the other one is seated: %v; %d wait", g == other.guest, len(c.hub.waiting))
	}
	if len(c.hub.p.peers) != 2 || slow.hasDeparted() {
		t.Error("the peer has left, and its reader has not come to the end")
	}
	close(slow.remote.spent)
	close(slow.done)
	if !c.hub.goesOnLeaving() || !c.hub.release() || len(c.hub.p.peers) != 1 || !slow.hasDeparted() {
		t.Error("its reader has come to the end, and the peer has not left")
	}
	if f := c.hub.p.lane.sheet().Frames; f.Stored != 10 {
		t.Errorf("%+v; want the 10 frames of the peer", f)
	}
}
