package recorder

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/seglog"
)

// holding is a connection that holds so many bytes, and stays open, unless it has ended.
type holding struct {
	connection
	bytes uint64
	ended bool
}

func (c *holding) unread() uint64 { return c.bytes }
func (c *holding) ending() bool   { return c.ended }

// Two connections of an address have waited, longer than for takeover, and there are places for
// both. The newer one gets its place once the log has what the older one had brought by then, and
// with that its numbers.
func TestArrivalWaitsForOneThatWaitedBeforeIt(t *testing.T) {
	const id, n = "a/127.0.0.2", 10
	source, _ := testLane(t, config.OverflowBlock)
	p, _ := newRemotePort(source, nil, slog.New(slog.DiscardHandler))
	h := &hub{r: &Recorder{places: map[string]place{}}, p: p, max: 8}
	var seats []*seat
	for _, name := range []string{id, id + "/2"} {
		l, _ := testLane(t, config.OverflowBlock)
		l.cfg.ID = name
		q, _ := newRemotePort(l, nil, slog.New(slog.DiscardHandler))
		s := newSeat(make(chan struct{}, 1), nil, time.Now())
		q.opener, seats = s, append(seats, s)
		p.peers = append(p.peers, q)
	}
	first, second := p.peers[0].lane, p.peers[1].lane
	older, newer := &holding{bytes: uint64(len(frames(0, n)))}, &holding{}
	now := time.Now()
	for _, c := range []*holding{older, newer} {
		h.waiting = append(h.waiting, &arrival{
			guest: &guest{connection: c}, id: id, since: now.Add(-2 * takeover),
			behind: map[*port]uint64{}, frames: map[*port]uint64{},
		})
	}
	awaits := func(what string) {
		t.Helper()
		h.seatAll(now)
		if g, _ := seats[1].taken(); g != nil || len(h.waiting) != 1 {
			t.Fatalf("%s, and the newer connection is read; %d wait", what, len(h.waiting))
		}
	}
	awaits("nothing of the older one is read")
	if g, _ := seats[0].taken(); g == nil || g.connection != older {
		t.Fatal("the older one does not get the first place")
	}
	older.bytes = 0
	first.Arrived(frames(0, n), len(frames(0, n)), 1)
	awaits("nothing of the older one is stored")
	first.settle(seglog.Commit{Stored: n, Durable: n}, 2)
	h.seatAll(now)
	g, _ := seats[1].taken()
	if g == nil || g.connection != newer || len(h.waiting) > 0 {
		t.Fatalf("the log has all of the older connection, and the newer one is not read; %d wait", len(h.waiting))
	}
	second.Arrived(frames(n, n), len(frames(n, n)), 3)
	if f := balanced(t, second); f.OK != n || f.Missing > 0 {
		t.Errorf("%+v; want %d frames, and none missing", f, n)
	}
}

// Nor does it get its place while a pipeline has read what the older one had brought, and has not
// made frames of it: the log would have all that is in the books, and that would be too little.
func TestArrivalWaitsForAPipeline(t *testing.T) {
	const n = 10
	source, _ := testLane(t, config.OverflowBlock)
	p, _ := newRemotePort(source, nil, slog.New(slog.DiscardHandler))
	h := &hub{r: &Recorder{}, p: p, max: 8}
	l, _ := testLane(t, config.OverflowBlock)
	l.cfg.ID = "a/127.0.0.2"
	q, _ := newRemotePort(l, nil, slog.New(slog.DiscardHandler))
	q.opener = newSeat(make(chan struct{}, 1), &guest{connection: &holding{}}, time.Time{})
	p.peers = []*port{q}
	bytes := frames(0, n)
	a := &arrival{
		guest: &guest{connection: &holding{}}, id: l.cfg.ID, behind: map[*port]uint64{q: uint64(len(bytes))},
		frames: map[*port]uint64{},
	}
	l.took(len(bytes))
	if !h.isBehind(a) {
		t.Error("nothing is parsed of what was read, and nothing is awaited")
	}
	c := &chunk{data: bytes, at: 1}
	l.in.dec.Decode(bytes, c)
	l.classified(c)
	if h.isBehind(a) || a.knows(q) {
		t.Errorf("all is posted: something is awaited: %v; nothing is stored, and its numbers are known: %v",
			h.isBehind(a), a.knows(q))
	}
	l.store(c)
	l.settle(seglog.Commit{Stored: n, Durable: n}, 2)
	if !a.knows(q) {
		t.Error("the log has all frames, and their numbers are not known")
	}
}

// What is still to be read of a connection that has ended does not begin the wait for an open one
// anew: of many that come in a row, each would wait for as long again.
func TestArrivalGoesOnWaitingBehindOneThatHasEnded(t *testing.T) {
	for _, c := range []struct {
		ended, anew bool
	}{{true, false}, {false, true}} {
		source, _ := testLane(t, config.OverflowBlock)
		p, _ := newRemotePort(source, nil, slog.New(slog.DiscardHandler))
		h := &hub{r: &Recorder{}, p: p, max: 8}
		a := &arrival{
			guest: &guest{connection: &holding{}}, id: "a/127.0.0.2",
			behind: map[*port]uint64{}, frames: map[*port]uint64{},
		}
		for n, older := range []*holding{{}, {bytes: 100, ended: c.ended}} {
			l, _ := testLane(t, config.OverflowBlock)
			l.cfg.ID = []string{a.id, a.id + "/2"}[n]
			q, _ := newRemotePort(l, nil, slog.New(slog.DiscardHandler))
			g := &guest{connection: older}
			q.opener = newSeat(make(chan struct{}, 1), g, time.Time{})
			p.peers = append(p.peers, q)
			a.behind[q] = q.onceRead(g)
		}
		now := time.Now()
		came := now.Add(-takeover / 2)
		if a.since = came; h.seat(a, now) {
			t.Fatal("it is read, and one before it is not")
		}
		if anew := !a.since.Equal(came); anew != c.anew {
			t.Errorf("behind one that has ended: %v, its wait begins anew: %v", c.ended, anew)
		}
	}
}
