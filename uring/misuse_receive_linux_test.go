package uring_test

import (
	"bytes"
	"errors"
	"fmt"
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
