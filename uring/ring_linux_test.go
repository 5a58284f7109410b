package uring_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// open makes a ring that the test closes, or skips the test where io_uring is refused.
func open(t testing.TB, cfg uring.Config) *uring.Ring {
	t.Helper()
	if err := uring.Probe().Has(uring.Rings); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	if cfg.Locked {
		runtime.LockOSThread()
		t.Cleanup(runtime.UnlockOSThread)
	}
	r, err := uring.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !errors.Is(err, uring.ErrClosed) {
			t.Error(err)
		}
	})
	return r
}

// kinds runs a test on each kind of ring.
func kinds(t *testing.T, test func(t *testing.T, cfg uring.Config)) {
	for name, cfg := range map[string]uring.Config{
		"plain": {}, "locked": {Locked: true}, "registered": {Locked: true, RegisterRing: true},
		"sqpoll": {SQPoll: true, SQPollIdle: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { test(t, cfg) })
	}
}

// needs skips the test where the kernel lacks an operation.
func needs(t testing.TB, codes ...uring.Opcode) {
	t.Helper()
	for _, c := range codes {
		if err := uring.Probe().HasOp(c); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
}

// do runs operations to their last completion and checks that each completed once.
func do(t testing.TB, r *uring.Ring, ops ...*uring.Op) {
	t.Helper()
	for _, op := range ops {
		if err := r.Push(op); err != nil {
			t.Fatal(err)
		}
	}
	reap(t, r, len(ops))
}

// reap takes exactly n completions.
func reap(t testing.TB, r *uring.Ring, n int) (all []*uring.Op) {
	t.Helper()
	for len(all) < n {
		if err := r.WaitFor(1, time.Minute); err != nil {
			t.Fatalf("after %d of %d completions: %v", len(all), n, err)
		}
		for op := r.Next(); op != nil; op = r.Next() {
			all = append(all, op)
		}
	}
	if len(all) != n {
		t.Fatalf("%d completions, want %d", len(all), n)
	}
	return all
}

func is(t testing.TB, op *uring.Op, want int) {
	t.Helper()
	if n, err := op.Result(); err != nil || n != want {
		t.Fatalf("%v: %d, %v; want %d", op.Code(), n, err, want)
	}
}

func fails(t testing.TB, op *uring.Op, want syscall.Errno) {
	t.Helper()
	if !errors.Is(op.Err(), want) {
		t.Fatalf("%v: %d; want %v", op.Code(), op.Res, want)
	}
}

func TestNop(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		cfg.Entries = 4
		r := open(t, cfg)
		ops := make([]uring.Op, r.Depth())
		for round := range 200 {
			for i := range ops {
				ops[i].Tag = uint64(i)
				if err := r.Push(&ops[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Push(new(uring.Op)); !errors.Is(err, uring.ErrFull) {
				t.Fatalf("more than the ring holds: %v", err)
			}
			seen := map[uint64]bool{}
			for _, op := range reap(t, r, len(ops)) {
				is(t, op, 0)
				seen[op.Tag] = true
			}
			if len(seen) != len(ops) || r.InFlight() != 0 {
				t.Fatalf("round %d: %d operations seen, %d in flight", round, len(seen), r.InFlight())
			}
		}
		if s := r.Stats(); s.Completed != uint64(200*len(ops)) || s.Submitted != s.Completed || s.Strays != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestModeOfTheRing(t *testing.T) {
	r := open(t, uring.Config{Locked: true})
	if uring.Probe().Has(uring.DeferTaskrun) == nil && !strings.Contains(r.Mode(), "deferred") {
		t.Errorf("locked ring: %s", r.Mode())
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []uring.Config{
		{Entries: -1},
		{Entries: 1 << 20},
		{InFlight: -1},
		{SQPollCPU: 1},
		{RegisterRing: true},
		{SQPoll: true, SQPollCPU: -1},
		{SQPoll: true, SQPollIdle: -1},
		{SQPollIdle: time.Second},
		{SQPoll: true, SQPollIdle: 1 << 62},
	} {
		if r, err := uring.New(cfg); err == nil {
			r.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestPollingThreadOnOneCPU(t *testing.T) {
	r := open(t, uring.Config{SQPoll: true, SQPollCPU: 1})
	do(t, r, new(uring.Op))
}

func TestTheSameOperationTwice(t *testing.T) {
	r := open(t, uring.Config{})
	var op uring.Op
	if err := r.Push(&op); err != nil {
		t.Fatal(err)
	}
	if err := r.Push(&op); !errors.Is(err, uring.ErrBusy) {
		t.Errorf("second push: %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("an operation in flight was filled anew")
			}
		}()
		op.Nop()
	}()
	reap(t, r, 1)
	do(t, r, &op)
}

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

// do2 pushes the second operation and reaps both.
func do2(t testing.TB, r *uring.Ring, _, second *uring.Op) {
	t.Helper()
	if err := r.Push(second); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 2)
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
		t.Skipf("SKIPPED: %v", err)
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
		t.Skipf("SKIPPED: %v", err)
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

func TestChain(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		cfg.Entries = 8
		r := open(t, cfg)
		chain := func(push func(...*uring.Op) error, failAt int) []*uring.Op {
			ops := make([]*uring.Op, 4)
			bad, err := uring.NewFile(1<<20), error(nil)
			for i := range ops {
				ops[i] = new(uring.Op).Nop()
				if i == failAt {
					ops[i].Fsync(bad, false)
				}
			}
			if err = push(ops...); err != nil {
				t.Fatal(err)
			}
			reap(t, r, len(ops))
			return ops
		}
		for fail := range 4 {
			soft, hard := chain(r.Chain, fail), chain(r.HardChain, fail)
			for i := range 4 {
				switch {
				case i == fail:
					fails(t, soft[i], unix.EBADF)
				case i > fail:
					fails(t, soft[i], unix.ECANCELED)
				default:
					is(t, soft[i], 0)
				}
				// a descriptor that is bad is found before the chain starts when it is the head
				if i != fail && fail > 0 {
					is(t, hard[i], 0)
				}
			}
		}
		long := make([]*uring.Op, 9)
		for i := range long {
			long[i] = new(uring.Op)
		}
		few := open(t, uring.Config{Entries: 16, InFlight: 8})
		// no waiting helps, as against ErrFull
		for what, r := range map[string]*uring.Ring{"the queue": r, "what can be in flight": few} {
			if err := r.Chain(long...); !errors.Is(err, uring.ErrTooLong) || errors.Is(err, uring.ErrFull) ||
				r.InFlight() != 0 {
				t.Errorf("a chain longer than %s: %v", what, err)
			}
		}
		if err := few.Chain(long[:8]...); err != nil {
			t.Errorf("a chain as long as what can be in flight: %v", err)
		}
		reap(t, few, 8)
		if err := r.Chain(long[0], long[1], long[0]); !errors.Is(err, uring.ErrBusy) || r.InFlight() != 0 {
			t.Errorf("a chain with one operation twice: %v, %d in flight", err, r.InFlight())
		}
	})
}

func TestLinkTimeout(t *testing.T) {
	r := open(t, uring.Config{})
	a, _ := pipe(t)
	buf := uring.Wrap(make([]byte, 8))
	var read, limit uring.Op
	if err := r.Chain(read.Read(a, buf, uring.Current), limit.LinkTimeout(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 2)
	fails(t, &read, unix.ECANCELED)
	fails(t, &limit, unix.ETIME)
}

func TestDrainWaitsForTheOthers(t *testing.T) {
	r := open(t, uring.Config{})
	var slow, after uring.Op
	for _, op := range []*uring.Op{slow.Timeout(3*time.Millisecond, 0), after.Nop().Drain()} {
		if err := r.Push(op); err != nil {
			t.Fatal(err)
		}
	}
	if order := reap(t, r, 2); order[0] != &slow {
		t.Error("the operation that drains came first")
	}
}

func TestMailbox(t *testing.T) {
	needs(t, uring.OpMsgRing)
	r := open(t, uring.Config{})
	var box uring.Op
	if err := r.Push(box.Mailbox()); err != nil {
		t.Fatal(err)
	}
	to := box.Address()
	sent := make(chan error)
	go func() {
		other, err := uring.New(uring.Config{Entries: 4})
		if err != nil {
			sent <- err
			return
		}
		var op uring.Op
		for i := range 3 {
			err = errors.Join(err, other.Push(op.Message(to, uint32(i))), other.Wait(1))
			if other.Next() != &op || op.Res != 0 {
				err = errors.Join(err, op.Err(), errors.New("message was not sent"))
			}
		}
		sent <- errors.Join(err, other.Close())
	}()
	for i := range 3 {
		if err := r.WaitFor(1, time.Minute); err != nil {
			t.Fatal(err)
		}
		op := r.Next()
		if op != &box || !op.More() {
			t.Fatal("not the mailbox")
		}
		is(t, op, i)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestFutex(t *testing.T) {
	needs(t, uring.OpFutexWait, uring.OpFutexWake)
	r := open(t, uring.Config{})
	word := new(uint32)
	var wait, wrong, wake uring.Op
	do(t, r, wrong.FutexWait(word, 7))
	fails(t, &wrong, unix.EAGAIN)
	if err := r.Push(wait.FutexWait(word, 0)); err != nil {
		t.Fatal(err)
	}
	if err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	do2(t, r, &wait, wake.FutexWake(word, 1))
	is(t, &wait, 0)
	is(t, &wake, 1)
}

func TestCloseReportsWhatNobodyWaitedFor(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		a, _ := pipe(t)
		buf := uring.Wrap(make([]byte, 8))
		var read, done uring.Op
		if err := errors.Join(r.Push(read.Read(a, buf, uring.Current)), r.Push(&done), r.Wait(1)); err != nil {
			t.Fatal(err)
		}
		err := r.Close()
		if !errors.Is(err, uring.ErrUnreaped) || !strings.Contains(err.Error(), "2 operations") {
			t.Errorf("close: %v", err)
		}
		if read.InFlight() || done.InFlight() || buf.InFlight() {
			t.Error("still in flight after close")
		}
		fails(t, &read, unix.ECANCELED)
		if err := r.Push(&done); !errors.Is(err, uring.ErrClosed) {
			t.Errorf("push on a closed ring: %v", err)
		}
		for _, err := range []error{r.Submit(), r.Wait(0), r.Wait(1), r.Shutdown(nil), r.RegisterFiles(1)} {
			if err == nil {
				t.Error("a closed ring works")
			}
		}
		if r.Next() != nil {
			t.Error("a completion after close")
		}
	})
}

func TestShutdownHandsOverWhatIsLeft(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		var queued, sleeping uring.Op
		if err := errors.Join(r.Push(sleeping.Timeout(time.Hour, 0)), r.Submit(), r.Push(&queued)); err != nil {
			t.Fatal(err)
		}
		seen := map[*uring.Op]int{}
		if err := r.Shutdown(func(op *uring.Op) { seen[op]++ }); err != nil {
			t.Fatal(err)
		}
		if seen[&queued] != 1 || seen[&sleeping] != 1 || len(seen) != 2 {
			t.Errorf("handed over: %v", seen)
		}
		fails(t, &sleeping, unix.ECANCELED)
	})
}

func TestAnotherThreadIsRefused(t *testing.T) {
	r := open(t, uring.Config{Locked: true})
	if !strings.Contains(r.Mode(), "single issuer") {
		t.Skipf("SKIPPED: this kernel does not bind a ring to a thread: %s; Linux 6.0 or later does", r.Mode())
	}
	if err := r.Push(new(uring.Op)); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error)
	go func() { // this goroutine runs elsewhere: the test's is locked to its thread
		answer <- r.Submit()
	}()
	if err := <-answer; !errors.Is(err, uring.ErrOwner) {
		t.Errorf("submit from another thread: %v", err)
	}
	reap(t, r, 1)
}

func TestProbeIsConsistent(t *testing.T) {
	s := uring.Probe()
	for _, f := range s.Features() {
		var fe *uring.FeatureError
		if err := s.Has(f); err != nil && !errors.As(err, &fe) {
			t.Errorf("%s: %v", f, err)
		}
	}
	if s.Has("telepathy") == nil || s.HasOp(99) == nil {
		t.Error("what nobody knows is there")
	}
	if !strings.Contains(s.String(), "io_uring") {
		t.Errorf("table:\n%s", s)
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

// Polled completion is for devices that can; others say so for each operation.
func TestPolledCompletion(t *testing.T) {
	r := open(t, uring.Config{IOPoll: true})
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Skipf("SKIPPED: O_DIRECT: %v; let TMPDIR be on a disk", err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	file, err := uring.FileOf(f)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a, err := uring.NewArena(1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var op uring.Op
	do(t, r, op.Read(file, a.Buffer(0), 0))
	if err := op.Err(); err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		t.Error(op.Result())
	}
	t.Logf("result %d", op.Res)
}
