package recorder

import (
	"math/rand/v2"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/seglog"
)

// Frames that a network has put in another order are named once each where they are not in the log
// when the recorder is killed, also of a log that has stood still for so long that more of them are
// held than are followed.
func TestShuffledFramesBeforeAKillAreNamedOnce(t *testing.T) {
	sunk := uint64(0)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		l, log := testLane(t, []string{config.OverflowOldest, config.OverflowNewest}[rng.IntN(2)])
		l.out.buffer = (1 + rng.IntN(4)) * 256 << 10
		next, now := uint64(0), int64(0)
		send := func(windows int) {
			for range windows {
				for _, i := range rng.Perm(64) {
					now++
					l.Arrived(frames(next+uint64(i), 1), tally128.Size, now)
				}
				next += 64
			}
		}
		send(10)
		inLog := log.seq - uint64(rng.IntN(100)) // the rest is in its hands
		l.settle(seglog.Commit{Stored: inLog, Durable: inLog}, 1)
		log.err = []error{seglog.ErrBusy, seglog.ErrDiskFull}[rng.IntN(2)]
		if rng.IntN(2) == 0 { // they are in its buffer
			log.err = nil
		}
		send(rng.IntN(200))
		log.err = seglog.ErrBusy
		send(rng.IntN(200))
		first, accounted, _, _ := l.statement()
		after, log2 := testLane(t, config.OverflowBlock)
		after.resume(place{seen: accounted, stored: accounted})
		after.Arrived(frames(next, 1), tally128.Size, 1)
		after.settle(seglog.Commit{Stored: log2.seq, Durable: log2.seq}, 1)
		second := balanced(t, after)
		named := first.Frames.Missing + second.Missing
		for _, n := range first.Frames.Dropped {
			named += n
		}
		for _, p := range accounted {
			for _, g := range p.Filled {
				named += g.To - g.From + 1
				sunk += g.To - g.From + 1
			}
		}
		if want := next - inLog; named != want {
			t.Errorf("seed %d: %d numbers are not in the log, %d are named; forgotten %d; %+v, then %+v", seed, want,
				named, first.Frames.Forgotten, first.Frames, second)
		}
	}
	if sunk == 0 {
		t.Error("none was in flight behind a higher number")
	}
}
