package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallywheel/tallywheel/uring"
)

// TestCutDatagramsFromAStock: with MSG_TRUNC the result is the length of the datagram, and not what
// came. Buffers that the kernel had never taken were counted as received, handed out, and given
// back a second time; so it wrote to pieces that the caller held.
func TestCutDatagramsFromAStock(t *testing.T) {
	const n, size = 16, 100
	stocks(t, n, size, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		in, out := socketsOf(t, unix.SOCK_DGRAM)
		long := string(bytes.Repeat([]byte("D"), 10*size))
		var op uring.Op
		const trunc = unix.MSG_TRUNC
		cut := map[string]func() *uring.Op{
			"a bundle":            func() *uring.Op { return op.RecvFrom(in, g).Bundle().Flags(trunc) },
			"a bundle, flags":     func() *uring.Op { return op.RecvFrom(in, g).Flags(trunc).UpTo(2 * size).Bundle() },
			"bundles, repeatedly": func() *uring.Op { return op.RecvEach(in, g).Bundle().Flags(trunc) },
			"one":                 func() *uring.Op { return op.RecvFrom(in, g).Flags(trunc) },
			"a part":              func() *uring.Op { return op.RecvFrom(in, g).UpTo(4).Flags(trunc) },
			"repeatedly":          func() *uring.Op { return op.RecvEach(in, g).Flags(trunc) },
		}
		for name, fill := range cut {
			if err := r.Push(fill()); err != nil {
				continue // it says so
			}
			send(t, out, long)
			reap(t, r, 1)
			if op.Res != int32(len(long)) {
				t.Errorf("%s: %d, want the length of the datagram", name, op.Res)
			}
			taken, want := 0, size
			if name == "a part" {
				want = 4
			}
			for p, ok := op.Picked(); ok; p, ok = op.Picked() {
				if taken++; string(p.Bytes) != long[:want] {
					t.Errorf("%s: %d bytes came, want %d", name, len(p.Bytes), want)
				}
				p.Give()
			}
			if taken != 1 {
				t.Errorf("%s: %d pieces", name, taken)
			}
			if op.More() {
				do2(t, r, &op, new(uring.Op).Cancel(&op))
			}
			if g.Free() != n {
				t.Errorf("%s: %d buffers are free", name, g.Free())
			}
		}
		var pieces []uring.Piece
		for i := range n {
			var op uring.Op
			send(t, out, fmt.Sprintf("%100d", i))
			do(t, r, op.RecvFrom(in, g))
			p, ok := op.Picked()
			if !ok {
				t.Fatalf("datagram %d: %v", i, op.Err())
			}
			pieces = append(pieces, p)
		}
		for i, p := range pieces {
			if want := fmt.Sprintf("%100d", i); string(p.Bytes) != want {
				t.Errorf("piece %d is %q", i, bytes.TrimSpace(p.Bytes))
			}
		}
	})
}

// TestReceivesThatTheKernelDoesNotCount: where a receive that takes several arrivals together, or
// runs on a worker thread, could take more or less than a buffer, the kernel and the stock came to
// different places in it. Pieces held what had not been received, and buffers went back twice.
func TestReceivesThatTheKernelDoesNotCount(t *testing.T) {
	for name, how := range map[string]func(*uring.Op) *uring.Op{
		"WaitAll": (*uring.Op).WaitAll, "Async": (*uring.Op).Async,
	} {
		t.Run(name, func(t *testing.T) {
			stocks(t, 8, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) { receives(t, r, g, how) })
		})
	}
}

// receives runs receives of several connections at a time, and holds what they bring to what was
// sent. What Push refuses is no matter.
func receives(t *testing.T, r *uring.Ring, g *uring.BufferRing, how func(*uring.Op) *uring.Op) {
	const size, conns = 64, 4
	var in, out [conns]*uring.File
	for i := range in {
		in[i], out[i] = sockets(t)
	}
	var ops [conns]uring.Op
	var sent, seen [conns]uint64
	came := func(op *uring.Op) {
		i := op.Tag
		for p, ok := op.Picked(); ok; p, ok = op.Picked() {
			for _, c := range p.Bytes {
				if c != at(seen[i])+byte(i) {
					t.Fatalf("byte %d of connection %d is not what was sent", seen[i], i)
				}
				seen[i]++
			}
			p.Give()
		}
	}
	for round := range 300 {
		for i := range ops {
			ops[i].Tag = uint64(i)
			if ops[i].RecvFrom(in[i], g).UpTo(1 + round*37%size); round%2 == 0 && !g.Incremental() {
				ops[i].RecvFrom(in[i], g).Bundle().UpTo(1 + round*37%(2*size))
			}
			_ = r.Push(how(&ops[i]))
		}
		for r.InFlight() > 0 {
			for i := range ops {
				if !ops[i].InFlight() {
					continue
				}
				part := make([]byte, 1+sent[i]*31%40)
				for k := range part {
					part[k] = at(sent[i]) + byte(i)
					sent[i]++
				}
				send(t, out[i], string(part))
			}
			if err := r.WaitFor(1, 100*time.Microsecond); err != nil && !errors.Is(err, uring.ErrTimeout) {
				t.Fatal(err)
			}
			for op := r.Next(); op != nil; op = r.Next() {
				came(op)
			}
		}
		if g.Free() < 8-1 { // of the one that is half full the kernel has the rest
			t.Fatalf("receive %d: %d buffers are free", round, g.Free())
		}
	}
}

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
			t.Skipf("SKIPPED: %v", err)
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

// TestRecvMsgThatIsPushedAgain: it had room for as much control data as the message before had
// brought. Descriptors were lost, and received control data was cut, for ever.
func TestRecvMsgThatIsPushedAgain(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		in, out := socketsOf(t, unix.SOCK_DGRAM)
		var op uring.Op
		op.RecvMsg(in, make([]byte, unix.CmsgSpace(3*4)), some(16))
		for _, fds := range [][]int{{out.FD()}, nil, {out.FD(), in.FD(), out.FD()}, {out.FD()}} {
			var control []byte
			if fds != nil {
				control = unix.UnixRights(fds...)
			}
			if err := unix.Sendmsg(out.FD(), []byte("message"), control, nil, 0); err != nil {
				t.Fatal(err)
			}
			do(t, r, &op)
			is(t, &op, len("message"))
			if _, cut := op.Truncated(); cut {
				t.Errorf("the control data of %d descriptors is cut", len(fds))
			}
			all, err := unix.ParseSocketControlMessage(op.Control())
			if err != nil || len(all) != min(len(fds), 1) {
				t.Fatalf("control data %x: %v", op.Control(), err)
			}
			for i := range all {
				got, err := unix.ParseUnixRights(&all[i])
				if err != nil || len(got) != len(fds) {
					t.Errorf("%d descriptors came, want %d: %v", len(got), len(fds), err)
				}
				for _, fd := range got {
					unix.Close(fd)
				}
			}
		}
		if err := r.Push(&op); err != nil {
			t.Fatal(err)
		}
		var stop uring.Op
		do2(t, r, &op, stop.Cancel(&op))
		if fails(t, &op, unix.ECANCELED); len(op.Control()) > 0 || op.From().IsValid() {
			t.Errorf("a receive that failed has control data %x from %v", op.Control(), op.From())
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

// TestBundlesAskedForInAnotherOrder: what stands behind a buffer in the queue was looked up when
// its piece was asked for. By then a buffer of a later bundle could stand there, which the kernel
// had again: that was handed out, and the right one was lost.
func TestBundlesAskedForInAnotherOrder(t *testing.T) {
	have(t, uring.ReceiveBundles)
	const n, size = 4, 8
	r := open(t, uring.Config{})
	g, err := r.NewBufferRing(n, size, false)
	if err != nil {
		t.Fatal(err)
	}
	var ops [2]uring.Op
	for i := range ops {
		in, out := sockets(t)
		send(t, out, fmt.Sprintf("%d:first.%d:second", i, i)[:2*size])
		do(t, r, ops[i].RecvFrom(in, g).Bundle().UpTo(2*size))
		is(t, &ops[i], 2*size)
	}
	for i := len(ops) - 1; i >= 0; i-- {
		got := ""
		for p, ok := ops[i].Picked(); ok; p, ok = ops[i].Picked() {
			got += string(p.Bytes)
			p.Give()
		}
		if want := fmt.Sprintf("%d:first.%d:second", i, i)[:2*size]; got != want {
			t.Errorf("%q came, want %q", got, want)
		}
	}
	if g.Free() != n {
		t.Errorf("%d buffers are free", g.Free())
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
