package recorder

import (
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A recorder is killed as it is given a word, or before it has kept what the books know by it. In
// the one that goes on the word holds if it is on disk, and only for what was lost before it.
func TestAckOverAKill(t *testing.T) {
	for _, c := range []struct {
		name          string
		kept          string // the last checkpoint: "before" the note, of what is "noted", or "ended"
		word          bool   // … is on disk
		failed, twice bool   // a word before it was not kept; the next recorder is killed, too
	}{
		{name: "the books know nothing", kept: "before", word: true},
		{name: "nothing is noted, and there is no word", kept: "before"},
		{name: "it is noted", kept: "noted", word: true},
		{name: "it is noted, and there is no word", kept: "noted"},
		{name: "it is known", kept: "ended", word: true},
		{name: "behind one that was not kept", kept: "before", word: true, failed: true},
		{name: "noted behind one that was not kept", kept: "noted", word: true, failed: true},
		{name: "killed again, and the books know nothing", kept: "before", word: true, twice: true},
		{name: "killed again, and it is noted", kept: "noted", word: true, twice: true},
		{name: "killed again, and it is known", kept: "ended", word: true, twice: true},
		{name: "killed again, and there is no word", kept: "noted", twice: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			crowd := newCrowd(t)
			p, s, producer := crowd.peer("a/127.0.0.2")
			l := p.lane
			l.number = 7
			at := int64(1)
			feed := func(numbers ...uint64) {
				t.Helper()
				var bytes []byte
				for _, n := range numbers {
					bytes = append(bytes, frames(n, 1)...)
				}
				at++
				script{{spool.Mark{Time: at, Kind: spool.Chunk, B: uint64(at)}, bytes}}.feed(t, producer)
			}
			keep := func(rm *remote) {
				t.Helper()
				for range 3 {
					if _, err := rm.play.step(); err != nil {
						t.Fatal(err)
					}
					crowd.log.visible = len(crowd.log.all)
					rm.lane.settle(seglog.Commit{Stored: crowd.log.stored(), Durable: crowd.log.stored()}, 2e18)
				}
			}
			touch := func() { l.mu.Lock(); l.touched = true; l.mu.Unlock(); keep(p.remote) }

			script{{spool.Mark{Time: 1, Kind: spool.Opened, B: 1}, nil}}.feed(t, producer)
			feed(0, 1)
			touch()
			feed(5, 6) // 2 to 4 are missing
			keep(p.remote)
			if c.failed {
				l.beginAck()
				l.endAck(false)
				if c.kept == "before" {
					l.mu.Lock()
					l.touched = false
					l.mu.Unlock()
				}
			}
			account, noted := l.beginAck()
			base := ledger.NewSheet(5, 1, []ledger.Port{account})
			if c.kept == "noted" {
				touch()
			}
			if c.kept == "ended" {
				l.endAck(true)
				touch()
			}
			feed(3)    // late
			feed(9)    // 7 and 8 are missing
			feed(4, 8) // late: 4 was known
			keep(p.remote)

			r := &Recorder{iso: crowd.iso, since: 1, commits: commits{news: make(chan struct{}, 1)}}
			if c.word {
				r.acks.last = &archive.Ack{
					Ack: ledger.Ack{At: 5}, Sheet: &base, Books: map[uint64]ledger.Noted{7: noted},
				}
			}
			crowd.iso.remotes = nil
			var rm *remote
			next := func() *lane {
				t.Helper()
				l, err := newLane(l.cfg, crowd.log, frameStream, wasteStream)
				if err != nil {
					t.Fatal(err)
				}
				l.number = 7
				rm, err = r.show(l, s, crowd.log)
				if err != nil {
					t.Fatal(err)
				}
				if c.twice {
					keep(rm)
				}
				return l
			}
			got := next()
			if c.twice {
				got = next()
			}
			feed(12) // 10 and 11 are missing
			keep(rm)
			a := got.sheet()
			var known uint64
			if a.Known != nil {
				known = a.Known.MissingUnseen
			}
			want := uint64(0)
			if c.word {
				want = 1
			}
			if known != want || (a.Known != nil) != c.word || a.Frames.MissingUnseen != 4 || len(a.Unbalanced) > 0 {
				t.Errorf("%d are missing, of which %d are known, want %d; %+v", a.Frames.MissingUnseen, known, want, a.Known)
			}
		})
	}
}
