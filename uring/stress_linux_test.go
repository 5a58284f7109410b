package uring_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
	"weak"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// soak is how long the random load runs; the release test is 10 minutes.
var soak = flag.Duration("soak", 2*time.Second, "time of the random load")

// load throws operations of all kinds at a ring and keeps count of them: every operation pushed
// must complete exactly once (a multishot one: end exactly once), and every byte read must be what
// was written.
type load struct {
	t     testing.TB
	r     *uring.Ring
	rng   *rand.Rand
	file  *uring.File
	in    *uring.File
	out   *uring.File
	free  []*job
	live  map[*uring.Op]*job
	ended uint64
	made  uint64
}

// job is one operation and what it should give.
type job struct {
	op    uring.Op
	buf   uring.Buffer
	block int64 // of the file; -1: nothing to check
}

const (
	blockBytes = 512
	blocks     = 256
)

func newLoad(t testing.TB, cfg uring.Config, seed uint64) *load {
	l := &load{t: t, r: open(t, cfg), rng: rand.New(rand.NewPCG(seed, 1)), live: map[*uring.Op]*job{}}
	l.file, _ = temp(t)
	l.in, l.out = pipe(t)
	b := make([]byte, blocks*blockBytes)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(i))
	}
	var op uring.Op
	do(t, l.r, op.Write(l.file, uring.Wrap(b), 0))
	is(t, &op, len(b))
	return l
}

func (l *load) push() {
	var j *job
	if n := len(l.free); n > 0 && l.rng.IntN(4) > 0 {
		j = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		j = &job{} // a fresh one, and the old one is garbage
		l.free = l.free[:max(0, len(l.free)-1)]
	}
	j.block = -1
	var err error
	switch op := &j.op; l.rng.IntN(10) {
	case 0:
		err = l.r.Push(op.Nop())
	case 1:
		err = l.r.Push(op.Timeout(time.Duration(l.rng.IntN(2000))*time.Microsecond, 0))
	case 2: // of anything in flight, for the race between an end and its cancellation
		for target := range l.live {
			op.Cancel(target)
			break
		}
		err = l.r.Push(op)
	case 3:
		err = l.r.Push(op.Poll(l.in, unix.POLLIN))
	case 4:
		err = l.r.Push(op.Fsync(l.file, true).Async())
	case 5:
		j.buf.Reset([]byte("a few bytes for the pipe"))
		err = l.r.Push(op.Read(l.in, &j.buf, uring.Current))
	case 6:
		other := &job{block: -1}
		if err = l.r.Chain(op.Poll(l.in, unix.POLLIN), other.op.LinkTimeout(time.Millisecond)); err == nil {
			l.made++
			l.live[&other.op] = other
		}
	default:
		j.block = int64(l.rng.IntN(blocks))
		j.buf.Reset(make([]byte, blockBytes))
		err = l.r.Push(op.Read(l.file, &j.buf, j.block*blockBytes))
	}
	switch {
	case err == nil:
		l.made++
		l.live[&j.op] = j
	case errors.Is(err, uring.ErrFull):
		l.cancelOne()
		l.reap(0)
	default:
		l.t.Fatal(err)
	}
}

// cancelOne makes room in a ring that is full of what may never end by itself.
func (l *load) cancelOne() {
	c := &job{block: -1}
	for target := range l.live {
		c.op.Cancel(target)
		break
	}
	if err := l.r.Push(&c.op); err != nil {
		if !errors.Is(err, uring.ErrFull) {
			l.t.Fatal(err)
		}
		return
	}
	l.made++
	l.live[&c.op] = c
}

func (l *load) reap(n int) {
	if err := l.r.WaitFor(n, 10*time.Millisecond); err != nil && !errors.Is(err, uring.ErrTimeout) {
		l.t.Fatal(err)
	}
	for op := l.r.Next(); op != nil; op = l.r.Next() {
		j := l.live[op]
		if j == nil {
			l.t.Fatalf("%v completed twice, or was never pushed", op.Code())
		}
		delete(l.live, op)
		l.ended++
		if j.block >= 0 && op.Err() == nil {
			for i, b := 0, j.buf.Bytes(); i < len(b); i += 8 {
				if got := binary.LittleEndian.Uint64(b[i:]); got != uint64(j.block*blockBytes)+uint64(i) {
					l.t.Fatalf("block %d holds %d at %d", j.block, got, i)
				}
			}
		}
		l.free = append(l.free, j)
	}
}

func (l *load) finish() {
	var cancel uring.Op
	for end := time.Now().Add(time.Minute); len(l.live) > 0; { // a sync ends when the disk has done it
		if !cancel.InFlight() {
			if err := l.r.Push(cancel.CancelAll()); err == nil {
				l.made++
				l.live[&cancel] = &job{block: -1}
			}
		}
		l.reap(len(l.live))
		if time.Now().After(end) {
			l.t.Fatalf("%d operations never ended", len(l.live))
		}
	}
	if l.made != l.ended || l.r.InFlight() != 0 {
		l.t.Fatalf("%d made, %d ended, %d in flight", l.made, l.ended, l.r.InFlight())
	}
}

// TestRandomLoad runs all kinds of operations with the collector at its busiest: no completion
// lost, none doubled.
func TestRandomLoad(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		cfg.Entries = 64
		defer debug.SetGCPercent(debug.SetGCPercent(1))
		stop, stopped := make(chan bool), make(chan bool)
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					debug.FreeOSMemory()
				}
			}
		}()
		l := newLoad(t, cfg, testenv.Seed(t))
		for end := time.Now().Add(*soak); time.Now().Before(end); {
			for range l.rng.IntN(100) {
				l.push()
			}
			l.reap(min(l.rng.IntN(2), len(l.live)))
		}
		l.finish()
		close(stop)
		<-stopped
		t.Logf("%d operations, %+v", l.made, l.r.Stats())
	})
}

// 100,000 operations that wait for what never comes, cancelled while others are: each completes
// once.
func TestManyCancelled(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	kinds(t, func(t *testing.T, cfg uring.Config) {
		cfg.Entries, cfg.InFlight = 256, 1024
		r := open(t, cfg)
		in, _ := pipe(t)
		ops, cancels := make([]uring.Op, 400), make([]uring.Op, 400)
		bufs := make([]uring.Buffer, len(ops))
		for i := range bufs {
			bufs[i].Reset(make([]byte, 8))
		}
		var cancelled, found int
		for cancelled < n {
			for i := range ops {
				if err := r.Push(ops[i].Read(in, &bufs[i], uring.Current)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range cancels {
				if err := r.Push(cancels[i].Cancel(&ops[i])); err != nil {
					t.Fatal(err)
				}
			}
			for _, op := range reap(t, r, 2*len(ops)) {
				switch {
				case op.Code() == uring.OpAsyncCancel && op.Err() == nil:
					found++
				case op.Code() == uring.OpRead:
					fails(t, op, unix.ECANCELED)
					cancelled++
				}
			}
		}
		t.Logf("%d cancelled, %d of them found in flight", cancelled, found)
	})
}

// A cancellation that comes after its target has ended, and whose number another operation may have
// by then, finds nothing.
func TestCancelOfWhatHasEnded(t *testing.T) {
	r := open(t, uring.Config{Entries: 4})
	var first, later, cancel, stop uring.Op
	if err := r.Push(first.Timeout(time.Hour, 0)); err != nil {
		t.Fatal(err)
	}
	cancel.Cancel(&first)
	do2(t, r, &first, stop.CancelAll())
	if err := errors.Join(r.Push(later.Timeout(time.Hour, 0)), r.Submit()); err != nil { // in the slot of first
		t.Fatal(err)
	}
	do(t, r, &cancel)
	fails(t, &cancel, unix.ENOENT)
	do2(t, r, &later, stop.Cancel(&later))
}

// A completion queue that overflows: the kernel keeps the rest aside, and Next fetches it.
func TestOverflow(t *testing.T) {
	needs(t, uring.OpMsgRing)
	const messages = 200
	r, sender := open(t, uring.Config{Entries: 2, InFlight: 2}), open(t, uring.Config{})
	var box, op uring.Op
	if err := r.Push(box.Mailbox()); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		do(t, sender, op.Message(box.Address(), uint32(i)))
		is(t, &op, 0)
	}
	for i := range messages {
		if r.Next() != &box {
			t.Fatalf("nothing after %d of %d messages", i, messages)
		}
		is(t, &box, i)
	}
	if s := r.Stats(); r.Next() != nil || s.Overflows == 0 {
		t.Errorf("%+v", s)
	}
}

// A multishot operation that overflows the completion queue is ended by the kernel, and says so.
func TestMultishotEndsOnOverflow(t *testing.T) {
	r := open(t, uring.Config{Entries: 2, InFlight: 2})
	in, out := pipe(t)
	var each uring.Op
	if err := errors.Join(r.Push(each.PollEach(in, unix.POLLIN)), r.Submit()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := unix.Write(out.FD(), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for op := r.Next(); op != nil; op = r.Next() {
		seen++
	}
	if seen < 2 || seen > 100 {
		t.Errorf("%d completions", seen)
	}
	t.Logf("%d completions, goes on: %v", seen, each.InFlight())
	if err := r.Shutdown(nil); err != nil {
		t.Error(err)
	}
}

// The thread that submitted ends. A plain ring goes on with the next goroutine, and each operation
// ends once; a locked one says who its owner was, and can be closed.
func TestOwnerThreadDies(t *testing.T) {
	for name, cfg := range map[string]uring.Config{"plain": {}, "locked": {Locked: true}} {
		t.Run(name, func(t *testing.T) {
			if err := uring.Probe().Has(uring.Rings); err != nil {
				t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			}
			in, out := pipe(t)
			ops, bufs := make([]uring.Op, 16), make([]uring.Buffer, 16)
			r, err := submitAndDie(cfg, func(r *uring.Ring) (err error) {
				for i := range ops {
					bufs[i].Reset(make([]byte, 8))
					err = errors.Join(err, r.Push(ops[i].Read(in, &bufs[i], uring.Current)))
				}
				return errors.Join(err, r.Submit())
			})
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Locked {
				if err := r.WaitFor(1, time.Millisecond); !errors.Is(err, uring.ErrOwner) {
					t.Errorf("wait after the owner's death: %v", err)
				}
				if err := r.Shutdown(nil); !errors.Is(err, uring.ErrOwner) {
					t.Errorf("shutdown after the owner's death: %v", err)
				}
				return
			}
			// would end the first, were its thread alive
			if _, err := unix.Write(out.FD(), make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			seen := map[*uring.Op]int{}
			var cancel uring.Op
			for len(seen) < len(ops)+1 {
				if err := r.WaitFor(1, time.Minute); err != nil {
					t.Fatal(err)
				}
				for op := r.Next(); op != nil; op = r.Next() {
					if seen[op]++; op != &cancel {
						fails(t, op, unix.ECANCELED)
					}
				}
				if seen[&cancel] == 0 && !cancel.InFlight() {
					if err := r.Push(cancel.CancelAll()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if r.InFlight() != 0 {
				t.Errorf("%d in flight", r.InFlight())
			}
			do(t, r, new(uring.Op))
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// submitAndDie makes a ring and uses it on a thread that has ended when it returns.
func submitAndDie(cfg uring.Config, use func(*uring.Ring) error) (*uring.Ring, error) {
	var (
		r   *uring.Ring
		err error
	)
	tid := os.Getpid()
	for tid == os.Getpid() { // the process's first thread never ends: it is only parked
		done := make(chan bool)
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if tid = unix.Gettid(); tid == os.Getpid() {
				return
			}
			if r, err = uring.New(cfg); err == nil {
				err = use(r)
			}
		}()
		<-done
	}
	for unix.Tgkill(os.Getpid(), tid, 0) == nil {
		runtime.Gosched()
	}
	return r, err
}

// A completion with a user_data that no operation has must be reported. Only another process's bug
// or our own could make one, so the test takes the back door that rings have: a message to an
// address that is no longer valid.
func TestStrayCompletionIsReported(t *testing.T) {
	needs(t, uring.OpMsgRing)
	r, err := uring.New(uring.Config{Entries: 4})
	if err != nil {
		t.Fatal(err)
	}
	sender := open(t, uring.Config{Entries: 4})
	var box, op uring.Op
	if err := r.Push(box.Mailbox()); err != nil {
		t.Fatal(err)
	}
	to := uring.AddressOf(box.Address(), 12345)
	do(t, sender, op.Message(to, 1))
	is(t, &op, 0)
	if err := r.Wait(0); err != nil {
		t.Fatal(err)
	}
	if got := r.Next(); got != nil {
		t.Fatal("it was taken for an operation's")
	}
	if err := r.Wait(0); !errors.Is(err, uring.ErrStray) {
		t.Errorf("wait: %v", err)
	}
	if err := r.Close(); !errors.Is(err, uring.ErrStray) {
		t.Errorf("close: %v", err)
	}
}

// A ring that its owner forgets is kept, since the kernel may write to what its operations point
// to.
func TestForgottenRingIsNotCollected(t *testing.T) {
	if err := uring.Probe().Has(uring.Rings); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	in, _ := pipe(t)
	forget := func() weak.Pointer[uring.Ring] {
		r, err := uring.New(uring.Config{Entries: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Push(new(uring.Op).Read(in, uring.Wrap(make([]byte, 64)), uring.Current)),
			r.Submit()); err != nil {
			t.Fatal(err)
		}
		return weak.Make(r)
	}
	w := forget()
	runtime.GC()
	runtime.GC()
	r := w.Value()
	if r == nil {
		t.Fatal("collected with an operation in flight")
	}
	if err := r.Shutdown(nil); err != nil {
		t.Fatal(err)
	}
	r = nil
	runtime.GC()
	runtime.GC()
	if w.Value() != nil {
		t.Error("kept after it was closed")
	}
}

// Pipes of Go do not block; a read through a ring waits all the same.
func TestReadOfAPipeThatDoesNotBlock(t *testing.T) {
	r := open(t, uring.Config{})
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	f, err := uring.FileOf(pr)
	if err != nil {
		t.Fatal(err)
	}
	buf := uring.Wrap(make([]byte, 8))
	var op uring.Op
	if err := errors.Join(r.Push(op.Read(f, buf, uring.Current)), r.Submit()); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitFor(1, 5*time.Millisecond); !errors.Is(err, uring.ErrTimeout) {
		r.Next()
		if errors.Is(op.Err(), unix.EAGAIN) {
			t.Skip("SKIPPED: this kernel does not wait for files that do not block; a later one does")
		}
		t.Fatal(err, op.Res)
	}
	if _, err := pw.WriteString("late"); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 1)
	is(t, &op, 4)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// The package must link and work in a stock static build.
func TestStaticBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a build takes long; run without -short")
	}
	c := exec.Command("go", "test", "-c", "-o", os.DevNull, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
