package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
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
	time    int64  // the highest of them
	digest  uint64 // of their frames
	waiters []*waiter
}

func (s *staging) reset() {
	s.buf, s.records, s.digest, s.force, s.rushed = s.buf[:0], 0, 0, false, false
	clear(s.waiters)
	s.waiters = s.waiters[:0]
}

// waiter is a producer that waits for its record. It is sent true to lead the next commit, false
// when its own is over.
type waiter struct {
	ch  chan bool
	err error
}

func newWaiter() any { return &waiter{ch: make(chan bool, 1)} }

// maxYields is how often a leader lets others run before it takes the batch, while more records
// keep coming.
const maxYields = 2

// calmEvery is how often a producer that is alone yields. Nobody would come; but the runtime's
// monitor takes the P from a goroutine that has gone from system call to system call for 10 ms
// without being scheduled, at every look, and each time that costs the caller a tenth of its syncs.
// See docs/design/2026-11-20-long-runs-of-system-calls.md.
const calmEvery = 5 * time.Millisecond

// lead commits what is staged and wakes those who wait for it. mu is held, and the caller has set
// busy.
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
	c, end := Commit{Stored: l.stored, Durable: l.durable, Doubt: l.doubt, Err: l.failed}, outcome{}
	if c.Err == nil {
		l.leads = time.Now()
		start := l.leads
		l.mu.Unlock()
		c, end = l.commit(b, c, start)
		l.mu.Lock()
	}
	l.leads = time.Time{}
	switch {
	case end.again != nil && l.stall == nil: // whoever led: the background tries again until it succeeds
		signal(l.kick)
	// the signals of the batch that was staged meanwhile were spent on the tries
	case end.again == nil && l.stall != nil:
		signal(l.kick)
		signal(l.hurry)
	}
	l.stored, l.durable, l.end, l.tail = c.Stored, c.Durable, l.seg.off, l.seg.tail
	switch {
	case c.Err != nil && l.failed == nil:
		l.failed, l.doubt = c.Err, c.Doubt
	case l.failed != nil: // also when it failed meanwhile: see fail
		c.Err, c.Doubt, end.again = l.failed, l.doubt, nil
	}
	l.stall = end.again
	if c.Records > 0 || c.Synced || c.Err != nil {
		l.tell(c)
	}
	if end.again != nil {
		l.busy = false
	} else {
		l.release(b, cmp.Or(c.Err, end.unsynced))
	}
	if l.failed != nil && !l.told { // it failed while others were told, or woken: see fail
		l.tell(Commit{Stored: l.stored, Durable: l.durable, Doubt: l.doubt, Err: l.failed})
	}
	l.room.Broadcast()
}

// tell calls OnCommit. mu is held, and let go of meanwhile; the caller is busy, or the log has
// failed, so that calls come in order.
func (l *Log) tell(c Commit) {
	l.told = l.told || c.Err != nil
	if l.cfg.OnCommit != nil {
		l.mu.Unlock()
		l.cfg.OnCommit(c)
		l.mu.Lock()
	}
}

// take returns the batch to commit: the one that could not be written, else what is staged now. mu
// is held.
func (l *Log) take() *staging {
	if l.stall != nil {
		return l.spare
	}
	b := l.open
	l.open, l.spare = l.spare, b
	return b
}

// release wakes the waiters of a batch that is over and hands the lead to the first waiter of the
// next. mu is held, except while the waiters are woken: they append at once, and would meet the
// lock. The caller is still busy.
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

// await waits until the batch that holds w is over, leading where it is asked to. mu is held, and
// released.
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
	l.waiters.Put(w)
	return err
}

// outcome is what a commit came to beside what it tells others.
type outcome struct {
	again    error // nothing was written: why the same batch goes again, later
	unsynced error // the batch is written, but a sync could not be begun: for those who wait for one
}

// commit writes a batch and syncs it where the policy, or the batch, asks for that. c is how far
// the log had come, and becomes how far it comes. The caller has the lead.
func (l *Log) commit(b *staging, c Commit, start time.Time) (Commit, outcome) {
	var end outcome
	due := b.force || l.cfg.Sync == SyncAlways || l.cfg.Sync == SyncBatch ||
		l.cfg.Sync == SyncInterval && start.Sub(l.syncedAt) >= l.cfg.SyncInterval
	synced := false
	if b.records > 0 {
		n, err := l.write(b, c.Durable, due)
		if passes(err) {
			return c, outcome{again: err}
		}
		if err != nil {
			c.Err, c.Doubt = fmt.Errorf("%w: %w", ErrFailed, err), b.last
			return c, end
		}
		c.Stored, c.Records, c.Bytes = b.last, b.records, n
		synced = due && len(l.unsynced) == 0
	}
	syncs := due && (c.Durable < c.Stored || b.force)
	if syncs {
		if !synced {
			if err := l.syncAll(); errors.Is(err, errSync) {
				c.Err, c.Doubt = fmt.Errorf("%w: %w", ErrFailed, err), c.Stored
				return c, end
			} else if err != nil {
				return c, outcome{unsynced: err}
			}
		}
		c.Synced, c.Durable = true, c.Stored
	}
	if syncs || b.records > 0 {
		l.said.note(c.Durable, c.Stored) // before anybody is told
	}
	now := time.Now()
	if syncs {
		l.syncedAt = now
	}
	c.Took = now.Sub(start)
	return c, end
}

// write puts a batch and its commit frame into the segment, a new one if it does not fit, and makes
// the segment durable if sync is set.
func (l *Log) write(b *staging, durable uint64, sync bool) (int, error) {
	need := int64(len(b.buf) + commitBytes)
	// The mark of a log that is closed in order always has its place. What is stale, or spoiled, is
	// not gone on with.
	if l.seg.off+need+commitBytes > l.seg.size || l.stale(l.seg) || l.isSpoiled(l.seg) {
		if err := l.rotate(b.last-uint64(b.records)+1, durable); err != nil {
			return 0, err
		}
		l.keepSaid()
	}
	if b.salt != l.seg.salt {
		b.digest, b.salt = resalt(b.buf, l.seg.salt), l.seg.salt
	}
	whole := appendCommit(b.buf, l.seg.header, b.last, b.time, b.records, len(b.buf), durable, b.digest)
	err := l.put(whole, sync)
	// the segment was begun without a spare, and grows
	if isFull(err) && !errors.Is(err, errSync) && l.inPlace() == nil && l.shelf.giveWay() {
		err = l.put(whole, sync)
	}
	if err != nil {
		return 0, fmt.Errorf("write to %s: %w", l.seg.name(), err)
	}
	l.seg.index.add(l.seg.off, b.last-uint64(b.records)+1, b.time)
	l.seg.chain.add(whole[len(b.buf):])
	if l.seg.made != nil {
		addEntries(l.seg.made, b.buf)
	}
	l.seg.off += need
	l.seg.tail = tail{base: l.seg.base, off: l.seg.off - commitBytes, commit: [commitBytes]byte(whole[len(b.buf):])}
	l.seg.last = b.last
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

// commitInBackground commits what nobody waits for: staged by TryAppend, or by Append under the
// other policies.
func (l *Log) commitInBackground() {
	defer l.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-l.kick:
		case <-timer.C: // a sync, or a batch that could not be written, is due
		}
		if d := l.linger(); d > 0 {
			timer.Reset(d)
			select {
			case <-l.quit:
				return
			case <-l.hurry:
			case <-timer.C:
			}
			if l.cfg.Gather != nil {
				l.cfg.Gather()
			}
		}
		timer.Reset(l.commitStaged())
	}
}

// linger is how long a batch is left open for more records. One that could not be written has been
// closed long ago.
func (l *Log) linger() time.Duration {
	l.mu.Lock()
	stalled := l.stall != nil
	l.mu.Unlock()
	switch {
	case stalled, l.cfg.Sync == SyncAlways:
		return 0
	case l.cfg.Sync == SyncBatch:
		return l.cfg.BatchDelay
	}
	return writeLinger
}

// IsOpen reports whether a batch has records and is left open for more: Config.Gather is called
// before it is taken, or OnCommit soon.
func (l *Log) IsOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open.records > 0 && l.cfg.Sync != SyncAlways && l.failed == nil
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
	case l.stall != nil:
		return retryDelay
	case l.cfg.Sync == SyncInterval && l.durable < l.stored:
		return max(time.Millisecond, l.cfg.SyncInterval-time.Since(l.syncedAt))
	}
	return time.Hour
}
