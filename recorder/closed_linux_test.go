package recorder

import (
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/ledger"
)

// Peers make room, and a source leaves by a reload; then the recorder is killed, and the log is
// gone with its sheets. What the log had of those is on the shelf: the next recorder names it,
// once.
func TestBooksThatAreClosedOutliveTheFolder(t *testing.T) {
	var mu sync.Mutex
	went, late := map[string]bool{}, 0 // spools, and those that went before the shelf had what they knew
	closed := map[string]json.RawMessage{}
	g, shelf, stop := startOnShelf(t, t.TempDir(), func(m shelfWord) {
		mu.Lock()
		defer mu.Unlock()
		kind, source := isolate.SourceOf(m.Name)
		switch {
		case kind == "closed" && m.Op == "put":
			closed[source] = m.Data
		case kind == "lane" && m.Op == "drop":
			if closed[rootOf(source)] == nil {
				late++
			}
			went[source] = true
		}
	}, all("plant", 2), tcp("leaves"))
	addr := shelf.address("plant")
	for d := range uint64(5) {
		c := dialFrom(t, int(d)+1, addr)
		write(t, c, of(uint32(d+1), 0, 10))
		_ = c.Close()
		storedInAll(t, g, "plant", 10*(d+1))
	}
	c := dial(t, shelf.address("leaves"))
	write(t, c, frames(0, 20))
	stored(t, g, "leaves", 20)
	_ = c.Close()
	next := g.Config()
	next.Sources = next.Sources[:1]
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 20*time.Second, "three peers have made room, and the source has left", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return went[peer("plant", 3)] && went["leaves"]
	})
	mu.Lock()
	was := isolate.Start{Since: g.since, Identity: "00"}
	left := map[string]json.RawMessage{"plant": closed["plant"], "leaves": closed["leaves"]}
	if late > 0 {
		t.Errorf("%d spools were given back before the shelf had what they knew", late)
	}
	mu.Unlock()
	stop()

	for name, c := range map[string]struct {
		last           *archive.StartSheet
		identity       string
		plant, dropped uint64
	}{
		"the folder is gone":    {nil, "00", 30, 30},
		"the sheet is there":    {&archive.StartSheet{Sheet: ledger.Sheet{Since: ledger.Time(was.Since)}}, "00", 0, 0},
		"the sheets are gone":   {nil, "", 30, 0},
		"it is another start's": {&archive.StartSheet{}, "00", 30, 30},
	} {
		after := start(t, t.TempDir(), nil)
		r := &Recorder{
			cfg: after.cfg, log: after.log, streams: after.streams, slog: slog.New(slog.DiscardHandler),
			iso: &isolation{link: nobody(t), start: was},
		}
		if c.identity == "" {
			r.iso.start.Identity = hexIdentity(after.log)
		}
		for source, data := range left {
			if err := r.iso.take(isolate.Entry{Name: isolate.ClosedOf(source), Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		if r.goesOn(nil, c.last) || len(r.owed) != 1 || !r.iso.closed.isEmpty() {
			t.Fatalf("%s: to the history go %+v; %+v stays", name, r.owed, r.iso.closed.of)
		}
		accounts := map[string]ledger.Frames{}
		for _, p := range r.owed[0].Sheet.Ports {
			accounts[p.ID] = p.Frames
		}
		if f := accounts["plant"]; f.OK != c.plant || f.Dropped[causeGone] != c.dropped ||
			f.Stored != c.plant-c.dropped {
			t.Errorf("%s: %+v; want %d frames of peers that made room, %d of them dropped", name, f, c.plant, c.dropped)
		}
		if f := accounts["leaves"]; (f.Dropped[causeGone] == 20) != (c.dropped > 0) || (f.OK == 20) != (c.plant > 0) {
			t.Errorf("%s: %+v; want the 20 frames of the source that left", name, f)
		}
		if s := r.owed[0].Sheet; !s.Balanced || s.Verdict.LostHere.Frames != 0 && c.dropped == 0 {
			t.Errorf("%s: %+v", name, s.Verdict)
		}
		_, err := after.Stop("test")
		if err != nil {
			t.Error(err)
		}
	}
}

// A recorder that goes on behind a kill takes the books of a source, which die with each, for a
// part of the start: however often, and wherever it is killed, the shelf has their frames once.
func TestClosedBooksAreOnTheShelfOnce(t *testing.T) {
	i := &isolation{link: nobody(t), start: isolate.Start{Since: 3}}
	hub := func(book, stored uint64) ledger.Port {
		return ledger.Port{ID: "a", Book: book, Frames: ledger.Frames{Stored: stored}}
	}
	total := func() uint64 {
		n := uint64(0)
		for _, p := range i.closed.accounts(3, nil, false, 1) {
			n += p.Frames.Dropped[causeGone]
		}
		return n
	}
	own, _ := testLane(t, config.OverflowBlock)
	made, _ := testLane(t, config.OverflowBlock)
	own.cfg.ID, own.number, made.number = "a", 7, 8
	own.in.book.Stored(10)
	i.hasAbsorbed(own, made)
	own.in.book.Stored(5)
	i.hasAbsorbed(own, made)
	if n := total(); n != 15 || !i.closed.has("a/127.0.0.2", 8) || i.closed.has("a/127.0.0.3", 9) {
		t.Errorf("%d frames of peers that made room: %+v; want 15", n, i.closed.of)
	}
	part := &archive.StartSheet{Parts: 1, Sheet: ledger.Sheet{Ports: []ledger.Port{hub(7, 17), hub(9, 3)}}}
	for range 2 { // the second time behind a kill
		i.hasClosed(part, 6)
		if n := total(); n != 20 || !i.closed.has("a", 7) || !i.closed.has("a/127.0.0.9", 6) {
			t.Errorf("%d frames of books that are closed: %+v; want 20", n, i.closed.of)
		}
	}
	own.number = 10
	i.hasAbsorbed(own, made)
	i.hasClosed(&archive.StartSheet{Parts: 2, Sheet: ledger.Sheet{Ports: []ledger.Port{hub(11, 1)}}})
	if n := total(); n != 36 { // 20, 15 in the books 10, which stay open, and 1
		t.Errorf("%d frames; want 36: %+v", n, i.closed.of)
	}
	if got := i.closed.accounts(4, nil, false, 1); len(got) > 0 {
		t.Errorf("of another start: %+v", got)
	}
	with := i.closed.accounts(3, []ledger.Port{hub(12, 4)}, true, 1)
	if len(with) != 1 || with[0].Frames.Stored != 40 {
		t.Errorf("beside an account of that name: %+v", with)
	}
}

// nobody is a link to a keeper that takes everything, and does nothing.
func nobody(t *testing.T) *isolate.Link {
	t.Helper()
	ours, theirs, err := ipc.Pair(ipc.ConnConfig{})
	if err != nil {
		t.Skipf("SKIPPED: no sockets of AF_UNIX: %v; run this where a process may make them", err)
	}
	conn, err := ipc.Inherit(theirs, ipc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); conn.Close() })
	go func() {
		for {
			if _, err := ours.Receive(); err != nil {
				return
			}
		}
	}()
	return isolate.NewLink(conn)
}
