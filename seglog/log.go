package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Errors that callers act on.
var (
	// ErrLocked: another process has the directory open for writing.
	ErrLocked = errors.New("the log is in use by another process")
	// ErrBusy: no room in the staging buffer until a commit ends; only TryAppend says so.
	ErrBusy = errors.New("the log is busy")
	// ErrDiskFull: no room on the disk; nothing was taken, and later appends may succeed.
	ErrDiskFull = errors.New("the disk is full")
	// ErrFailed: a write or a sync failed and the log takes nothing more until it is opened again.
	ErrFailed = errors.New("the log has failed")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
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
	KeepAge      time.Duration // remove segments whose last record is older; 0 means keep all
	OnFull       FullPolicy    //
	MinFree      int64         // bytes of the disk to leave free; 0 means 16 MiB, negative none

	// Chain writes each record of a batch by an operation of its own, all linked, where the files offer that (ChainWriter), so
	// that a failure names its record. It is slower than the one write that a batch is otherwise: see the package comment.
	Chain bool

	// OnCommit is told of every commit, and of the failure that poisons the log, in order, on the goroutine that
	// commits. It must be quick and must not call the log.
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
	Err     error         // the log has failed: what is above Stored is lost
}

const (
	writeLinger = 10 * time.Millisecond  // unsynced policies: longest time a record is staged
	fullRetry   = 200 * time.Millisecond // disk full: time between tries
)

func (c Config) withDefaults() (Config, error) {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.SegmentBytes, 64<<20)
	set((*int64)(&c.BatchDelay), int64(50*time.Millisecond))
	set((*int64)(&c.SyncInterval), int64(time.Second))
	set(&c.MinFree, 16<<20)
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
	case c.BufferBytes < 1<<10 || int64(c.BufferBytes)+headerBytes+2*commitBytes > c.SegmentBytes || c.BufferBytes > maxRecord:
		return c, fmt.Errorf("staging buffer of %d bytes: want 1 KiB to 16 MiB, and less than a segment", c.BufferBytes)
	case c.BatchDelay < 0 || c.SyncInterval < 0 || c.KeepBytes < 0 || c.KeepAge < 0 || c.BatchRecords < 0:
		return c, errors.New("seglog: negative limit")
	}
	return c, nil
}

// Log is open for appending. Its methods are safe for concurrent use.
type Log struct {
	cfg  Config
	lock io.Closer

	mu      sync.Mutex
	room    sync.Cond // signalled when a commit ends
	open    *staging  // takes records
	spare   *staging  // nil while it is being committed
	stuck   bool      // spare could not be written because the disk is full: it goes first
	busy    bool      // someone commits
	next    uint64    // sequence of the next record
	stored  uint64
	durable uint64
	salt    uint32 // of the current segment
	crowd   int    // producers that waited for the last commit
	calmed  time.Time
	failed  error
	closed  bool

	// Owned by whoever commits.
	seg      *segment
	woken    []*waiter // room for the next list of waiters
	parts    [][]byte  // of the batch, under Config.Chain
	unsynced []uint64  // segments sealed under SyncNever since the last sync
	syncedAt time.Time

	kick, hurry, quit chan struct{}
	done              sync.WaitGroup
	shelf             shelf // the other segments, and the next one
	recovered         Recovery
}

// Open opens the log for appending and recovers it: see [Log.Recovered]. Damage before the tail is a [*CorruptError].
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
		kick: make(chan struct{}, 1), hurry: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	l.room.L = &l.mu
	if err := l.recover(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	l.shelf.start(cfg)
	l.done.Add(1)
	go l.commitInBackground()
	return l, nil
}

func newStaging(n int) *staging { return &staging{buf: make([]byte, 0, n+commitBytes)} }

// Append stages a record and returns its sequence. Under SyncAlways it returns when the record is durable; otherwise when it
// is staged, which it waits for while the buffer is full. time is in ns since 1970. data is copied.
func (l *Log) Append(stream uint32, time int64, data []byte) (uint64, error) {
	l.mu.Lock()
	seq, err := l.stage(stream, time, data)
	for err == ErrBusy {
		if l.busy {
			l.room.Wait()
		} else {
			l.busy = true
			l.lead(false)
		}
		seq, err = l.stage(stream, time, data)
	}
	if err != nil || l.cfg.Sync != SyncAlways {
		if err == nil {
			l.rouse()
		}
		l.mu.Unlock()
		return seq, err
	}
	w := waiters.Get().(*waiter)
	l.open.waiters = append(l.open.waiters, w)
	return seq, l.await(w)
}

// TryAppend stages a record without ever waiting: ErrBusy says that it must be offered again. It becomes durable as the
// policy says; OnCommit tells.
func (l *Log) TryAppend(stream uint32, time int64, data []byte) (uint64, error) {
	l.mu.Lock()
	seq, err := l.stage(stream, time, data)
	if err == nil {
		l.rouse()
	}
	l.mu.Unlock()
	return seq, err
}

// stage puts a record into the open batch. mu is held.
func (l *Log) stage(stream uint32, time int64, data []byte) (uint64, error) {
	s := l.open
	if l.failed != nil {
		return 0, l.failed
	}
	if l.closed {
		return 0, ErrClosed
	}
	if free := cap(s.buf) - commitBytes - len(s.buf); frameLen(len(data)) > free {
		switch {
		case frameLen(len(data)) > l.cfg.BufferBytes/2:
			return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), l.cfg.BufferBytes/2-frameHeader)
		case l.stuck:
			return 0, ErrDiskFull
		}
		return 0, ErrBusy
	}
	if s.records == 0 {
		s.salt = l.salt
	}
	seq := l.next
	l.next++
	s.buf = appendFrame(s.buf, s.salt, kindRecord, stream, seq, time, data)
	s.last, s.time = seq, time
	s.records++
	return seq, nil
}

// rouse tells the background that a batch has begun, or is full enough to go. mu is held, a record was just staged.
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
	if l.failed != nil || l.closed {
		defer l.mu.Unlock()
		return cmp.Or(l.failed, ErrClosed)
	}
	w := waiters.Get().(*waiter)
	l.open.waiters = append(l.open.waiters, w)
	l.open.force = true
	return l.await(w)
}

// Close commits and syncs what is staged, marks the log as closed cleanly, and lets other processes in.
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
	for l.busy {
		l.room.Wait()
	}
	err := l.failed
	for range 2 { // a batch that did not fit, then what was staged behind it
		if err == nil {
			l.open.force = true
			l.busy = true
			l.lead(false)
			err = l.failed
		}
	}
	if l.stuck {
		err = ErrDiskFull
	}
	if l.failed == nil {
		l.failed = ErrClosed
	}
	l.spare.force, l.stuck = false, false
	l.release(l.spare, cmp.Or(err, ErrClosed))
	l.room.Broadcast()
	l.mu.Unlock()

	l.shelf.stop()
	if err == nil {
		err = l.seal(true)
	}
	return errors.Join(err, l.seg.file.Close(), l.lock.Close())
}

// Position is how far the log has come.
type Position struct {
	First   uint64 // oldest sequence still kept
	Next    uint64 // sequence of the next record
	Stored  uint64 // last one that readers can see
	Durable uint64 // last one that a power cut cannot take
	Bytes   int64  // size of all segments
	Full    bool   // the disk is full: a batch waits for room
	Err     error  // the log has failed
}

// Position returns how far the log has come.
func (l *Log) Position() Position {
	first, bytes := l.shelf.extent()
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Position{
		First: l.seg.base, Next: l.next, Stored: l.stored, Durable: l.durable,
		Bytes: bytes + l.seg.size, Full: l.stuck, Err: l.failed,
	}
	if first != 0 {
		p.First = first
	}
	return p
}

// Recovered says what was found when the log was opened.
func (l *Log) Recovered() Recovery { return l.recovered }
