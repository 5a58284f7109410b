package recorder

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// Whatever was dropped, missing, late and in flight when the recorder is killed, the account of its
// sheet and the next one name each number that is not in the log once.
func TestDroppedNumbersAreNamedOnce(t *testing.T) {
	drops, sunk := 0, uint64(0)
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		l, log := testLane(t, []string{config.OverflowOldest, config.OverflowNewest}[rng.IntN(2)])
		next, now := uint64(0), int64(0)
		from := func(l *lane, number, n uint64) {
			now++
			l.Arrived(frames(number, n), int(n)*tally128.Size, now)
		}
		send := func(l *lane, n uint64) {
			from(l, next, n)
			next += n
		}
		var missing []uint64
		settle := func(l *lane, log *stubLog) { l.settle(seglog.Commit{Stored: log.seq, Durable: log.seq}, 1) }
		send(l, 1)
		settle(l, log)
		inLog := 1 // of what it was given
		for range 5 + rng.IntN(40) {
			switch rng.IntN(10) {
			case 0:
				log.err = nil
			case 1:
				log.err = seglog.ErrBusy
			case 2:
				log.err = seglog.ErrDiskFull
			case 3:
				for range 1 + rng.IntN(3) {
					missing = append(missing, next)
					next++
				}
			case 4:
				inLog = len(log.kept) // which takes what waits then
				settle(l, log)
			case 5:
				l.positions() // a sheet
			case 6, 7:
				if n := len(missing); n > 0 { // it comes late
					i := rng.IntN(n)
					from(l, missing[i], 1)
					missing = slices.Delete(missing, i, i+1)
				}
			default:
				send(l, uint64(1+rng.IntN(300)))
			}
		}
		first, accounted, _, _ := l.statement()
		after, log2 := testLane(t, config.OverflowBlock)
		after.resume(place{seen: accounted, stored: accounted})
		next += uint64(rng.IntN(2))
		send(after, 1)
		settle(after, log2)
		second := balanced(t, after)
		named := first.Frames.Missing + second.Missing + second.Duplicate
		for _, n := range first.Frames.Dropped {
			named += n
			drops++
		}
		for _, p := range accounted {
			for _, g := range p.Filled { // the start that takes over says so
				named += g.To - g.From + 1
				sunk += g.To - g.From + 1
			}
		}
		if want := next - uint64(inLog) - 1; named != want {
			t.Errorf("seed %d: %d numbers are not in the log, %d are named; %+v, then %+v; behind %+v",
				seed, want, named, first.Frames, second, accounted)
		}
	}
	if drops == 0 || sunk == 0 {
		t.Errorf("%d dropped, %d late ones in flight", drops, sunk)
	}
}

// A lane that goes on with a source knows what the one before it has dropped.
func TestDroppedNumbersGoOnWithTheSource(t *testing.T) {
	l, log := testLane(t, config.OverflowNewest)
	l.Arrived(frames(0, 10), 10*tally128.Size, 1)
	l.settle(seglog.Commit{Stored: log.seq, Durable: log.seq}, 1)
	log.err = seglog.ErrDiskFull
	l.Arrived(frames(10, 5), 5*tally128.Size, 2)
	log.err = seglog.ErrBusy
	l.Arrived(frames(15, 5), 5*tally128.Size, 3)
	next, log2 := testLane(t, config.OverflowNewest)
	next.resume(place{seen: l.seen(), stored: l.positions()})
	log2.err = seglog.ErrBusy
	next.Arrived(frames(20, 1), tally128.Size, 4)
	ps := next.positions()
	want := ledger.Gap{From: 10, To: 14, Dropped: true}
	if len(ps) != 1 || ps[0].Last != 9 || len(ps[0].Gaps) != 1 || ps[0].Gaps[0] != want {
		t.Errorf("%+v; want 9 stored, and %+v", ps, want)
	}
}

// Numbers that are missing among those which the log had not taken when the recorder was killed are
// named once, though they are as many as a book follows of a stream, and though others were dropped
// among them.
func TestGapsInFlightAreNamedOnce(t *testing.T) {
	for name, n := range map[string]int{"none dropped": ledger.MaxGaps, "dropped": 5} {
		t.Run(name, func(t *testing.T) { gapsInFlight(t, n) })
	}
}

// gapsInFlight has the log busy while numbers are missing, and full for every n-th frame.
func gapsInFlight(t *testing.T, n int) {
	const before = 10
	l, log := testLaneOf(t, config.OverflowNewest, 2*ledger.MaxGaps*tally128.Size)
	next := uint64(0)
	send := func(l *lane, n uint64) {
		l.Arrived(frames(next, n), int(n)*tally128.Size, int64(next)+1)
		next += n
	}
	for range before { // gaps behind which all is stored: those of the stream that a late frame may fill
		send(l, 3)
		next += 2
	}
	send(l, 1)
	l.settle(seglog.Commit{Stored: log.seq, Durable: log.seq}, 1)
	stored := log.seq
	log.err = seglog.ErrBusy
	for i := range ledger.MaxGaps - before {
		next++
		if log.err = seglog.ErrBusy; (i+1)%n == 0 {
			log.err = seglog.ErrDiskFull
		}
		send(l, 1)
	}
	first, accounted, _, _ := l.statement()
	after, log2 := testLane(t, config.OverflowBlock)
	after.resume(place{seen: accounted, stored: accounted})
	send(after, 1)
	after.settle(seglog.Commit{Stored: log2.seq, Durable: log2.seq}, 1)
	second := balanced(t, after)
	named := first.Frames.Missing + second.Missing
	for _, n := range first.Frames.Dropped {
		named += n
	}
	if want := next - uint64(stored) - 1; named != want {
		t.Errorf("%d numbers are not in the log, %d are named; %+v, then %+v; behind %+v", want, named, first.Frames,
			second, accounted)
	}
}

// Numbers that were dropped are known in whichever order they came, across 2^64, too: a model has
// them one by one.
func TestDroppedNumbersInAnyOrder(t *testing.T) {
	id := ledger.Stream{Device: 1}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 8))
		base := []uint64{0, 1<<63 - 300, 1<<64 - 300}[rng.IntN(3)]
		var d dropped
		model := map[uint64]bool{}
		most := 1 + rng.IntN(600)
		for range most {
			from := base + uint64(rng.IntN(900))
			for n := range uint64(1 + rng.IntN(3)) {
				model[from+n] = true
				d.add(&frame.Frame{Device: 1, Seq: from + n, Sequenced: true}, nil)
			}
		}
		number, last := base+uint64(rng.IntN(50)), base+2000
		var gap []ledger.Gap
		if rng.IntN(2) == 0 {
			gap = append(gap, ledger.Gap{From: base + 300, To: base + 320})
		}
		for i, g := range d[id] {
			if i > 0 && int64(g.From-d[id][i-1].To) < 2 {
				t.Fatalf("seed %d: %v follows %v", seed, g, d[id][i-1])
			}
		}
		known := map[uint64]bool{}
		for _, g := range d.behind(id, number, last, gap) {
			for n := g.From; n != g.To+1; n++ {
				known[n] = true
			}
		}
		for off := range uint64(2000) {
			n := base + off
			want := model[n] && int64(n-number) > 0 && (gap == nil || off < 300 || off > 320)
			if known[n] != want {
				t.Fatalf("seed %d: number %d is dropped: %v, want %v", seed, n, known[n], want)
			}
		}
	}
}
