package recorder

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/seglog"
)

// poisoned is a decoder that some bytes crash.
type poisoned struct{ frame.Decoder }

func (p poisoned) Decode(view []byte, to frame.Sink) int {
	if bytes.Contains(view, []byte("poison")) {
		panic("a bug")
	}
	return p.Decoder.Decode(view, to)
}

// TestBytesThatCrashTheRecorder are skipped by the one behind the third that they have killed: they
// are in the quarantine, and everything else is recorded.
func TestBytesThatCrashTheRecorder(t *testing.T) {
	cfg := killedSource("line", false)
	cfg.Frame, cfg.Expect, cfg.SilentAfter = config.Frame{Kind: "line"}, nil, 0
	s, err := spool.Create(spool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	steps := script{{mark: spool.Mark{Time: 1, Kind: spool.Opened, B: 1}}}
	for i, chunk := range []string{"first\n", "half", "poison\n", "between\n", "poison\n", "poison\n", "last\n"} {
		steps = append(steps, scriptStep{
			spool.Mark{Time: int64(i + 2), Kind: spool.Chunk, B: uint64(i + 2)},
			[]byte(chunk),
		})
	}
	steps.feed(t, p)
	log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
	deaths := 0
	for ; ; deaths++ {
		l, err := newLane(cfg, log, frameStream, wasteStream)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newSpooled(l, s, log, steadyEnd)
		if err != nil {
			t.Fatal(err)
		}
		if survives(func() {
			for more := true; more || !l.isSettled() || r.kept.Marks < r.past; {
				if _, ok := l.in.dec.(poisoned); !ok { // skipping makes another
					l.in.dec = poisoned{l.in.dec}
				}
				if more, err = r.step(); err != nil {
					t.Fatal(err)
				}
				log.visible = len(log.all)
				l.settle(seglog.Commit{Stored: log.stored(), Durable: log.stored()}, 2e18)
			}
		}) {
			p := ended(l, log)
			if n := p.Unread[unreadCrashed]; n != 3*7 || p.Bytes.Resync != 4 || p.Frames.OK != 3 {
				t.Errorf("%d bytes are named, %d skipped, %d frames: want 21, 4 and 3", n, p.Bytes.Resync, p.Frames.OK)
			}
			break
		}
		if log.kill(); deaths > 20 {
			t.Fatal("it is killed again and again")
		}
	}
	if deaths != 3*deadly {
		t.Errorf("killed %d times, want %d by each of three", deaths, deadly)
	}
	var got [2][]string
	for _, r := range log.entries() {
		if r.isWaste() {
			got[1] = append(got[1], string(r.data[8:]))
		} else {
			got[0] = append(got[0], string(r.data))
		}
	}
	if want := []string{"first\n", "between\n", "last\n"}; !slices.Equal(got[0], want) {
		t.Errorf("frames %q, want %q", got[0], want)
	}
	if want := []string{"halfpoison\n", "poison\n", "poison\n"}; !slices.Equal(got[1], want) {
		t.Errorf("in the quarantine %q, want %q", got[1], want)
	}
}

func survives(f func()) (ok bool) {
	defer func() { ok = recover() == nil }()
	f()
	return true
}
