package recorder

import (
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// A source that another process reads goes on where those are that had it, or its device, before. A
// source that has left by the same reload is none of theirs, though its device has the same number.
func TestSourceLearnsFromItsOwn(t *testing.T) {
	id := ledger.Stream{Device: 1, Epoch: 1}
	portAt := func(s config.Source, last uint64) *port {
		t.Helper()
		l, err := newLane(s, nil, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if last > 0 {
			l.in.book.Numbered(128, id, last)
		}
		p, _ := newRemotePort(l, nil, quiet())
		return p
	}
	departed := []*port{
		portAt(at("a", "127.0.0.2:7000"), 99), portAt(at("b", "127.0.0.3:7000"), 5099),
		portAt(at("c", "127.0.0.4:7000"), 700), portAt(at("e", "127.0.0.6:0"), 800),
	}
	for _, c := range []struct {
		source config.Source
		last   uint64
		knows  bool
	}{
		{at("a", "127.0.0.2:7000"), 99, true},
		{at("a", "127.0.0.3:7000"), 5099, true}, // the names are swapped
		{at("b", "127.0.0.2:7000"), 99, true},
		{at("a", "127.0.0.5:7000"), 99, true},
		{at("d", "127.0.0.4:7000"), 700, true},
		{at("d", "127.0.0.5:7000"), 0, false},
		{at("e", "127.0.0.6:0"), 800, true},
		{at("d", "127.0.0.6:0"), 0, false}, // the kernel chooses another port
	} {
		p := portAt(c.source, 0)
		p.learnFrom(departed)
		_, last, ok := p.lane.in.book.Follows(id)
		if ok != c.knows || ok && last != c.last {
			t.Errorf("%s at %s goes on behind %d, %v; want %d, %v", c.source.ID, c.source.TCP.Listen, last, ok, c.last,
				c.knows)
		}
	}
}

// The sheet that has a source's books closed has what was learned from them, too: a kill may come
// before the one who comes after that source has begun.
func TestSheetHasWhatWasLearned(t *testing.T) {
	id := ledger.Stream{Device: 1, Epoch: 1}
	g := start(t, t.TempDir(), nil)
	portOf := func(name string, rm *remote) *port {
		t.Helper()
		l, err := newLane(at(name, "127.0.0.2:7000"), nil, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := newRemotePort(l, rm, quiet())
		return p
	}
	before := portOf("a", nil)
	before.lane.in.book.Numbered(128, id, 99)
	next := portOf("b", &remote{after: []*port{before}})
	g.mu.Lock()
	g.leaving, g.ports = append(g.leaving, before), append(g.ports, next)
	g.mu.Unlock()
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	g.saving.Lock()
	got := g.saved.sheet.Positions["b"]
	g.saving.Unlock()
	if !before.hasDeparted() || len(got) != 1 || got[0].Last != 99 {
		t.Errorf("the other has departed: %v; the sheet has %+v; want number 99", before.hasDeparted(), got)
	}
	g.mu.Lock()
	g.ports = nil // nobody reads it
	g.mu.Unlock()
	stop(t, g)
}
