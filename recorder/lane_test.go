package recorder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// stubLog takes records until it is told not to.
type stubLog struct {
	err  error
	seq  uint64
	kept []uint64 // frame numbers
}

func (s *stubLog) TryAppendAt(_ uint32, _ int64, _ uint64, data []byte) (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.seq++
	h, _ := tally128.Parse(data)
	s.kept = append(s.kept, h.Seq)
	return s.seq, nil
}

func testLane(t *testing.T, overflow string) (*lane, *stubLog) {
	t.Helper()
	return testLaneOf(t, overflow, 64<<10)
}

func testLaneOf(t *testing.T, overflow string, buffer config.Size) (*lane, *stubLog) {
	t.Helper()
	log := &stubLog{}
	cfg := config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
		Overflow: overflow, Buffer: buffer,
	}
	l, err := newLane(cfg, log, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l, log
}

func frames(from, n uint64) []byte {
	b := make([]byte, n*tally128.Size)
	for i := range n {
		tally128.Encode(b[i*tally128.Size:], tally128.Header{Device: 1, Epoch: 1, Seq: from + i}, nil)
	}
	return b
}

func balanced(t *testing.T, l *lane) ledger.Frames {
	t.Helper()
	p := l.sheet()
	if len(p.Unbalanced) > 0 {
		t.Errorf("the sheet does not balance: %v", p.Unbalanced)
	}
	return p.Frames
}

func TestOverflowPolicies(t *testing.T) {
	const limit = 64 << 10 / tally128.Size // frames that the buffer holds
	for _, c := range []struct {
		overflow    string
		cause       string
		least, most uint64 // frames that must be held when the log takes nothing
		first       bool   // whether the oldest are kept
	}{
		{config.OverflowBlock, "", limit / 2, limit/2 + 1, true},
		{config.OverflowOldest, causeOldest, limit * 69 / 100, limit * 70 / 100, false},
		{config.OverflowNewest, causeNewest, limit, limit, true},
	} {
		l, log := testLane(t, c.overflow)
		log.err = seglog.ErrBusy
		sent, more := uint64(0), true
		for more && sent < 3*limit {
			_, more = l.Arrived(frames(sent, 1), tally128.Size, 1)
			if more {
				sent++
			}
			balanced(t, l)
		}
		if more == (c.overflow == config.OverflowBlock) {
			t.Errorf("%s: reading goes on: %v", c.overflow, more)
		}
		f := balanced(t, l)
		if f.InFlight < c.least || f.InFlight > c.most || f.Dropped[c.cause] != sent-f.InFlight {
			t.Errorf("%s: %d of %d held, dropped %v; want %d to %d held", c.overflow, f.InFlight, sent, f.Dropped,
				c.least, c.most)
		}
		log.err = nil
		l.settle(seglog.Commit{}, 2) // the log has room again: the backlog goes in, in order
		l.settle(seglog.Commit{Stored: log.seq, Durable: log.seq - 1}, 3)
		f = balanced(t, l)
		if f.InFlight != 0 || f.Stored != uint64(len(log.kept)) || f.Durable >= f.Stored {
			t.Errorf("%s: after the log came back: %+v", c.overflow, f)
		}
		if (log.kept[0] == 0) != c.first {
			t.Errorf("%s: the first frame kept is %d", c.overflow, log.kept[0])
		}
		for i := 1; i < len(log.kept); i++ {
			if log.kept[i] != log.kept[i-1]+1 {
				t.Fatalf("%s: frame %d is kept behind %d", c.overflow, log.kept[i], log.kept[i-1])
			}
		}
	}
}

func TestLogErrorsAreAccounted(t *testing.T) {
	for err, cause := range map[error]string{
		seglog.ErrDiskFull: causeDiskFull, seglog.ErrFailed: causeFailed, seglog.ErrTooLarge: causeTooLarge,
	} {
		l, log := testLane(t, config.OverflowBlock)
		l.Arrived(frames(0, 3), 3*tally128.Size, 1)
		log.err = err
		l.Arrived(frames(3, 4), 4*tally128.Size, 1)
		if f := balanced(t, l); f.Dropped[cause] != 4 || f.InFlight != 3 {
			t.Errorf("%v: %+v; want 4 dropped as %s, 3 in flight", err, f, cause)
		}
		l.settle(seglog.Commit{Stored: 1, Durable: 1, Err: seglog.ErrFailed}, 2)
		if f := balanced(t, l); f.InFlight != 0 {
			t.Errorf("%v: after the log failed, %d in flight", err, f.InFlight)
		}
	}
}

// What lanes hold that have stopped goes into the log before what their successor has read, however
// the moments fall: the log has the records of a source in their order. No number counts as stored
// before it is, nor does a lane that has nothing itself.
func TestLanesOfASourceKeepTheOrder(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(log *stubLog, lanes []*lane) // the log goes on
		kept  uint64
		cause string
	}{
		"the log has room again": {func(log *stubLog, lanes []*lane) {
			log.err = nil
			lanes[2].Arrived(frames(6, 1), tally128.Size, 2) // before anybody has told the others
			lanes[2].settle(seglog.Commit{}, 2)
			if f := balanced(t, lanes[2]); f.InFlight != 4 || len(log.kept) != 0 || lanes[2].isSettled() ||
				lanes[1].isSettled() {
				t.Errorf("the last lane has %+v, the log %v", f, log.kept)
			}
			for _, l := range lanes {
				l.settle(seglog.Commit{}, 3)
			}
		}, 7, ""},
		"the log fails": {func(log *stubLog, lanes []*lane) {
			log.err = seglog.ErrFailed
			for _, l := range lanes {
				l.settle(seglog.Commit{Err: seglog.ErrFailed}, 3)
			}
		}, 0, causeFailed},
		"the log is closed": {func(log *stubLog, lanes []*lane) {
			log.err = seglog.ErrClosed
			for _, l := range lanes {
				l.settle(seglog.Commit{}, 3)
				l.lose(causeStalled)
			}
		}, 0, causeStalled},
	} {
		var lanes []*lane
		log := &stubLog{err: seglog.ErrBusy}
		for i, n := range []uint64{3, 0, 3} { // the one in the middle reads nothing
			l, _ := testLane(t, config.OverflowBlock)
			l.out.log = log
			if i > 0 {
				l.resume(place{seen: lanes[i-1].seen(), stored: lanes[i-1].positions()})
				l.follows(lanes[i-1])
			}
			l.Arrived(frames(3*uint64(i/2), n), int(n)*tally128.Size, 1)
			lanes = append(lanes, l)
			for _, p := range l.positions() { // before the first number
				if p.Last+1 != 0 {
					t.Errorf("lane %d: %+v counts as stored", i, p)
				}
			}
		}
		c.then(log, lanes)
		if !slices.Equal(log.kept, consecutive(0, c.kept)) {
			t.Errorf("%s: the log has %v", name, log.kept)
		}
		for _, l := range lanes {
			l.settle(seglog.Commit{Stored: log.seq, Durable: log.seq}, 4)
			if f := balanced(t, l); f.Dropped[c.cause] != f.OK-f.Stored || !l.isSettled() {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if f := lanes[2].sheet().Frames; f.Missing+f.Duplicate > 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// What waits for a log that is closed is given up by whoever closed it, under one cause with what
// the log had taken.
func TestClosedLogLeavesTheCause(t *testing.T) {
	l, log := testLane(t, config.OverflowBlock)
	l.Arrived(frames(0, 3), 3*tally128.Size, 1)
	log.err = seglog.ErrBusy
	l.Arrived(frames(3, 4), 4*tally128.Size, 1)
	log.err = seglog.ErrClosed
	l.settle(seglog.Commit{}, 2)
	l.lose(causeStalled)
	if f := balanced(t, l); f.Dropped[causeStalled] != 7 || len(f.Dropped) != 1 {
		t.Errorf("%+v; want 7 dropped as %s", f, causeStalled)
	}
}

// The page says what each cause of a dropped frame means.
func TestThePageKnowsTheCauses(t *testing.T) {
	page, err := os.ReadFile("../api/web/losses.js")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`(?m)^  \[/\^(dropped: [^/]+)/`).FindAllSubmatch(page, -1)
	for _, cause := range []string{
		causeOldest, causeNewest, causeDiskFull, causeFailed, causeStalled, causeTooLarge,
		causeStopped, causeSpillFull, causeSpillSlow, causeSpillFailed,
	} {
		p := ledger.Port{ID: "a", Frames: ledger.Frames{Dropped: map[string]uint64{cause: 1}}}
		losses := (&ledger.Sheet{Ports: []ledger.Port{p}}).Losses()
		if len(losses) != 1 ||
			!slices.ContainsFunc(known,
				func(like [][]byte) bool { return strings.HasPrefix(losses[0].Cause, string(like[1])) }) {
			t.Errorf("%s: %+v has no meaning on the page, which knows %q", cause, losses, known)
		}
	}
}

// A sheet balances after every step of a random life.
func TestSheetBalancesAtEveryMoment(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l, log := testLane(t, []string{config.OverflowBlock, config.OverflowOldest, config.OverflowNewest}[seed%3])
		var held []byte
		var next, stored uint64
		for range 400 {
			switch rng.IntN(8) {
			case 0:
				log.err = []error{nil, nil, seglog.ErrBusy, seglog.ErrDiskFull}[rng.IntN(4)]
			case 1:
				stored += (log.seq - stored) / 2
				l.settle(seglog.Commit{Stored: log.seq, Durable: stored}, 5)
			case 2:
				l.Closed(held, 9, errors.New("gone"))
				<-l.closed
				held = nil
			default:
				n := uint64(rng.IntN(40))
				fresh := frames(next, n)
				next += n + uint64(rng.IntN(10)/9)
				if len(fresh) > 0 && rng.IntN(3) == 0 {
					fresh[rng.IntN(len(fresh))] ^= 0x40
				}
				fresh = fresh[:len(fresh)-min(len(fresh), rng.IntN(3))]
				held = append(held, fresh...)
				if len(held) > 60<<10 { // the reader's buffer is full
					held = held[:len(held)-len(fresh)]
					fresh = nil
				}
				done, _ := l.Arrived(held, len(fresh), 3)
				held = held[done:]
			}
			if balanced(t, l); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		l.lose(causeFailed)
		if f := balanced(t, l); f.InFlight != 0 {
			t.Errorf("seed %d: %d in flight at the end", seed, f.InFlight)
		}
	}
}

// What the log does not store of bytes that were no frame is lost to forensics, and the sheet says
// so.
func TestQuarantineCountsWhatTheLogStored(t *testing.T) {
	l, log := testLane(t, config.OverflowBlock)
	l.in.wasteStream = 2
	l.in.Skip(make([]byte, 100))
	l.in.bury()
	log.err = seglog.ErrBusy
	l.in.Skip(make([]byte, 30))
	l.in.bury()
	l.in.book.Read(130)
	want := func(when string, quarantined uint64) {
		t.Helper()
		balanced(t, l)
		if b := l.sheet().Bytes; b.Resync != 130 || b.Quarantined != quarantined {
			t.Errorf("%s: %+v; want %d of 130 bytes kept", when, b, quarantined)
		}
	}
	if want("staged", 0); l.isSettled() {
		t.Error("what is staged is settled")
	}
	l.settle(seglog.Commit{Stored: log.seq}, 0)
	want("stored", 100)
	log.err = nil
	l.in.Skip(make([]byte, 7))
	l.in.bury()
	l.in.book.Read(7)
	l.settle(seglog.Commit{Stored: log.seq - 1, Err: seglog.ErrFailed}, 0)
	if b := l.sheet().Bytes; b.Quarantined != 100 || !l.isSettled() {
		t.Errorf("%+v, settled %v; want what the log has when it has failed", b, l.isSettled())
	}
}

// Quarantined bytes that are stored and not durable stand in what a power cut, or a sync that
// fails, can take, as frames do.
func TestQuarantineIsUnsyncedUntilItIsDurable(t *testing.T) {
	l, log := testLane(t, config.OverflowBlock)
	l.in.wasteStream = 2
	b := frames(0, 2)
	l.Arrived(b, len(b), 1)
	for range 3 {
		l.in.Skip(make([]byte, 100))
		l.in.bury()
	}
	l.settle(seglog.Commit{Stored: 4, Durable: 1}, 0)
	if got, want := l.unsynced(), (archive.Span{First: 2, Last: 4, N: 1, Waste: 200}); got != want {
		t.Errorf("unsynced: %+v, want %+v", got, want)
	}
	heir, _ := testLane(t, config.OverflowBlock)
	l.settle(seglog.Commit{Stored: log.seq, Durable: 4}, 0)
	if got, want := l.unsynced(), (archive.Span{First: 5, Last: 5, Waste: 100}); got != want {
		t.Errorf("unsynced: %+v, want %+v", got, want)
	}
	heir.out.inherit(&l.out)
	if got := heir.unsynced(); !l.unsynced().IsEmpty() || got.Waste != 100 {
		t.Errorf("unsynced: %+v is left, and %+v inherited", l.unsynced(), got)
	}
	heir.settle(seglog.Commit{Stored: 5, Durable: 5, Err: seglog.ErrFailed}, 0)
	if got := heir.unsynced(); !got.IsEmpty() {
		t.Errorf("unsynced: %+v, want nothing", got)
	}
}

// wasteLog keeps what it is given of the streams.
type wasteLog struct {
	waste  [][]byte
	order  []uint32
	frames int
}

func (s *wasteLog) TryAppendAt(stream uint32, _ int64, _ uint64, data []byte) (uint64, error) {
	if stream == 2 {
		s.waste = append(s.waste, bytes.Clone(data))
	} else {
		s.frames++
	}
	s.order = append(s.order, stream)
	return uint64(len(s.order)), nil
}

// A decoder may give up byte by byte: the quarantine has the run of them in one record, or a few,
// and before the frame that comes behind it.
func TestQuarantineGathersBytes(t *testing.T) {
	for _, kind := range []string{"modbus", "length"} {
		f := config.Frame{Kind: kind, Max: 100}
		good := append([]byte{1, 6, 0, 1, 0, 9}, 0x18, 0x0C) // a Modbus request to write, and its sum
		if kind == "length" {
			good = append([]byte{0, 5}, "hello"...)
		} else {
			f.Max = 0
		}
		l, err := newLane(config.Source{
			ID: "a", Serial: &config.Serial{Port: "x"}, Frame: f,
			Overflow: config.OverflowBlock, Buffer: 64 << 10,
		}, nil, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		log := &wasteLog{}
		l.out.log = log
		const junk = 10_000
		b := append(bytes.Repeat([]byte{0xFF}, junk), good...)
		done, _ := l.Arrived(b, len(b), 1)
		done += l.Silent(b[done:], int64(time.Second))
		l.ends()
		l.Closed(b[done:], int64(2*time.Second), nil)
		var all []byte
		for _, r := range log.waste {
			all = append(all, r[8:]...)
			if at := binary.LittleEndian.Uint64(r); at != uint64(len(all)-len(r)+8) {
				t.Errorf("%s: a record of byte %d says that it is of byte %d", kind, len(all)-len(r)+8, at)
			}
		}
		if want := b[:junk]; !bytes.Equal(all, want) || len(log.waste) > 2*junk/maxJunk || log.frames != 1 ||
			log.order[len(log.order)-1] != 1 {
			t.Errorf("%s: %d bytes in %d records, %d frames, in the order %v; want %d bytes in a few records, then one frame",
				kind, len(all), len(log.waste), log.frames, log.order[max(0, len(log.order)-5):], junk)
		}
	}
}

// countingLog takes every record and keeps none.
type countingLog struct{ seq uint64 }

func (c *countingLog) TryAppendAt(uint32, int64, uint64, []byte) (uint64, error) {
	c.seq++
	return c.seq, nil
}

// A frame on its way from the ring to the log and back costs no memory.
func TestFramesCostNoMemory(t *testing.T) {
	log := &countingLog{}
	cfg := config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowBlock, Buffer: 64 << 10,
	}
	l, err := newLane(cfg, log, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, next, now := frames(0, 8), uint64(0), int64(1)
	allocated := testing.AllocsPerRun(1000, func() {
		for i := range uint64(8) {
			tally128.Encode(b[i*tally128.Size:], tally128.Header{Device: 1, Epoch: 1, Seq: next}, nil)
			next++
		}
		now++
		if done, _ := l.Arrived(b, len(b), now); done != len(b) {
			t.Fatal(done)
		}
		l.settle(seglog.Commit{Stored: log.seq, Durable: log.seq}, now)
	})
	if f := balanced(t, l); allocated != 0 || f.Stored != next {
		t.Errorf("%v allocations for 8 frames, %d of %d stored", allocated, f.Stored, next)
	}
}

// A silence that is due while every chunk waits to be parsed holds nothing up: only the parse stage
// could free one.
func TestPipelineWithSilencesAndFullQueues(t *testing.T) {
	cfg := config.Source{ID: "a", UDP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "modbus"}}
	l, err := newLane(cfg, &stubLog{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := newPipeline(l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 { // pieces of frames, read long ago
			p.send([]byte{1, 3, 0, 0}, 1, func(*chunk) {})
		}
		close(p.parse)
		<-p.done
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the pipeline stands")
	}
}
