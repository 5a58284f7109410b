package uring_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// have skips the test where the kernel lacks a feature.
func have(t testing.TB, f uring.Feature) {
	t.Helper()
	if err := uring.Probe().Has(f); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
}

// TestQuietChain: one completion a chain, whatever becomes of it, and everything is the caller's
// again behind it.
func TestQuietChain(t *testing.T) {
	have(t, uring.QuietChains)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		f, _ := temp(t)
		_, ready := pipe(t)
		put, got := uring.Wrap([]byte("0123456789")), uring.Wrap(make([]byte, 10))
		var write, poll, read, last uring.Op
		all := []*uring.Op{&write, &poll, &read, &last}
		chain := func(off int64, f2 *uring.File) *uring.Op {
			t.Helper()
			if err := r.QuietChain(write.Write(f, put, 0), poll.Poll(ready, unix.POLLOUT), read.Read(f2, got, off),
				last.Fsync(f, true)); err != nil {
				t.Fatal(err)
			}
			if n := r.InFlight(); n != 4 || !put.InFlight() || !got.InFlight() {
				t.Fatalf("%d in flight", n)
			}
			op := reap(t, r, 1)[0]
			for _, x := range all {
				if x.InFlight() {
					t.Fatalf("%v is in flight", x.Code())
				}
			}
			if r.InFlight() != 0 || put.InFlight() || got.InFlight() {
				t.Fatalf("%d in flight, buffers %v %v", r.InFlight(), put.InFlight(), got.InFlight())
			}
			if err := r.WaitFor(0, 0); err != nil || r.Next() != nil {
				t.Fatalf("a second completion, or %v", err)
			}
			return op
		}
		for range 3 {
			if op := chain(0, f); op != &last || op.Res != 0 || string(got.Bytes()) != "0123456789" || read.Res != 0 {
				t.Fatalf("%v gave %d; read %q", op.Code(), op.Res, got.Bytes())
			}
			// it is shorter
			if op := chain(5, f); op != &read || op.Res != 5 || write.Res != 0 ||
				!errors.Is(last.Err(), unix.ECANCELED) {
				t.Fatalf("%v gave %d; the last %d", op.Code(), op.Res, last.Res)
			}
		}
		if op := chain(uring.Current, ready); op != &read || !errors.Is(op.Err(), unix.EBADF) ||
			!errors.Is(last.Err(), unix.ECANCELED) {
			t.Fatalf("%v gave %d; the last %d", op.Code(), op.Res, last.Res)
		}
		// They are ordinary operations again, with a completion each.
		do(t, r, write.Write(f, put, 0))
		is(t, &write, 10)
		do(t, r, &write)
		is(t, &write, 10)
	})
}

// TestQuietChainIsCancelled: by its first operation, and by the end of the ring, queued or in
// flight; what was to be closed is closed.
func TestQuietChainIsCancelled(t *testing.T) {
	have(t, uring.QuietChains)
	for name, submit := range map[string]bool{"queued": false, "in flight": true} {
		t.Run(name, func(t *testing.T) {
			r, err := uring.New(uring.Config{})
			if err != nil {
				t.Fatal(err)
			}
			in, _ := pipe(t)
			b := uring.Wrap(make([]byte, 10))
			f, _ := temp(t)
			fd := f.FD()
			var read, end uring.Op
			if err := r.QuietChain(read.Read(in, b, uring.Current), end.CloseFile(f)); err != nil {
				t.Fatal(err)
			}
			if submit {
				if err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Shutdown(nil); err != nil {
				t.Fatal(err)
			}
			if read.InFlight() || end.InFlight() || b.InFlight() || isOpen(fd) {
				t.Errorf("in flight: %v, %v, %v; open: %v", read.InFlight(), end.InFlight(), b.InFlight(), isOpen(fd))
			}
		})
	}
}

func TestQuietChainRefuses(t *testing.T) {
	have(t, uring.QuietChains)
	r := open(t, uring.Config{Entries: 4})
	f, _ := temp(t)
	g, err := r.NewBufferRing(2, 64, false)
	if err != nil {
		t.Fatal(err)
	}
	b := uring.Wrap(make([]byte, 4))
	var one, two uring.Op
	for name, op := range map[string]*uring.Op{
		"none": nil, "the same again": &one, "accept": new(uring.Op).Accept(f),
		"open":      new(uring.Op).Open("/dev/null", os.O_RDONLY, 0),
		"zero copy": new(uring.Op).SendZeroCopy(f, b), "picked": new(uring.Op).RecvFrom(f, g),
		"mailbox":       new(uring.Op).Mailbox(),
		"link time-out": new(uring.Op).LinkTimeout(time.Second), "drain": new(uring.Op).Nop().Drain(),
		"tick":  new(uring.Op).Tick(time.Second),
		"polls": new(uring.Op).PollEach(f, unix.POLLIN), "a sync": nil, "same buffer": new(uring.Op).Read(f, b, 0),
	} {
		first := one.Nop()
		switch name {
		case "same buffer":
			first = one.Read(f, b, 0)
		case "a sync":
			first, op = one.Fsync(f, true), &two
		}
		if err := r.QuietChain(first, op); err == nil {
			t.Errorf("%s: taken", name)
		}
		if r.InFlight() != 0 || one.InFlight() || op != nil && op.InFlight() || b.InFlight() {
			t.Fatalf("%s: in flight after it was refused", name)
		}
		do(t, r, one.Nop()) // it completes
	}
	if err := r.QuietChain(&one); err == nil {
		t.Error("a chain of one")
	}
	if err := r.QuietChain(&one, &two, new(uring.Op), new(uring.Op), new(uring.Op)); !errors.Is(err, uring.ErrTooLong) {
		t.Errorf("longer than the queue: %v", err)
	}
	if err := r.QuietChain(&one, &two); err != nil {
		t.Fatal(err)
	}
	reap(t, r, 1)
	if err := r.Push(one.Nop().Drain()); err == nil {
		t.Error("a drain behind a quiet chain: the kernel refuses it, without this")
	}
}

// TestWhatEndsAChain holds the list of operations whose failure ends a chain to the kernel: one
// that is in it wrongly would fail unseen within a quiet chain.
func TestWhatEndsAChain(t *testing.T) {
	r := open(t, uring.Config{})
	in, out := pipe(t)
	f, path := temp(t)
	var ro uring.Op
	do(t, r, ro.Open(path, os.O_RDONLY, 0))
	read, err := ro.NewFile(nil)
	if err != nil {
		t.Fatal(err)
	}
	nowhere := netip.MustParseAddrPort("127.0.0.1:1")
	var op, next uring.Op
	for _, fill := range []func() *uring.Op{
		func() *uring.Op { return op.Fsync(in, true) },
		func() *uring.Op { return op.Fallocate(f, 0, 0, 0) },
		func() *uring.Op { return op.Truncate(read, 5) },
		func() *uring.Op { return op.Rename("/none/x", "/none/y") },
		func() *uring.Op { return op.Remove("/none/x", false) },
		func() *uring.Op { return op.Mkdir("/none/x", 0) },
		func() *uring.Op { return op.Statx("/none/x") },
		func() *uring.Op { return op.Shutdown(in, 0) },
		func() *uring.Op { return op.AdviseFile(in, 0, 0, 77) },
		func() *uring.Op { return op.Splice(f, 0, f, 0, 5) },
		func() *uring.Op { return op.Read(out, some(1), 0) },
		func() *uring.Op { return op.Write(in, some(1), 0) },
		func() *uring.Op { return op.Readv(out, 0, some(1)) },
		func() *uring.Op { return op.Writev(in, 0, some(1)) },
		func() *uring.Op { return op.Send(in, some(1)) },
		func() *uring.Op { return op.Recv(in, some(1)) },
		func() *uring.Op { return op.SendMsg(in, netip.AddrPort{}, nil, some(1)) },
		func() *uring.Op { return op.RecvMsg(in, nil, some(1)) },
		func() *uring.Op { return op.Connect(in, nowhere) },
		func() *uring.Op { return op.Bind(in, nowhere) },
		func() *uring.Op { return op.Listen(in, 1) },
		func() *uring.Op { return op.FutexWait(new(uint32), 1) },
		func() *uring.Op { return op.WaitID(unix.P_PID, 1, unix.WEXITED) },
		func() *uring.Op { return op.Cancel(&next) },
		func() *uring.Op { return op.UpdateTimeout(&next, 1) },
		func() *uring.Op { return op.UpdatePoll(&next, 1) },
		func() *uring.Op { return op.Timeout(time.Microsecond, 0) },
	} {
		if fill(); uring.Probe().HasOp(op.Code()) != nil {
			continue
		}
		if err := r.Chain(&op, &next); err != nil {
			t.Fatalf("%v: %v", op.Code(), err)
		}
		if reap(t, r, 2); op.Err() == nil {
			t.Fatalf("%v: it was to fail", op.Code())
		}
		if ended := errors.Is(next.Err(), unix.ECANCELED); uring.EndsChain(op.Code()) && !ended {
			t.Errorf("%v failed, and the chain went on", op.Code())
		} else if !uring.EndsChain(op.Code()) && ended {
			t.Logf("%v ends a chain here: this kernel has mended it", op.Code())
		}
		next.Nop()
	}
	if err := read.Close(); err != nil {
		t.Error(err)
	}
}
