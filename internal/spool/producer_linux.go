package spool

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/tallywheel/tallywheel/ring"
)

// Producer is the end that reads from a descriptor and writes down what it sees. One goroutine at a
// time may use it.
type Producer struct {
	spool     *Spool
	ring      *ring.Producer
	published uint64 // marks; the shared word only tells it
	passed    uint64 // … that the consumer had passed when it was last looked at
	laid      uint64 // the offset up to which the pattern lies, from the position on
	most      int    // bytes that a read takes
	recovered Recovery

	tell, look *atomic.Uint64
	intent     []byte
	armed      *atomic.Uint64 // the last word of the intent; 0: there is none

	step func() // between two steps that another process can see; tests end a producer there
}

// Recovery is what a producer found of the one before it.
type Recovery struct {
	CutOff    bool // it was killed in a read, or right before or behind it
	Bytes     int  // that nobody had been told of
	Uncertain int  // up to so many more may have been read, and are lost
}

// reserve is how many marks a read leaves free, for those that tell of the device.
const reserve = 16

// room is how many marks have to be free for one of a kind. What tells of the end of the wire has
// room in a spool that is full of all else: twice what nobody has read, and that it has ended. One
// of Counted leaves room for others, as a read does.
func (k Kind) room() uint64 {
	switch k {
	case Counted:
		return reserve
	case Ended:
		return 1
	case Lost:
		return 2
	}
	return 4
}

// intentBytes is what an intent takes: offset u64, marks u64, time i64, steady i64, kind u32,
// most u32. The kind of one that takes most bytes or none is marked as whole, and that of bytes
// that a relay has as passed: nobody has to find them.
const (
	intentBytes = 40
	whole       = 1 << 16
	passed      = 1 << 17
)

// Given is the offset on the wire up to which a device has given its bytes to somebody, where it
// can tell.
type Given func() (offset uint64, ok bool)

// Producer takes the end that fills. It reads most bytes at a time; 0 means 4 KiB, which is more
// than a tty gives; a longer message is cut off. What the one before it, which has ended, was
// killed in is recovered first: [Producer.Recovered] tells.
func (s *Spool) Producer(most int) (*Producer, error) { return s.produce(most, nil, func() {}) }

// ProducerOf is Producer of a device that can tell what it has given: nothing is uncertain then.
func (s *Spool) ProducerOf(most int, given Given) (*Producer, error) {
	return s.produce(most, given, func() {})
}

func (s *Spool) produce(most int, given Given, step func()) (*Producer, error) {
	if most == 0 {
		most = 4 << 10
	}
	if most < 0 || most > s.Size() {
		return nil, fmt.Errorf("spool: reads of %d bytes: want 1 to %d", most, s.Size())
	}
	published, passed, err := s.marks()
	if err != nil {
		return nil, err
	}
	r, err := s.ring.Producer()
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	p := &Producer{
		spool: s, ring: r, published: published, passed: passed, most: most,
		tell: ring.Uint64(s.owner, publishedAt), look: ring.Uint64(s.owner, passedAt),
		intent: s.owner[intentAt:][:intentBytes:intentBytes], armed: ring.Uint64(s.owner, intentAt+32), step: step,
	}
	if err := p.recover(given); err != nil {
		return nil, err
	}
	return p, nil
}

// Recovered is what was found of the producer before.
func (p *Producer) Recovered() Recovery { return p.recovered }

// Position is the offset of the next byte to be read.
func (p *Producer) Position() uint64 { return p.ring.Position() }

// Read has read put the next bytes of a descriptor into the spool, and publishes them with their
// mark: a [Chunk], or a [Message], which may be empty. at is when they were noticed. n is what read
// returned: 0 of a stream is its end. An error is ErrFull or ErrCorrupt, and then read was not
// called, or the errno that read returned. A message is read where the longest has room.
func (p *Producer) Read(kind Kind, at Moment, fd int, read func(fd int, b []byte) (int, syscall.Errno)) (n int,
	err error,
) {
	return p.read(kind, kind, p.most, at, fd, read)
}

// ReadWhole is Read where the device has given bytes to be read now: read takes all of them, or as
// many as there is room for, or none, so that a successor knows how many it took. A message is
// read where it has room.
func (p *Producer) ReadWhole(kind Kind, given int, at Moment, fd int,
	read func(fd int, b []byte) (int, syscall.Errno),
) (n int, err error) {
	return p.read(kind, kind|whole, min(given, p.most), at, fd, read)
}

func (p *Producer) read(kind, intent Kind, most int, at Moment, fd int,
	read func(fd int, b []byte) (int, syscall.Errno),
) (n int, err error) {
	space, err := p.space(kind, most)
	if err != nil {
		return 0, err
	}
	p.state(intent, len(space), at)
	n, errno := read(fd, space)
	if errno != 0 {
		n, err = 0, errno
	} else if n > 0 || kind == Message {
		p.step()
		p.write(Mark{At: p.Position() + uint64(n), Time: at.Wall, Kind: kind, A: uint32(n), B: uint64(at.Steady)})
		p.publish()
		p.ring.Publish(n)
	}
	p.step()
	p.armed.Store(0)
	return n, err
}

// Note publishes a mark that tells of no bytes, behind those that were read. Where there is no room
// for others, there is for the last ones: [Lost], twice, and [Ended]. An error is ErrFull or
// ErrCorrupt.
func (p *Producer) Note(m Mark) error {
	if m.At = p.Position(); !m.follows(m.At) || m.read() {
		panic(fmt.Sprintf("spool: Note(%+v)", m))
	}
	if err := p.slots(m.Kind.room()); err != nil {
		return err
	}
	p.write(m)
	p.publish()
	return nil
}

// pass publishes a mark that a relay has, with its bytes, at the producer's own offset. An error
// is ErrFull or ErrCorrupt.
func (p *Producer) pass(m Mark, b []byte) error {
	if err := p.slots(m.Kind.room()); err != nil {
		return err
	}
	if len(b) == 0 {
		m.At = p.Position()
		p.write(m)
		p.publish()
		return nil
	}
	space, err := p.ring.Space(len(b))
	switch {
	case err != nil:
		return fmt.Errorf("spool: %w", err)
	case len(space) < len(b):
		return ErrFull
	}
	copy(space, b)
	p.state(m.Kind|passed, len(b), Moment{})
	m.At = p.Position() + uint64(len(b))
	p.write(m)
	p.publish()
	p.ring.Publish(len(b))
	p.step()
	p.armed.Store(0)
	return nil
}

// Past is what the newest marks of a spool say.
type Past struct {
	Read     Mark // that bytes were read last; its Kind is 0: it is not known
	Silences int  // marks of silence behind that
	// the last one of Opened, Closed, Absent and Ended; what was read since is of one that was
	// opened; 0: it is not known
	Device Kind
}

// Past looks back, so that a producer goes on with silences and the device where the one before it
// was. Marks stay there when they were passed, until others take their places.
func (p *Producer) Past() (past Past) {
	for i := p.published; i > 0 && p.published-i < p.spool.slots && (past.Read.Kind == 0 || past.Device == 0); i-- {
		m := markOf(p.spool.mark(i - 1))
		switch {
		case m.Kind == Silent && past.Read.Kind == 0:
			past.Silences++
		case m.read() && past.Read.Kind == 0:
			past.Read = m
		case past.Device == 0 && (m.Kind == Opened || m.Kind == Closed || m.Kind == Absent || m.Kind == Ended):
			past.Device = m.Kind
		}
	}
	if past.Device == 0 && past.Read.Kind != 0 { // it was so long ago that others have taken the mark's place
		past.Device = Opened
	}
	return past
}

// space is where the next bytes go, so many at most, with the pattern in it. A message has room as
// a whole, or none.
func (p *Producer) space(kind Kind, most int) ([]byte, error) {
	if err := p.slots(reserve); err != nil {
		return nil, err
	}
	space, err := p.ring.Space(most)
	switch {
	case err != nil:
		return nil, fmt.Errorf("spool: %w", err)
	case len(space) == 0 && most > 0, kind == Message && len(space) < most:
		return nil, ErrFull
	}
	space = space[:min(len(space), most)]
	if from := p.Position(); p.laid < from+uint64(len(space)) {
		p.spool.key.lay(space[p.laid-from:], p.laid)
		p.laid = from + uint64(len(space))
	}
	return space, nil
}

// slots makes sure that so many marks have room.
func (p *Producer) slots(n uint64) error {
	if p.spool.slots-(p.published-p.passed) >= n {
		return nil
	}
	passed := p.look.Load()
	if passed-p.passed > p.published-p.passed {
		return fmt.Errorf("spool: the consumer says %d marks after %d, with %d published: %w", passed, p.passed,
			p.published, ErrCorrupt)
	}
	if p.passed = passed; p.spool.slots-(p.published-p.passed) < n {
		return ErrFull
	}
	return nil
}

// state states the intent to read. It counts once its last word is there.
func (p *Producer) state(kind Kind, most int, at Moment) {
	for i, w := range [...]uint64{p.Position(), p.published, uint64(at.Wall), uint64(at.Steady)} {
		binary.NativeEndian.PutUint64(p.intent[8*i:], w)
	}
	p.step()
	p.armed.Store(uint64(most)<<32 | uint64(kind))
	p.step()
}

// write puts a mark behind those that are there.
func (p *Producer) write(m Mark) {
	m.put(p.spool.mark(p.published))
	p.published++
	p.step()
}

// publish makes known all marks that were written, at once.
func (p *Producer) publish() {
	p.tell.Store(p.published)
	p.step()
}
