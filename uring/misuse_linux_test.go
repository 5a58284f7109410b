package uring_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// What a program does wrong is an error or a panic that says so: never memory or a descriptor of
// somebody else.

func panics(t testing.TB, what string, f func()) {
	t.Helper()
	defer func() {
		p, ok := recover().(string)
		if !ok || !strings.HasPrefix(p, "uring: ") {
			t.Errorf("%s: panic %v", what, p)
		}
	}()
	f()
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

// hangs ends the process if the test does not end.
func hangs(t testing.TB, what string) {
	late := time.AfterFunc(time.Minute, func() { panic(what) })
	t.Cleanup(func() { late.Stop() })
}

// TestMessageToAClosedRing: the number of a closed ring is the next ring's, and the slots of both
// began with the same names, so that a message to the first completed a read of the second, whose
// buffer the kernel wrote after it had been given back.
func TestMessageToAClosedRing(t *testing.T) {
	needs(t, uring.OpMsgRing)
	sender, first := open(t, uring.Config{}), open(t, uring.Config{})
	var box, read, op uring.Op
	if err := first.Push(box.Mailbox()); err != nil {
		t.Fatal(err)
	}
	to := box.Address()
	if err := first.Shutdown(nil); err != nil {
		t.Fatal(err)
	}
	second := open(t, uring.Config{})
	in, out := pipe(t)
	buf := uring.Wrap(make([]byte, 4))
	if err := errors.Join(second.Push(read.Read(in, buf, uring.Current)), second.Submit()); err != nil {
		t.Fatal(err)
	}
	if err := sender.Push(op.Message(to, 7)); !errors.Is(err, uring.ErrClosed) {
		t.Errorf("a message to a closed ring: %v", err)
		reap(t, sender, 1)
	}
	if err := second.Wait(0); err != nil || second.Next() != nil {
		t.Fatalf("a message to the ring before completed an operation, or: %v", err)
	}
	if _, err := unix.Write(out.FD(), []byte("data")); err != nil {
		t.Fatal(err)
	}
	reap(t, second, 1)
	is(t, &read, 4)
}

// A message that is on its way when the ring is closed keeps the ring's number from the next ring.
func TestMessageOnItsWayToARingThatCloses(t *testing.T) {
	needs(t, uring.OpMsgRing)
	sender, first := open(t, uring.Config{}), open(t, uring.Config{})
	var box, op uring.Op
	if err := first.Push(box.Mailbox()); err != nil {
		t.Fatal(err)
	}
	fd := uring.FDOf(first)
	if err := errors.Join(sender.Push(op.Message(box.Address(), 7)), first.Shutdown(nil)); err != nil {
		t.Fatal(err)
	}
	if second := open(t, uring.Config{}); uring.FDOf(second) == fd {
		t.Fatal("the next ring has the number that a message is on its way to")
	}
	reap(t, sender, 1)
	if isOpen(fd) {
		t.Error("the ring's descriptor stays open")
	}
}

// Messages that nobody has seen are handed over by Shutdown: they were told to be strays, a bug.
func TestShutdownHandsOverMessages(t *testing.T) {
	needs(t, uring.OpMsgRing)
	sender, r := open(t, uring.Config{}), open(t, uring.Config{})
	var box, op uring.Op
	if err := r.Push(box.Mailbox()); err != nil {
		t.Fatal(err)
	}
	do(t, sender, op.Message(box.Address(), 7))
	seen := 0
	if err := r.Shutdown(func(op *uring.Op) { seen += int(op.Res) }); err != nil || seen != 7 {
		t.Errorf("%v, %d", err, seen)
	}
	if box.InFlight() {
		t.Error("the mailbox is in flight")
	}
}

// The operations of two rings began with the same names: to cancel one on the other ring ended a
// stranger.
func TestCancelOnAnotherRing(t *testing.T) {
	a, b := open(t, uring.Config{}), open(t, uring.Config{})
	var opA, opB, cancel, stop uring.Op
	if err := errors.Join(a.Push(opA.Timeout(time.Hour, 0)), a.Submit(), b.Push(opB.Timeout(time.Hour, 0)),
		b.Submit()); err != nil {
		t.Fatal(err)
	}
	for _, fill := range []func() *uring.Op{
		func() *uring.Op { return cancel.Cancel(&opA) },
		func() *uring.Op { return cancel.UpdateTimeout(&opA, 0) },
	} {
		if err := b.Push(fill()); err == nil {
			t.Errorf("%v of another ring's operation is taken", cancel.Code())
			reap(t, b, 1)
		}
	}
	if err := b.Wait(0); err != nil || b.Next() != nil || !opB.InFlight() {
		t.Fatalf("a stranger ended, or: %v", err)
	}
	do2(t, a, &opA, stop.Cancel(&opA))
	do2(t, b, &opB, stop.Cancel(&opB))
}

// Cancel may be filled before its target is pushed.
func TestCancelFilledBeforeItsTargetIsPushed(t *testing.T) {
	r := open(t, uring.Config{})
	var target, cancel uring.Op
	cancel.Cancel(target.Timeout(time.Hour, 0))
	if err := r.Push(&target); err != nil {
		t.Fatal(err)
	}
	do2(t, r, &target, &cancel)
	is(t, &cancel, 0)
	fails(t, &target, unix.ECANCELED)
}

func TestUpdateOfALinkTimeout(t *testing.T) {
	r := open(t, uring.Config{})
	in, _ := pipe(t)
	var poll, limit, update uring.Op
	if err := errors.Join(r.Chain(poll.Poll(in, unix.POLLIN), limit.LinkTimeout(time.Hour)), r.Submit()); err != nil {
		t.Fatal(err)
	}
	do(t, r, update.UpdateTimeout(&limit, time.Millisecond))
	is(t, &update, 0)
	reap(t, r, 2)
	fails(t, &poll, unix.ECANCELED)
}

// TestPartOfABufferThatShrank: 4,096 bytes were read into 16.
func TestPartOfABufferThatShrank(t *testing.T) {
	r := open(t, uring.Config{})
	f, _ := temp(t)
	var op uring.Op
	do(t, r, op.Write(f, uring.Wrap(bytes.Repeat([]byte{0xff}, 8192)), 0))
	mem := make([]byte, 8192)
	b := uring.Wrap(mem)
	op.Read(f, b, 0).Part(0, 4096)
	for range 2 {
		b.Reset(mem[:16:16])
		if err := r.Push(&op); err == nil {
			t.Error("a part beyond the end is taken")
			reap(t, r, 1)
		}
		if bytes.Contains(mem[16:], []byte{0xff}) {
			t.Fatal("written beyond the buffer")
		}
		b.Reset(mem[:4096]) // and the second time after it was done once
		do(t, r, &op)
		is(t, &op, 4096)
		clear(mem)
	}
	do(t, r, op.Read(f, b, 0))
	b.Reset(mem[:16:16])
	clear(mem)
	do(t, r, &op)
	is(t, &op, 16)
	if bytes.Contains(mem[16:], []byte{0xff}) {
		t.Fatal("written beyond the buffer")
	}
}

// The length of an entry has 32 bits: a read of 4 GiB was one of 0 bytes, which is the end of the
// file.
func TestReadOfFourGiB(t *testing.T) {
	most := int64(math.MaxInt)
	if most < 1<<32 {
		t.Skip("SKIPPED: 4 GiB are more than this machine can address; run on a 64-bit one")
	}
	r := open(t, uring.Config{})
	mem, err := unix.Mmap(-1, 0, int(min(most, 1<<32)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("SKIPPED: 4 GiB of addresses: %v; raise ulimit -v", err)
	}
	defer unix.Munmap(mem)
	f, _ := temp(t)
	var op uring.Op
	do(t, r, op.Write(f, uring.Wrap([]byte("some bytes")), 0))
	do(t, r, op.Read(f, uring.Mapped(mem), 0))
	is(t, &op, 10)
}

// TestCloseEndsATickThatIsDue: one cancellation misses what is between two lists of the kernel. A
// tick that has come due is there for certain; a read on its way to a worker thread was there now
// and then, and Close waited 10 s and kept its memory.
func TestCloseEndsATickThatIsDue(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotTimeout); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	hangs(t, "close does not end")
	const every = 2 * time.Millisecond
	r := open(t, uring.Config{Locked: true})
	var tick uring.Op
	if err := errors.Join(r.Push(tick.Tick(every)), r.Wait(1)); err != nil {
		t.Fatal(err)
	}
	for due := time.Now().Add(5 * every); time.Now().Before(due); { // the next one comes due, and nobody asks the ring
	}
	if err := r.Shutdown(nil); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsReadsOnTheirWayToAWorker(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 100
	}
	hangs(t, "close does not end")
	in, _ := pipe(t)
	for range n {
		r := open(t, uring.Config{Entries: 4})
		ops := make([]uring.Op, 4)
		for i := range ops {
			if err := r.Push(ops[i].Read(in, uring.Wrap(make([]byte, 8)), uring.Current).Async()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(r.Submit(), r.Shutdown(nil)); err != nil {
			t.Fatal(err)
		}
	}
}

// Filling a second time, adjusting and emptying while the kernel has it.
func TestOperationInFlightIsOutOfReach(t *testing.T) {
	r := open(t, uring.Config{})
	in, out := pipe(t)
	one, two := uring.Wrap(make([]byte, 2)), uring.Wrap(make([]byte, 2))
	var op uring.Op
	if err := errors.Join(r.Push(op.Readv(in, uring.Current, one, two)), r.Submit()); err != nil {
		t.Fatal(err)
	}
	for name, touch := range map[string]func(){
		"Reset": op.Reset, "Drain": func() { op.Drain() }, "Async": func() { op.Async() },
		"WaitAll":  func() { op.WaitAll() },
		"Followed": func() { op.Followed() }, "Direct": func() { op.Direct() }, "Part": func() { op.Part(0, 0) },
		"NonBlocking": func() { op.NonBlocking() },
	} {
		panics(t, name, touch)
	}
	if _, err := unix.Write(out.FD(), []byte("data")); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 1)
	is(t, &op, 4)
	if string(one.Bytes())+string(two.Bytes()) != "data" {
		t.Errorf("%q %q", one.Bytes(), two.Bytes())
	}
}

// A copy of an operation had the memory that the kernel reads in common with the original.
func TestCopiesAreOperationsOfTheirOwn(t *testing.T) {
	r := open(t, uring.Config{})
	f, _ := temp(t)
	bufs := [2]*uring.Buffer{uring.Wrap(make([]byte, 3)), uring.Wrap(make([]byte, 3))}
	var op uring.Op
	do(t, r, op.Write(f, uring.Wrap([]byte("onetwo")), 0))
	op.Readv(f, 0, bufs[0])
	ops := [2]uring.Op{op, op}
	if err := r.Push(&ops[0]); err == nil {
		t.Error("a copy is pushed as it was filled elsewhere")
		reap(t, r, 1)
	}
	for i := range ops {
		if err := r.Push(ops[i].Readv(f, int64(3*i), bufs[i])); err != nil {
			t.Fatal(err)
		}
	}
	reap(t, r, 2)
	if string(bufs[0].Bytes())+string(bufs[1].Bytes()) != "onetwo" {
		t.Errorf("%q %q", bufs[0].Bytes(), bufs[1].Bytes())
	}
}

func TestOneBufferTwice(t *testing.T) {
	r := open(t, uring.Config{})
	f, _ := temp(t)
	b, other := uring.Wrap([]byte("ab")), uring.Wrap(make([]byte, 2))
	var op uring.Op
	do(t, r, op.Writev(f, 0, b, b))
	is(t, &op, 4)
	for _, fill := range []func() *uring.Op{
		func() *uring.Op { return op.Readv(f, 0, other, b, b) },
		func() *uring.Op { return op.RecvMsg(f, nil, b, other, b) },
	} {
		if err := r.Push(fill()); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("%v into one buffer twice: %v", op.Code(), err)
			reap(t, r, 1)
		}
		if b.InFlight() || other.InFlight() {
			t.Fatal("a buffer that was refused is in flight")
		}
	}
}

func TestNothingGiven(t *testing.T) {
	r := open(t, uring.Config{})
	f, _ := temp(t)
	b := uring.Wrap(make([]byte, 1))
	if err := r.Push(nil); err == nil {
		t.Error("no operation is taken")
	}
	if err := r.Chain(new(uring.Op), nil); err == nil || r.InFlight() > 0 {
		t.Error("no operation is taken")
	}
	for name, fill := range map[string]func(*uring.Op) *uring.Op{
		"Read":           func(o *uring.Op) *uring.Op { return o.Read(f, nil, 0) },
		"Write":          func(o *uring.Op) *uring.Op { return o.Write(f, nil, 0) },
		"Read from":      func(o *uring.Op) *uring.Op { return o.Read(nil, b, 0) },
		"Readv":          func(o *uring.Op) *uring.Op { return o.Readv(f, 0, b, nil) },
		"Readv of":       func(o *uring.Op) *uring.Op { return o.Readv(nil, 0, b) },
		"Send":           func(o *uring.Op) *uring.Op { return o.Send(f, nil) },
		"Recv":           func(o *uring.Op) *uring.Op { return o.Recv(f, nil) },
		"RecvFrom":       func(o *uring.Op) *uring.Op { return o.RecvFrom(f, nil) },
		"Cancel":         func(o *uring.Op) *uring.Op { return o.Cancel(nil) },
		"UpdateTimeout":  func(o *uring.Op) *uring.Op { return o.UpdateTimeout(nil, 1) },
		"CancelFile":     func(o *uring.Op) *uring.Op { return o.CancelFile(nil) },
		"CloseFile":      func(o *uring.Op) *uring.Op { return o.CloseFile(nil) },
		"Splice":         func(o *uring.Op) *uring.Op { return o.Splice(nil, 0, f, 0, 1) },
		"Install":        func(o *uring.Op) *uring.Op { return o.Install(nil) },
		"Message":        func(o *uring.Op) *uring.Op { return o.Message(uring.Address{}, 1) },
		"FutexWait":      func(o *uring.Op) *uring.Op { return o.FutexWait(nil, 0) },
		"a File of zero": func(o *uring.Op) *uring.Op { return o.Fsync(new(uring.File), false) },
		"SendZeroCopy":   func(o *uring.Op) *uring.Op { return o.SendZeroCopy(f, nil) },
		"Splice of":      func(o *uring.Op) *uring.Op { return o.Splice(f, 0, f, 0, -1) },
	} {
		if err := r.Push(fill(new(uring.Op))); err == nil || !strings.HasPrefix(err.Error(), "uring: ") {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	for _, err := range []error{r.Wait(1), r.WaitFor(1, time.Hour)} {
		if !errors.Is(err, uring.ErrIdle) {
			t.Errorf("a wait for nothing: %v", err)
		}
	}
	if err := new(uring.File).Close(); !errors.Is(err, uring.ErrClosed) {
		t.Errorf("closing no file: %v", err)
	}
	if _, err := uring.FileOf(nil); err == nil {
		t.Error("the file of nothing")
	}
	if err := r.RegisterArena(nil); err == nil {
		t.Error("no arena is registered")
	}
}

func TestMailboxInAChain(t *testing.T) {
	r := open(t, uring.Config{})
	var box, fsync uring.Op
	f, _ := temp(t)
	if err := r.Chain(fsync.Fsync(f, true), box.Mailbox()); err == nil || r.InFlight() > 0 {
		t.Errorf("%v, %d in flight", err, r.InFlight())
		return
	}
	do(t, r, &fsync)
}

func TestBytesOfAClosedArena(t *testing.T) {
	a, err := uring.NewArena(2, 4096)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Buffer(1)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Len() != 0 || len(b.Bytes()) != 0 {
		t.Fatal("a buffer of a closed arena has bytes")
	}
	if r := open(t, uring.Config{}); !errors.Is(r.RegisterArena(a), uring.ErrClosed) {
		t.Error("a closed arena is registered")
	}
}

// A descriptor has one owner: who asks twice, too early or the wrong operation gets none.
func TestOneFileForEachDescriptor(t *testing.T) {
	r := open(t, uring.Config{})
	path := filepath.Join(t.TempDir(), "new")
	var op uring.Op
	op.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	if f, err := op.NewFile(r); err == nil {
		t.Fatalf("descriptor %d before anything is open", f.FD())
	}
	do(t, r, &op)
	f, err := op.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := op.NewFile(r); err == nil {
		t.Fatalf("a second owner of descriptor %d", f.FD())
	}
	var write uring.Op
	do(t, r, write.Write(f, uring.Wrap(make([]byte, 1)), 0))
	if f, err := write.NewFile(r); err == nil {
		t.Fatalf("a write makes descriptor %d", f.FD())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClosingTwice: an operation that is pushed again closed the number that its file had, and that
// was another file's by then; so did one whose file was closed between filling and pushing.
func TestClosingTwice(t *testing.T) {
	r := open(t, uring.Config{})
	first, _ := pipe(t)
	fd := first.FD()
	var op uring.Op
	do(t, r, op.CloseFile(first))
	second, err := unix.FcntlInt(uintptr(uring.FDOf(r)), unix.F_DUPFD_CLOEXEC, fd)
	if err != nil {
		t.Fatal(err)
	}
	f := uring.NewFile(second)
	if err := r.Push(&op); !errors.Is(err, uring.ErrClosed) {
		t.Errorf("closing again: %v", err)
		reap(t, r, 1)
	}
	if !isOpen(second) {
		t.Fatal("a stranger was closed")
	}
	op.CloseFile(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Push(&op); !errors.Is(err, uring.ErrClosed) {
		t.Errorf("closing what is closed: %v", err)
		reap(t, r, 1)
	}
}

// Install leaves the slot where the descriptor was: pushed again it installed a stranger.
func TestInstallTwice(t *testing.T) {
	if err := uring.Probe().Has(uring.DirectDescriptors); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	r, other := open(t, uring.Config{}), open(t, uring.Config{})
	if err := r.RegisterFiles(4); err != nil {
		t.Fatal(err)
	}
	if err := r.RegisterFiles(4); !errors.Is(err, uring.ErrBusy) || errors.Is(err, uring.ErrFull) {
		t.Errorf("a second table: %v", err)
	}
	f, path := temp(t)
	var op, write uring.Op
	op.Install(f)
	for i := range 2 {
		do(t, r, &op)
		is(t, &op, 1)
		if _, err := op.NewFile(other); err == nil {
			t.Error("a slot of another ring")
		}
		d, err := op.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		do(t, r, write.Write(d, uring.Wrap([]byte("ab")[i:i+1]), int64(i)))
		is(t, &write, 1)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "ab" {
		t.Errorf("%q, %v", b, err)
	}
}

// Files that nobody has any more give their descriptors back, as those of package os do.
func TestForgottenFilesAreClosed(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fds := make([]int, 200)
	for i := range fds {
		u, err := uring.FileOf(f)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = u.FD()
	}
	testenv.Until(t, time.Minute, "the descriptors are closed", func() bool {
		runtime.GC()
		for _, fd := range fds {
			if isOpen(fd) {
				return false
			}
		}
		return true
	})
}

// … but one that is closed closes nothing later, nor does one that an operation has.
func TestClosedFilesAreNotClosedAgain(t *testing.T) {
	r := open(t, uring.Config{})
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 100 {
		var op uring.Op
		a, errA := uring.FileOf(f)
		b, errB := uring.FileOf(f)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		fds := [2]int{a.FD(), b.FD()}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			do(t, r, op.CloseFile(b))
		} else { // by a ring that ends before it has submitted that
			short := open(t, uring.Config{})
			if err := errors.Join(short.Push(op.CloseFile(b)), short.Shutdown(nil)); err != nil {
				t.Fatal(err)
			}
		}
		op.Reset() // it has b no more
		var again [2]int
		for i := range again {
			if again[i], err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, fds[i]); err != nil {
				t.Fatal(err)
			}
		}
		op.Timeout(time.Millisecond, 0)
		runtime.GC()
		do(t, r, &op) // meanwhile the clean-ups of a and b would run
		for _, fd := range again {
			if !isOpen(fd) {
				t.Fatal("closed by a file that was closed before")
			}
			unix.Close(fd)
		}
	}
}
