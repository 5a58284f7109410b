package spool

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/tallywheel/tallywheel/ring"
)

// Errors, to be found by errors.Is.
var (
	// ErrCorrupt says that something in the memory cannot be: the other side is wrong, or hostile.
	ErrCorrupt = ring.ErrCorrupt
	// ErrFull says that there is no room for bytes, or for marks, until the consumer is further.
	ErrFull = errors.New("the spool is full")
	// ErrBehind says that the log ends before what every checkpoint says is stored.
	ErrBehind = errors.New("the log ends before every checkpoint of the spool")
)

// ID names a spool, and with it the wire that its offsets count on: it is random.
type ID [16]byte

// Config is how large a spool is.
type Config struct {
	Size  int // bytes of data, rounded up to a power of two; 0 means 64 KiB, at most ring.MaxSize
	Marks int // marks, rounded up to a power of two; 0 means one for 16 bytes, at most MaxMarks
	Room  int // bytes of the owner in a checkpoint; 0 means 4 KiB, at most MaxRoom
}

// Limits of [Config]: the marks and checkpoints lie in the header of a ring.
const (
	MaxMarks = 16 << 10
	MaxRoom  = 64 << 10
	minMarks = 64
)

func (c Config) check() (Config, error) {
	if c.Size == 0 {
		c.Size = 64 << 10
	}
	if c.Marks == 0 {
		c.Marks = min(c.Size/16, MaxMarks)
	}
	if c.Room == 0 {
		c.Room = 4 << 10
	}
	if c.Size < 0 || c.Size > ring.MaxSize || c.Marks < 0 || c.Marks > MaxMarks || c.Room < 0 || c.Room > MaxRoom {
		return c, fmt.Errorf("spool of %d bytes, %d marks and %d bytes in a checkpoint: want at most %d, %d and %d",
			c.Size, c.Marks, c.Room, ring.MaxSize, MaxMarks, MaxRoom)
	}
	slots := minMarks
	for slots < c.Marks {
		slots *= 2
	}
	c.Marks, c.Room = slots, (c.Room+7)&^7
	return c, nil
}

// Version is of the form of the memory.
const Version = 3

// Where words lie in the owner's part of the ring's header; see the package comment.
const (
	versionAt = 0
	idAt      = 8
	keyAt     = 24
	slotsAt   = 32
	roomAt    = 40

	publishedAt = 128
	blockedAt   = 192 // see Spool.Block
	endedAt     = 216 // … how many of those times are over
	intentAt    = 256

	passedAt  = 384
	workAt    = 392
	suspectAt = 400
	deathsAt  = 408

	endAt = 448 // where what waits in a relay before the spool will end in it; see Relay.tell
	farAt = 456 // 16 bytes: of a near spool, which is the far one

	checkpointsAt = 512
)

// Spool is the memory. Its methods may be called by one goroutine at a time.
type Spool struct {
	ring  *ring.Shared
	owner []byte
	id    ID
	key   pattern
	slots uint64 // marks that it holds
	room  int    // of the owner in a checkpoint
}

// ownerBytes is the size of the owner's part, but for the times without room at its end.
func ownerBytes(slots uint64, room int) uint64 {
	return checkpointsAt + 2*uint64(checkpointBytes+room) + slots*markBytes
}

// Create makes the memory of a spool, without bytes and marks.
func Create(cfg Config) (*Spool, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	owner := ownerBytes(uint64(cfg.Marks), cfg.Room) + leastKept*timeBytes
	r, err := ring.NewShared("tallywheel-spool", cfg.Size, int(owner))
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	o := r.Owner()
	_, _ = rand.Read(o[idAt:slotsAt]) // the id and the key; it never fails
	ring.Uint64(o, slotsAt).Store(uint64(cfg.Marks))
	ring.Uint64(o, roomAt).Store(uint64(cfg.Room))
	ring.Uint64(o, versionAt).Store(Version)
	return of(r)
}

// Open maps the memory of a spool that a descriptor refers to. The file is the spool's from then
// on, unless there is an error.
func Open(f *os.File) (*Spool, error) {
	r, err := ring.OpenShared(f)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s, err := of(r)
	if err != nil {
		return nil, errors.Join(err, r.Unmap())
	}
	return s, nil
}

// of reads what Create has written, once.
func of(r *ring.Shared) (*Spool, error) {
	o := r.Owner()
	if len(o) < checkpointsAt {
		return nil, fmt.Errorf("spool: a ring, but no spool: %w", ErrCorrupt)
	}
	if v := ring.Uint64(o, versionAt).Load(); v != Version {
		return nil, fmt.Errorf("spool: version %d, this is %d: the other process is of another version", v, Version)
	}
	slots, room := ring.Uint64(o, slotsAt).Load(), ring.Uint64(o, roomAt).Load()
	if slots < minMarks || slots > MaxMarks || slots&(slots-1) != 0 || room > MaxRoom || room%8 != 0 ||
		ownerBytes(slots, int(room)) > uint64(len(o)) {
		return nil, fmt.Errorf("spool: %d marks and %d bytes in a checkpoint: %w", slots, room, ErrCorrupt)
	}
	return &Spool{
		ring: r, owner: o, id: ID(o[idAt:]), slots: slots, room: int(room),
		key: pattern(binary.NativeEndian.Uint64(o[keyAt:])),
	}, nil
}

// ID is what the spool is named by.
func (s *Spool) ID() ID { return s.id }

// File is the descriptor of the memory, to be passed on; it stays the spool's.
func (s *Spool) File() *os.File { return s.ring.File() }

// Size is the number of bytes that the spool holds.
func (s *Spool) Size() int { return s.ring.Size() }

// Marks is the number of marks that the spool holds.
func (s *Spool) Marks() int { return int(s.slots) }

// Room is the number of bytes of the owner that a checkpoint takes.
func (s *Spool) Room() int { return s.room }

// Close releases the memory and the descriptor. Ends and views must not be used any more.
func (s *Spool) Close() error { return s.ring.Close() }

// checkpoint is slot 0 or 1.
func (s *Spool) checkpoint(i int) []byte {
	n := checkpointBytes + s.room
	return s.owner[checkpointsAt+i*n:][:n:n]
}

// mark is the slot of the mark with that number, counted from 0.
func (s *Spool) mark(i uint64) []byte {
	at := ownerBytes(0, s.room) + i&(s.slots-1)*markBytes
	return s.owner[at:][:markBytes:markBytes]
}

// marks loads how many marks were published and passed, for an end that begins.
func (s *Spool) marks() (published, passed uint64, err error) {
	published, passed = ring.Uint64(s.owner, publishedAt).Load(), ring.Uint64(s.owner, passedAt).Load()
	if published-passed > s.slots {
		return 0, 0, fmt.Errorf("spool: %d marks published and %d passed, of %d: %w", published, passed, s.slots,
			ErrCorrupt)
	}
	return published, passed, nil
}
