package uring_test

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// TestResize: operations that are queued, in flight and completed outlive the change of the queues.
func TestResize(t *testing.T) {
	have(t, uring.Resizing)
	for _, register := range []bool{false, true} {
		r := open(t, uring.Config{Entries: 4, InFlight: 6, Locked: true, RegisterRing: register})
		in, out := pipe(t)
		var read, done, queued, box uring.Op
		b := uring.Wrap(make([]byte, 3))
		if err := errors.Join(r.Push(box.Mailbox()), r.Push(read.Read(in, b, uring.Current)), r.Push(&done), r.Wait(1),
			r.Push(&queued)); err != nil {
			t.Fatal(err)
		}
		at := box.Address()
		if err := r.Resize(0, 3); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("four are in flight: %v", err)
		}
		if err := r.Resize(64, 100); err != nil {
			t.Fatal(err)
		}
		if r.Depth() != 100 || r.InFlight() != 4 {
			t.Errorf("depth %d, %d in flight", r.Depth(), r.InFlight())
		}
		reap(t, r, 2)
		nops := make([]uring.Op, 90)
		for i := range nops {
			if err := r.Push(&nops[i]); err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
		if err := r.Resize(0, 7); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("92 are in flight: %v", err)
		}
		reap(t, r, len(nops))
		if err := r.Resize(1, 7); err != nil {
			t.Fatal(err)
		}
		send(t, out, "abc")
		reap(t, r, 1)
		is(t, &read, 3)
		if string(b.Bytes()) != "abc" {
			t.Errorf("%q", b.Bytes())
		}
		var hello uring.Op
		if err := r.Push(hello.Message(at, 5)); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 2)
		if box.Res != 5 {
			t.Errorf("the mailbox has %d", box.Res)
		}
		seen := map[uring.Address]bool{}
		for range 3 { // slots that are removed do not come back under a name that they had
			if err := r.Resize(8, 20); err != nil {
				t.Fatal(err)
			}
			boxes := make([]uring.Op, 10)
			for i := range boxes {
				if err := r.Push(boxes[i].Nop()); err != nil {
					t.Fatal(err)
				}
				n := uring.NameOf(&boxes[i])
				if seen[uring.AddressOf(at, n)] {
					t.Fatalf("the name %#x came before", n)
				}
				seen[uring.AddressOf(at, n)] = true
			}
			if err := errors.Join(r.Push(read.Read(in, b, uring.Current)), r.Submit()); err != nil { // in a slot far up
				t.Fatal(err)
			}
			reap(t, r, len(boxes))
			if err := r.Resize(1, 7); !errors.Is(err, uring.ErrBusy) {
				t.Errorf("a slot is in use that was to go: %v", err)
			}
			do2(t, r, &read, new(uring.Op).Cancel(&read))
			if err := r.Resize(1, 7); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Resize(4, 4); !errors.Is(err, uring.ErrClosed) {
			t.Errorf("a closed ring: %v", err)
		}
	}
}

func TestResizeRefuses(t *testing.T) {
	r := open(t, uring.Config{})
	if err := r.Resize(8, 8); err == nil {
		t.Error("a ring that is not Locked")
	}
	if uring.Probe().Has(uring.Resizing) != nil {
		return
	}
	r = open(t, uring.Config{Locked: true})
	for _, c := range [][2]int{{-1, 4}, {4, -1}, {1 << 20, 4}, {4, 1 << 20}} {
		if err := r.Resize(c[0], c[1]); err == nil {
			t.Errorf("%v: taken", c)
		}
	}
	do(t, r, new(uring.Op))
}

// TestWaitID: the end of a child, without a signal and without a thread that waits.
func TestWaitID(t *testing.T) {
	needs(t, uring.OpWaitID)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		for _, test := range []struct {
			script string
			want   uring.Child
		}{{"exit 7", uring.Child{Code: 1, Status: 7}}, {"kill -9 $$", uring.Child{Code: 2, Status: 9}}} {
			child := exec.Command("sh", "-c", "read x; "+test.script)
			in, err := child.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			var op, again uring.Op
			do(t, r, op.WaitID(unix.P_PID, child.Process.Pid, unix.WEXITED|unix.WNOHANG))
			if is(t, &op, 0); op.Child() != (uring.Child{}) {
				t.Errorf("a child that runs: %+v", op.Child())
			}
			if err := r.Push(op.WaitID(unix.P_PID, child.Process.Pid, unix.WEXITED)); err != nil {
				t.Fatal(err)
			}
			if err := r.WaitFor(1, time.Millisecond); !errors.Is(err, uring.ErrTimeout) {
				t.Errorf("it runs: %v", err)
			}
			in.Close()
			reap(t, r, 1)
			test.want.PID = child.Process.Pid
			if is(t, &op, 0); op.Child() != test.want {
				t.Errorf("%+v, want %+v", op.Child(), test.want)
			}
			do(t, r, again.WaitID(unix.P_PID, child.Process.Pid, unix.WEXITED))
			fails(t, &again, unix.ECHILD)
			_ = child.Wait() // which finds nobody any more
		}
		for _, op := range []*uring.Op{
			new(uring.Op).WaitID(-1, 0, unix.WEXITED),
			new(uring.Op).WaitID(unix.P_PID, -5, unix.WEXITED),
		} {
			if err := r.Push(op); err == nil {
				t.Error("a wait for what cannot be")
			}
		}
	})
}

// TestAdvise: memory of whole pages, of an arena that is not registered, can be given back; that of
// neighbours cannot.
func TestAdvise(t *testing.T) {
	needs(t, uring.OpMadvise, uring.OpFadvise)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		pages, err := uring.NewArena(3, 8192)
		if err != nil {
			t.Fatal(err)
		}
		defer pages.Close()
		for i := range 3 {
			pages.Buffer(i).Bytes()[0], pages.Buffer(i).Bytes()[8191] = 'x', 'x'
		}
		var op uring.Op
		do(t, r, op.Advise(pages.Buffer(1), unix.MADV_DONTNEED))
		is(t, &op, 0)
		for i := range 3 {
			if b := pages.Buffer(i).Bytes(); (b[0] == 0 && b[8191] == 0) != (i == 1) {
				t.Errorf("buffer %d: %q, %q", i, b[0], b[8191])
			}
		}
		do(t, r, op.Advise(pages.Buffer(1), 12345))
		fails(t, &op, unix.EINVAL)
		parts, err := uring.NewArena(2, 1000)
		if err != nil {
			t.Fatal(err)
		}
		defer parts.Close()
		busy, in := pages.Buffer(0), func() *uring.File { in, _ := pipe(t); return in }()
		var read uring.Op
		if err := r.Push(read.Read(in, busy, uring.Current)); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]*uring.Buffer{
			"Go memory":      uring.Wrap(make([]byte, 8192)),
			"part of a page": parts.Buffer(0), "in flight": busy, "none": nil,
		} {
			if err := r.Push(op.Advise(b, unix.MADV_DONTNEED)); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
		do2(t, r, &read, new(uring.Op).Cancel(&read))
		f, _ := temp(t)
		do(t, r, op.AdviseFile(f, 0, 4096, unix.FADV_DONTNEED))
		is(t, &op, 0)
		if err := r.Push(op.AdviseFile(f, -1, 4096, unix.FADV_DONTNEED)); err == nil {
			t.Error("advice before the file's beginning")
		}
		if err := r.RegisterArena(pages); err != nil {
			t.Fatal(err)
		}
		if err := r.Push(op.Advise(pages.Buffer(1), unix.MADV_DONTNEED)); err == nil {
			t.Error("registered: taken")
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
