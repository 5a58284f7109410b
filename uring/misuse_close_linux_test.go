package uring_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
)

// TestRingThatIsClosedWhileItCloses: a Close by what Shutdown hands the operations to unmapped the
// queues that Shutdown read on, and its number was closed again, when it was another file's.
func TestRingThatIsClosedWhileItCloses(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		in, _ := pipe(t)
		ops := make([]uring.Op, 4)
		for i := range ops {
			if err := r.Push(ops[i].Read(in, some(8), uring.Current)); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				if err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var others []*os.File
		n := 0
		err := r.Shutdown(func(*uring.Op) {
			n++
			for _, err := range []error{
				r.Close(), r.Shutdown(nil), r.Resize(16, 0), r.Wait(1), r.WaitFor(1, time.Hour),
				r.WaitSome(1, time.Second, time.Hour), r.WaitBriefly(1, time.Hour),
			} {
				if !errors.Is(err, uring.ErrClosed) {
					t.Errorf("%v: want it to be refused", err)
				}
			}
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, f)
		})
		if err != nil || n != len(ops) {
			t.Errorf("%v: %d operations of %d", err, n, len(ops))
		}
		for _, f := range others {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := r.Close(); !errors.Is(err, uring.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	})
}

// TestOperationThatIsPushedAgainAtTheEnd: Shutdown cancelled it again and again for ten seconds,
// and kept it and its buffer for ever.
func TestOperationThatIsPushedAgainAtTheEnd(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		in, _ := pipe(t)
		bufs := []*uring.Buffer{some(8), some(8)}
		ops := make([]uring.Op, len(bufs))
		for i := range ops {
			if err := r.Push(ops[i].Read(in, bufs[i], uring.Current)); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				if err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		began, n := time.Now(), 0
		err := r.Shutdown(func(op *uring.Op) {
			n++
			var nop, box uring.Op
			for _, err := range []error{
				r.Push(op), r.Push(box.Mailbox()), r.Push(nop.CancelAll()), r.Chain(op, nop.Nop()),
				r.HardChain(nop.Nop()),
			} {
				if !errors.Is(err, uring.ErrClosed) {
					t.Errorf("pushed again: %v", err)
				}
			}
		})
		if took := time.Since(began); err != nil || n != len(ops) || took > 5*time.Second {
			t.Errorf("%v: %d of %d operations came back in %v", err, n, len(ops), took)
		}
		for i := range ops {
			if ops[i].InFlight() || bufs[i].InFlight() {
				t.Errorf("operation %d is in flight", i)
			}
		}
	})
}

// A ring whose Shutdown has panicked on the way can be closed.
func TestPanicWhileARingCloses(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		in, _ := pipe(t)
		ops := make([]uring.Op, 3)
		for i := range ops {
			if err := r.Push(ops[i].Read(in, some(8), uring.Current)); err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				if err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range ops {
			panics(t, "each", func() { _ = r.Shutdown(func(*uring.Op) { panic("uring: not so") }) })
		}
		if err := r.Shutdown(nil); err != nil {
			t.Error(err)
		}
		for i := range ops {
			if ops[i].InFlight() {
				t.Errorf("operation %d is in flight", i)
			}
		}
	})
}
