package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// stocks runs a test on both kinds of rings of buffers.
func stocks(t *testing.T, n, size int, test func(t *testing.T, r *uring.Ring, g *uring.BufferRing)) {
	if err := uring.Probe().Has(uring.BufferRings); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	for _, incremental := range []bool{false, true} {
		t.Run(fmt.Sprintf("incremental=%v", incremental), func(t *testing.T) {
			r := open(t, uring.Config{})
			g, err := r.NewBufferRing(n, size, incremental)
			if err != nil {
				t.Fatal(err)
			}
			if g.Incremental() != incremental {
				t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", uring.Probe().Has(uring.IncrementalBuffers))
			}
			test(t, r, g)
		})
	}
}

func send(t testing.TB, f *uring.File, s string) {
	t.Helper()
	if _, err := unix.Write(f.FD(), []byte(s)); err != nil {
		t.Fatal(err)
	}
}

// TestCompletionsThatNobodyAsksFor: who called Next before Picked lost the buffer for good, Free
// counted it as there, and the next piece of an incremental buffer was the bytes before.
func TestCompletionsThatNobodyAsksFor(t *testing.T) {
	stocks(t, 4, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		a, b := sockets(t)
		var op uring.Op
		if err := r.Push(op.RecvEach(a, g)); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			send(t, b, fmt.Sprintf("message %08d", i))
			reap(t, r, 1)
			if op.Err() != nil || !op.More() {
				t.Fatalf("message %d: %v, %d buffers free", i, op.Err(), g.Free())
			}
			if i%7 == 0 {
				p, ok := op.Picked()
				if want := fmt.Sprintf("message %08d", i); !ok || string(p.Bytes) != want {
					t.Fatalf("%q, want %q", p.Bytes, want)
				}
				if _, ok := op.Picked(); ok {
					t.Fatal("the same piece twice")
				}
				p.Give()
			}
		}
		op2 := new(uring.Op).Cancel(&op)
		do2(t, r, &op, op2)
		op.Reset()
		if g.Free() < 3 { // of the one that is half full the kernel has the rest
			t.Errorf("%d buffers are free", g.Free())
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Operations that have ended keep their piece until it is asked for.
func TestPiecesAskedForLater(t *testing.T) {
	stocks(t, 2, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		a, b := sockets(t)
		var ops [2]uring.Op
		for i := range ops {
			send(t, b, fmt.Sprintf("message %d", i))
			do(t, r, ops[i].RecvFrom(a, g))
		}
		if want := map[bool]int{false: 0, true: 2}[g.Incremental()]; g.Free() != want {
			t.Errorf("%d buffers are free, want %d", g.Free(), want)
		}
		for i := len(ops) - 1; i >= 0; i-- {
			p, ok := ops[i].Picked()
			if want := fmt.Sprintf("message %d", i); !ok || string(p.Bytes) != want {
				t.Errorf("%q, want %q", p.Bytes, want)
			}
			p.Give()
		}
		if g.Free() != 2 {
			t.Errorf("%d buffers are free", g.Free())
		}
	})
}

// What a receive may not take stays in the socket.
func TestReceiveUpTo(t *testing.T) {
	stocks(t, 4, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		a, b := sockets(t)
		send(t, b, "0123456789abcdef")
		var op uring.Op
		for _, want := range []string{"0123", "4567", "89abcdef"} {
			do(t, r, op.RecvFrom(a, g).UpTo(max(len(want), 4)))
			p, ok := op.Picked()
			if !ok || string(p.Bytes) != want {
				t.Errorf("%q came, want %q", p.Bytes, want)
			}
			p.Give()
		}
		panics(t, "a receive of each arrival", func() { new(uring.Op).RecvEach(a, g).UpTo(1) })
		panics(t, "nothing", func() { new(uring.Op).RecvFrom(a, g).UpTo(0) })
	})
}

// A piece that is given back twice gave back the memory of another one.
func TestPieceGivenBackTwice(t *testing.T) {
	stocks(t, 1, 32, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		a, b := sockets(t)
		var op uring.Op
		receive := func() uring.Piece {
			send(t, b, "16 bytes of data")
			do(t, r, op.RecvFrom(a, g))
			p, ok := op.Picked()
			if !ok {
				t.Fatal(op.Result())
			}
			return p
		}
		first := receive()
		if g.Incremental() { // the second piece is in the same buffer, which is full then
			second := receive()
			first.Give()
			panics(t, "first", first.Give)
			second.Give()
			panics(t, "second", second.Give)
		} else {
			var none uring.Op
			do(t, r, none.RecvFrom(a, g))
			fails(t, &none, unix.ENOBUFS)
			first.Give()
		}
		panics(t, "an empty buffer", first.Give)
		next := receive() // the same buffer
		panics(t, "the buffer's piece before", first.Give)
		if string(next.Bytes) != "16 bytes of data" {
			t.Errorf("%q", next.Bytes)
		}
		if err := g.Close(); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("closing while a piece is out: %v", err)
		}
		next.Give()
	})
}

// The number of a group is the ring's own: another ring's picked from whatever had it here.
func TestBuffersOfAnotherRing(t *testing.T) {
	stocks(t, 1, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		other := open(t, uring.Config{})
		if _, err := other.NewBufferRing(1, 64, false); err != nil {
			t.Fatal(err)
		}
		a, b := sockets(t)
		send(t, b, "hello")
		var op uring.Op
		if err := other.Push(op.RecvFrom(a, g)); err == nil {
			t.Error("buffers of another ring")
			reap(t, other, 1)
		}
	})
}

// The memory of a piece outlives the ring, and that of operations in flight is not unmapped.
func TestPieceOutlivesItsRing(t *testing.T) {
	stocks(t, 2, os.Getpagesize(), func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		a, b := sockets(t)
		var op, each uring.Op
		send(t, b, "hello")
		do(t, r, op.RecvFrom(a, g))
		p, _ := op.Picked()
		if err := errors.Join(r.Push(each.RecvEach(a, g)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("closing under an operation: %v", err)
		}
		if err := r.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p.Bytes, []byte("hello")) {
			t.Errorf("%q", p.Bytes)
		}
		p.Give()
		if _, ok := op.Picked(); ok {
			t.Error("a piece of a ring that has ended")
		}
		p.Give()
	})
}

// RecvMsg did not say that a message was longer than its buffers.
func TestTruncatedMessages(t *testing.T) {
	r := open(t, uring.Config{})
	a, b := socketsOf(t, unix.SOCK_DGRAM)
	var op uring.Op
	for _, test := range []struct {
		message, rights string
		room, control   int
		data, ctl       bool
	}{
		{"short", "", 5, 0, false, false},
		{"longer", "", 5, 0, true, false},
		{"a file", "yes", 6, 64, false, false},
		{"a file", "yes", 6, 0, false, true},
		{"a file", "yes", 5, 8, true, true},
	} {
		var rights []byte
		if test.rights != "" {
			rights = unix.UnixRights(a.FD())
		}
		if err := unix.Sendmsg(b.FD(), []byte(test.message), rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		do(t, r, op.RecvMsg(a, make([]byte, test.control), uring.Wrap(make([]byte, test.room))))
		is(t, &op, test.room)
		if data, control := op.Truncated(); data != test.data || control != test.ctl {
			t.Errorf("%+v: %v, %v", test, data, control)
		}
		if test.rights == "" || test.ctl {
			continue
		}
		msgs, err := unix.ParseSocketControlMessage(op.Control())
		if err != nil || len(msgs) != 1 {
			t.Fatal(msgs, err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil || len(fds) != 1 {
			t.Fatal(fds, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a received descriptor goes to children: %#x, %v", flags, err)
		}
		unix.Close(fds[0])
	}
}
