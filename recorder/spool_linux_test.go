package recorder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// entry is a record that a lane has appended.
type entry struct {
	stream uint32
	time   int64
	data   []byte
}

const (
	frameStream = 1
	wasteStream = 2
	otherStream = 3

	damagedStream = 4 // of a record that cannot be read
)

func (e entry) isWaste() bool { return e.stream == wasteStream }

// killable is a log that keeps records, and of which a kill takes those that are not stored yet. It
// has records of others, too.
type killable struct {
	all     []seglog.Record
	visible int // so many are stored
	rng     *rand.Rand
	busy    int // one time in so many it takes nothing; 0: never
	failed  bool
}

func (k *killable) TryAppendAt(stream uint32, time int64, offset uint64, data []byte) (uint64, error) {
	if k.failed {
		return 0, seglog.ErrFailed
	}
	if k.busy > 0 && k.rng.IntN(k.busy) == 0 {
		return 0, seglog.ErrBusy
	}
	for _, of := range []uint32{otherStream, stream}[k.rng.IntN(2):] {
		k.all = append(k.all, seglog.Record{
			Seq: uint64(len(k.all) + 1), Time: time, Stream: of,
			Data: bytes.Clone(data), Offset: offset,
		})
	}
	return uint64(len(k.all)), nil
}

func (k *killable) stored() uint64 { return uint64(k.visible) }

// newest takes a stream of 0 for a hole.
func (k *killable) newest(upTo uint64) (uint64, error) {
	for upTo = min(upTo, k.stored()); upTo > 0 && k.all[upTo-1].Stream == 0; {
		upTo--
	}
	return upTo, nil
}

func (k *killable) hasFailed() bool { return k.failed }

func (k *killable) since(seq uint64, each func(seglog.Record), lost func(first uint64)) error {
	for _, r := range k.all[min(seq, k.stored()):k.visible] {
		if r.Stream != 0 && r.Stream != damagedStream {
			each(r)
		} else {
			lost(r.Seq)
		}
	}
	return nil
}

// store stores some of what it has taken.
func (k *killable) store() { k.visible += k.rng.IntN(len(k.all) - k.visible + 1) }

// kill takes some of what is not stored, and stores the rest.
func (k *killable) kill() {
	k.store()
	k.all = k.all[:k.visible]
}

// entries is the records of a lane, in order.
func (k *killable) entries() (all entries) {
	for _, r := range k.all {
		if r.Stream == frameStream || r.Stream == wasteStream {
			all = append(all, entry{r.Stream, r.Time, r.Data})
		}
	}
	return all
}

type entries []entry

// story is what becomes of each byte: frames with their times, and between them bytes that are in
// none, with the offset of the first. How many calls those took does not matter.
func (e entries) story() (all []entry) {
	for _, r := range e {
		last := len(all) - 1
		if r.stream == wasteStream && last >= 0 && all[last].stream == wasteStream {
			all[last].data = append(all[last].data, r.data[8:]...)
			continue
		}
		if r.stream == wasteStream {
			r.time, r.data = int64(binary.LittleEndian.Uint64(r.data)), bytes.Clone(r.data[8:])
		}
		all = append(all, r)
	}
	return all
}

// script is what a device sends, and when it is read.
type script []scriptStep

// scriptStep is bytes that are read at once, or something else that a mark tells of.
type scriptStep struct {
	mark  spool.Mark
	bytes []byte
}

// scriptFor makes one of a framing: frames, damage and junk, cut anywhere, with silences and ends.
func scriptFor(rng *rand.Rand, kind string, messages bool, dec frame.Decoder) (s script) {
	m := &maker{kind: kind, rng: rng, size: 60}
	var waits []time.Duration
	for _, d := range []time.Duration{dec.Silence(), patience(dec)} {
		if d > 0 {
			waits = append(waits, d)
		}
	}
	at, steady := int64(1e18), uint64(1e12)
	number := uint64(0)
	s = append(s, scriptStep{mark: spool.Mark{Time: at, Kind: spool.Opened, B: steady}})
	for range 60 {
		var b []byte
		for range 1 + rng.IntN(3) {
			number++
			switch rng.IntN(8) {
			case 0:
				b = append(b, m.junk()...)
			case 1:
				b = append(b, m.bad(7, number)...)
			case 2: // longer than a frame can be
				b = append(b, bytes.Repeat([]byte{'x'}, 300+rng.IntN(1000))...)
			default:
				b = append(b, m.good(7, number)...)
			}
		}
		for len(b) > 0 {
			n := len(b)
			if !messages {
				n = 1 + rng.IntN(len(b))
			}
			at += int64(rng.IntN(1000))
			steady += uint64(rng.IntN(int(20 * time.Millisecond)))
			s = append(s, scriptStep{spool.Mark{Time: at, Kind: spool.Chunk, B: steady}, b[:n]})
			b = b[n:]
		}
		if messages && rng.IntN(5) == 0 {
			s = append(s, scriptStep{spool.Mark{Time: at, Kind: spool.Chunk, B: steady}, nil})
		}
		for _, d := range waits[:rng.IntN(len(waits)+1)] {
			s = append(s, scriptStep{mark: spool.Mark{Time: at + int64(d), Kind: spool.Silent, B: uint64(d)}})
		}
		if rng.IntN(20) == 0 { // a file that it had run over into cannot be read back
			s = append(s, scriptStep{mark: spool.Mark{Time: at, Kind: spool.Lost, A: spool.Spilled, B: 100}})
		}
		if rng.IntN(20) == 0 {
			s = append(s, scriptStep{mark: spool.Mark{Time: at, Kind: spool.Closed, B: steady}},
				scriptStep{mark: spool.Mark{Time: at, Kind: spool.Opened, B: steady}})
		}
	}
	if messages {
		for i := range s {
			if s[i].mark.Kind == spool.Chunk {
				s[i].mark.Kind = spool.Message
			}
		}
	}
	return s
}

func (s script) bytes() (all []byte) {
	for _, step := range s {
		all = append(all, step.bytes...)
	}
	return all
}

// spooled is what a reader makes of the script.
func (s script) spooled(t *testing.T) *spool.Spool {
	t.Helper()
	sp, err := spool.Create(spool.Config{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sp.Close() })
	p, err := sp.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	s.feed(t, p)
	return sp
}

// feed is what a reader makes of a part of a script.
func (s script) feed(t *testing.T, p *spool.Producer) {
	t.Helper()
	for _, step := range s {
		var err error
		if kind := step.mark.Kind; kind == spool.Chunk || kind == spool.Message {
			_, err = p.Read(kind, spool.Moment{Wall: step.mark.Time, Steady: int64(step.mark.B)}, 0,
				func(_ int, b []byte) (int, syscall.Errno) {
					return copy(b, step.bytes), 0
				})
		} else {
			err = p.Note(step.mark)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// direct shows the script to a lane as a reader does in the same process.
func (s script) direct(l *lane) {
	var held []byte
	var last, silent uint64
	l.in.steady = func() time.Duration { return time.Duration(last + silent) }
	for _, step := range s {
		at := step.mark.Time
		if silent = 0; step.mark.Kind != spool.Silent && step.mark.Kind != spool.Lost {
			last = step.mark.B
		}
		switch step.mark.Kind {
		case spool.Chunk, spool.Message:
			held = append(held, step.bytes...)
			done, _ := l.Arrived(held, len(step.bytes), at)
			held = held[done:]
		case spool.Silent:
			silent = step.mark.B
			if len(held) > 0 {
				held = held[l.Silent(held, at):]
			}
		case spool.Closed:
			l.Closed(held, at, io.EOF)
			<-l.closed
			held = nil
		case spool.Lost:
			l.mu.Lock()
			l.in.book.At(at)
			l.in.book.Unread(causeSpillFailed, step.mark.B)
			l.breakOff(held, at)
			l.mu.Unlock()
			held = nil
		case spool.Opened:
			l.mu.Lock()
			l.begin(at)
			l.mu.Unlock()
		}
	}
}

// steadyEnd is when the sheets of the tests below are drawn up.
func steadyEnd() time.Duration { return 1e18 }

// ended is the account of a lane once the log has stored all.
func ended(l *lane, log *killable) ledger.Port {
	for done := false; !done; {
		done = l.isSettled() // else it gives more to the log
		log.visible = len(log.all)
		l.settle(seglog.Commit{Stored: log.stored(), Durable: log.stored()}, 2e18)
	}
	l.in.steady = steadyEnd
	p := l.sheet()
	p.Book, p.LastLoss = 0, 0
	return p
}

var killedKinds = []string{"tally128", "modbus", "cobs", "slip", "line", "ubx", "length", "raw"}

// killedSource is a source whose recorders are killed.
func killedSource(kind string, messages bool) config.Source {
	cfg := config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: (&maker{kind: kind}).settings(),
		Overflow: config.OverflowBlock, Buffer: 1 << 20, SilentAfter: 50 * time.Millisecond,
		Expect: &config.Expect{Interval: 20 * time.Millisecond, Tolerance: "20%"},
	}
	if messages {
		cfg.Serial, cfg.UDP = nil, &config.Net{}
	}
	return cfg
}

// lived is a script for a source, and what a lane that lives through it makes of it.
func lived(t *testing.T, rng *rand.Rand, cfg config.Source) (s script, records []entry, books ledger.Port) {
	t.Helper()
	log := &killable{rng: rng}
	l, err := newLane(cfg, log, frameStream, wasteStream)
	if err != nil {
		t.Fatal(err)
	}
	s = scriptFor(rng, cfg.Frame.Kind, cfg.UDP != nil, l.in.dec)
	s.direct(l)
	books, records = ended(l, log), log.entries().story()
	if all := sentIn(records); !bytes.HasPrefix(s.bytes(), all) || len(records) < 20 {
		t.Fatalf("%s: %d entries with %d bytes, which were not sent", cfg.Frame.Kind, len(records), len(all))
	}
	return s, records, books
}

// TestARecorderThatIsKilled is a lane behind a spool that is killed again and again, while the log
// has stored some of what it has taken, and none of the rest. In the end records and books are
// those of a lane in front of the device that lived through it.
func TestARecorderThatIsKilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for _, kind := range killedKinds {
		for _, messages := range []bool{false, true} {
			for round, kills := range []int{0, 8, 2, 2, 8} { // one in so many steps; 0: none
				cfg := killedSource(kind, messages)
				log := &killable{rng: rng}
				if round > 2 { // it pauses now and then, and the rhythm with it
					log.busy, cfg.Buffer, cfg.SilentAfter, cfg.Expect = 3, 200, 0, nil
				}
				s, want, wantBooks := lived(t, rng, cfg)
				got, deaths := replayed(t, s.spooled(t), cfg, log, kills)
				if log.busy > 0 { // waste is never in the way of frames, and may be lost
					wantBooks.Bytes.Quarantined, got.Bytes.Quarantined = 0, 0
					want = slices.DeleteFunc(want, entry.isWaste)
					log.all = slices.DeleteFunc(log.all, func(r seglog.Record) bool { return r.Stream == wasteStream })
				}
				if got := log.entries().story(); !slices.EqualFunc(got, want, same) {
					t.Fatalf("%s, messages %v, killed %d times: %s", kind, messages, deaths, differs(got, want))
				}
				if !reflect.DeepEqual(got, wantBooks) {
					t.Fatalf("%s, messages %v, killed %d times: the books are\n%+v, want\n%+v", kind, messages, deaths,
						got, wantBooks)
				}
			}
		}
	}
}

// Behind bytes that are lost, as of a file that cannot be read back, no frame goes on that was held
// before them: it would be made of the halves of two.
func TestNoFrameGoesOnBehindWhatIsLost(t *testing.T) {
	for _, kind := range []string{"length", "tally128", "cobs"} {
		cfg := killedSource(kind, false)
		m := &maker{kind: kind, rng: rand.New(rand.NewPCG(1, 1)), size: 60}
		first, second := m.good(7, 1), m.good(7, 2)
		third := m.good(7, 3)
		s := script{
			{spool.Mark{Kind: spool.Opened}, nil},
			{spool.Mark{Time: 1, Kind: spool.Chunk}, first[:len(first)/2]},
			{spool.Mark{Time: 2, Kind: spool.Lost, A: spool.Spilled, B: 60}, nil},
			{spool.Mark{Time: 3, Kind: spool.Chunk}, second},
			{spool.Mark{Time: 4, Kind: spool.Chunk}, third},
		}
		log := &killable{rng: m.rng}
		p, _ := replayed(t, s.spooled(t), cfg, log, 0)
		var got [][]byte
		for _, e := range log.entries() {
			if !e.isWaste() {
				got = append(got, e.data)
			}
		}
		if want := [][]byte{second, third}; !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: records %q, want %q", kind, got, want)
		}
		if p.Unread[causeSpillFailed] != 60 {
			t.Errorf("%s: unread %v", kind, p.Unread)
		}
	}
}

func same(a, b entry) bool {
	return a.stream == b.stream && a.time == b.time && bytes.Equal(a.data, b.data)
}

func differs(got, want []entry) string {
	for i := range min(len(got), len(want)) {
		if !same(got[i], want[i]) {
			return fmt.Sprintf("entry %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d entries, want %d", len(got), len(want))
}

// replayed plays a spool to lanes that are killed now and then, one in so many steps, and returns
// the books of the last one.
func replayed(t *testing.T, s *spool.Spool, cfg config.Source, log *killable, kills int) (p ledger.Port, deaths int) {
	t.Helper()
	for ; ; deaths++ {
		l, err := newLane(cfg, log, frameStream, wasteStream)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newSpooled(l, s, log, steadyEnd)
		if err != nil {
			t.Fatal(err)
		}
		r.most = 1 + log.rng.IntN(3)
		for isKilled := false; !isKilled; isKilled = kills > 0 && log.rng.IntN(kills) == 0 {
			more, err := r.step()
			if err != nil {
				t.Fatal(err)
			}
			if !more && l.isSettled() {
				return ended(l, log), deaths
			}
			log.store()
			l.settle(seglog.Commit{Stored: log.stored(), Durable: log.stored() / 2}, 2e18)
		}
		log.kill()
	}
}

// live plays a spool to a lane until all of it is in the log, or, where it may, it is killed: one
// step in twelve. over: it was not.
func (k *killable) live(t *testing.T, cfg config.Source, s *spool.Spool, mayDie bool) (l *lane, over bool) {
	t.Helper()
	l, err := newLane(cfg, k, frameStream, wasteStream)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newSpooled(l, s, k, steadyEnd)
	if err != nil {
		t.Fatal(err)
	}
	r.most = 1 + k.rng.IntN(3)
	for isKilled := false; !isKilled && !over; isKilled = mayDie && k.rng.IntN(12) == 0 {
		more, err := r.step()
		if err != nil {
			t.Fatal(err)
		}
		over = !more && l.isSettled()
		k.store()
		l.settle(seglog.Commit{Stored: k.stored(), Durable: k.stored() / 2}, 2e18)
	}
	return l, over
}

// sentIn is all bytes of a story, in order.
func sentIn(all []entry) (b []byte) {
	for _, e := range all {
		b = append(b, e.data...)
	}
	return b
}

// TestASourceThatChangesIsKilled has a source change that is recorded from a spool: another lane
// goes on with another spool, on the same streams. The recorder is killed again and again, before
// the log has what the first lane gave it, and behind that. Each wire is in the log once, and the
// second behind the first.
func TestASourceThatChangesIsKilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for _, kind := range killedKinds {
		for range 3 {
			cfg := killedSource(kind, false)
			old, want, _ := lived(t, rng, cfg)
			then, wantThen, books := lived(t, rng, cfg)
			c := succession{t: t, cfg: cfg, log: &killable{rng: rng}, shelf: old.spooled(t), then: then}
			got := c.run()
			first := killable{all: c.log.all[:c.floor]}
			second := killable{all: c.log.all[c.floor:]}
			if got := first.entries().story(); !slices.EqualFunc(got, want, same) {
				t.Fatalf("%s, before the change: %s", kind, differs(got, want))
			}
			if got := second.entries().story(); !slices.EqualFunc(got, wantThen, same) {
				t.Fatalf("%s, behind the change: %s", kind, differs(got, wantThen))
			}
			if !reflect.DeepEqual(got, books) {
				t.Fatalf("%s: the books are\n%+v, want\n%+v", kind, got, books)
			}
		}
	}
}

// succession is a source that changes once its spool is shown, as Reload and keepRemote do it.
type succession struct {
	t     *testing.T
	cfg   config.Source
	log   *killable
	shelf *spool.Spool // what the next recorder finds
	then  script       // of the wire behind the change
	isNew bool         // the shelf has that
	floor uint64       // up to this record the log has the wire before
}

// run records both wires, and returns the books of the second.
func (c *succession) run() ledger.Port {
	for {
		now, next := c.begin(c.shelf), (*spooled)(nil)
		var made *spool.Spool
		for isKilled := false; !isKilled; isKilled = c.log.rng.IntN(6) == 0 {
			if next == nil {
				more, err := now.step()
				if err != nil {
					c.t.Fatal(err)
				}
				if !more && c.isNew && now.lane.isSettled() {
					return ended(now.lane, c.log)
				}
				if !more && !c.isNew {
					made = c.then.spooled(c.t)
					next = c.begin(made)
					next.lane.follows(now.lane)
				}
			}
			c.log.store()
			now.lane.settle(seglog.Commit{Stored: c.log.stored(), Durable: c.log.stored()}, 2e18)
			if next != nil && now.lane.isSettled() {
				if err := next.found(); err != nil {
					c.t.Fatal(err)
				}
				now, next, c.shelf, c.isNew, c.floor = next, nil, made, true, c.log.stored()
			}
		}
		c.log.kill()
	}
}

func (c *succession) begin(s *spool.Spool) *spooled {
	c.t.Helper()
	l, err := newLane(c.cfg, c.log, frameStream, wasteStream)
	if err != nil {
		c.t.Fatal(err)
	}
	p, err := newSpooled(l, s, c.log, steadyEnd)
	if err != nil {
		c.t.Fatal(err)
	}
	p.most = 1 + c.log.rng.IntN(3)
	return p
}
