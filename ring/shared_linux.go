package ring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Shared is the memory of a ring that two processes map: one makes it by [NewShared], passes the
// descriptor on, and the other maps it by [OpenShared]. Either may take one end, [Shared.Producer]
// or [Shared.Consumer]; a process that comes after one that was killed takes the same end again.
//
// The memory, in the byte order of the machine:
//
//	  0  magic u64 │ version u64 │ size u64 │ owner u64     read once, when it is mapped
//	128  head u64   bytes published since the start, by the producer
//	256  tail u64   bytes released since the start, by the consumer
//	512  owner bytes that mean something to the owner alone, to the end of a page
//	  …  size bytes of data, which are mapped twice
//
// # Order
//
// head is stored after the bytes before it, tail after the last look at the bytes before it, each
// by one atomic store of 64 bits, and loaded by the other side atomically before it touches bytes.
// Go's atomic operations are sequentially consistent, and the compiler moves no access over them;
// what reaches other processes is what the instructions promise: XCHG and MOV on amd64, STLR and
// LDAR on arm64, LDREXD and STREXD between barriers on 32-bit ARM, where the words lie at multiples
// of 8, as they must. ARM before version 7 has no such instruction, Go takes a lock there that no
// other process sees, and NewShared and OpenShared return errors.ErrUnsupported.
//
// # Distrust
//
// The other side may be wrong, or hostile. Its index is loaded once for each use and must lie where
// it can be; else the error is [ErrCorrupt]. Each end keeps its own index to itself and only tells
// it. The memory is sealed, so that nobody can cut it off below a mapping. What the data says is
// another matter: see [Consumer.View].
type Shared struct {
	file   *os.File
	mem    []byte // the header, then the data twice
	header int
	size   uint64
}

const (
	sharedMagic   = 0x676e69722d6c6174 // "tal-ring" where the low byte comes first
	sharedVersion = 1
	headAt        = 128 // two cache lines apart: processors fetch lines in pairs
	tailAt        = 256
	ownerAt       = 512
)

// MaxOwner bounds the bytes of [Shared.Owner].
const MaxOwner = 1 << 20

// ErrCorrupt is in the error of an end that found something in the shared memory that cannot be:
// the other side is wrong, or hostile. The end can still be closed; nothing else makes sense.
var ErrCorrupt = errors.New("the shared memory of a ring makes no sense")

// headerOf is the length of the header with owner bytes in it, in whole pages.
func headerOf(owner int) int {
	page := os.Getpagesize()
	return (ownerAt + owner + page - 1) / page * page
}

// MaxName bounds the name of a ring, in bytes: memfd_create(2).
const MaxName = 249

// NewShared makes the memory of a ring of at least size bytes, rounded up to a power of two of at
// least one page, with room for owner bytes of its owner (0 to [MaxOwner]). The name is for
// /proc/PID/maps; it has [MaxName] bytes at most, and none that is 0.
func NewShared(name string, size, owner int) (*Shared, error) {
	if size <= 0 || size > MaxSize || owner < 0 || owner > MaxOwner {
		return nil, fmt.Errorf("ring of %d bytes and %d of its owner: want 1 to %d and 0 to %d", size, owner, MaxSize,
			MaxOwner)
	}
	if len(name) > MaxName || strings.IndexByte(name, 0) >= 0 {
		return nil, fmt.Errorf("ring: a name of %d bytes: want at most %d, and none that is 0", len(name), MaxName)
	}
	n := os.Getpagesize()
	for n < size {
		n *= 2
	}
	header := headerOf(owner)
	fd, err := sys.SealedMemory(name, int64(header+n))
	if err != nil {
		return nil, fmt.Errorf("ring of %d bytes: %w", n, err)
	}
	f := os.NewFile(uintptr(fd), name)
	s, err := mapShared(f, header, n)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	Uint64(s.mem, 8).Store(sharedVersion)
	Uint64(s.mem, 16).Store(uint64(n))
	Uint64(s.mem, 24).Store(uint64(header - ownerAt))
	Uint64(s.mem, 0).Store(sharedMagic) // the last: without it the memory is not taken for a ring
	return s, nil
}

// OpenShared maps the memory of a ring that a descriptor refers to. The descriptor must be sealed
// memory of exactly the size that its header says. The file is the ring's from then on, unless
// there is an error.
func OpenShared(f *os.File) (*Shared, error) {
	if !sharable {
		return nil, fmt.Errorf("ring: shared memory needs ARM version 7 (GOARM=7): %w", errors.ErrUnsupported)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	var length int64
	var sealErr error
	if err := raw.Control(func(fd uintptr) { length, sealErr = sys.SealedSize(int(fd)) }); err != nil ||
		sealErr != nil {
		return nil, fmt.Errorf("ring: %s: %w", f.Name(), errors.Join(err, sealErr))
	}
	page := int64(os.Getpagesize())
	if length < 2*page || length%page != 0 || length > int64(MaxSize+headerOf(MaxOwner)) {
		return nil, fmt.Errorf("ring: %s: %d bytes: %w", f.Name(), length, ErrCorrupt)
	}
	peek, err := mapShared(f, int(page), 0) // what the header says decides how the rest is mapped
	if err != nil {
		return nil, err
	}
	magic, version := Uint64(peek.mem, 0).Load(), Uint64(peek.mem, 8).Load()
	size, owner := Uint64(peek.mem, 16).Load(), Uint64(peek.mem, 24).Load()
	if err := sys.Unmap(peek.mem); err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	switch {
	case magic != sharedMagic:
		return nil, fmt.Errorf("ring: %s: no ring (magic %#x): %w", f.Name(), magic, ErrCorrupt)
	case version != sharedVersion:
		return nil, fmt.Errorf("ring: %s: version %d, this is %d: the other process is of another version", f.Name(),
			version, sharedVersion)
	case size > MaxSize || size&(size-1) != 0 || size < uint64(page) || owner > uint64(headerOf(MaxOwner)):
		return nil, fmt.Errorf("ring: %s: a size of %d bytes and %d of its owner: %w", f.Name(), size, owner,
			ErrCorrupt)
	case (ownerAt+int64(owner))%page != 0 || ownerAt+int64(owner)+int64(size) != length:
		return nil, fmt.Errorf("ring: %s: %d bytes, where its header says %d: %w", f.Name(), length, ownerAt+owner+size,
			ErrCorrupt)
	}
	return mapShared(f, ownerAt+int(owner), int(size))
}

func mapShared(f *os.File, header, size int) (s *Shared, err error) {
	if !sharable {
		return nil, fmt.Errorf("ring: shared memory needs ARM version 7 (GOARM=7): %w", errors.ErrUnsupported)
	}
	s = &Shared{file: f, header: header, size: uint64(size)}
	raw, err := f.SyscallConn()
	if err == nil {
		var inner error
		err = raw.Control(func(fd uintptr) { s.mem, inner = sys.MapTail(int(fd), header, size) })
		err = errors.Join(err, inner)
	}
	if err != nil {
		return nil, fmt.Errorf("ring of %d bytes: %w", size, err)
	}
	return s, nil
}

// File is the descriptor of the memory, to be passed on; it stays the ring's.
func (s *Shared) File() *os.File { return s.file }

// Size is the number of bytes that the ring holds.
func (s *Shared) Size() int { return int(s.size) }

// Owner are the bytes of the header that are the owner's, at least as many as it asked for, zero at
// first. Both processes see and change them: use [Uint64] and [Uint32], and check what you read.
func (s *Shared) Owner() []byte { return s.mem[ownerAt:s.header:s.header] }

// Unmap releases the memory and leaves the descriptor to the caller. Ends, views and Owner must not
// be used any more.
func (s *Shared) Unmap() error {
	if s.mem == nil {
		return nil
	}
	mem := s.mem
	s.mem = nil
	return sys.Unmap(mem)
}

// Close releases the memory and the descriptor. Ends, views and Owner must not be used any more.
func (s *Shared) Close() error {
	if s.mem == nil {
		return nil
	}
	return errors.Join(s.Unmap(), s.file.Close())
}

// Uint64 is the word at offset at of shared memory. It panics if that is no multiple of 8, or does
// not lie in b, which must begin at a multiple of 8 in memory.
func Uint64(b []byte, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(word(b, at, 8))
}

// Uint32 is [Uint64] for 32 bits and multiples of 4.
func Uint32(b []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(word(b, at, 4))
}

func word(b []byte, at, n int) unsafe.Pointer {
	p := unsafe.Pointer(&b[at : at+n : at+n][0])
	if uintptr(p)%uintptr(n) != 0 {
		panic(fmt.Sprintf("ring: a word of %d bytes at offset %d is not aligned", n, at))
	}
	return p
}

// indices loads both indices for an end that begins.
func (s *Shared) indices() (head, tail uint64, err error) {
	head, tail = Uint64(s.mem, headAt).Load(), Uint64(s.mem, tailAt).Load()
	if head-tail > s.size {
		return 0, 0, fmt.Errorf("ring: begins at head %d and tail %d with %d bytes: %w", head, tail, s.size, ErrCorrupt)
	}
	return head, tail, nil
}

func (s *Shared) data() []byte { return s.mem[s.header:] }

// Producer is the end that fills. One goroutine at a time may use it.
type Producer struct {
	data []byte // twice the size
	size uint64
	head uint64 // ours; the shared word only tells it
	tail uint64 // the consumer's as last seen: at least so much is free
	tell *atomic.Uint64
	look *atomic.Uint64
}

// Producer takes the end that fills, and goes on behind what was published.
func (s *Shared) Producer() (*Producer, error) {
	head, tail, err := s.indices()
	if err != nil {
		return nil, err
	}
	return &Producer{s.data(), s.size, head, tail, Uint64(s.mem, headAt), Uint64(s.mem, tailAt)}, nil
}

// Position is the number of bytes that were published since the memory was made.
func (p *Producer) Position() uint64 { return p.head }

// Size is the number of bytes that the ring holds.
func (p *Producer) Size() int { return int(p.size) }

// Held is the number of bytes that were published and are not known to be released.
func (p *Producer) Held() int { return int(p.head - p.tail) }

// Space is the free part of the ring, in one piece. It is at least n bytes long if so many are
// free: the consumer's index is only loaded where fewer are known to be. The consumer may have
// anything in them, and can change them before and after they are published.
func (p *Producer) Space(n int) ([]byte, error) {
	if p.size-(p.head-p.tail) < uint64(n) {
		if err := p.refresh(); err != nil {
			return nil, err
		}
	}
	at := p.head & (p.size - 1)
	end := at + p.size - (p.head - p.tail)
	return p.data[at:end:end], nil
}

// refresh looks how far the consumer is: between where it was and what was published.
func (p *Producer) refresh() error {
	tail := p.look.Load()
	if tail-p.tail > p.head-p.tail {
		return fmt.Errorf("ring: the consumer says %d after %d, with %d published: %w", tail, p.tail, p.head,
			ErrCorrupt)
	}
	p.tail = tail
	return nil
}

// Publish hands the first n bytes of Space to the consumer, all at once: a process that is killed
// has published them, or has not. It panics if n is negative or more than the last Space had.
func (p *Producer) Publish(n int) {
	if n < 0 || uint64(n) > p.size-(p.head-p.tail) {
		panic(fmt.Sprintf("ring: Publish(%d) with %d bytes free", n, p.size-(p.head-p.tail)))
	}
	p.head += uint64(n)
	p.tell.Store(p.head)
}

// Consumer is the end that empties. One goroutine at a time may use it.
type Consumer struct {
	data []byte // twice the size
	size uint64
	tail uint64 // ours; the shared word only tells it
	head uint64 // the producer's as last seen: at least so much is there
	tell *atomic.Uint64
	look *atomic.Uint64
}

// Consumer takes the end that empties, and goes on behind what was released: what the one before it
// has seen and not released comes again.
func (s *Shared) Consumer() (*Consumer, error) {
	head, tail, err := s.indices()
	if err != nil {
		return nil, err
	}
	return &Consumer{s.data(), s.size, tail, head, Uint64(s.mem, tailAt), Uint64(s.mem, headAt)}, nil
}

// Position is the number of bytes that were released since the memory was made: where View begins.
func (c *Consumer) Position() uint64 { return c.tail }

// Size is the number of bytes that the ring holds.
func (c *Consumer) Size() int { return int(c.size) }

// View is what was published and not released, in one piece. It is at least n bytes long if so much
// is there: the producer's index is only loaded where less is known to be. The memory is lent, and
// a wrong or hostile producer can change it at any time: copy what is checked before it is used, or
// use what cannot do harm.
func (c *Consumer) View(n int) ([]byte, error) {
	if c.head-c.tail < uint64(n) {
		if err := c.refresh(); err != nil {
			return nil, err
		}
	}
	at := c.tail & (c.size - 1)
	end := at + c.head - c.tail
	return c.data[at:end:end], nil
}

// refresh looks how far the producer is: between where it was and a full ring.
func (c *Consumer) refresh() error {
	head := c.look.Load()
	if head-c.head > c.size-(c.head-c.tail) {
		return fmt.Errorf("ring: the producer says %d after %d, with %d released of %d bytes: %w", head, c.head, c.tail,
			c.size, ErrCorrupt)
	}
	c.head = head
	return nil
}

// Release gives the first n bytes of View back, all at once: a process that is killed has released
// them, or they come again. It panics if n is negative or more than the last View had.
func (c *Consumer) Release(n int) {
	if n < 0 || uint64(n) > c.head-c.tail {
		panic(fmt.Sprintf("ring: Release(%d) with %d bytes held", n, c.head-c.tail))
	}
	c.tail += uint64(n)
	c.tell.Store(c.tail)
}

// Free is the number of bytes that are free for the producer, as far as this end knows.
func (c *Consumer) Free() int { return int(c.size - (c.head - c.tail)) }
