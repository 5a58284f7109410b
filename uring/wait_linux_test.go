package uring_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

func TestWaitWithNothingInFlight(t *testing.T) {
	r := open(t, uring.Config{})
	if err := r.Wait(1); err == nil {
		t.Error("no error, and it came back")
	}
	if err := r.Wait(0); err != nil {
		t.Error(err)
	}
}

func TestWaitForGivesUp(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		op := new(uring.Op).Timeout(time.Hour, 0)
		if err := r.Push(op); err != nil {
			t.Fatal(err)
		}
		for _, d := range []time.Duration{0, time.Millisecond} {
			if err := r.WaitFor(1, d); !errors.Is(err, uring.ErrTimeout) {
				t.Fatalf("wait of %v: %v", d, err)
			}
		}
		do2(t, r, op, new(uring.Op).Cancel(op))
		fails(t, op, unix.ECANCELED)
	})
}

// TestWaitBriefly: it gives up as WaitFor does, finds what completes, and the garbage collector
// need not wait for its end, though the runtime knows nothing of the wait.
func TestWaitBriefly(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		op := new(uring.Op).Timeout(time.Hour, 0)
		if err := r.Push(op); err != nil {
			t.Fatal(err)
		}
		if err := r.WaitBriefly(1, time.Millisecond); !errors.Is(err, uring.ErrTimeout) {
			t.Fatal(err)
		}
		var nop uring.Op
		if err := r.Push(nop.Nop()); err != nil {
			t.Fatal(err)
		}
		if err := r.WaitBriefly(1, time.Minute); err != nil || r.Next() != &nop {
			t.Fatalf("the completion that was there: %v", err)
		}
		in, out := pipe(t)
		var told uring.Op
		if err := r.Push(told.Poll(in, unix.POLLIN)); err != nil {
			t.Fatal(err)
		}
		fd, over := out.FD(), make(chan struct{})
		go func() {
			defer close(over)
			runtime.GC()
			_, _ = unix.Write(fd, []byte{1})
		}()
		if err := r.WaitBriefly(1, time.Minute); err != nil || r.Next() != &told {
			t.Fatalf("the garbage collector waits for the wait: %v", err)
		}
		<-over
		do2(t, r, op, new(uring.Op).Cancel(op))
		fails(t, op, unix.ECANCELED)
	})
}

func TestTimeouts(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		var rel, abs, wall, counted uring.Op
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		do(t, r, rel.Timeout(5*time.Millisecond, 0),
			abs.TimeoutAt(uring.Monotonic, now.Nano()+int64(6*time.Millisecond)),
			wall.TimeoutAt(uring.RealTime, start.Add(7*time.Millisecond).UnixNano()))
		if took := time.Since(start); took < 5*time.Millisecond {
			t.Errorf("three time-outs of 5 ms and more took %v", took)
		}
		for _, op := range []*uring.Op{&rel, &abs, &wall} {
			fails(t, op, unix.ETIME)
		}
		do(t, r, counted.Timeout(time.Hour, 2), new(uring.Op), new(uring.Op))
		is(t, &counted, 0)

		var later, update uring.Op
		if err := r.Push(later.Timeout(time.Hour, 0)); err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(0); err != nil {
			t.Fatal(err)
		}
		do2(t, r, &later, update.UpdateTimeout(&later, time.Millisecond))
		is(t, &update, 0)
		fails(t, &later, unix.ETIME)
	})
}

func TestTick(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotTimeout); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	r := open(t, uring.Config{})
	var tick uring.Op
	if err := r.Push(tick.Tick(time.Microsecond)); err == nil {
		t.Fatal("a tick of 1 µs was accepted")
	}
	if err := r.Push(tick.Tick(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.Wait(1); err != nil {
			t.Fatal(err)
		}
		if op := r.Next(); op != &tick || !op.More() {
			t.Fatal("the tick stopped")
		}
	}
	if err := uring.EndEach(r, &tick); err != nil {
		t.Error(err)
	}
}

// TestCancelMissesATickThatIsDue: on a ring with deferred work the kernel has taken such a tick
// from its list and not yet reported it, so the cancellation finds nothing. The probe waited for
// the end of that tick for ever, once in a hundred starts of a server on a busy machine.
func TestCancelMissesATickThatIsDue(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotTimeout); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	const every = 2 * time.Millisecond
	r := open(t, uring.Config{Locked: true})
	var tick uring.Op
	if err := r.Push(tick.Tick(every)); err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(1); err != nil {
		t.Fatal(err)
	}
	if op := r.Next(); op != &tick || !op.More() {
		t.Fatal("the tick stopped")
	}
	for due := time.Now().Add(5 * every); time.Now().Before(due); { // the next one comes due, and nobody asks the ring
	}
	ended := make(chan struct{})
	defer close(ended)
	time.AfterFunc(time.Minute, func() {
		select {
		case <-ended:
		default:
			panic("the tick was cancelled and goes on")
		}
	})
	if err := uring.EndEach(r, &tick); err != nil {
		t.Error(err)
	}
}

// Signals that interrupt a wait do not end it.
func TestWaitGoesOnAfterSignals(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid := unix.Gettid()
		stop, stopped := make(chan bool), make(chan int)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					stopped <- n
					return
				default: // SIGURG is the runtime's own, and harmless
					_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
				}
			}
		}()
		var op uring.Op
		for range 5 {
			if err := r.Push(op.Timeout(4*time.Millisecond, 0)); err != nil {
				t.Fatal(err)
			}
			if err := r.Wait(1); err != nil {
				t.Fatal(err)
			}
			if r.Next() != &op {
				t.Fatal("the wait ended before its time")
			}
			fails(t, &op, unix.ETIME)
		}
		if err := r.Push(op.Timeout(time.Hour, 0)); err != nil {
			t.Fatal(err)
		}
		if err := r.WaitFor(1, 10*time.Millisecond); !errors.Is(err, uring.ErrTimeout) {
			t.Fatal(err)
		}
		close(stop)
		t.Logf("%d signals", <-stopped)
		do2(t, r, &op, new(uring.Op).Cancel(&op))
	})
}
