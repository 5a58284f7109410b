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
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
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
			t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
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

// do2 pushes the second operation and reaps both.
func do2(t testing.TB, r *uring.Ring, _, second *uring.Op) {
	t.Helper()
	if err := r.Push(second); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 2)
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
