package seglog

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// A disk that does not answer kept Append and Sync for as long as it liked. With a context they
// come back in its time, say what is known of the record, and what they had begun goes on.
func TestContextEndsTheWaitForADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, answers := fault.New(), make(chan struct{})
		closeLog(t, open(t, small(faulty{d}, SyncAlways)))
		disk := hungDir{faulty{d}, &atomic.Bool{}, answers}
		l := open(t, small(disk, SyncAlways))
		if seq, err := l.AppendContext(t.Context(), 1, 1, payload(1)); seq != 1 || err != nil {
			t.Fatalf("%d, %v", seq, err)
		}
		if err := l.SyncContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		disk.hangs.Store(true)
		within := func(d time.Duration, what string, call func(context.Context) error) error {
			t.Helper()
			ctx, end := context.WithTimeout(t.Context(), d)
			defer end()
			began := time.Now()
			err := call(ctx)
			if took := time.Since(began); took != d || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v, want it after %v", what, err, took, d)
			}
			return err
		}
		err := within(time.Second, "append", func(ctx context.Context) error {
			seq, err := l.AppendContext(ctx, 1, 1, payload(2))
			if seq != 2 {
				t.Errorf("sequence %d", seq)
			}
			return err
		})
		if !errors.Is(err, ErrUnsettled) {
			t.Error(err)
		}
		within(3*time.Second, "sync", l.SyncContext)
		last := uint64(2)
		for { // behind a buffer that is full nothing is staged
			ctx, end := context.WithTimeout(t.Context(), time.Second)
			seq, err := l.AppendContext(ctx, 1, 1, payload(last+1))
			if end(); seq == 0 {
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnsettled) {
					t.Error(err)
				}
				break
			}
			if last++; seq != last || !errors.Is(err, ErrUnsettled) {
				t.Fatalf("%d, %v; want %d", seq, err, last)
			}
		}
		if p := l.Position(); p.Durable != 1 || p.Next != last+1 {
			t.Errorf("%+v, where %d were staged", p, last)
		}
		close(answers)
		synctest.Wait()
		if p := l.Position(); p.Durable != last {
			t.Errorf("%+v: want all %d durable once the disk answers", p, last)
		}
		closeLog(t, l)
		if n := readAll(t, NewReader(faulty{d}, 1), 1); n != last {
			t.Errorf("%d records, want %d", n, last)
		}
	})
}

// A context that has ended stages nothing, under no policy, and on no log; one that lasts changes
// nothing.
func TestContextThatHasEnded(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			l := open(t, small(faulty{fault.New()}, policy))
			ended, end := context.WithCancelCause(t.Context())
			reason := errors.New("the reason")
			end(reason)
			if seq, err := l.AppendContext(ended, 1, 1, payload(1)); seq != 0 || !errors.Is(err, reason) {
				t.Errorf("%d, %v", seq, err)
			}
			if err := l.SyncContext(ended); !errors.Is(err, reason) {
				t.Error(err)
			}
			if p := l.Position(); p.Next != 1 {
				t.Errorf("%+v", p)
			}
			lasting, end2 := context.WithCancel(t.Context())
			defer end2()
			for i := range uint64(50) {
				for _, ctx := range []context.Context{lasting, context.Background()} {
					seq, err := l.AppendContext(ctx, 1, 1, payload(2*i+1))
					if err == nil {
						err = l.SyncContext(ctx)
					}
					if p := l.Position(); err != nil || p.Durable != seq {
						t.Fatalf("%d: %v, %+v", seq, err, p)
					}
				}
			}
			closeLog(t, l)
			if _, err := l.AppendContext(lasting, 1, 1, payload(1)); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			if err := l.SyncContext(lasting); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// Contexts that end at random, beside others that wait and a disk that fails for a while: what was
// staged is in the log, what was not is not, and nobody waits for ever.
func TestContextsThatEndAtAnyTime(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	var fails atomic.Int64
	d.SetInject(func(op fault.Op, _ string) (int, error) {
		if n := fails.Add(1); op == fault.OpWrite && n%64 > 56 {
			return 0, syscall.EAGAIN
		}
		return 0, nil
	})
	var staged atomic.Uint64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 60 {
				ctx, end := context.WithTimeout(t.Context(), time.Duration((i*60+k)%97)*10*time.Microsecond)
				seq, err := l.AppendContext(ctx, 1, 1, []byte("x"))
				if end(); seq != 0 {
					staged.Add(1)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) || err == nil && seq == 0 {
					t.Errorf("%d, %v", seq, err)
				}
				if k%8 == 0 {
					if _, err := l.Append(1, 1, []byte("x")); err != nil {
						t.Error(err)
					}
					staged.Add(1)
				}
			}
		})
	}
	all.Wait()
	d.SetInject(nil) // else Close may find it failing, too
	closeLog(t, l)
	if p := l.Position(); p.Durable != staged.Load() {
		t.Errorf("%d are durable, %d were staged", p.Durable, staged.Load())
	}
}

// A context that is nil is an error, and not the end of the program.
func TestNoContext(t *testing.T) {
	l := open(t, small(faulty{fault.New()}, SyncAlways))
	var none context.Context
	seq, appended := l.AppendContext(none, 1, 1, payload(1))
	for what, err := range map[string]error{"append": appended, "sync": l.SyncContext(none)} {
		if err == nil || !strings.HasPrefix(err.Error(), "seglog: ") {
			t.Errorf("%s without a context: %v", what, err)
		}
	}
	if p := l.Position(); seq != 0 || p.Next != 1 {
		t.Errorf("record %d was staged, the next is %d", seq, p.Next)
	}
	if seq, err := l.AppendContext(t.Context(), 1, 1, payload(1)); seq != 1 || err != nil {
		t.Errorf("behind that: %d, %v", seq, err)
	}
	closeLog(t, l)
}
