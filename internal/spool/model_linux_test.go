package spool

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

var modelKills = flag.Int("kills", testenv.Rounds(20_000, 2_000), "how many times an end of the model is killed")

// model is a device, and both ends of a spool. Either end is killed at any step that the other, or
// a successor, could see; at each step the other end may do something as well.
type model struct {
	spool  *Spool
	choose func(n int) int // 0 is what rapid likes best

	taken    []byte // all that the device has given to a read
	empty    int    // messages that it gave without a byte
	producer *Producer
	consumer *Consumer
	kills    int
	tells    bool   // the device tells what it has given
	whole    bool   // some reads were of all or nothing
	found    [3]int // kills of a producer that its successor knew: of a read, with bytes, with uncertain ones

	// What the consumer has stored, by offset and by number: a successor must see the same again.
	log   []byte
	marks []Mark
	save  Checkpoint // of a moment since the last one

	inside bool // a step of one end is under way: the other does whole operations

	relayed // the spool is the near one of two
}

type killed struct{}

// step is where an end may be killed, and where the other may come in between.
func (m *model) step(other func() error) func() {
	return func() {
		if m.inside {
			return
		}
		switch m.choose(24) {
		case 22:
			panic(killed{})
		case 23:
			m.inside = true
			defer func() { m.inside = false }()
			if err := other(); err != nil {
				panic(err)
			}
		}
	}
}

// try does something that may be killed. Who is killed is gone.
func (m *model) try(gone func(), do func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case killed:
			m.kills++
			gone()
		case error:
			err = r
		default:
			panic(r)
		}
	}()
	return do()
}

func (m *model) produce() error {
	return m.try(m.readerDies, func() error {
		if m.producer == nil {
			return m.startProducer()
		}
		var err error
		switch kind := Kind(1 + m.choose(4)); kind {
		case Chunk, Message:
			at := Moment{int64(len(m.taken)), int64(len(m.taken)) * 2}
			if m.choose(2) == 0 {
				_, err = m.producer.Read(kind, at, int(kind), m.read)
				break
			}
			given := m.choose(40)
			if kind == Chunk {
				given++
			}
			m.whole = true
			_, err = m.producer.ReadWhole(kind, given, at, int(kind), m.readWhole)
		default:
			err = m.producer.Note(Mark{Time: int64(len(m.taken)), Kind: kind, B: uint64(m.choose(100))})
		}
		if errors.Is(err, ErrFull) || errors.Is(err, syscall.EAGAIN) {
			return nil
		}
		return err
	})
}

// sent is a byte of a stream that never repeats itself for long.
func sent(at uint64) byte { return byte(at * 0x9e3779b97f4a7c15 >> 56) }

func (m *model) startProducer() error {
	var given Given
	if m.tells {
		given = func() (uint64, bool) { return uint64(len(m.taken)), true }
	}
	p, err := m.spool.produce(1+m.choose(600), given, m.step(m.consumeOrRelay))
	if err != nil {
		return err
	}
	m.producer = p
	if r := p.Recovered(); r.CutOff {
		m.found[0]++
		m.found[1] += min(r.Bytes, 1)
		m.found[2] += min(r.Uncertain, 1)
	}
	return nil
}

func (m *model) startConsumer() error {
	c, err := m.outer().consume(uint64(len(m.marks)), m.step(m.produceOrRelay))
	if err != nil {
		return err
	}
	m.consumer = c
	cp, ok := c.Restored()
	if want := blob(cp.Point); ok && !bytes.Equal(cp.Data, want) {
		return fmt.Errorf("checkpoint %+v has the data % x, want % x", cp.Point, cp.Data, want)
	}
	m.save = Checkpoint{c.Point(), cp.Sequence, blob(c.Point())}
	return nil
}

// read is the device: it gives that stream, and now and then those of the pattern.
func (m *model) read(kind int, b []byte) (int, syscall.Errno) {
	n := m.choose(len(b) + 1)
	if n == 0 && Kind(kind) != Message {
		return 0, syscall.EAGAIN
	}
	return m.readWhole(kind, b[:n])
}

// readWhole is a device that has as many bytes as are asked for.
func (m *model) readWhole(_ int, b []byte) (int, syscall.Errno) {
	n := len(b)
	for i := range b[:n] {
		b[i] = sent(uint64(len(m.taken) + i))
	}
	for i := max(0, n-m.choose(4)); i < n; i++ {
		b[i] = m.spool.key.at(m.producer.Position() + uint64(i))
	}
	if m.taken = append(m.taken, b[:n]...); n == 0 {
		m.empty++
	}
	m.producer.step() // killed in read(2)
	return n, 0
}

func (m *model) consume() error {
	return m.try(func() { m.consumer = nil }, func() (err error) {
		c := m.consumer
		if c == nil {
			return m.startConsumer()
		}
		if m.choose(4) == 3 {
			err = c.Save(m.save)
			m.save = Checkpoint{Point: c.Point(), Sequence: uint64(len(m.marks)), Data: blob(c.Point())}
			return err
		}
		before := c.Point()
		mark, view, ok, err := c.Next()
		if err != nil || !ok {
			return err
		}
		if err := m.store(before, mark, view); err != nil {
			return err
		}
		c.Done(m.choose(len(view) + 1))
		return nil
	})
}

// blob is what a checkpoint says besides, of a length of its own.
func blob(at Point) []byte {
	return bytes.Repeat(fmt.Append(nil, at), 1+int(at.Done%5))
}

// store keeps what is new and holds what comes again to what it was.
func (m *model) store(before Point, mark Mark, view []byte) error {
	if uint64(len(view)) != mark.At-before.Done {
		return fmt.Errorf("%d bytes in view from %+v to %+v", len(view), before, mark)
	}
	for i, b := range view {
		switch at := before.Done + uint64(i); {
		case at > uint64(len(m.log)):
			return fmt.Errorf("byte %d comes after %d", at, len(m.log))
		case at == uint64(len(m.log)):
			m.log = append(m.log, b)
		case m.log[at] != b:
			return fmt.Errorf("byte %d is %#x, and was %#x", at, b, m.log[at])
		}
	}
	switch {
	case before.Marks > uint64(len(m.marks)):
		return fmt.Errorf("mark %d comes after %d", before.Marks, len(m.marks))
	case before.Marks == uint64(len(m.marks)):
		m.marks = append(m.marks, mark)
	case m.marks[before.Marks] != mark:
		return fmt.Errorf("mark %d is %+v, and was %+v", before.Marks, mark, m.marks[before.Marks])
	}
	return nil
}

// judge holds what was stored to what the device has given: all of it, each once, but for what is
// said to be uncertain.
func (m *model) judge() error {
	for range 10 * (m.spool.Marks() + m.waiting()) { // without kills
		m.inside = true
		if m.producer == nil {
			if err := m.startProducer(); err != nil {
				return err
			}
		}
		if err := m.relay(); err != nil {
			return err
		}
		if err := m.consume(); err != nil {
			return err
		}
		m.inside = false
	}
	if m.damaged {
		return account(m.marks, m.log, m.taken)
	}
	empty, doubts := 0, 0
	for _, mark := range m.marks {
		switch {
		case mark.Kind == Lost && mark.A == Uncertain:
			doubts++
		case !mark.read():
		case mark.A == 0:
			empty++
			fallthrough
		default: // a device's time is how much it had given
			from, to := uint64(mark.Time), uint64(mark.Time)+uint64(mark.A)
			if mark.B != 2*from || to > uint64(len(m.taken)) ||
				!bytes.Equal(m.log[mark.At-uint64(mark.A):mark.At], m.taken[from:to]) {
				return fmt.Errorf("%+v has another time, or other bytes", mark)
			}
		}
	}
	if m.tells && doubts > 0 {
		return fmt.Errorf("%d doubts of a device that tells", doubts)
	}
	// else a message without a byte left no trace
	if empty > m.empty || m.empty > empty+doubts && !m.tells && !m.whole {
		return fmt.Errorf("%d messages without a byte of %d, with %d doubts", empty, m.empty, doubts)
	}
	return account(m.marks, m.log, m.taken)
}

// account follows the marks through what a device has given. What is uncertain can have been
// several numbers of bytes: all that fit are followed.
func account(marks []Mark, log, taken []byte) error {
	at, behind := uint64(0), map[int]bool{0: true} // offset on the wire, and which counts of the device's bytes fit it
	for i, mark := range marks {
		next := map[int]bool{}
		for t := range behind {
			switch {
			case mark.read():
				if n := t + int(mark.A); n <= len(taken) && bytes.Equal(log[at:mark.At], taken[t:n]) {
					next[n] = true
				}
			case mark.Kind == Lost && mark.A == Uncertain:
				for n := t; n <= t+int(mark.B); n++ {
					next[n] = true
				}
			case mark.Kind == Lost && mark.A == Spilled:
				next[t+int(mark.B)] = true
			default:
				next[t] = true
			}
		}
		if len(next) == 0 {
			return fmt.Errorf("mark %d, %+v, is not what the device gave behind %v bytes", i, mark, behind)
		}
		at, behind = mark.At, next
	}
	if !behind[len(taken)] {
		return fmt.Errorf("%d bytes are there, by the marks; the device has given %d", at, len(taken))
	}
	return nil
}

func (m *model) run(steps int) error {
	for range steps {
		do := m.produce
		switch m.choose(m.actors()) {
		case 1:
			do = m.consume
		case 2:
			do = m.relay
		}
		if err := do(); err != nil {
			return err
		}
	}
	return m.judge()
}

func create(t testing.TB, cfg Config) *Spool {
	t.Helper()
	s, err := Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// small is a spool that is full soon, of bytes or of marks.
var small = Config{Size: 1, Marks: 1, Room: 1000}

func TestEitherEndMayDieAtAnyStep(t *testing.T) {
	testenv.CheckFew(t, func(t *rapid.T) {
		s, err := Create(small)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		m := &model{spool: s, choose: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }}
		m.tells = m.choose(2) == 1
		if err := m.run(rapid.IntRange(1, 200).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestManyDeaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	kills, found, offset := 0, [3]int{}, 0
	for kills < *modelKills {
		m := &model{spool: create(t, small), choose: rng.IntN, tells: rng.IntN(2) == 1}
		if err := m.run(2000); err != nil {
			t.Fatal(err)
		}
		kills, offset = kills+m.kills, offset+len(m.log)
		for i := range found {
			found[i] += m.found[i]
		}
		_ = m.spool.Close()
	}
	t.Logf("%d kills, %d of them in a read, %d with bytes, %d with uncertain ones; %d bytes", kills, found[0], found[1],
		found[2], offset)
	if found[1] == 0 || found[2] == 0 || offset < kills {
		t.Error("too little to say anything")
	}
}
