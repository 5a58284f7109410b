package recorder

import (
	"math/rand/v2"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// Behind the last sheet of a start that is killed some of what waited may still come to the log:
// only what stands behind the last record of it is lost then, whatever stood between the records.
func TestAKillLosesNothingThatCameBehindItsSheet(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for _, kind := range killedKinds {
		if kind == "tally128" { // its numbers tell
			continue
		}
		for round := range 6 {
			killedBehindItsSheet(t, rng, kind, round%2 == 0, round < 3)
		}
	}
}

// killedBehindItsSheet plays a spool to a lane, has a sheet drawn up somewhere, goes on for a
// while, or to the end, and then takes what is in memory.
func killedBehindItsSheet(t *testing.T, rng *rand.Rand, kind string, keepsWaste, toTheEnd bool) {
	t.Helper()
	log, streams := emptyLog(t)
	number := func(s archive.Stream) uint32 {
		n, err := streams.Number(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	waste := uint32(0)
	if keepsWaste {
		waste = number(archive.Stream{Source: "a", Frame: kind, Quarantine: true})
	}
	cfg := killedSource(kind, false)
	l, err := newLane(cfg, log, number(archive.Stream{Source: "a", Frame: kind}), waste)
	if err != nil {
		t.Fatal(err)
	}
	wire := scriptFor(rng, kind, false, l.in.dec)
	play, err := newSpooled(l, wire.spooled(t), liveLog{log}, steadyEnd)
	if err != nil {
		t.Fatal(err)
	}
	play.most = 1
	all := uint64(len(wire.bytes()))
	show := func(marks int) {
		for range marks {
			if _, err := play.step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	show(1 + rng.IntN(len(wire)/2))
	s := archive.StartSheet{LogStored: log.Position().Stored}
	l.settle(seglog.Commit{Stored: s.LogStored}, 2e18)
	s.Sheet.Ports = []ledger.Port{l.sheet()}
	iso := &isolation{remotes: []*remote{{lane: l, play: play, ended: make(chan struct{})}}}
	s.Waiting, s.WaitingFrom = iso.unshown()
	if s.Waiting["a"] != all-s.WaitingFrom["a"] {
		t.Fatalf("%s: of %d bytes, %d wait from %d on", kind, all, s.Waiting["a"], s.WaitingFrom["a"])
	}
	if toTheEnd {
		show(len(wire))
	} else {
		show(rng.IntN(len(wire) / 4))
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	landed := s.WaitingFrom["a"]
	if err := (liveLog{log}).since(0, func(r seglog.Record) {
		e, _ := streams.By(r.Stream)
		landed = max(landed, r.Offset+uint64(len(archive.Payload(&e, r.Data))))
	}, func(uint64) { t.Error("some of the log is gone") }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replay(log, streams, nil); err != nil {
		t.Fatal(err)
	}
	p := s.Sheet.Ports[0]
	if p.Unread[archive.CauseByKill] != all-landed || p.Frames.Dropped[archive.CauseByKill] > 0 {
		t.Errorf("%s, with quarantine %v: %d bytes unread, and %v dropped; of %d bytes the log has those up to %d",
			kind, keepsWaste, p.Unread[archive.CauseByKill], p.Frames.Dropped, all, landed)
	}
	if sent := l.in.offset; toTheEnd && keepsWaste && landed != sent {
		t.Errorf("%s: the log has bytes up to %d, of %d that were classified", kind, landed, sent)
	}
}

// emptyLog is a new log, which takes all that it is given, with a table of streams.
func emptyLog(t *testing.T) (*seglog.Log, *archive.Streams) {
	t.Helper()
	dir := t.TempDir()
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 1 << 20, BufferBytes: 512 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log, streams
}

// What waits on two wires of one source stands at no place: a record may be of either.
func TestTwoWiresOfASourceHaveNoPlace(t *testing.T) {
	iso, rng := &isolation{}, rand.New(rand.NewPCG(1, 1))
	sum := uint64(0)
	for range 2 {
		cfg := killedSource("line", false)
		log := &killable{rng: rng}
		l, err := newLane(cfg, log, frameStream, wasteStream)
		if err != nil {
			t.Fatal(err)
		}
		wire := script{{mark: spool.Mark{Kind: spool.Chunk, B: 1}, bytes: []byte("123456789\n")}}
		play, err := newSpooled(l, wire.spooled(t), log, steadyEnd)
		if err != nil {
			t.Fatal(err)
		}
		iso.remotes = append(iso.remotes, &remote{lane: l, play: play, ended: make(chan struct{})})
		sum += 10
		all, from := iso.unshown()
		if _, ok := from["a"]; all["a"] != sum || ok != (sum == 10) {
			t.Errorf("%d bytes wait, want %d, from %v", all["a"], sum, from)
		}
	}
}
