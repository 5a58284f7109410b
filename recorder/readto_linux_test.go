package recorder

import (
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
)

// A recorder that goes on with a start which was being stopped as the one before was killed knows
// up to when each source was read: the outage of the next start begins then, and not at the kill.
func TestKilledInAStopKnowsUpToWhenItWasRead(t *testing.T) {
	g := start(t, t.TempDir(), nil)
	for _, stops := range []bool{true, false} {
		r := &Recorder{
			cfg: g.cfg, log: g.log, streams: g.streams, slog: g.slog, places: map[string]place{}, missed: missed{},
			iso: &isolation{stops: stops, left: map[string]*leftSpool{}},
		}
		r.goOn(&archive.StartSheet{
			Sheet: ledger.NewSheet(1, 1, nil), ReadTo: map[string]ledger.Time{"a": 7},
		})
		of := func(id string) int64 {
			l, err := newLane(tcp(id), g.log, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			r.adopt(l)
			l.finishes(unreadStopped)
			return l.lastRead()
		}
		if at := of("a"); (at == 7) != stops {
			t.Errorf("it stops: %v; the source was read up to %d", stops, at)
		}
		if at := of("b"); at <= 7 {
			t.Errorf("another source, which the sheet does not name, was read up to %d", at)
		}
		memory, err := spool.Create(spool.Config{})
		if err != nil {
			t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
		}
		defer memory.Close()
		r.iso.left["a"] = &leftSpool{spool: memory, lane: isolate.Lane{ReadTo: 5}}
		if at := of("a"); at != 5 {
			t.Errorf("its memory was read up to 5, and the source up to %d", at)
		}
		r.closeLeft()
		if at := of("a"); at <= 7 {
			t.Errorf("a source that comes later was read up to %d", at)
		}
	}
	stop(t, g)
}
