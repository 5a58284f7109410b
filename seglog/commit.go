package seglog

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

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
	if full && !l.stuck { // whoever led: the background tries again until there is room
		signal(l.kick)
	}
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
	due := b.force || l.cfg.Sync == SyncAlways || l.cfg.Sync == SyncBatch ||
		l.cfg.Sync == SyncInterval && start.Sub(l.syncedAt) >= l.cfg.SyncInterval
	synced := false
	if b.records > 0 {
		n, err := l.write(b, c.Durable, due)
		if isFull(err) && !errors.Is(err, errSync) {
			return c, true
		}
		if err != nil {
			c.Err = fmt.Errorf("%w: %w", ErrFailed, err)
			return c, false
		}
		c.Stored, c.Records, c.Bytes = b.last, b.records, n
		synced = due && len(l.unsynced) == 0
	}
	if due && (c.Durable < c.Stored || b.force) {
		if !synced {
			if err := l.syncAll(); err != nil {
				c.Err = fmt.Errorf("%w: %w", ErrFailed, err)
				return c, false
			}
		}
		c.Synced, c.Durable, l.syncedAt = true, c.Stored, time.Now()
	}
	c.Took = time.Since(start)
	return c, false
}

// write puts a batch and its commit frame into the segment, a new one if it does not fit, and makes the segment durable if sync is
// set.
func (l *Log) write(b *staging, durable uint64, sync bool) (int, error) {
	need := int64(len(b.buf) + commitBytes)
	if l.seg.off+need+commitBytes > l.seg.size { // the mark of a log that is closed in order always has its place
		if err := l.rotate(b.last-uint64(b.records)+1, durable); err != nil {
			return 0, err
		}
	}
	if b.salt != l.seg.salt {
		resalt(b.buf, l.seg.salt)
		b.salt = l.seg.salt
	}
	whole := appendCommit(b.buf, l.seg.salt, b.last, b.time, b.records, len(b.buf), durable)
	err := l.put(whole, sync)
	if isFull(err) && !errors.Is(err, errSync) && l.shelf.giveWay() { // the segment was begun without a spare, and grows
		err = l.put(whole, sync)
	}
	if err != nil {
		return 0, fmt.Errorf("write to %s: %w", l.seg.name(), err)
	}
	l.seg.index.add(l.seg.off, b.last-uint64(b.records)+1, b.time)
	l.seg.off += need
	l.seg.last, l.seg.lastTime = b.last, b.time
	return len(whole), nil
}

// put writes a batch by the means that the file and the configuration offer.
func (l *Log) put(whole []byte, sync bool) error {
	if f, ok := l.seg.file.(ChainWriter); ok && l.cfg.Chain {
		l.parts = frames(l.parts[:0], whole)
		err := writeParts(f, l.parts, l.seg.off, sync)
		clear(l.parts)
		return err
	}
	if sync {
		return writeSync(l.seg.file, whole, l.seg.off)
	}
	return writeAll(l.seg.file, whole, l.seg.off)
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
