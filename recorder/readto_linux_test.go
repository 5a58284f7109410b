package recorder

import (
	"encoding/json"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
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

// The reader hears of a stop later than the recorder, and reads on until then, a peer longer than
// its source: the outage began before the last record, where the recorder had begun to stop.
func TestReadToIsNotBeforeTheLastRecord(t *testing.T) {
	readToTheEnd(t)
	dir := t.TempDir()
	told, goOn := make(chan string), make(chan struct{})
	defer close(goOn)
	ends := map[string]bool{}
	g, shelf, stop := startOnShelf(t, dir, func(w shelfWord) {
		for _, name := range []string{"a", peer("all", 2), peer("all", 3)} {
			var lane isolate.Lane
			if w.Op != "put" || w.Name != isolate.LaneOf(name) || ends[name] {
				continue
			}
			if err := json.Unmarshal(w.Data, &lane); err != nil {
				t.Error(err)
			}
			if lane.GiveUp != nil {
				ends[name] = true
				told <- name
				<-goOn
			}
		}
	}, tcp("a"), all("all", 4))
	conns := map[string]net.Conn{
		"a": dial(t, shelf.address("a")), peer("all", 2): dialFrom(t, 2, shelf.address("all")),
		peer("all", 3): dialFrom(t, 3, shelf.address("all")),
	}
	for name, c := range conns {
		defer c.Close()
		write(t, c, frames(0, 1))
		stored(t, g, name, 1)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	from := map[string]ledger.Time{}
	for range conns {
		name := <-told
		from[name] = ledger.Time(time.Now().UnixNano())
		write(t, conns[name], frames(1, 1))
		stored(t, g, name, 2)
		goOn <- struct{}{}
	}
	<-ended
	s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range from {
		if s.ReadTo[name] < at {
			t.Errorf("%s was read to %v, and a frame of it came behind %v", name, s.ReadTo[name], at)
		}
		if name != "a" && s.ReadTo["all"] < s.ReadTo[name] {
			t.Errorf("all was read to %v, and %s to %v", s.ReadTo["all"], name, s.ReadTo[name])
		}
	}
}

// What comes behind the word that a source is to end moves its time on where another process reads
// it; the end of the reading does not, if it brings nothing.
func TestReadOnBehindTheWordToEnd(t *testing.T) {
	g := start(t, t.TempDir(), nil)
	defer stop(t, g)
	for _, spooled := range []bool{true, false} {
		made := func() *lane {
			l, err := newLane(tcp("a"), g.log, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			l.in.spooled = spooled
			l.wasReadTo(7)
			return l
		}
		for what, c := range map[string]struct {
			do   func(l *lane)
			want int64
		}{
			"it is opened":     {func(l *lane) { l.begin(9) }, 9},
			"bytes come":       {func(l *lane) { l.Arrived([]byte{1}, 1, 9) }, 9},
			"… of before":      {func(l *lane) { l.Arrived([]byte{1}, 1, 5) }, 7},
			"it ends":          {func(l *lane) { l.Closed(nil, 9, reader.ErrRemoved) }, 7},
			"it ends with one": {func(l *lane) { l.Closed([]byte{1}, 9, reader.ErrRemoved) }, 9},
			"a kill": {func(l *lane) {
				state, _, ok := made().checkpoint(0, false, spool.MaxRoom)
				cp := spool.Checkpoint{Data: state}
				cp.Time = 9
				if _, _, err := l.inherit(cp); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}, 9},
		} {
			want := c.want
			if !spooled {
				want = 7
			}
			l := made()
			if c.do(l); l.lastRead() != want {
				t.Errorf("%s, by another process: %v: it was read to %d, want %d", what, spooled, l.lastRead(), want)
			}
		}
	}
}
