package uring_test

import (
	"errors"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallywheel/tallywheel/uring"
)

// TestArenaThatIsRegisteredBehindAnAdvise: the kernel threw away the pages that had been registered
// meanwhile, and a read into them ended well, with nothing of it in the buffer.
func TestArenaThatIsRegisteredBehindAnAdvise(t *testing.T) {
	needs(t, uring.OpMadvise)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r, other := open(t, cfg), open(t, cfg)
		a, err := uring.NewArena(2, os.Getpagesize())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		var advise, read uring.Op
		if err := other.Push(advise.Advise(a.Buffer(1), unix.MADV_DONTNEED)); err != nil {
			t.Fatal(err)
		}
		if err := r.RegisterArena(a); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("%v: want it to be refused", err)
		}
		reap(t, other, 1)
		is(t, &advise, 0)
		if err := r.RegisterArena(a); err != nil && !errors.Is(err, uring.ErrBusy) {
			t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
		}
		f, path := temp(t)
		if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
		do(t, r, read.Read(f, a.Buffer(1), 0))
		is(t, &read, 5)
		if got := a.Buffer(1).Bytes()[:5]; string(got) != "hello" {
			t.Errorf("the buffer has %q", got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestMessageThatIsRefused: the ring that it was for kept its descriptor open for ever.
func TestMessageThatIsRefused(t *testing.T) {
	needs(t, uring.OpMsgRing)
	have(t, uring.QuietChains)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		sender, to := open(t, uring.Config{}), open(t, cfg)
		var a, b, box, message uring.Op
		if err := sender.QuietChain(a.Nop(), b.Nop()); err != nil {
			t.Fatal(err)
		}
		reap(t, sender, 1)
		if err := to.Push(box.Mailbox()); err != nil {
			t.Fatal(err)
		}
		fd := uring.FDOf(to)
		if err := sender.Push(message.Message(box.Address(), 7).Drain()); err == nil || message.InFlight() {
			t.Errorf("%v: want it to be refused", err)
		}
		if err := sender.Chain(message.Message(box.Address(), 7), b.Nop().Drain()); err == nil || message.InFlight() {
			t.Errorf("%v: want it to be refused", err)
		}
		if err := to.Shutdown(nil); err != nil || isOpen(fd) {
			t.Errorf("%v; the descriptor of the closed ring is open: %v", err, isOpen(fd))
		}
	})
}

// TestDrainThatIsRefused: the ring said that it had had one, and sent nothing without copying any
// more.
func TestDrainThatIsRefused(t *testing.T) {
	needs(t, uring.OpSendZC)
	r := open(t, uring.Config{})
	in, out := sockets(t)
	buf, other := some(8), some(8)
	var busy, drain, nop, send uring.Op
	if err := r.Push(busy.Recv(in, buf)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"of a vector": r.Push(drain.Readv(in, uring.Current, other, buf).Drain()),
		"in a chain":  r.Chain(nop.Nop().Drain(), drain.Recv(in, buf)),
	} {
		if !errors.Is(err, uring.ErrBusy) {
			t.Errorf("a drain %s: %v", name, err)
		}
	}
	if err := r.Push(send.SendZeroCopy(out, other)); err != nil {
		t.Errorf("the ring has had no drain: %v", err)
	}
	if err := r.Shutdown(nil); err != nil {
		t.Error(err)
	}
}

// TestCopiesHaveNothing: a copy gave the descriptor, or the piece, a second time. The second File
// closed somebody else's, and the stock of buffers could not be closed any more.
func TestCopiesHaveNothing(t *testing.T) {
	r := open(t, uring.Config{})
	var op uring.Op
	do(t, r, op.Open(os.DevNull, os.O_RDONLY, 0))
	double := op
	if f, err := double.NewFile(nil); err == nil {
		t.Errorf("a copy gives descriptor %d", f.FD())
	}
	f, err := op.NewFile(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}

	have(t, uring.BufferRings)
	g, err := r.NewBufferRing(4, 64, false)
	if err != nil {
		t.Fatal(err)
	}
	in, out := sockets(t)
	for _, again := range []func(double *uring.Op){
		func(*uring.Op) {},
		func(double *uring.Op) { double.Reset() },
		func(double *uring.Op) {
			if err := r.Push(double); err == nil {
				t.Error("a copy is pushed")
			}
		},
	} {
		send(t, out, "hello")
		do(t, r, op.RecvFrom(in, g))
		double := op
		if _, ok := double.Picked(); ok {
			t.Error("a copy gives a piece")
		}
		again(&double)
		p, ok := op.Picked()
		if !ok || string(p.Bytes) != "hello" {
			t.Fatalf("%q came: %v", p.Bytes, ok)
		}
		p.Give()
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestCopyThatIsCancelled: of a copy that was made in flight the slot is another operation's later,
// and that was cancelled.
func TestCopyThatIsCancelled(t *testing.T) {
	needs(t, uring.OpPollRemove)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		in, out := pipe(t)
		var first, other, stop uring.Op
		if err := errors.Join(r.Push(first.Read(in, some(1), uring.Current)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		double := first
		send(t, out, "x")
		reap(t, r, 1)
		if err := errors.Join(r.Push(other.Read(in, some(1), uring.Current)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		for _, op := range []*uring.Op{
			stop.Cancel(&double), new(uring.Op).UpdateTimeout(&double, time.Second),
			new(uring.Op).UpdatePoll(&double, 0),
		} {
			if err := r.Push(op); err == nil || op.InFlight() {
				t.Fatalf("%v of a copy: %v", op.Code(), err)
			}
		}
		do2(t, r, &other, stop.Cancel(&other))
		fails(t, &other, unix.ECANCELED)
		do(t, r, stop.Cancel(&first))
		fails(t, &stop, unix.ENOENT)
	})
}

// TestLimitOfAWaitThatGathers: one that was to gather for longer than it was to wait, waited for as
// long. One that was to gather for no time waited for all that were asked for.
func TestLimitOfAWaitThatGathers(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		hangs(t, "WaitSome waits beyond its limit")
		r := open(t, cfg)
		var late, nop uring.Op
		if err := r.Push(late.Timeout(time.Hour, 0)); err != nil {
			t.Fatal(err)
		}
		for _, d := range []time.Duration{-time.Hour, 0, 1, time.Microsecond, time.Millisecond} {
			if err := r.WaitSome(2, time.Hour, d); !errors.Is(err, uring.ErrTimeout) {
				t.Errorf("within %v: %v", d, err)
			}
		}
		for _, c := range []struct{ gather, d time.Duration }{
			{time.Hour, 20 * time.Millisecond}, {0, time.Hour}, {1, time.Hour},
		} {
			err := r.Push(&nop)
			for again := err == nil; again; again = errors.Is(err, uring.ErrTimeout) { // the machine is busy
				err = r.WaitSome(2, c.gather, c.d)
			}
			if err != nil || r.Next() != &nop {
				t.Fatalf("gather for %v within %v: %v", c.gather, c.d, err)
			}
		}
		do2(t, r, &late, new(uring.Op).Cancel(&late))
	})
}

// TestFileOfWhatIsClosed: of a closed os.File the error was one that nobody can name.
func TestFileOfWhatIsClosed(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), ln.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := uring.FileOf(f); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
	if _, err := uring.FileOf(ln.(*net.TCPListener)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
	if _, err := uring.FileOf((*os.File)(nil)); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
}

// TestNumberThatIsNoDescriptor: its lower half was taken for one, and that is somebody else's.
func TestNumberThatIsNoDescriptor(t *testing.T) {
	other, _ := pipe(t)
	numbers := []int{-1, math.MinInt32, math.MaxInt32}
	if math.MaxInt > math.MaxInt32 {
		numbers = append(numbers, int(int64(other.FD())+1<<32))
	}
	for _, fd := range numbers {
		f := uring.NewFile(fd)
		if err := f.Close(); f.FD() != -1 || !errors.Is(err, uring.ErrClosed) {
			t.Errorf("descriptor %d: FD is %d, Close %v", fd, f.FD(), err)
		}
	}
	if !isOpen(other.FD()) {
		t.Error("a stranger was closed")
	}
}

// TestOperationThatIsWrongAlready: where there was no buffer, or no stock, UpTo and Bundle said
// that they are for RecvFrom, and Part that it was outside.
func TestOperationThatIsWrongAlready(t *testing.T) {
	r := open(t, uring.Config{})
	in, _ := sockets(t)
	var op uring.Op
	for name, fill := range map[string]func() *uring.Op{
		"Part":    func() *uring.Op { return op.Read(in, nil, 0).Part(0, 1) },
		"UpTo":    func() *uring.Op { return op.RecvFrom(in, nil).UpTo(1) },
		"Bundle":  func() *uring.Op { return op.RecvFrom(in, nil).Bundle() },
		"bundles": func() *uring.Op { return op.RecvEach(in, nil).Bundle() },
	} {
		if err := r.Push(fill()); err == nil || !strings.Contains(err.Error(), "no ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	panics(t, "UpTo", func() { op.Recv(in, some(8)).UpTo(1) })
	panics(t, "Bundle", func() { op.Recv(in, some(8)).Bundle() })
}
