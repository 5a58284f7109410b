package uring_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// pipe returns the two ends; the test closes what is still open.
func pipe(t testing.TB) (r, w *uring.File) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = uring.NewFile(p[0]), uring.NewFile(p[1])
	t.Cleanup(func() {
		for _, f := range []*uring.File{r, w} {
			if err := f.Close(); err != nil && !errors.Is(err, uring.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return r, w
}

// temp returns a file that is empty, and its path.
func temp(t testing.TB) (*uring.File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	u, err := uring.FileOf(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Close() // the ring's file lives on by itself
	t.Cleanup(func() { u.Close() })
	return u, path
}

func random(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(b)
	return b
}

func TestReadAndWrite(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		f, path := temp(t)
		data := random(10_000)
		var op uring.Op
		w, back := uring.Wrap(data), uring.Wrap(make([]byte, 20_000))
		do(t, r, op.Write(f, w, 0))
		is(t, &op, len(data))
		do(t, r, op.Read(f, back, 0))
		is(t, &op, len(data))
		if !bytes.Equal(back.Bytes()[:len(data)], data) {
			t.Fatal("not what was written")
		}
		do(t, r, op.Read(f, back, 1<<30))
		is(t, &op, 0)
		do(t, r, op.Read(f, back, 100).Part(7, 17))
		is(t, &op, 10)
		if !bytes.Equal(back.Bytes()[7:17], data[100:110]) {
			t.Error("a part went elsewhere")
		}

		one, two := uring.Wrap(make([]byte, 3)), uring.Wrap(make([]byte, 5))
		do(t, r, op.Readv(f, 50, one, two))
		is(t, &op, 8)
		if got := append(append([]byte{}, one.Bytes()...), two.Bytes()...); !bytes.Equal(got, data[50:58]) {
			t.Error("readv")
		}
		do(t, r, op.Writev(f, 10_000, one, two))
		is(t, &op, 8)
		do(t, r, op.Fsync(f, true))
		is(t, &op, 0)
		do(t, r, op.Fsync(f, false))
		is(t, &op, 0)
		do(t, r, op.Fallocate(f, 0, 0, 1<<20))
		is(t, &op, 0)
		do(t, r, op.Statx(path))
		is(t, &op, 0)
		if s := op.Stat(); s.Size != 1<<20 || !s.Mode.IsRegular() || s.Links != 1 || time.Since(s.ModTime) > time.Hour {
			t.Errorf("statx: %+v", s)
		}
		do(t, r, op.Statx(filepath.Dir(path)))
		if !op.Stat().Mode.IsDir() {
			t.Errorf("statx of a directory: %+v", op.Stat())
		}
		if uring.Probe().HasOp(uring.OpFtruncate) == nil {
			do(t, r, op.Truncate(f, 77))
			is(t, &op, 0)
			if st, err := os.Stat(path); err != nil || st.Size() != 77 {
				t.Errorf("truncate: %v, %v", st, err)
			}
		}
	})
}

func TestOpenAndClose(t *testing.T) {
	r := open(t, uring.Config{})
	path := filepath.Join(t.TempDir(), "new")
	var op uring.Op
	do(t, r, op.Open(path, os.O_RDWR|os.O_CREATE, 0o640))
	f, err := op.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
	do(t, r, op.CloseFile(f))
	is(t, &op, 0)
	if err := r.Push(op.Fsync(f, false)); !errors.Is(err, uring.ErrClosed) {
		t.Errorf("use after close: %v", err)
	}
	do(t, r, op.Open(path+"/nothing", os.O_RDWR, 0))
	fails(t, &op, unix.ENOTDIR)
	if err := r.Push(op.Open("a\x00b", 0, 0)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a path with a zero byte: %v", err)
	}
}

// A file that was handed to CloseFile is nobody's to close: its descriptor must go, too, where the
// operation never happens.
func TestACancelledCloseCloses(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		var fail, end, busy uring.Op
		fail.Open(filepath.Join(t.TempDir(), "absent"), os.O_RDONLY, 0)
		chained, _ := pipe(t)
		fd := chained.FD()
		if err := r.Chain(&fail, end.CloseFile(chained)); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 2)
		if end.Err() == nil {
			t.Errorf("a chain goes on behind a failure")
		}
		if isOpen(fd) {
			t.Errorf("a close behind a failure leaves its file open")
		}

		spared, _ := pipe(t)
		used, _ := pipe(t)
		if err := r.Push(busy.Poll(used, unix.POLLIN)); err != nil {
			t.Fatal(err)
		}
		if err := r.Chain(end.CloseFile(spared), fail.CloseFile(used)); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("closing a file in use: %v", err)
		}
		if fd = spared.FD(); fd < 0 || !isOpen(fd) {
			t.Errorf("a chain that was refused has closed file %d", fd)
		}

		if err := r.Push(end.CloseFile(spared)); err != nil { // and nothing submits it
			t.Fatal(err)
		}
		if err := r.Shutdown(nil); err != nil {
			t.Error(err)
		}
		if isOpen(fd) {
			t.Errorf("the end of the ring leaves a file open that was to be closed")
		}
	})
}

func TestTheProbeLeavesNoDescriptor(t *testing.T) {
	open(t, uring.Config{})
	count := func() int {
		dir, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(dir)
	}
	uring.ProbeAgain() // what the Go runtime opens once
	before := count()
	for range 5 {
		uring.ProbeAgain()
	}
	if n := count(); n > before {
		t.Errorf("%d descriptors after five probes, %d before", n, before)
	}
	r, err := uring.New(uring.Config{}) // and where the kernel takes nothing: what was queued is in the way of a close
	if err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(nil)
	before = count()
	if err := uring.ProbeSocketsWithoutEnter(r); !errors.Is(err, unix.EBADF) {
		t.Errorf("%v", err)
	}
	if n := count(); n > before {
		t.Errorf("%d descriptors after a probe that fails, %d before", n, before)
	}
}

func TestDirectDescriptors(t *testing.T) {
	if err := uring.Probe().Has(uring.DirectDescriptors); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		if err := r.RegisterFiles(2); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "direct")
		var op uring.Op
		do(t, r, op.Open(path, os.O_RDWR|os.O_CREATE, 0o600).Direct())
		f, err := op.NewFile(r)
		if err != nil || !f.Direct() {
			t.Fatal(f, err)
		}
		buf := uring.Wrap([]byte("through the table"))
		do(t, r, op.Write(f, buf, 0))
		is(t, &op, buf.Len())

		plain, _ := temp(t)
		do(t, r, op.Install(plain))
		second, err := op.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		do(t, r, op.Install(plain))
		fails(t, &op, unix.ENFILE)
		do(t, r, op.Splice(f, 0, second, 0, 4)) // neither is a pipe
		fails(t, &op, unix.EINVAL)
		do(t, r, op.CloseFile(second))
		is(t, &op, 0)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		for range 2 { // both slots are free again
			do(t, r, op.Install(plain))
			is(t, &op, 1)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "through the table" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestRegisteredArena(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		a, err := uring.NewArena(4, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.RegisterArena(a); err != nil {
			t.Fatal(err)
		}
		f, _ := temp(t)
		var op uring.Op
		copy(a.Buffer(2).Bytes(), "fixed")
		do(t, r, op.Write(f, a.Buffer(2), 0))
		is(t, &op, 4096)
		if op.Code() != uring.OpWriteFixed {
			t.Errorf("written by %v", op.Code())
		}
		do(t, r, op.Read(f, a.Buffer(3), 0).Part(1, 6))
		is(t, &op, 5)
		if got := a.Buffer(3).Bytes()[1:6]; string(got) != "fixed" {
			t.Errorf("%q", got)
		}
		if err := a.Close(); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("closing an arena that is registered: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		plain := open(t, uring.Config{})
		if err := plain.Push(op.Read(f, a.Buffer(0), 0)); !errors.Is(err, uring.ErrClosed) {
			t.Errorf("buffer of a closed arena: %v", err)
		}
	})
}

func TestSplice(t *testing.T) {
	r := open(t, uring.Config{})
	f, _ := temp(t)
	end, start := pipe(t)
	var op uring.Op
	do(t, r, op.Write(f, uring.Wrap([]byte("spliced bytes")), 0))
	do(t, r, op.Splice(f, 0, start, uring.Current, 7))
	is(t, &op, 7)
	back := uring.Wrap(make([]byte, 16))
	do(t, r, op.Read(end, back, uring.Current))
	is(t, &op, 7)
	if string(back.Bytes()[:7]) != "spliced" {
		t.Errorf("%q", back.Bytes())
	}
}

func TestPoll(t *testing.T) {
	r := open(t, uring.Config{})
	end, start := pipe(t)
	var once, each, write, read, cancel uring.Op
	if err := errors.Join(r.Push(once.Poll(end, unix.POLLIN)), r.Push(each.PollEach(end, unix.POLLIN))); err != nil {
		t.Fatal(err)
	}
	one, got := uring.Wrap([]byte("x")), uring.Wrap(make([]byte, 8))
	for range 3 {
		if err := r.Push(write.Write(start, one, uring.Current)); err != nil {
			t.Fatal(err)
		}
		for write.InFlight() || once.InFlight() {
			if err := r.WaitFor(1, time.Minute); err != nil {
				t.Fatal(err)
			}
			for op := r.Next(); op != nil; op = r.Next() {
				if op == &each && (op.Res&unix.POLLIN == 0 || !op.More()) {
					t.Fatalf("poll: %#x, more %v", op.Res, op.More())
				}
			}
		}
		if err := r.Push(read.Read(end, got, uring.Current)); err != nil {
			t.Fatal(err)
		}
		for read.InFlight() {
			if err := r.WaitFor(1, time.Minute); err != nil {
				t.Fatal(err)
			}
			for r.Next() != nil {
			}
		}
	}
	if err := r.Push(cancel.CancelFile(end)); err != nil {
		t.Fatal(err)
	}
	for each.InFlight() || cancel.InFlight() {
		if err := r.WaitFor(1, time.Minute); err != nil {
			t.Fatal(err)
		}
		for r.Next() != nil {
		}
	}
	fails(t, &each, unix.ECANCELED)
}

func TestBuffersInFlightAreOutOfReach(t *testing.T) {
	r := open(t, uring.Config{})
	end, start := pipe(t)
	buf := uring.Wrap(make([]byte, 4))
	var read, again, write uring.Op
	if err := r.Push(read.Read(end, buf, uring.Current)); err != nil {
		t.Fatal(err)
	}
	if err := r.Push(again.Read(end, buf, uring.Current)); !errors.Is(err, uring.ErrBusy) {
		t.Errorf("a second read into it: %v", err)
	}
	if err := r.Push(write.Write(start, buf, uring.Current)); !errors.Is(err, uring.ErrBusy) {
		t.Errorf("a write from it: %v", err)
	}
	for name, touch := range map[string]func(){"Bytes": func() { buf.Bytes() }, "Reset": func() { buf.Reset(nil) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of a buffer in flight", name)
				}
			}()
			touch()
		}()
	}
	if err := end.Close(); !errors.Is(err, uring.ErrBusy) {
		t.Errorf("closing a file in use: %v", err)
	}
	if err := r.Push(again.CloseFile(end)); !errors.Is(err, uring.ErrBusy) {
		t.Errorf("closing a file in use by the ring: %v", err)
	}
	do2(t, r, &read, write.Write(start, uring.Wrap([]byte("data")), uring.Current))
	if got := string(buf.Bytes()); got != "data" {
		t.Errorf("%q", got)
	}
}

// A descriptor that somebody else closes, and whose number means another file a moment later, must
// not reach operations.
func TestDescriptorClosedAndUsedAgain(t *testing.T) {
	r := open(t, uring.Config{})
	dir := t.TempDir()
	for i := range 200 {
		first, err := os.Create(filepath.Join(dir, "first"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := uring.FileOf(first)
		if err != nil {
			t.Fatal(err)
		}
		var op uring.Op
		if err := r.Push(op.Write(f, uring.Wrap([]byte("first")), 0)); err != nil {
			t.Fatal(err)
		}
		number := first.Fd()
		first.Close()
		second, err := os.Create(filepath.Join(dir, "second"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && second.Fd() != number {
			t.Logf("the number was not used again: %d, %d", number, second.Fd())
		}
		reap(t, r, 1)
		is(t, &op, 5)
		if st, err := second.Stat(); err != nil || st.Size() != 0 {
			t.Fatal("written into a file opened later")
		}
		second.Close()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Everything an operation points to is dropped by the caller while it is in flight, under a
// collector that runs all the time.
func TestMemoryLivesAsLongAsTheKernelNeedsIt(t *testing.T) {
	r := open(t, uring.Config{Entries: 64})
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	f, _ := temp(t)
	var op uring.Op
	want := random(4096)
	do(t, r, op.Write(f, uring.Wrap(want), 0))
	for range 50 {
		for range 64 {
			if err := r.Push(new(uring.Op).Read(f, uring.Wrap(make([]byte, 4096)), 0)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		garbage := make([][]byte, 64)
		for i := range garbage {
			garbage[i] = bytes.Repeat([]byte{0xee}, 4096)
		}
		for _, o := range reap(t, r, 64) {
			is(t, o, 4096)
		}
		for _, g := range garbage {
			if bytes.Count(g, []byte{0xee}) != len(g) {
				t.Fatal("the kernel wrote into memory that was given to somebody else")
			}
		}
	}
}
