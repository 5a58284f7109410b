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
		portAt(at("a", "127.0.0.2"), 99), portAt(at("b", "127.0.0.3"), 5099), portAt(at("c", "127.0.0.4"), 700),
	}
	for _, c := range []struct {
		source config.Source
		last   uint64
		knows  bool
	}{
		{at("a", "127.0.0.2"), 99, true},
		{at("a", "127.0.0.3"), 5099, true}, // the names are swapped
		{at("b", "127.0.0.2"), 99, true},
		{at("a", "127.0.0.5"), 99, true},
		{at("d", "127.0.0.4"), 700, true},
		{at("d", "127.0.0.5"), 0, false},
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
