package seglog

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnsettled is in the error of [Log.AppendContext] if its context has ended after the record was
// staged: the record is in the log, and becomes durable as the policy says, or the log fails.
// OnCommit and [Log.Position] tell which.
var ErrUnsettled = errors.New("staged, and not known to be durable")

// errNoContext is what is nil where a context is wanted.
var errNoContext = errors.New("seglog: the context is nil")

// AppendContext is Append that waits no longer than ctx lasts. If ctx has ended before the record
// was staged, the sequence is 0 and nothing is in the log. If it ends later, under SyncAlways, the
// record's sequence comes with [ErrUnsettled]. In both cases the error holds what ctx ended with.
func (l *Log) AppendContext(ctx context.Context, stream uint32, time int64, data []byte) (uint64, error) {
	if ctx == nil {
		return 0, errNoContext
	}
	if ctx.Done() == nil {
		return l.Append(stream, time, data)
	}
	e := &entry{kindRecord, stream, time, NoOffset, data}
	l.mu.Lock()
	seq, err := l.stageWithin(ctx, e)
	if err != nil || l.cfg.Sync != SyncAlways {
		if err == nil {
			l.rouse()
		}
		l.mu.Unlock()
		return seq, err
	}
	w := l.waiters.Get().(*waiter)
	l.open.waiters = append(l.open.waiters, w)
	if err := l.awaitWithin(ctx, w); err != nil {
		if ended := context.Cause(ctx); errors.Is(err, errEnded) {
			err = fmt.Errorf("append: record %d: %w: %w", seq, ErrUnsettled, ended)
		}
		return seq, err
	}
	return seq, nil
}

// SyncContext is Sync that waits no longer than ctx lasts. The sync itself goes on.
func (l *Log) SyncContext(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	if ctx.Done() == nil {
		return l.Sync()
	}
	l.mu.Lock()
	err := l.unusable()
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("sync: not begun: %w", context.Cause(ctx))
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	err = l.awaitWithin(ctx, l.waitForSync())
	if errors.Is(err, errEnded) {
		err = fmt.Errorf("sync: not known to be over: %w", context.Cause(ctx))
	}
	return err
}

// stageWithin stages an entry, and waits for room while ctx lasts. mu is held. Who waits so never
// commits itself: a disk that does not answer would keep it.
func (l *Log) stageWithin(ctx context.Context, e *entry) (uint64, error) {
	var stop func() bool
	for {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("append: nothing was staged: %w", context.Cause(ctx))
		}
		seq, err := l.stage(e)
		if err != ErrBusy {
			return seq, err
		}
		if !l.busy && l.stall == nil {
			l.busy = true
			go func() {
				l.mu.Lock()
				l.lead(false)
				l.mu.Unlock()
			}()
		}
		if stop == nil {
			stop = context.AfterFunc(ctx, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.room.Broadcast()
			})
			defer stop()
		}
		l.room.Wait()
	}
}

var errEnded = errors.New("the context has ended")

// awaitWithin is await that returns errEnded with the end of ctx. A waiter may be handed the lead
// until its batch is over, so that somebody has to stay: a goroutine, which ends with the commit.
// mu is held, and released.
func (l *Log) awaitWithin(ctx context.Context, w *waiter) error {
	over := make(chan error, 1)
	l.mu.Unlock()
	go func() {
		l.mu.Lock()
		over <- l.await(w)
	}()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-over: // both have come
		return err
	default:
		return errEnded
	}
}
