package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
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
	case c.BufferBytes < 1<<10 || int64(c.BufferBytes)+headerBytes+commitBytes > c.SegmentBytes || c.BufferBytes > maxRecord:
		return c, fmt.Errorf("staging buffer of %d bytes: want 1 KiB to 16 MiB, and less than a segment", c.BufferBytes)
	case c.BatchDelay < 0 || c.SyncInterval < 0 || c.KeepBytes < 0 || c.KeepAge < 0 || c.BatchRecords < 0:
		return c, errors.New("seglog: negative limit")
	}
	return c, nil
}

// staging is a batch in the making.
type staging struct {
	buf     []byte
	salt    uint32 // of the segment that the frames were made for
	force   bool   // sync whatever the policy says
	rushed  bool   // the background has been told to hurry
	records int
	last    uint64 // sequence of the last record
	time    int64  // … and its time
	waiters []*waiter
}

func (s *staging) reset() {
	s.buf, s.records, s.force, s.rushed = s.buf[:0], 0, false, false
	clear(s.waiters)
	s.waiters = s.waiters[:0]
}

// waiter is a producer that waits for its record. It is sent true to lead the next commit, false when its own is over.
type waiter struct {
	ch  chan bool
	err error
}

var waiters = sync.Pool{New: func() any { return &waiter{ch: make(chan bool, 1)} }}

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

// maxYields is how often a leader lets others run before it takes the batch, while more records keep coming.
const maxYields = 2

// calmEvery is how often a producer that is alone yields. Nobody would come; but the runtime's monitor takes the P from a goroutine that
// has gone from system call to system call for 10 ms without being scheduled, at every look, and each time that costs
// the caller a tenth of its syncs. See docs/design/2026-11-20-long-runs-of-system-calls.md.
const calmEvery = 5 * time.Millisecond

// lead commits what is staged and wakes those who wait for it. mu is held, and the caller has set busy.
func (l *Log) lead(yield bool) {
	yields := 0
	if alone := max(len(l.open.waiters), l.crowd) < 2; yield && !alone {
		yields = maxYields
	} else if now := time.Now(); yield && now.Sub(l.calmed) > calmEvery {
		yields, l.calmed = 1, now
	}
	for i := range yields {
		before := l.open.records
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
		if i > 0 && l.open.records == before {
			break
		}
	}
	b := l.take()
	l.mu.Unlock()
	c, full := l.commit(b)
	l.mu.Lock()
	l.stuck = full
	l.stored, l.durable = c.Stored, c.Durable
	if c.Err != nil && l.failed == nil {
		l.failed = c.Err
	}
	if l.cfg.OnCommit != nil && (c.Records > 0 || c.Synced || c.Err != nil) {
		l.mu.Unlock()
		l.cfg.OnCommit(c) // still busy, so that calls come in order
		l.mu.Lock()
	}
	if full {
		l.busy = false
		signal(l.kick) // whoever led: the background tries again until there is room
	} else {
		l.release(b, c.Err)
	}
	l.room.Broadcast()
}

// take returns the batch to commit: the one that did not fit the disk, else what is staged now. mu is held.
func (l *Log) take() *staging {
	if l.stuck {
		return l.spare
	}
	b := l.open
	l.open, l.spare = l.spare, b
	return b
}

// release wakes the waiters of a batch that is over and hands the lead to the first waiter of the next. mu is held, except while the
// waiters are woken: they append at once, and would meet the lock. The caller is still busy.
func (l *Log) release(b *staging, err error) {
	l.crowd = len(b.waiters)
	l.wake(b, err)
	if l.failed != nil {
		l.wake(l.open, l.failed)
	}
	l.busy = len(l.open.waiters) > 0
	if l.busy {
		l.open.waiters[0].ch <- true
	}
}

// wake ends the waiting for a batch. mu is held, and let go of meanwhile.
func (l *Log) wake(b *staging, err error) {
	over := b.waiters
	b.waiters = l.woken[:0]
	b.reset()
	l.mu.Unlock()
	for _, w := range over {
		w.err = err
		w.ch <- false
	}
	clear(over)
	l.mu.Lock()
	l.woken = over
}

// await waits until the batch that holds w is over, leading where it is asked to. mu is held, and released.
func (l *Log) await(w *waiter) error {
	if !l.busy {
		l.busy = true
		l.lead(true)
	}
	l.mu.Unlock()
	for <-w.ch {
		l.mu.Lock()
		l.lead(true)
		l.mu.Unlock()
	}
	err := w.err
	w.err = nil
	waiters.Put(w)
	return err
}

// commit writes a batch and syncs it where the policy, or the batch, asks for that. The caller has the lead. full
// says that nothing was written because the disk is full.
func (l *Log) commit(b *staging) (c Commit, full bool) {
	start := time.Now()
	l.mu.Lock()
	c = Commit{Stored: l.stored, Durable: l.durable, Err: l.failed}
	l.mu.Unlock()
	if c.Err != nil {
		return c, false
	}
	if b.records > 0 {
		n, err := l.write(b, c.Durable)
		if isFull(err) && !errors.Is(err, errSync) {
			return c, true
		}
		if err != nil {
			c.Err = fmt.Errorf("%w: %w", ErrFailed, err)
			return c, false
		}
		c.Stored, c.Records, c.Bytes = b.last, b.records, n
	}
	due := l.cfg.Sync == SyncAlways || l.cfg.Sync == SyncBatch ||
		l.cfg.Sync == SyncInterval && start.Sub(l.syncedAt) >= l.cfg.SyncInterval
	if c.Durable < c.Stored && (due || b.force) || b.force {
		if err := l.syncAll(); err != nil {
			c.Err = fmt.Errorf("%w: %w", ErrFailed, err)
			return c, false
		}
		c.Synced, c.Durable, l.syncedAt = true, c.Stored, time.Now()
	}
	c.Took = time.Since(start)
	return c, false
}

// write puts a batch and its commit frame into the segment, a new one if it does not fit.
func (l *Log) write(b *staging, durable uint64) (int, error) {
	need := int64(len(b.buf) + commitBytes)
	if l.seg.off+need > l.seg.size {
		if err := l.rotate(b.last-uint64(b.records)+1, durable); err != nil {
			return 0, err
		}
	}
	if b.salt != l.seg.salt {
		resalt(b.buf, l.seg.salt)
		b.salt = l.seg.salt
	}
	whole := appendCommit(b.buf, l.seg.salt, b.last, b.time, b.records, len(b.buf), durable)
	if err := writeAll(l.seg.file, whole, l.seg.off); err != nil {
		return 0, fmt.Errorf("write to %s: %w", l.seg.name(), err)
	}
	l.seg.index.add(l.seg.off, b.last-uint64(b.records)+1, b.time)
	l.seg.off += need
	l.seg.last, l.seg.lastTime = b.last, b.time
	return len(whole), nil
}

// commitInBackground commits what nobody waits for: staged by TryAppend, or by Append under the other policies.
func (l *Log) commitInBackground() {
	defer l.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-l.kick:
		case <-timer.C: // a sync, or a batch that did not fit the disk, is due
		}
		if d := l.linger(); d > 0 {
			timer.Reset(d)
			select {
			case <-l.quit:
				return
			case <-l.hurry:
			case <-timer.C:
			}
		}
		timer.Reset(l.commitStaged())
	}
}

// linger is how long a batch is left open for more records.
func (l *Log) linger() time.Duration {
	switch l.cfg.Sync {
	case SyncAlways:
		return 0
	case SyncBatch:
		return l.cfg.BatchDelay
	}
	return writeLinger
}

// commitStaged commits what is staged and returns when to look again without being kicked.
func (l *Log) commitStaged() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy {
		l.room.Wait()
	}
	if l.failed == nil {
		l.busy = true
		l.lead(false)
	}
	switch {
	case l.failed != nil:
	case l.stuck:
		return fullRetry
	case l.cfg.Sync == SyncInterval && l.durable < l.stored:
		return max(time.Millisecond, l.cfg.SyncInterval-time.Since(l.syncedAt))
	}
	return time.Hour
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
