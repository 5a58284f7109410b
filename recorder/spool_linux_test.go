package recorder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
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
)

// entries is a log that keeps them.
type entries []entry

func (e *entries) TryAppend(stream uint32, time int64, data []byte) (uint64, error) {
	*e = append(*e, entry{stream, time, bytes.Clone(data)})
	return uint64(len(*e)), nil
}

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
	at := int64(1e18)
	number := uint64(0)
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
			s = append(s, scriptStep{spool.Mark{Time: at, Kind: spool.Chunk}, b[:n]})
			b = b[n:]
		}
		if messages && rng.IntN(5) == 0 {
			s = append(s, scriptStep{spool.Mark{Time: at, Kind: spool.Chunk}, nil})
		}
		for _, d := range waits[:rng.IntN(len(waits)+1)] {
			s = append(s, scriptStep{mark: spool.Mark{Time: at + int64(d), Kind: spool.Silent, B: uint64(d)}})
		}
		if rng.IntN(20) == 0 {
			s = append(s, scriptStep{mark: spool.Mark{Time: at, Kind: spool.Closed}}, scriptStep{mark: spool.Mark{Time: at, Kind: spool.Opened}})
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
	for _, step := range s {
		if kind := step.mark.Kind; kind == spool.Chunk || kind == spool.Message {
			_, err = p.Read(kind, spool.Moment{Wall: step.mark.Time}, 0, func(_ int, b []byte) (int, syscall.Errno) {
				return copy(b, step.bytes), 0
			})
		} else {
			err = p.Note(step.mark)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sp
}

// direct shows the script to a lane as a reader does in the same process.
func (s script) direct(l *lane) {
	var held []byte
	for _, step := range s {
		switch at := step.mark.Time; step.mark.Kind {
		case spool.Chunk, spool.Message:
			held = append(held, step.bytes...)
			done, _ := l.Arrived(held, len(step.bytes), at)
			held = held[done:]
		case spool.Silent:
			if len(held) > 0 {
				held = held[l.Silent(held, at):]
			}
		case spool.Closed:
			l.Closed(held, at, io.EOF)
			<-l.closed
			held = nil
		}
	}
}

// TestALaneGoesOnAnywhere is a lane behind a spool. What it makes of the bytes is what a lane in
// front of the device does, however often it is killed, and goes on from what was saved last.
func TestALaneGoesOnAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for _, kind := range []string{"tally128", "modbus", "cobs", "slip", "line", "ubx", "length", "raw"} {
		for _, messages := range []bool{false, true} {
			cfg := config.Source{
				ID: "a", Serial: &config.Serial{Port: "x"}, Frame: (&maker{kind: kind}).settings(), Overflow: config.OverflowBlock, Buffer: 1 << 20,
			}
			if messages {
				cfg.Serial, cfg.UDP = nil, &config.Net{}
			}
			open := func(log *entries) *lane {
				t.Helper()
				l, err := newLane(cfg, log, frameStream, wasteStream)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			for range 4 {
				var log entries
				l := open(&log)
				s := scriptFor(rng, kind, messages, l.in.dec)
				s.direct(l)
				want := log.story()
				if all := sentIn(want); !bytes.HasPrefix(s.bytes(), all) || len(want) < 20 {
					t.Fatalf("%s, messages %v: %d entries with %d bytes, which were not sent", kind, messages, len(want), len(all))
				}
				for _, kills := range []int{0, 8, 2} { // one in so many steps; 0: none
					log = nil
					deaths := replay(t, s.spooled(t), &log, open, rng, kills)
					if got := log.story(); !slices.EqualFunc(got, want, same) {
						t.Fatalf("%s, messages %v, killed %d times: %s", kind, messages, deaths, differs(got, want))
					}
				}
			}
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

// replay plays a spool to lanes that are killed now and then. One that goes on has the log as it
// was when the checkpoint was saved.
func replay(t *testing.T, s *spool.Spool, log *entries, open func(*entries) *lane, rng *rand.Rand, kills int) (deaths int) {
	t.Helper()
	for {
		c, err := s.Consumer(1 << 62)
		if err != nil {
			t.Fatal(err)
		}
		cp, _ := c.Restored()
		*log = (*log)[:cp.Sequence]
		l := open(log)
		if len(cp.Data) > 0 {
			l.restore(half{state: cp.Data[1:], asked: cp.Data[0] == 1})
		}
		l.in.offset = cp.Done
		p, err := c.Play(l)
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, ok, err := p.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return deaths
			}
			if m.Kind == spool.Closed {
				<-l.closed
			}
			if kills == 0 {
				continue
			}
			if rng.IntN(2) == 0 {
				if err := c.Save(spool.Checkpoint{Point: c.Point(), Sequence: uint64(len(*log)), Data: stateOf(l)}); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(kills) == 0 {
				deaths++
				break
			}
		}
	}
}

// stateOf is what a lane's decoder has made of the bytes before.
func stateOf(l *lane) []byte {
	b := []byte{0}
	if l.in.book.IsAnswerDue() {
		b[0] = 1
	}
	if d, ok := l.in.dec.(frame.Stateful); ok {
		return append(b, d.State()...)
	}
	return nil
}

// sentIn is all bytes of a story, in order.
func sentIn(all []entry) (b []byte) {
	for _, e := range all {
		b = append(b, e.data...)
	}
	return b
}
