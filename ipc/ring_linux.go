package ipc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/ring"
)

// RingConfig says how a ring is made, and how its ends wait.
type RingConfig struct {
	// Name is for /proc/PID/maps, of at most ring.MaxName bytes; empty: "tallywheel-ipc". [Create]
	// alone reads it.
	Name string
	// Size is the least number of bytes that the ring holds, 1 to ring.MaxSize; it is rounded up to
	// a power of two of at least a page. 0: 64 KiB. [Create] alone reads it.
	Size int
	// Slot makes it a ring of messages of at most so many bytes ([Ring.Sender], [Ring.Receiver]);
	// 0: of bytes ([Ring.Producer], [Ring.Consumer]). Both sides must say the same.
	Slot int
	// Owner is how many bytes of [Ring.Owner] there are at least, at most MaxOwner. [Create] alone
	// reads it.
	Owner int
	// Spin is how long an end that waits looks again and again before it sleeps. 0: 50 µs, about
	// what it takes to wake a sleeper, so that a wait costs at most twice what is best; with one
	// CPU not at all. Negative: not at all, which costs the least CPU.
	Spin time.Duration
}

// MaxOwner bounds RingConfig.Owner, in bytes.
const MaxOwner = ring.MaxOwner - ownAt

// The header of a ring has, in the bytes of its owner that package ring leaves:
//
//	  0  magic u32 │ slot u32             read once, when it is mapped
//	 64  life of the producer u32 │ life of the consumer u32
//	128  bell of the producer u32         how many bytes it sleeps for; 0: it does not
//	256  bell of the consumer u32
//	512  bytes of Ring.Owner
//
// A life is odd while its end is taken and even once it is closed, and never goes back: 2g−1 is
// generation g. A killed process leaves it odd.
const (
	magicAt = 0
	slotAt  = 4
	livesAt = 64
	bellsAt = 128
	ownAt   = 512

	ringMagic   = 0x31637069 // "ipc1" where the low byte comes first
	betweenEnds = 128        // bells lie two cache lines apart
)

// Ring is the memory of a ring, mapped here. Its ends belong to one goroutine each.
type Ring struct {
	shared *ring.Shared
	slot   int
	spin   time.Duration

	mu   sync.Mutex
	ends [2]*end     // given out last, to be closed by Close
	gone atomic.Bool // the memory is released
}

func (c *RingConfig) fill() error {
	if c.Name == "" {
		c.Name = "tallywheel-ipc"
	}
	if c.Size == 0 {
		c.Size = 64 << 10
	}
	if c.Slot < 0 || c.Slot > MaxSlot || c.Slot > 0 && c.Size > 0 && c.Size < stride(c.Slot) {
		return fmt.Errorf("ipc: slots of %d bytes in a ring of %d: want at most %d, and room for one", c.Slot, c.Size,
			MaxSlot)
	}
	if c.Owner < 0 || c.Owner > MaxOwner {
		return fmt.Errorf("ipc: %d bytes of the owner: want 0 to %d", c.Owner, MaxOwner)
	}
	c.Spin = spinFor(c.Spin)
	return nil
}

// Create makes a ring. Pass [Ring.File] to the other process, which maps it by [Open].
func Create(cfg RingConfig) (*Ring, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s, err := ring.NewShared(cfg.Name, cfg.Size, ownAt+cfg.Owner)
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	ring.Uint32(s.Owner(), slotAt).Store(uint32(cfg.Slot))
	ring.Uint32(s.Owner(), magicAt).Store(ringMagic)
	return &Ring{shared: s, slot: cfg.Slot, spin: cfg.Spin}, nil
}

// Open maps a ring that another process has made. The file is the ring's from then on, unless there
// is an error. What the memory says is checked: [ErrCorrupt].
func Open(f *os.File, cfg RingConfig) (*Ring, error) {
	cfg.Size, cfg.Owner = ring.MaxSize, 0 // the memory says
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s, err := ring.OpenShared(f)
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	if err := checkHeader(s, cfg.Slot); err != nil {
		_ = s.Unmap()
		return nil, err
	}
	return &Ring{shared: s, slot: cfg.Slot, spin: cfg.Spin}, nil
}

func checkHeader(s *ring.Shared, slot int) error {
	if len(s.Owner()) < ownAt {
		return fmt.Errorf("ipc: a header of %d bytes: %w", len(s.Owner()), ErrCorrupt)
	}
	magic, has := ring.Uint32(s.Owner(), magicAt).Load(), ring.Uint32(s.Owner(), slotAt).Load()
	if magic != ringMagic {
		return fmt.Errorf("ipc: a ring of something else (magic %#x): %w", magic, ErrCorrupt)
	}
	if has != uint32(slot) {
		return fmt.Errorf("ipc: a ring with slots of %d bytes, not %d; both sides must say the same (RingConfig.Slot)",
			has, slot)
	}
	if slot > 0 && stride(slot) > s.Size() {
		return fmt.Errorf("ipc: slots of %d bytes in a ring of %d: %w", slot, s.Size(), ErrCorrupt)
	}
	return nil
}

// File is the descriptor of the memory, to be passed on; it stays the ring's.
func (r *Ring) File() *os.File { return r.shared.File() }

// Size is the number of bytes that the ring holds.
func (r *Ring) Size() int { return r.shared.Size() }

// Owner are bytes in shared memory that mean something to the two processes alone, zero at first.
// Use ring.Uint64 and ring.Uint32 for words in them, and check what you read.
func (r *Ring) Owner() []byte { return r.shared.Owner()[ownAt:] }

// Close closes the ends that were taken here and releases the memory: views and Owner must not be
// used any more, and no other goroutine may be using an end. Who asks an end for bytes afterwards
// gets [os.ErrClosed]. The other process's mapping stays.
func (r *Ring) Close() error {
	r.mu.Lock()
	ends := r.ends
	r.ends = [2]*end{}
	r.mu.Unlock()
	for _, e := range ends {
		if e != nil {
			e.close()
		}
	}
	r.gone.Store(true)
	return r.shared.Close()
}

// Producer is the end that fills a ring of bytes. One goroutine at a time may use it, but for Watch
// and Interrupt.
type Producer struct {
	*end
	ring *ring.Producer
}

// Producer takes the end that fills, and goes on behind what was published. Whoever had it must
// have ended, or closed it: two that fill at once damage what is published. One that has been
// replaced is told so by [ErrReplaced] when it next asks for space.
func (r *Ring) Producer() (*Producer, error) {
	if r.slot != 0 {
		return nil, errOfSlots
	}
	return r.producer()
}

func (r *Ring) producer() (*Producer, error) {
	if r.gone.Load() {
		return nil, errClosed
	}
	p, err := r.shared.Producer()
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	return &Producer{r.take(0), p}, nil
}

var (
	errOfSlots = errors.New("ipc: this is a ring of messages: use Sender and Receiver")
	errOfBytes = errors.New("ipc: this is a ring of bytes: use Producer and Consumer, or set RingConfig.Slot")
)

// Position is the number of bytes that were published since the ring was made.
func (p *Producer) Position() uint64 { return p.ring.Position() }

// Space is the free part of the ring, in one piece: at least n bytes if so many are free. It never
// waits. See ring.Producer.Space.
func (p *Producer) Space(n int) ([]byte, error) {
	if err := p.current(); err != nil {
		return nil, err
	}
	return p.ring.Space(n)
}

// Wait is Space that waits until n bytes are free: at most so long, or without end if within is
// negative. n is 1 to Ring.Size; another is an error at once. It returns with less and
//   - os.ErrDeadlineExceeded after that time,
//   - [ErrPeerDied] if the consumer has ended without closing, as far as Watch knows,
//   - [ErrPeerClosed] if the consumer has closed, and no other has taken its end,
//   - [ErrReplaced], [ErrCorrupt], or what Interrupt was called with.
func (p *Producer) Wait(n int, within time.Duration) ([]byte, error) {
	if err := canBe(n, p.ring.Size()); err != nil {
		return nil, err
	}
	space, err := p.Space(n)
	if err != nil || len(space) >= n {
		return space, err
	}
	err = p.wait(n, within, func() (ok bool, err error) {
		space, err = p.Space(n)
		return len(space) >= n, err
	})
	return space, err
}

// canBe is an error for a number of bytes that never are there, or always.
func canBe(n, size int) error {
	if n < 1 || n > size {
		return fmt.Errorf("ipc: a wait for %d bytes: want 1 to %d, the size of the ring (RingConfig.Size)", n, size)
	}
	return nil
}

// Publish hands the first n bytes of Space to the consumer, all at once, and wakes it if it sleeps
// for them. It panics if n is negative or more than the last Space had, or the ring is closed.
func (p *Producer) Publish(n int) {
	p.mustBeThere()
	p.ring.Publish(n)
	p.tell()
}

// tell wakes the consumer if it sleeps for what is there.
func (p *Producer) tell() {
	if want := p.peerBell.Load(); want != 0 && p.ring.Held() >= int(want) {
		p.wakePeer(want)
	}
}

// Close closes the end: the consumer gets io.EOF once it has all that was published.
func (p *Producer) Close() { p.close() }

// Consumer is the end that empties a ring of bytes. One goroutine at a time may use it, but for
// Watch and Interrupt.
type Consumer struct {
	*end
	ring *ring.Consumer
}

// Consumer takes the end that empties, and goes on behind what was released: what the one before
// has seen and not released comes again, at the same [Consumer.Position]. Whoever had it must have
// ended, or closed it; one that has been replaced is told so by [ErrReplaced].
func (r *Ring) Consumer() (*Consumer, error) {
	if r.slot != 0 {
		return nil, errOfSlots
	}
	return r.consumer()
}

func (r *Ring) consumer() (*Consumer, error) {
	if r.gone.Load() {
		return nil, errClosed
	}
	c, err := r.shared.Consumer()
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	return &Consumer{r.take(1), c}, nil
}

// Position is the number of bytes that were released since the ring was made: where View begins.
func (c *Consumer) Position() uint64 { return c.ring.Position() }

// View is what was published and not released, in one piece: at least n bytes if so much is there.
// It never waits. The memory is lent, and a wrong or hostile producer can change it at any time:
// copy what is checked before it is used.
func (c *Consumer) View(n int) ([]byte, error) {
	if err := c.current(); err != nil {
		return nil, err
	}
	return c.ring.View(n)
}

// Wait is View that waits until n bytes are there: at most so long, or without end if within is
// negative. n is 1 to Ring.Size; another is an error at once. It returns with less and
//   - os.ErrDeadlineExceeded after that time,
//   - io.EOF if the producer has closed, and no other has taken its end,
//   - [ErrPeerDied] if the producer has ended without closing, as far as Watch knows,
//   - [ErrReplaced], [ErrCorrupt], or what Interrupt was called with.
//
// What was published before the end still comes.
func (c *Consumer) Wait(n int, within time.Duration) ([]byte, error) {
	if err := canBe(n, c.ring.Size()); err != nil {
		return nil, err
	}
	view, err := c.View(n)
	if err != nil || len(view) >= n {
		return view, err
	}
	err = c.wait(n, within, func() (ok bool, err error) {
		view, err = c.View(n)
		return len(view) >= n, err
	})
	return view, err
}

// Release gives the first n bytes of View back, all at once, and wakes the producer if it sleeps
// for them. It panics if n is negative or more than the last View had, or the ring is closed.
func (c *Consumer) Release(n int) {
	c.mustBeThere()
	c.ring.Release(n)
	c.tell()
}

// tell wakes the producer if it sleeps for what is free.
func (c *Consumer) tell() {
	if want := c.peerBell.Load(); want != 0 && c.ring.Free() >= int(want) {
		c.wakePeer(want)
	}
}

// Close closes the end: a producer that waits gets [ErrPeerClosed].
func (c *Consumer) Close() { c.close() }
