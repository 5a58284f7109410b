package uring

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config says how a ring is made. The zero value is a ring that one goroutine at a time may use,
// wherever the scheduler runs it.
type Config struct {
	// Entries is the size of the submission queue: how many operations can be queued for one
	// Submit. It is rounded up to a power of two; 0 means 128, and the kernel's limit is 32768.
	Entries int
	// InFlight is how many operations may be queued, in flight or completed and not yet seen by
	// Next. It sizes the completion queue, so that operations that complete once can never overflow
	// it; 0 means twice Entries. One more place is kept for a cancellation.
	InFlight int

	// Locked says that the caller has locked its goroutine to its thread (runtime.LockOSThread) and
	// that this thread alone will use the ring. The kernel then completes operations on that
	// thread, inside Wait, and interrupts nobody. That pays where many completions are waited for
	// at a time, as in a server; one that waits for each single read of a disk is better off
	// without. Any other thread gets ErrOwner from Submit and Wait; Push does not look, since that
	// would cost a system call.
	Locked bool

	// RegisterRing spares each system call the look-up of the ring's descriptor, some 10 ns. It
	// goes with Locked, and takes away its protection: another thread that used the ring would
	// reach whichever ring it has registered itself. Linux 5.18.
	RegisterRing bool

	// SQPoll starts a kernel thread that takes submissions without a system call, as long as it has
	// not slept. It burns a CPU until SQPollIdle has passed without work: on a machine with few
	// CPUs that costs more than it saves.
	SQPoll bool
	// SQPollIdle is rounded up to milliseconds; 0 means 1 ms.
	SQPollIdle time.Duration
	// SQPollCPU pins that thread to CPU SQPollCPU-1; 0 leaves it free.
	SQPollCPU int

	// IOPoll polls the device for completions in Wait instead of taking interrupts: only for
	// O_DIRECT files on devices with poll queues (NVMe with poll_queues set); others fail with
	// EOPNOTSUPP.
	IOPoll bool
}

const (
	defaultEntries = 128
	maxEntries     = 32768

	// cancelSlots are kept for cancellations: a ring that is full of operations that wait for ever
	// could not end them.
	cancelSlots = 1
)

// Ring is a pair of queues shared with the kernel. New makes one; the zero value is as one that is
// closed. It is not safe for concurrent use.
//
// The submission queue: this side writes entries and then stores the tail; the kernel (in
// io_uring_enter, or in its polling thread) reads the tail, copies the entries and stores the head.
// The completion queue is the mirror image. Every store that hands something over is atomic, and so
// is every load of what the other side stores.
type Ring struct {
	fd      int
	door    *door   // the same, for other rings
	enterFd uintptr // fd, or its index among the thread's registered rings
	regular uint32  // flags of every enter
	setup   uint32  // flags the ring was made with
	owner   int     // Config.Locked: the thread
	feats   uint32

	mem, sqeMem []byte // nil: it is closed, or was never made

	sqHead, sqTail, sqFlags, sqDropped *uint32
	sqMask                             uint32
	sqes                               []sqe
	tail                               uint32 // next entry to write; published by Submit
	submitted                          uint32 // entries handed over
	headSeen                           uint32 // the kernel's head when it was last looked at: no further than it is

	cqHead, cqTail, cqOverflow *uint32
	cqMask                     uint32
	cqes                       []cqe
	head                       uint32 // next entry to read
	given                      uint32 // … and as far as the kernel knows, which is told when it may need the room

	slots []slot
	free  []uint32 // the first nFree: slots not in use
	nFree int
	boxes int // slots of mailboxes
	many  int // operations in flight that complete more than once
	// silent are those of a quiet chain: they do not complete by themselves.
	silent  int
	quiet   bool   // it has had a quiet chain
	drained bool   // … a drain
	spent   uint64 // generations that slots had which Resize has removed
	ending  *Op    // of a ring that is being closed: cancels the others

	brief    bool // the wait under way keeps the P
	waits    uint
	calmed   time.Time
	until    timespec // of the wait under way
	untilArg geteventsArg

	groups  map[uint16]interface{ end() } // what is provided: BufferRings and SendQueues
	arena   *Arena                        // registered
	files   int                           // slots of the table of direct descriptors
	fdArg   int32                         // of clearSlot
	late    map[uint64]struct{}           // see failed
	strays  uint64
	lastBad uint64 // user_data of the last stray
	stats   Stats
}

// alive holds every ring from New until nothing of it is in flight after Close: a ring that its
// owner forgets must not be collected, with memory that the kernel may still write.
var alive sync.Map

// slot binds an operation to a name, its user_data: the slot's index in the lowest 16 bits, above
// it 24 of the ring's serial number, above those 24 of a generation. The generation moves on when
// an operation ends, so that a late or doubled completion cannot be taken for a newer operation's;
// the serial number keeps apart the operations of all rings of the process, which messages and
// cancellations may mean. No serial number is 0, and so no name is.
type slot struct {
	op   *Op
	name uint64
}

const (
	nameIndex  = 1<<16 - 1
	nameSerial = 16
	serialMask = 1<<24 - 1
	genStep    = 1 << 40
)

// serials counts the rings of the process.
var serials atomic.Uint32

func serial() uint64 {
	for {
		if s := serials.Add(1) & serialMask; s != 0 {
			return uint64(s)
		}
	}
}

// Stats counts what a ring did.
type Stats struct {
	Enters    uint64 // io_uring_enter calls
	Submitted uint64 // entries taken by the kernel
	Completed uint64 // completions seen
	Overflows uint64 // times the kernel had to keep completions aside because the completion queue was full
	Strays    uint64 // completions of no known operation: always 0, or there is a bug
}

// maxPollIdle is what the kernel's number has room for.
const maxPollIdle = math.MaxUint32 * time.Millisecond

// New makes a ring. Where io_uring cannot be used, the error is a [FeatureError].
func New(cfg Config) (*Ring, error) {
	if cfg.Entries == 0 {
		cfg.Entries = defaultEntries
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = min(2*cfg.Entries, 2*maxEntries-1)
	}
	if cfg.Entries < 1 || cfg.Entries > maxEntries || cfg.InFlight < 1 || cfg.InFlight >= 2*maxEntries {
		return nil, fmt.Errorf("uring: %d entries and %d in flight: want 1 to %d, and 1 to %d", cfg.Entries,
			cfg.InFlight, maxEntries, 2*maxEntries-1)
	}
	if cfg.RegisterRing && !cfg.Locked {
		return nil, errors.New("uring: RegisterRing goes with Locked")
	}
	if cfg.SQPollIdle < 0 || cfg.SQPollCPU < 0 || !cfg.SQPoll && (cfg.SQPollIdle > 0 || cfg.SQPollCPU > 0) {
		return nil, errors.New("uring: SQPollIdle and SQPollCPU go with SQPoll and must not be negative")
	}
	if cfg.SQPollIdle > maxPollIdle { // the kernel would take what is left of it
		return nil, fmt.Errorf("uring: SQPollIdle of %v: want at most %v", cfg.SQPollIdle, maxPollIdle)
	}
	fd, p, err := setup(cfg)
	if err != nil {
		return nil, err
	}
	r := &Ring{fd: fd, door: &door{fd: fd}, enterFd: uintptr(fd), setup: p.flags, feats: p.features}
	if cfg.Locked {
		r.owner = unix.Gettid()
	}
	if err := r.mapQueues(p); err != nil {
		unix.Close(fd)
		return nil, err
	}
	n := cfg.InFlight + cancelSlots
	r.slots, r.free, r.nFree = make([]slot, n), make([]uint32, n), n
	names := serial() << nameSerial
	for i := range r.free {
		r.free[i] = uint32(n - 1 - i)
		r.slots[i].name = names | uint64(i)
	}
	if cfg.RegisterRing {
		r.registerRing()
	}
	alive.Store(r, nil)
	return r, nil
}

// setup tries the best flags first and gives up one kernel version at a time.
func setup(cfg Config) (int, params, error) {
	base := uint32(setupCQSize)
	if cfg.IOPoll {
		base |= setupIOPoll
	}
	if cfg.SQPoll {
		base |= setupSQPoll
		if cfg.SQPollCPU > 0 {
			base |= setupSQAff
		}
	}
	ladder := []uint32{ // 6.6, 6.1, 5.18, 5.1
		setupNoSQArray | setupSubmitAll,
		setupSubmitAll,
		0,
	}
	switch {
	case cfg.Locked && cfg.SQPoll:
		ladder = append([]uint32{setupNoSQArray | setupSubmitAll | setupSingleIssuer}, ladder...)
	case cfg.Locked:
		ladder = []uint32{
			setupNoSQArray | setupSubmitAll | setupSingleIssuer | setupDeferTaskrun,
			setupSubmitAll | setupSingleIssuer | setupDeferTaskrun,
			setupSubmitAll | setupSingleIssuer | setupCoopTaskrun,
			setupSubmitAll | setupCoopTaskrun,
			setupSubmitAll,
			0,
		}
	}
	idle := uint32((cfg.SQPollIdle + time.Millisecond - 1) / time.Millisecond)
	for i, flags := range ladder {
		p := params{
			flags: base | flags, cqEntries: uint32(max(cfg.InFlight+cancelSlots, cfg.Entries)),
			sqThreadIdle: max(idle, 1), sqThreadCPU: uint32(max(cfg.SQPollCPU-1, 0)),
		}
		fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(cfg.Entries), uintptr(unsafe.Pointer(&p)), 0)
		switch {
		case e == unix.EINVAL && i < len(ladder)-1:
			continue
		case e != 0:
			return -1, p, setupError(e, cfg)
		case p.features&featExtArg == 0:
			unix.Close(int(fd))
			return -1, p, notSupported("io_uring with waits that time out", "5.11")
		}
		return int(fd), p, nil
	}
	panic("unreachable")
}

// setupError says why the kernel refused, in words that name the way out.
func setupError(e unix.Errno, cfg Config) error {
	switch e {
	case unix.ENOSYS:
		return notSupported("io_uring", "5.11")
	case unix.EPERM, unix.EACCES:
		why := "a seccomp filter or a security module refuses io_uring_setup; in a container, run it with a profile that allows it"
		if b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil {
			if v := strings.TrimSpace(string(b)); v != "0" {
				why = "kernel.io_uring_disabled is " + v + "; sysctl kernel.io_uring_disabled=0 allows it"
			}
		}
		return &FeatureError{Feature: "io_uring", Why: why, Err: ErrForbidden}
	case unix.ENOMEM:
		return &FeatureError{
			Feature: "io_uring", Err: ErrForbidden,
			Why: fmt.Sprintf("not enough lockable memory for %d entries: raise ulimit -l or ask for fewer",
				cfg.Entries),
		}
	}
	return fmt.Errorf("uring: %w", os.NewSyscallError("io_uring_setup", e))
}

func (r *Ring) mapQueues(p params) error {
	size := max(uintptr(p.sq.array)+uintptr(p.sqEntries)*4, uintptr(p.cq.cqes)+uintptr(p.cqEntries)*cqeBytes)
	const prot, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	mem, err := unix.Mmap(r.fd, offSQRing, int(size), prot, how)
	if err != nil {
		return fmt.Errorf("uring: map the queues: %w", err)
	}
	sqeMem, err := unix.Mmap(r.fd, offSQEs, int(uintptr(p.sqEntries)*sqeBytes), prot, how)
	if err != nil {
		unix.Munmap(mem)
		return fmt.Errorf("uring: map the entries: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }
	r.mem, r.sqeMem = mem, sqeMem
	r.sqHead, r.sqTail, r.sqFlags, r.sqDropped = word(p.sq.head), word(p.sq.tail), word(p.sq.flags), word(p.sq.dropped)
	r.sqMask = *word(p.sq.mask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&sqeMem[0])), p.sqEntries)
	r.cqHead, r.cqTail, r.cqOverflow = word(p.cq.head), word(p.cq.tail), word(p.cq.overflow)
	r.cqMask = *word(p.cq.mask)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&mem[p.cq.cqes])), p.cqEntries)
	if p.flags&setupNoSQArray == 0 { // an older kernel goes through a table of indices: entry i is always entry i
		array := unsafe.Slice(word(p.sq.array), p.sqEntries)
		for i := range array {
			array[i] = uint32(i)
		}
	}
	return nil
}

// registerRing does what it can: without it the ring works as well.
func (r *Ring) registerRing() {
	u := rsrcUpdate{offset: ^uint32(0), data: uint64(r.fd)}
	if n, e := r.register(registerRingFDs, unsafe.Pointer(&u), 1); e == 0 && n == 1 {
		r.enterFd, r.regular = uintptr(u.offset), enterRegisteredRing
	}
}

// unregisterRing lets go of the reference that the thread holds.
func (r *Ring) unregisterRing() {
	if r.regular&enterRegisteredRing != 0 && r.owner == unix.Gettid() {
		u := rsrcUpdate{offset: uint32(r.enterFd)}
		r.enterFd, r.regular = uintptr(r.fd), 0
		_, _ = r.register(unregisterRingFDs, unsafe.Pointer(&u), 1)
	}
}

func (r *Ring) register(op uintptr, arg unsafe.Pointer, n int) (int, unix.Errno) {
	for {
		res, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), uintptr(n), 0, 0)
		if e != unix.EINTR {
			return int(res), e
		}
	}
}

// Stats returns what the ring did so far.
func (r *Ring) Stats() Stats {
	s := r.stats
	s.Strays = r.strays
	s.Completed += uint64(r.head - r.given)
	return s
}

// InFlight is the number of operations that are queued, in the kernel's hands, or completed and not
// yet seen by Next.
func (r *Ring) InFlight() int { return len(r.slots) - r.nFree }

// count keeps account of what does not complete once.
func (r *Ring) count(o *Op, n int) {
	if o.many {
		r.many += n
	}
	if o.silent {
		r.silent += n
		o.silent = n > 0 // it can be pushed again, by itself
	}
}

// Depth is the most operations that the ring holds at a time: Config.InFlight.
func (r *Ring) Depth() int { return max(len(r.slots)-cancelSlots, 0) }

// Mode says in words how the ring was set up, for logs: "defer-taskrun, single issuer".
func (r *Ring) Mode() string {
	var words []string
	for _, f := range []struct {
		bit  uint32
		word string
	}{
		{setupSQPoll, "kernel polling thread"},
		{setupIOPoll, "polled completion"},
		{setupDeferTaskrun, "deferred task work"},
		{setupCoopTaskrun, "cooperative task work"},
		{setupSingleIssuer, "single issuer"},
		{setupNoSQArray, "no index array"},
	} {
		if r.setup&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	if len(words) == 0 {
		return "plain"
	}
	return strings.Join(words, ", ")
}

// closed reports that the ring has no queues: it is closed, or was never made.
func (r *Ring) closed() bool { return r.mem == nil }

// load is an atomic load of a word that the kernel stores.
func load(p *uint32) uint32 { return atomic.LoadUint32(p) }
