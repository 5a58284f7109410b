package uring_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

func TestNamesAndFolders(t *testing.T) {
	needs(t, uring.OpMkdirAt, uring.OpRenameAt, uring.OpUnlinkAt)
	r := open(t, uring.Config{})
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("old"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var op uring.Op
	do(t, r, op.Mkdir(in("folder"), 0o750))
	is(t, &op, 0)
	if st, err := os.Stat(in("folder")); err != nil || !st.IsDir() || st.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", st, err)
	}
	do(t, r, op.Mkdir(in("folder"), 0o750))
	fails(t, &op, unix.EEXIST)
	do(t, r, op.Rename(in("old"), in("folder/new")))
	is(t, &op, 0)
	if b, err := os.ReadFile(in("folder/new")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	do(t, r, op.Rename(in("old"), in("older")))
	fails(t, &op, unix.ENOENT)
	do(t, r, op.Remove(in("folder"), true))
	fails(t, &op, unix.ENOTEMPTY)
	do(t, r, op.Remove(in("folder"), false))
	fails(t, &op, unix.EISDIR)
	do(t, r, op.Remove(in("folder/new"), false))
	is(t, &op, 0)
	do(t, r, op.Remove(in("folder"), true))
	is(t, &op, 0)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	for _, bad := range []*uring.Op{
		op.Rename("a", "b\x00"), new(uring.Op).Rename("a\x00", "b"),
		new(uring.Op).Remove("\x00", false), new(uring.Op).Mkdir("\x00", 0),
	} {
		if err := r.Push(bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%v of a name with a zero byte: %v", bad.Code(), err)
		}
	}
}

func TestReadEach(t *testing.T) {
	needs(t, uring.OpReadMultishot)
	stocks(t, 2, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		in, out := pipe(t)
		var op uring.Op
		if err := r.Push(op.ReadEach(in, g)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"first", "second", "third", "fourth"} {
			send(t, out, want)
			reap(t, r, 1)
			p, ok := op.Picked()
			if !ok || string(p.Bytes) != want || !op.More() {
				t.Fatalf("%q, more %v, want %q", p.Bytes, op.More(), want)
			}
			p.Give()
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 1)
		if op.More() || op.Res != 0 {
			t.Errorf("at the end of the pipe: %d, more %v", op.Res, op.More())
		}
	})
}

func TestUpdatePoll(t *testing.T) {
	needs(t, uring.OpPollRemove)
	r, other := open(t, uring.Config{}), open(t, uring.Config{})
	a, b := sockets(t)
	var poll, update, cancel uring.Op
	if err := errors.Join(r.Push(poll.PollEach(a, unix.POLLIN)), r.Submit()); err != nil {
		t.Fatal(err)
	}
	if err := other.Push(update.UpdatePoll(&poll, unix.POLLOUT)); err == nil {
		t.Error("the operation of another ring is changed")
	}
	if err := r.Push(update.UpdatePoll(&poll, unix.POLLOUT)); err != nil {
		t.Fatal(err)
	}
	for !poll.InFlight() || poll.Res&unix.POLLOUT == 0 || update.InFlight() { // it can be written at once
		if err := r.WaitFor(1, time.Minute); err != nil {
			t.Fatal(err)
		}
		for r.Next() != nil {
		}
	}
	is(t, &update, 0)
	send(t, b, "x")
	if err := r.Push(cancel.Cancel(&poll)); err != nil {
		t.Fatal(err)
	}
	for poll.InFlight() || cancel.InFlight() {
		if err := r.WaitFor(1, time.Minute); err != nil {
			t.Fatal(err)
		}
		for r.Next() != nil {
		}
	}
	do(t, r, update.UpdatePoll(&poll, unix.POLLIN))
	fails(t, &update, unix.ENOENT)
}

func TestBindAndListen(t *testing.T) {
	needs(t, uring.OpBind, uring.OpListen, uring.OpSocket)
	r := open(t, uring.Config{})
	var op, accept, connect uring.Op
	socket := func() *uring.File {
		do(t, r, op.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
		f, err := op.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	ln, client := socket(), socket()
	do(t, r, op.Bind(ln, netip.MustParseAddrPort("127.0.0.1:0")))
	is(t, &op, 0)
	do(t, r, op.Listen(ln, 4))
	is(t, &op, 0)
	name, err := unix.Getsockname(ln.FD())
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port))
	do(t, r, accept.Accept(ln), connect.Connect(client, at))
	is(t, &connect, 0)
	f, err := accept.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := r.Push(op.Bind(ln, netip.AddrPort{})); err == nil {
		t.Error("no address")
	}
}

// A datagram that is longer than its buffer: its length is told, and no byte beyond the buffer is.
func TestFlagsOfASocket(t *testing.T) {
	stocks(t, 2, 8, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		a, b := socketsOf(t, unix.SOCK_DGRAM)
		var op uring.Op
		buf := uring.Wrap(make([]byte, 8))
		do(t, r, op.Recv(a, buf).Flags(unix.MSG_DONTWAIT))
		fails(t, &op, unix.EAGAIN)
		send(t, b, "longer than eight")
		do(t, r, op.Recv(a, buf).Flags(unix.MSG_PEEK|unix.MSG_TRUNC))
		is(t, &op, 17)
		if got := string(buf.Bytes()); got != "longer t" {
			t.Errorf("%q", got)
		}
		panics(t, "flags of a nop", func() { new(uring.Op).Nop().Flags(1) })
		if g.Incremental() {
			if err := r.Push(op.RecvFrom(a, g).Flags(unix.MSG_TRUNC)); err == nil {
				t.Error("the kernel goes on by the length")
			}
			return
		}
		do(t, r, op.RecvFrom(a, g).Flags(unix.MSG_TRUNC))
		is(t, &op, 17)
		piece, ok := op.Picked()
		if !ok || string(piece.Bytes) != "longer t" {
			t.Errorf("%q", piece.Bytes)
		}
		piece.Give()
	})
}

// WaitSome gathers, but does not keep what is there waiting.
func TestWaitSome(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		var never uring.Op
		in, _ := pipe(t)
		if err := r.Push(never.Poll(in, unix.POLLIN)); err != nil {
			t.Fatal(err)
		}
		if err := r.WaitSome(2, time.Millisecond, 3*time.Millisecond); !errors.Is(err, uring.ErrTimeout) {
			t.Errorf("nothing came: %v", err)
		}
		for range 20 {
			var one, two uring.Op
			if err := errors.Join(r.Push(&one), r.Push(two.Timeout(time.Millisecond, 0))); err != nil {
				t.Fatal(err)
			}
			if err := r.WaitSome(3, 100*time.Microsecond, time.Minute); err != nil { // the third never comes
				t.Fatal(err)
			}
			if r.Next() == nil {
				t.Fatal("it came back with nothing")
			}
			for one.InFlight() || two.InFlight() {
				if err := r.WaitSome(1, time.Millisecond, time.Minute); err != nil {
					t.Fatal(err)
				}
				for r.Next() != nil {
				}
			}
		}
		for _, gather := range []time.Duration{-1, 2 * time.Hour} {
			if err := r.WaitSome(1, gather, time.Second); err == nil {
				t.Errorf("gather for %v", gather)
			}
		}
		do2(t, r, &never, new(uring.Op).Cancel(&never))
	})
}
