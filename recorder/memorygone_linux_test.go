package recorder

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A recorder is killed, and the folder of its log is gone with the sheets, or another log is in its
// place: what memory knows of the start is in the history, each frame once, and none is stored.
func TestMemoryOfALogThatIsGoneIsInTheBooks(t *testing.T) {
	const since = 5
	for name, c := range map[string]struct {
		last          *archive.StartSheet
		dropped, rest uint64 // frames; bytes
	}{
		"no sheet is there":      {nil, 30, 0},
		"that of another start":  {&archive.StartSheet{}, 30, 0},
		"its own, and no log is": {&archive.StartSheet{Sheet: ledger.Sheet{Since: since}}, 0, 20 * 128},
	} {
		t.Run(name, func(t *testing.T) {
			memory, err := spool.Create(spool.Config{Size: 64 << 10, Marks: 256})
			if err != nil {
				t.Skipf("SKIPPED: %v; needs memory that can be sealed", err)
			}
			producer, err := memory.Producer(0)
			if err != nil {
				t.Fatal(err)
			}
			brief(0, 10).feed(t, producer)
			spooledLife(t, memory, "tally128", &killable{rng: rand.New(rand.NewPCG(1, 1))})
			brief(10, 20).feed(t, producer)

			ours, theirs, err := ipc.Pair(ipc.ConnConfig{})
			if err != nil {
				t.Skipf("SKIPPED: %v; needs sockets of AF_UNIX", err)
			}
			defer ours.Close()
			conn, err := ipc.Inherit(theirs, ipc.ConnConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			g := start(t, t.TempDir(), nil, tcp("b"))
			defer stop(t, g)
			r := &Recorder{
				cfg: g.cfg, log: g.log, streams: g.streams, slog: slog.New(slog.DiscardHandler),
				iso: &isolation{
					link: isolate.NewLink(conn), start: isolate.Start{Since: since, Identity: "00"},
					left: map[string]*leftSpool{"a": {spool: memory, source: killedSource("tally128", false), book: 7}},
				},
			}
			if r.goesOn(nil, c.last) {
				t.Fatal("it goes on")
			}
			if len(r.owed) != 1 || len(r.owed[0].Sheet.Ports) != 1 || len(r.iso.left) > 0 {
				t.Fatalf("to the history go %+v, and %d spools are left", r.owed, len(r.iso.left))
			}
			s := r.owed[0]
			p := s.Sheet.Ports[0]
			if f := p.Frames; p.ID != "a" || f.OK != c.dropped || f.Dropped[causeGone] != c.dropped || f.Stored > 0 ||
				f.Missing+f.InFlight > 0 || p.Unread[causeGone] != c.rest || len(p.Unbalanced) > 0 {
				t.Errorf("%s: %+v, unread %v, %v; want %d dropped frames, %d bytes", p.ID, f, p.Unread, p.Unbalanced,
					c.dropped, c.rest)
			}
			if s.Sheet.Since != since || s.Identity != "00" || s.Part != (c.rest > 0) ||
				s.Sheet.Verdict.Level != ledger.Bad {
				t.Errorf("it is of the start %v, of the log %q, a part: %v; %+v", s.Sheet.Since, s.Identity, s.Part,
					s.Sheet.Verdict)
			}
		})
	}
}

// The same where the log is there, and its sheets are gone: what it has is stored, and the rest is
// named.
func TestMemoryOfALogWithoutSheetsIsInTheBooks(t *testing.T) {
	g := start(t, t.TempDir(), func(c *config.Config) { c.Log.Delay = time.Millisecond }, tcp("b"))
	defer stop(t, g)
	memory, err := spool.Create(spool.Config{Size: 64 << 10, Marks: 256})
	if err != nil {
		t.Skipf("SKIPPED: %v; needs memory that can be sealed", err)
	}
	producer, err := memory.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	brief(0, 10).feed(t, producer)
	source := killedSource("tally128", false)
	source.ID = "a"
	l, err := g.lane(source)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newSpooled(l, memory, liveLog{g.log}, spool.Steady)
	if err != nil {
		t.Fatal(err)
	}
	steps := func() {
		for range 4 {
			if _, err := dead.step(); err != nil {
				t.Fatal(err)
			}
			if err := g.log.Sync(); err != nil {
				t.Fatal(err)
			}
			at := g.log.Position()
			l.settle(seglog.Commit{Stored: at.Stored, Durable: at.Durable}, 2e18)
		}
	}
	steps()
	dead.rest = time.Hour // what comes now is in no checkpoint
	dead.rested = time.Now().Add(time.Hour)
	brief(10, 20).feed(t, producer)
	steps()
	brief(30, 5).feed(t, producer)
	r := &Recorder{cfg: g.cfg, log: g.log, streams: g.streams, slog: slog.New(slog.DiscardHandler)}
	left, err := r.lastOfMemory(&leftSpool{spool: memory, source: source, book: 7}, "a", true, false)
	if err != nil {
		t.Fatal(err)
	}
	if f := left.sheet().Frames; f.OK != 35 || f.Stored != 30 || f.Durable != 30 || f.Dropped[causeGone] != 5 {
		t.Errorf("%+v; want 30 frames that are stored, and 5 dropped", f)
	}
}
