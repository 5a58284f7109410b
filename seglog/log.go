package seglog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Errors that callers act on.
var (
	// ErrLocked: another process has the directory open for writing.
	ErrLocked = errors.New("the log is in use by another process: end that one, or use another folder")
	// ErrBusy: no room in the staging buffer until a commit ends; only TryAppend says so.
	ErrBusy = errors.New("the log is busy")
	// ErrDiskFull: no room on the disk; nothing was taken, and later appends may succeed.
	ErrDiskFull = errors.New("the disk is full")
	// ErrStalled: the log could not write for now, and was closed before it could; only Close says
	// so.
	ErrStalled = errors.New("the log could not write")
	// ErrFailed: a write or a sync failed and the log takes nothing more until it is opened again.
	ErrFailed = errors.New("the log has failed")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrOther: the directory holds another log than Config.Identity says.
	ErrOther = errors.New("this is another log")
	// ErrVersion: the log was written by a newer program, and nothing is done to it.
	ErrVersion = errors.New("the format of the log is not known")
	// ErrTooLarge: the record does not fit the staging buffer.
	ErrTooLarge = errors.New("the record is too large")
)

// SyncPolicy says when records are made durable.
type SyncPolicy uint8

// The policies; the package comment says what a power cut can cost under each.
const (
	SyncBatch SyncPolicy = iota
	SyncAlways
	SyncInterval
	SyncNever
)

// FullPolicy says what happens when the disk is full.
type FullPolicy uint8

const (
	// StopWhenFull refuses records with ErrDiskFull until there is room.
	StopWhenFull FullPolicy = iota
	// DropOldest removes the oldest segment to make room.
	DropOldest
)

// Config is how a log is kept. The zero value of every field but FS is ready to use.
type Config struct {
	FS           FS            // the directory, see Dir
	SegmentBytes int64         // size of a segment; 0 means 64 MiB
	BufferBytes  int           // size of each of two staging buffers; 0 means 1 MiB
	Sync         SyncPolicy    //
	BatchRecords int           // SyncBatch: commit at this many records; 0 means 4096
	BatchDelay   time.Duration // SyncBatch: … or this long after the first; 0 means 50 ms
	SyncInterval time.Duration // SyncInterval: 0 means 1 s
	KeepBytes    int64         // remove the oldest segments above this total; 0 means keep all
	KeepAge      time.Duration // remove segments whose records are all older; 0 means keep all
	OnFull       FullPolicy    //
	MinFree      int64         // bytes of the disk to leave free; 0 means 16 MiB, negative none

	// Age is how old a record of a time is, for KeepAge; nil: by the wall clock. An owner that
	// knows when that clock was wrong sees to it that no record is removed too early. It must not
	// call the log.
	Age func(time int64) time.Duration

	// Hold is the first record that KeepBytes and KeepAge must leave in the log, however far they
	// are passed; nil: none. A full disk under DropOldest takes it all the same. It must not call
	// the log, but for [Log.Position].
	Hold func() uint64

	// Proves says that [Log.Prove] will be called: retention removes nothing before that.
	Proves bool

	// Beside is how many bytes that are not the log's count towards KeepBytes; nil: none.
	Beside func() int64

	// Chain writes each record of a batch by an operation of its own, all linked, where the files
	// offer that (ChainWriter), so that a failure names its record. It is slower than the one write
	// that a batch is otherwise: see the package comment.
	Chain bool

	// Identity is that of the log, as the owner knows it; zero: not known. A log with another is
	// refused. A log that is made, or that was begun in version 1, gets it. See [Log.Identity].
	Identity [16]byte

	// Expect is what the owner knows from elsewhere that the log holds. What of it is gone is told
	// by [Recovery].Missing. Where it is there, and damaged, Open fails: [RepairKnown] keeps what
	// is whole.
	Expect Extent

	// OnRecovered is told what Open found, before anything that tells of it is removed and before
	// retention begins. Its owner can so keep what is missing, should the process end soon. If it
	// fails, so does Open, and the next one finds the same. It must not call the log.
	OnRecovered func(Recovery) error

	// Scrub is the time in which all that is stored is read once in the background and checked,
	// again and again: at 256 KiB/s, or faster where that would take longer. 0: never; only
	// segments that somebody seems to have written to are looked at, and those of Suspect.
	Scrub time.Duration

	// Suspect are segments, by the sequence of their first record, that are looked at first.
	Suspect []uint64

	// OnChecked is told what a look at a segment has found, also when that is nothing. It is called
	// on a goroutine of its own, and must not call the log.
	OnChecked func(Checked)

	// OnLeft is told, once, of what stands in the place of a spare segment, or of an index, and is
	// no ordinary file of the log's, as a folder, or a link: it is left alone, and the log does
	// without; in the place of the newest index, or of the file `durable`, it gets another name. It
	// is told, too, where that file cannot be written. It is called on a goroutine of its own, and
	// must not call the log.
	OnLeft func(error)

	// Gather is called before a batch is taken that was left open for more records: those that it
	// adds by TryAppend are in that batch, as far as it has room. It runs on the goroutine that
	// commits in the background, without a lock; it must be quick, and must not wait for the log.
	Gather func()

	// OnCommit is told of every commit, and of the failure that poisons the log, in order, on the
	// goroutine that commits. It must be quick and must not call the log.
	OnCommit func(Commit)
}

// Commit is what one commit did.
type Commit struct {
	Stored  uint64        // last sequence that readers can see
	Durable uint64        // last sequence that a power cut cannot take
	Records int           // records in this batch
	Bytes   int           // bytes written for it
	Took    time.Duration // time of write and sync
	Synced  bool          // whether it was synced
	Doubt   uint64        // with Err: what is above Stored up to this may stand in the log; opening it again decides
	Err     error         // the log has failed: what is above Stored, and above Doubt, is lost
}

const (
	defaultSegment = 64 << 20 // bytes

	writeLinger = 10 * time.Millisecond  // unsynced policies: longest time a record is staged
	retryDelay  = 200 * time.Millisecond // time between tries to write what could not be written
)

func (c Config) withDefaults() (Config, error) {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.SegmentBytes, defaultSegment)
	set((*int64)(&c.BatchDelay), int64(50*time.Millisecond))
	set((*int64)(&c.SyncInterval), int64(time.Second))
	set(&c.MinFree, 16<<20)
	if c.Age == nil {
		c.Age = func(at int64) time.Duration { return time.Since(time.Unix(0, at)) }
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = int(min(1<<20, c.SegmentBytes/4))
	}
	if c.BatchRecords == 0 {
		c.BatchRecords = 4096
	}
	switch {
	case c.FS == nil:
		return c, errors.New("seglog: Config.FS is not set")
	case c.SegmentBytes < 16<<10 || c.SegmentBytes > 1<<40:
		return c, fmt.Errorf("segment size %d: want 16 KiB to 1 TiB", c.SegmentBytes)
	case c.BufferBytes < 1<<10 || int64(c.BufferBytes)+headerBytes+2*commitBytes > c.SegmentBytes ||
		c.BufferBytes > maxRecord:
		return c, fmt.Errorf("staging buffer of %d bytes: want 1 KiB to 16 MiB, and less than a segment", c.BufferBytes)
	case c.BatchDelay < 0 || c.SyncInterval < 0 || c.KeepBytes < 0 || c.KeepAge < 0 || c.BatchRecords < 0:
		return c, errors.New("seglog: negative limit")
	case c.Sync > SyncNever || c.OnFull > DropOldest:
		return c, fmt.Errorf("seglog: sync policy %d and policy of a full disk %d: want %d and %d at most", c.Sync,
			c.OnFull, SyncNever, DropOldest)
	case c.Expect.Last >= 1<<63:
		return c, fmt.Errorf("record %d is expected: no log is that long", c.Expect.Last)
	}
	return c, nil
}

// Log is open for appending. Its methods are safe for concurrent use.
type Log struct {
	cfg      Config
	lock     io.Closer
	identity [16]byte

	mu       sync.Mutex
	room     sync.Cond // signalled when a commit ends
	open     *staging  // takes records
	spare    *staging  // nil while it is being committed
	stall    error     // why spare could not be written yet: it goes first. nil: nothing is in the way
	busy     bool      // someone commits
	next     uint64    // sequence of the next record
	stored   uint64
	durable  uint64
	salt     uint32 // of the current segment
	end      int64  // of what is written in it
	crowd    int    // producers that waited for the last commit
	calmed   time.Time
	leads    time.Time // since when the commit is under way; zero: none is
	failed   error
	doubt    uint64        // with failed: the last sequence that may stand in the log all the same
	told     bool          // OnCommit has been called with failed
	tail     tail          // of the current segment
	spoiled  atomic.Uint64 // first sequence of a segment that somebody else wrote to: it is not gone on with
	suspects []uint64      // segments to be looked at
	closed   bool

	waiters sync.Pool // of *waiter; each log has its own, so that tests can run each in a bubble of time

	// Owned by whoever commits.
	seg      *segment
	woken    []*waiter // room for the next list of waiters
	parts    [][]byte  // of the batch, under Config.Chain
	unsynced []uint64  // segments sealed under SyncNever since the last sync
	syncedAt time.Time
	said     durability // how far the log says that it is durable
	unsaid   int        // looks in a row at which it could not say so; shelf.mu guards it

	kick, hurry, doubts, quit chan struct{}
	sealings                  chan struct{}          // a segment was sealed: see prover
	checkpoint                atomic.Pointer[[]byte] // the newest
	done                      sync.WaitGroup
	shelf                     shelf  // the other segments, and the next one
	found                     traces // while the segment is absent: they are all that tells what is gone
	recovered                 Recovery
	// while it is recovered: what its last segment, as far as it is read, ends with; its To is 0 if
	// that is no hole
	untold Missing
}

// Open opens the log for appending and recovers it: see [Log.Recovered]. Damage before the tail is
// a [*CorruptError].
func Open(cfg Config) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	lock, err := cfg.FS.Lock()
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &Log{
		cfg: cfg, lock: lock,
		open: newStaging(cfg.BufferBytes), spare: newStaging(cfg.BufferBytes),
		kick: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		doubts: make(chan struct{}, 1), quit: make(chan struct{}),
		sealings: make(chan struct{}, 1),
	}
	l.room.L, l.waiters.New = &l.mu, newWaiter
	if err := l.recover(); err != nil {
		if l.seg != nil {
			l.seg.file.Close()
		}
		lock.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	l.keepSaid()
	l.shelf.proving = cfg.Proves && cfg.Sync != SyncNever
	l.shelf.start(l.inPlace)
	l.done.Add(3)
	go l.commitInBackground()
	go l.watch()
	go l.scrub()
	return l, nil
}

func newStaging(n int) *staging { return &staging{buf: make([]byte, 0, n+commitBytes)} }

// Append stages a record and returns its sequence. Under SyncAlways it returns when the record is
// durable; otherwise when it is staged, which it waits for while the buffer is full. time is in ns
// since 1970. data is copied.
func (l *Log) Append(stream uint32, time int64, data []byte) (uint64, error) {
	return l.append(&entry{kindRecord, stream, time, NoOffset, data})
}

// TryAppend stages a record without ever waiting: ErrBusy says that it must be offered again. It
// becomes durable as the policy says; OnCommit tells.
func (l *Log) TryAppend(stream uint32, time int64, data []byte) (uint64, error) {
	return l.tryAppend(&entry{kindRecord, stream, time, NoOffset, data})
}

// entry is what is staged: a record, or something else that has a sequence of its own. It goes by
// pointer, on the stack: to copy it from call to call took a fourth of the time of staging.
type entry struct {
	kind, stream uint32
	time         int64
	offset       uint64 // of the wire; NoOffset
	data         []byte
}

// size is the room that the entry takes in a batch.
func (e *entry) size() int {
	if e.offset == NoOffset {
		return frameLen(len(e.data))
	}
	return frameLen(offsetBytes + len(e.data))
}

func (l *Log) append(e *entry) (uint64, error) {
	l.mu.Lock()
	seq, err := l.stage(e)
	for err == ErrBusy {
		if l.busy || l.stall != nil { // the background tries again in its own time
			l.room.Wait()
		} else {
			l.busy = true
			l.lead(false)
		}
		seq, err = l.stage(e)
	}
	if err != nil || l.cfg.Sync != SyncAlways {
		if err == nil {
			l.rouse()
		}
		l.mu.Unlock()
		return seq, err
	}
	w := l.waiters.Get().(*waiter)
	l.open.waiters = append(l.open.waiters, w)
	return seq, l.await(w)
}

func (l *Log) tryAppend(e *entry) (uint64, error) {
	l.mu.Lock()
	seq, err := l.stage(e)
	if err == nil {
		l.rouse()
	}
	l.mu.Unlock()
	return seq, err
}

// stage puts an entry into the open batch. mu is held.
func (l *Log) stage(e *entry) (uint64, error) {
	s := l.open
	if l.failed != nil {
		return 0, l.failed
	}
	if l.closed {
		return 0, ErrClosed
	}
	if e.size() > l.cfg.BufferBytes/2 { // also where there is room: whether it is taken must not depend on that
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(e.data),
			l.cfg.BufferBytes/2-frameHeader-offsetBytes)
	}
	if free := cap(s.buf) - commitBytes - len(s.buf); e.size() > free {
		if isFull(l.stall) {
			return 0, ErrDiskFull
		}
		return 0, ErrBusy
	}
	if s.records == 0 {
		s.salt = l.salt
	}
	seq, at := l.next, len(s.buf)
	l.next++
	s.buf = appendWire(s.buf, s.salt, e.kind, e.stream, seq, e.time, e.offset, e.data)
	s.digest = fold(s.digest, binary.LittleEndian.Uint32(s.buf[at+4:]))
	if s.records == 0 || e.time > s.time {
		s.time = e.time
	}
	s.last = seq
	s.records++
	return seq, nil
}

// rouse tells the background that a batch has begun, or is full enough to go. mu is held, a record
// was just staged.
func (l *Log) rouse() {
	s := l.open
	if s.records == 1 {
		signal(l.kick)
	}
	if s.records == l.cfg.BatchRecords && l.cfg.Sync == SyncBatch || len(s.buf) > l.cfg.BufferBytes/2 && !s.rushed {
		s.rushed = true
		signal(l.hurry)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sync makes all that was appended before durable, under every policy.
func (l *Log) Sync() error {
	l.mu.Lock()
	if err := l.unusable(); err != nil {
		l.mu.Unlock()
		return err
	}
	return l.await(l.waitForSync())
}

// unusable says why nothing can be done with the log any more. mu is held.
func (l *Log) unusable() error {
	if l.failed == nil && l.closed {
		return ErrClosed
	}
	return l.failed
}

// waitForSync has the open batch synced, and waits for it. mu is held.
func (l *Log) waitForSync() *waiter {
	w := l.waiters.Get().(*waiter)
	l.open.waiters = append(l.open.waiters, w)
	l.open.force = true
	return w
}

// Close commits and syncs what is staged, marks the log as closed cleanly, and lets other processes
// in.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	l.mu.Unlock()
	close(l.quit)
	l.done.Wait()

	l.mu.Lock()
	l.idle()
	err := l.failed
	for range 2 { // a batch that did not fit, then what was staged behind it
		if err == nil {
			l.open.force = true
			l.busy = true
			l.lead(false)
			l.idle() // the lead may have gone to who waits for what was staged behind
			err = l.failed
		}
	}
	switch {
	case isFull(l.stall):
		err = ErrDiskFull
	case l.stall != nil:
		err = fmt.Errorf("%w: %w", ErrStalled, l.stall)
	}
	if l.failed == nil {
		l.failed = ErrClosed
	}
	l.spare.force, l.stall = false, nil
	l.release(l.spare, cmp.Or(err, ErrClosed))
	l.room.Broadcast()
	l.mu.Unlock()

	l.shelf.stop()
	if err == nil {
		if err = l.inPlace(); err != nil {
			err = fmt.Errorf("%w: %w", ErrFailed, err)
		}
	}
	if err == nil {
		err = l.seal(true)
	}
	l.said.close()
	return errors.Join(err, l.seg.file.Close(), l.lock.Close())
}

// idle waits until nobody commits. mu is held.
func (l *Log) idle() {
	for l.busy {
		l.room.Wait()
	}
}

// Position is how far the log has come.
type Position struct {
	First   uint64 // oldest sequence still kept
	Next    uint64 // sequence of the next record
	Stored  uint64 // last one that readers can see
	Durable uint64 // last one that a power cut cannot take
	Bytes   int64  // size of all segments
	Used    int64  // of these, up to the end of what is written
	// bytes of the disk that are held for records to come: the rest of the segment in use, and
	// spare ones
	Ahead int64
	Full  bool // the disk is full: a batch waits for room
	// why a batch waits: the disk is full, or another error that may pass, and it is tried again;
	// or ErrNoAnswer
	Stalled  error
	Err      error  // the log has failed
	Evicting bool   // DropOldest: for want of room, records are removed that KeepBytes and KeepAge would keep
	Evicted  uint64 // how many were, since the log was opened
	EverGone uint64 // … and in its life, as far as the log knows
	Held     bool   // Config.Hold keeps records that KeepBytes or KeepAge would remove
}

// Position returns how far the log has come.
func (l *Log) Position() Position {
	first, bytes := l.shelf.extent()
	spares := l.shelf.spares()
	evicting, evicted, ever := l.shelf.pressure()
	held := l.shelf.held()
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Position{
		First: l.seg.base, Next: l.next, Stored: l.stored, Durable: l.durable,
		Bytes: bytes + l.seg.size, Used: bytes + min(l.end, l.seg.size), Ahead: l.held(spares), Full: isFull(l.stall),
		Stalled: l.stall, Err: l.failed,
	}
	if first != 0 {
		p.First = first
	}
	p.Evicting, p.Evicted, p.EverGone, p.Held = evicting, evicted, ever, held
	if p.Stalled == nil && !l.leads.IsZero() && time.Since(l.leads) > NoAnswer {
		p.Stalled = ErrNoAnswer
	}
	return p
}

// Stored is that of [Log.Position], for whoever asks often.
func (l *Log) Stored() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored
}

// HasFailed reports whether the log has failed, or was closed: it takes nothing more.
func (l *Log) HasFailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed != nil || l.closed
}

// NoAnswer is how long a commit takes that is a stall: no disk that works needs so long.
const NoAnswer = 20 * time.Second

// ErrNoAnswer is a write or a sync that is under way for longer than [NoAnswer].
var ErrNoAnswer = errors.New("the disk does not answer: a write or a sync is under way for more than 20 s")

// Identity is a random number that the log was given when it was made, and that all its segments
// carry.
func (l *Log) Identity() [16]byte { return l.identity }

// Recovered says what was found when the log was opened.
func (l *Log) Recovered() Recovery { return l.recovered }
