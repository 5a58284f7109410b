package recorder

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/seglog"
)

// spooledLife is a recorder of a spool that is up to date: all is stored, and in a checkpoint.
func spooledLife(t *testing.T, s *spool.Spool, kind string, log *killable) *spooled {
	t.Helper()
	l, err := newLane(killedSource(kind, false), log, frameStream, wasteStream)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newSpooled(l, s, log, steadyEnd)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // a checkpoint waits for the log
		if _, err := r.step(); err != nil {
			t.Fatal(err)
		}
		log.visible = len(log.all)
		l.settle(seglog.Commit{Stored: log.stored(), Durable: log.stored()}, 2e18)
	}
	return r
}

// TestEndOfASpoolBehindAKill has a recorder killed once the end of a spool is in its checkpoint.
// The next one is not shown that end again, and has to know of it: else a reload waits for it, and
// reads no source meanwhile.
func TestEndOfASpoolBehindAKill(t *testing.T) {
	s := script{
		{spool.Mark{Time: 1, Kind: spool.Opened, B: 1}, nil},
		{spool.Mark{Time: 2, Kind: spool.Chunk, B: 2}, []byte("a\n")},
		{spool.Mark{Time: 3, Kind: spool.Ended, B: 3}, nil},
	}.spooled(t)
	log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
	for life := range 3 {
		if r := spooledLife(t, s, "line", log); !r.ended {
			t.Fatalf("recorder %d does not know that the spool has ended", life)
		}
	}
}

// TestWasteOfASpool records noise of which the decoder gives up one byte at a time: one record for
// each byte would fill the log's buffer, and what it cannot take of the quarantine is not kept.
func TestWasteOfASpool(t *testing.T) {
	noise := script{{spool.Mark{Time: 1, Kind: spool.Opened, B: 1}, nil}}
	for i := range 3 {
		noise = append(noise, scriptStep{
			spool.Mark{Time: int64(i + 2), Kind: spool.Chunk, B: uint64(i + 2)},
			bytes.Repeat([]byte{'x'}, 2000),
		})
	}
	log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
	spooledLife(t, noise.spooled(t), "modbus", log)
	n := 0
	for _, r := range log.all {
		if r.Stream == wasteStream {
			n++
		}
	}
	kept := sentIn(log.entries().story())
	if len(kept) < 6000-512 || n > len(noise) {
		t.Errorf("%d bytes in %d records: one for each mark would do", len(kept), n)
	}
}

// TestBytesThatAreHeldBehindAKill has a recorder killed between two parts of what its decoder
// holds. How long the first byte waits counts from when that came, or frames behind a false length
// would wait longer than without the kill.
func TestBytesThatAreHeldBehindAKill(t *testing.T) {
	m := &maker{kind: "length", rng: rand.New(rand.NewPCG(1, 1)), size: 20}
	at, ms := int64(1e18), int64(time.Millisecond)
	first := append([]byte{3, 0}, m.good(7, 1)...) // a length of 768
	parts := []script{
		{
			{spool.Mark{Time: at, Kind: spool.Opened, B: uint64(at)}, nil},
			{spool.Mark{Time: at, Kind: spool.Chunk, B: uint64(at)}, first},
			{spool.Mark{Time: at + 6000*ms, Kind: spool.Chunk, B: uint64(at + 6000*ms)}, m.good(7, 2)},
		},
		{{spool.Mark{Time: at + 11_000*ms, Kind: spool.Silent, B: uint64(5000 * ms)}, nil}},
	}
	for _, lives := range [][]script{{append(parts[0][:3:3], parts[1]...)}, parts} {
		s, err := spool.Create(spool.Config{Size: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		p, err := s.Producer(0)
		if err != nil {
			t.Fatal(err)
		}
		log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
		for _, life := range lives {
			life.feed(t, p)
			spooledLife(t, s, "length", log)
		}
		frames := 0
		for _, e := range log.entries() {
			if !e.isWaste() {
				frames++
			}
		}
		if frames != 2 {
			t.Errorf("%d lives: %d of 2 frames are stored", len(lives), frames)
		}
	}
}

// TestLogFailsBehindASpool has the log fail, and the recorder go on for a while before it ends.
// What it drops then waits in the spool, and the next recorder stores it: no checkpoint may be
// behind it, for then it was dropped in the books, and the memory was given back.
func TestLogFailsBehindASpool(t *testing.T) {
	m := &maker{kind: "tally128", rng: rand.New(rand.NewPCG(1, 1))}
	s, err := spool.Create(spool.Config{Size: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p, err := s.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(1e18)
	script{{spool.Mark{Time: at, Kind: spool.Opened, B: uint64(at)}, nil}}.feed(t, p)
	next := uint64(0)
	feed := func() {
		next++
		at++
		script{{spool.Mark{Time: at, Kind: spool.Chunk, B: uint64(at)}, m.good(7, next)}}.feed(t, p)
	}
	log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
	feed()
	r := spooledLife(t, s, "tally128", log)
	feed()
	if _, err := r.step(); err != nil { // the log has it, and does not store it
		t.Fatal(err)
	}
	log.failed, log.all = true, log.all[:log.visible]
	r.lane.settle(seglog.Commit{Stored: log.stored(), Durable: log.stored(), Err: seglog.ErrFailed}, 2e18)
	for range 8 {
		feed()
		r.lane.unread(unreadStopped, 0) // as whatever has a checkpoint be due at once
		if _, err := r.step(); err != nil {
			t.Fatal(err)
		}
	}
	if f := r.lane.sheet().Frames; f.Dropped[causeFailed] != next-1 {
		t.Fatalf("%+v; want %d dropped, for the log has failed", f, next-1)
	}
	log.failed = false
	r = spooledLife(t, s, "tally128", log)
	if f := r.lane.sheet().Frames; f.Stored != next || len(f.Dropped) != 0 || f.Unique != next || f.Missing != 0 {
		t.Errorf("the next recorder: %+v; want all %d stored, once", f, next)
	}
	if n := len(log.entries()); uint64(n) != next {
		t.Errorf("%d records in the log, want %d", n, next)
	}
}

// TestUnreadOfASpoolBehindAKill has a recorder count bytes that it has thrown away, and that no
// mark of the spool tells of, and be killed: a checkpoint is due for that alone, or the next one
// would not know of them.
func TestUnreadOfASpoolBehindAKill(t *testing.T) {
	s := script{{spool.Mark{Time: 1, Kind: spool.Opened, B: 1}, nil}}.spooled(t)
	log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
	r := spooledLife(t, s, "line", log)
	r.lane.unread(unreadFailed, 7)
	r.lane.refuse(refusedStopped, 2, 5)
	r.rest, r.rested = time.Hour, time.Now().Add(time.Hour)
	for range 2 {
		if _, err := r.step(); err != nil {
			t.Fatal(err)
		}
	}
	r = spooledLife(t, s, "line", log)
	p := r.lane.sheet()
	if p.Unread[unreadFailed] != 7 || p.Unread[unreadRefused] != 5 || p.Refused[refusedStopped] != 2 {
		t.Errorf("unread %v, refused %v; want what was thrown away", p.Unread, p.Refused)
	}
}
