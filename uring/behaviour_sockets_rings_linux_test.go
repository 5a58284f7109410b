package uring_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

var behavioursOfSockets = map[string]func(t *testing.T, r *uring.Ring){
	"accept-link": func(t *testing.T, r *uring.Ring) { // an accept whose time is over
		ln, _ := listen(t)
		var accept, late uring.Op
		chain(t, r, accept.Accept(ln), late.LinkTimeout(time.Millisecond))
		fails(t, &accept, unix.ECANCELED)
		fails(t, &late, unix.ETIME)
	},
	// … leaves the listener as it was; one that does not block waits, too
	"accept-reuse": func(t *testing.T, r *uring.Ring) {
		needs(t, uring.OpSocket)
		ln, addr := listen(t)
		var accept, stop, socket, connect uring.Op
		for range 3 {
			if err := r.Push(accept.Accept(ln)); err != nil {
				t.Fatal(err)
			}
			do2(t, r, &accept, stop.Cancel(&accept))
			fails(t, &accept, unix.ECANCELED)
			do(t, r, socket.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
			c, err := socket.NewFile(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(r.Push(accept.Accept(ln)), r.Push(connect.Connect(c, addr))); err != nil {
				t.Fatal(err)
			}
			reap(t, r, 2)
			is(t, &connect, 0)
			s, err := accept.NewFile(nil)
			if err := errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
			gives(t, r, new(uring.Op).Recv(s, some(1)), 0)
			s.Close()
		}
	},
	"connect": func(t *testing.T, r *uring.Ring) {
		needs(t, uring.OpSocket)
		ln, addr := listen(t)
		ln.Close()
		var socket uring.Op
		do(t, r, socket.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
		c, err := socket.NewFile(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		refuses(t, r, new(uring.Op).Recv(c, some(1)), unix.ENOTCONN)
		refuses(t, r, new(uring.Op).Connect(c, addr), unix.ECONNREFUSED)
		refuses(t, r, new(uring.Op).Connect(c, netip.MustParseAddrPort("[::1]:1")), unix.EAFNOSUPPORT)
	},
	"bind-listen": func(t *testing.T, r *uring.Ring) {
		needs(t, uring.OpSocket, uring.OpBind, uring.OpListen)
		_, addr := listen(t)
		var socket uring.Op
		do(t, r, socket.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
		f, err := socket.NewFile(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		refuses(t, r, new(uring.Op).Bind(f, addr), unix.EADDRINUSE)
		refuses(t, r, new(uring.Op).Accept(f), unix.EINVAL)
		file, _ := temp(t)
		refuses(t, r, new(uring.Op).Listen(file, 1), unix.ENOTSOCK)
	},
	"shutdown": func(t *testing.T, r *uring.Ring) {
		a, b := sockets(t)
		var recv uring.Op
		if err := errors.Join(r.Push(recv.Recv(b, some(10))), r.Submit()); err != nil {
			t.Fatal(err)
		}
		var end uring.Op
		if err := r.Push(end.Shutdown(a, unix.SHUT_WR)); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 2)
		is(t, &end, 0)
		is(t, &recv, 0)
		refuses(t, r, new(uring.Op).Send(a, some(1)), unix.EPIPE) // and no signal
		gives(t, r, new(uring.Op).Send(b, some(1)), 1)
		refuses(t, r, new(uring.Op).Shutdown(a, 77), unix.EINVAL)
	},
	"socket-rw-eagain": func(t *testing.T, r *uring.Ring) {
		a, b := sockets(t)
		refuses(t, r, new(uring.Op).Recv(a, some(1)).Flags(unix.MSG_DONTWAIT), unix.EAGAIN)
		send(t, b, "ab")
		got := some(2)
		gives(t, r, new(uring.Op).Recv(a, got).Flags(unix.MSG_PEEK), 2)
		gives(t, r, new(uring.Op).Recv(a, got).Flags(unix.MSG_DONTWAIT), 2)
		if string(got.Bytes()) != "ab" {
			t.Errorf("%q", got.Bytes())
		}
	},
	"recv-msgall": func(t *testing.T, r *uring.Ring) {
		a, b := sockets(t)
		got, recv := some(6), new(uring.Op)
		if err := errors.Join(r.Push(recv.Recv(a, got).WaitAll()), r.Submit()); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"ab", "cd", "ef"} {
			if !recv.InFlight() {
				t.Fatal("before all had come")
			}
			send(t, b, part)
			if err := r.WaitFor(0, 0); err != nil {
				t.Fatal(err)
			}
		}
		reap(t, r, 1)
		if is(t, recv, 6); string(got.Bytes()) != "abcdef" {
			t.Errorf("%q", got.Bytes())
		}
		send(t, b, "xyz")
		b.Close()
		gives(t, r, recv.Recv(a, got).WaitAll(), 3) // the end is an end
	},
	// datagrams keep their borders, and an address is that of the sender
	"send_recv": func(t *testing.T, r *uring.Ring) {
		needs(t, uring.OpSocket, uring.OpBind)
		var f [2]*uring.File
		var addr [2]netip.AddrPort
		for i := range f {
			var socket uring.Op
			do(t, r, socket.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
			var err error
			if f[i], err = socket.NewFile(nil); err != nil {
				t.Fatal(err)
			}
			defer f[i].Close()
			gives(t, r, new(uring.Op).Bind(f[i], netip.MustParseAddrPort("127.0.0.1:0")), 0)
			name, err := unix.Getsockname(f[i].FD())
			if err != nil {
				t.Fatal(err)
			}
			addr[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}),
				uint16(name.(*unix.SockaddrInet4).Port))
		}
		for _, n := range []int{1, 1000, 0, 65_000} {
			var recv uring.Op
			gives(t, r, new(uring.Op).SendMsg(f[0], addr[1], nil, some(n)), n)
			gives(t, r, recv.RecvMsg(f[1], nil, some(n+10)), n)
			if recv.From() != addr[0] {
				t.Errorf("from %v, want %v", recv.From(), addr[0])
			}
		}
		refuses(t, r, new(uring.Op).SendMsg(f[0], addr[1], nil, some(66_000)), unix.EMSGSIZE)
	},
	"poll-many": func(t *testing.T, r *uring.Ring) { // one event ends all polls that wait for it
		in, out := pipe(t)
		ops := make([]uring.Op, 60)
		for i := range ops {
			if err := r.Push(ops[i].Poll(in, unix.POLLIN)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		send(t, out, "x")
		reap(t, r, len(ops))
		for i := range ops {
			is(t, &ops[i], unix.POLLIN)
		}
	},
	"poll-cancel": func(t *testing.T, r *uring.Ring) {
		in, _ := pipe(t)
		var poll, stop uring.Op
		if err := r.Push(poll.Poll(in, unix.POLLIN)); err != nil {
			t.Fatal(err)
		}
		do2(t, r, &poll, stop.Cancel(&poll))
		fails(t, &poll, unix.ECANCELED)
		is(t, &stop, 0)
		refuses(t, r, stop.Cancel(&poll), unix.ENOENT)
	},
	"poll": func(t *testing.T, r *uring.Ring) { // the end is an event whether it was asked for or not
		in, out := pipe(t)
		var poll uring.Op
		if err := errors.Join(r.Push(poll.Poll(in, unix.POLLIN)), r.Submit(), out.Close()); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 1)
		if poll.Res&unix.POLLHUP == 0 {
			t.Errorf("%#x", poll.Res)
		}
	},
	"io-cancel": func(t *testing.T, r *uring.Ring) { // those of one file, and then all
		if err := uring.Probe().Has(uring.MultishotAccept); err != nil { // of the same kernel
			t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
		}
		one, _ := pipe(t)
		two, _ := pipe(t)
		ops := make([]uring.Op, 9)
		for i := range ops {
			f := one
			if i >= 5 {
				f = two
			}
			if err := r.Push(ops[i].Read(f, some(1), uring.Current)); err != nil {
				t.Fatal(err)
			}
		}
		var stop uring.Op
		if err := errors.Join(r.Submit(), r.Push(stop.CancelFile(one))); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 6)
		is(t, &stop, 5)
		for i := range ops {
			if (ops[i].Err() == nil) != (i >= 5) || ops[i].InFlight() != (i >= 5) {
				t.Errorf("operation %d: %v, in flight %v", i, ops[i].Err(), ops[i].InFlight())
			}
		}
		if err := r.Push(stop.CancelAll()); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 5)
		is(t, &stop, 4)
	},
}

var behavioursOfRings = map[string]func(t *testing.T, r *uring.Ring){
	"exec-target": func(t *testing.T, _ *uring.Ring) { // a child gets no ring
		out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out, []byte("io_uring")) {
			t.Errorf("%s", out)
		}
	},
	"cq-peek-batch": func(t *testing.T, r *uring.Ring) { // what needs no wait completes in its order
		ops := make([]uring.Op, 40)
		for i := range ops {
			if err := r.Push(&ops[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i, op := range reap(t, r, len(ops)) {
			if op != &ops[i] {
				t.Fatalf("completion %d is of another", i)
			}
		}
	},
	"link": func(t *testing.T, r *uring.Ring) { // one that fails ends what is behind it
		in, _ := pipe(t)
		var ops [4]uring.Op
		chain(t, r, &ops[0], ops[1].Write(in, some(1), 0), ops[2].Nop(), ops[3].Nop())
		is(t, &ops[0], 0)
		fails(t, &ops[1], unix.EBADF)
		fails(t, &ops[2], unix.ECANCELED)
		fails(t, &ops[3], unix.ECANCELED)
		chain(t, r, ops[0].Write(in, some(1), 0), ops[1].Nop())
		fails(t, &ops[0], unix.EBADF)
		fails(t, &ops[1], unix.ECANCELED)
	},
	"link hard": func(t *testing.T, r *uring.Ring) { // … but not in a hard chain
		in, _ := pipe(t)
		var ops [3]uring.Op
		if err := r.HardChain(&ops[0], ops[1].Write(in, some(1), 0), ops[2].Nop()); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 3)
		fails(t, &ops[1], unix.EBADF)
		is(t, &ops[2], 0)
	},
	"link-timeout": func(t *testing.T, r *uring.Ring) { // in the middle of a chain it is for the one before it
		in, _ := pipe(t)
		var read, late, behind uring.Op
		chain(t, r, read.Read(in, some(1), uring.Current), late.LinkTimeout(time.Millisecond), behind.Nop())
		fails(t, &read, unix.ECANCELED)
		fails(t, &late, unix.ETIME)
		fails(t, &behind, unix.ECANCELED)
		chain(t, r, read.Nop(), late.LinkTimeout(time.Hour), behind.Nop())
		is(t, &read, 0)
		fails(t, &late, unix.ECANCELED)
		is(t, &behind, 0)
	},
	"msg-ring": func(t *testing.T, r *uring.Ring) { // to oneself, in order
		needs(t, uring.OpMsgRing)
		var box uring.Op
		if err := r.Push(box.Mailbox()); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			var m uring.Op
			if err := errors.Join(r.Push(m.Message(box.Address(), uint32(i)))); err != nil {
				t.Fatal(err)
			}
			reap(t, r, 2)
			is(t, &m, 0)
			is(t, &box, i)
		}
	},
	"nop-all-sizes": func(t *testing.T, _ *uring.Ring) {
		for n := 1; n <= 32768; n *= 4 {
			r, err := uring.New(uring.Config{Entries: n, InFlight: n})
			if err != nil {
				t.Fatal(err)
			}
			ops := make([]uring.Op, n+1)
			for i := range n {
				if err := r.Push(&ops[i]); err != nil {
					t.Fatalf("%d of %d: %v", i, n, err)
				}
			}
			if err := r.Push(&ops[n]); !errors.Is(err, uring.ErrFull) {
				t.Errorf("one more than %d: %v", n, err)
			}
			reap(t, r, n)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	},
	"sq-full": func(t *testing.T, _ *uring.Ring) { // a full queue is handed over by itself
		r := open(t, uring.Config{Entries: 4, InFlight: 32})
		ops := make([]uring.Op, 33)
		for i := range 32 {
			if err := r.Push(&ops[i]); err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
		if err := r.Push(&ops[32]); !errors.Is(err, uring.ErrFull) {
			t.Errorf("more than may be in flight: %v", err)
		}
		reap(t, r, 32)
		do(t, r, &ops[32])
	},
	"teardowns": func(t *testing.T, _ *uring.Ring) { // rings come and go with operations in flight
		in, _ := pipe(t)
		for i := range 100 {
			r, err := uring.New(uring.Config{Entries: 4})
			if err != nil {
				t.Fatal(err)
			}
			fd := uring.FDOf(r)
			var read, poll, wait uring.Op
			if err := errors.Join(r.Push(read.Read(in, some(10), uring.Current)), r.Push(poll.Poll(in, unix.POLLIN)),
				r.Push(wait.Timeout(time.Hour, 0))); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				if err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Shutdown(nil); err != nil || read.InFlight() || poll.InFlight() || wait.InFlight() ||
				isOpen(fd) {
				t.Fatalf("round %d: %v", i, err)
			}
		}
	},
	// by their times; after so many others; and what is over is over at once
	"timeout": func(t *testing.T, r *uring.Ring) {
		var ops [3]uring.Op
		for i, ms := range []time.Duration{90, 60, 30} {
			if err := r.Push(ops[i].Timeout(ms*time.Millisecond, 0)); err != nil {
				t.Fatal(err)
			}
		}
		for i, op := range reap(t, r, 3) {
			fails(t, op, unix.ETIME)
			if op != &ops[2-i] {
				t.Errorf("completion %d is of another", i)
			}
		}
		var a, b uring.Op
		if err := errors.Join(r.Push(ops[0].Timeout(time.Hour, 2)), r.Push(&a), r.Push(&b)); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 3)
		is(t, &ops[0], 0)
		refuses(t, r, ops[0].TimeoutAt(uring.Monotonic, 1), unix.ETIME)
		refuses(t, r, ops[0].Timeout(-time.Second, 0), unix.EINVAL)
		if err := r.Push(ops[0].Timeout(time.Hour, 0)); err != nil {
			t.Fatal(err)
		}
		do2(t, r, &ops[0], a.UpdateTimeout(&ops[0], time.Microsecond))
		is(t, &a, 0)
		fails(t, &ops[0], unix.ETIME)
		refuses(t, r, a.UpdateTimeout(&ops[0], time.Microsecond), unix.ENOENT)
	},
	"futex": func(t *testing.T, r *uring.Ring) { // one wake, one waiter
		needs(t, uring.OpFutexWait, uring.OpFutexWake)
		word := new(uint32)
		var waits [3]uring.Op
		for i := range waits {
			if err := r.Push(waits[i].FutexWait(word, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		for woken := 1; woken <= len(waits); woken++ {
			var wake uring.Op
			if err := r.Push(wake.FutexWake(word, 1)); err != nil {
				t.Fatal(err)
			}
			reap(t, r, 2)
			is(t, &wake, 1)
			over := 0
			for i := range waits {
				if !waits[i].InFlight() {
					over++
				}
			}
			if over != woken {
				t.Errorf("%d are over after %d were woken", over, woken)
			}
		}
		refuses(t, r, waits[0].FutexWait(word, 1), unix.EAGAIN)
	},
	"wait-timeout": func(t *testing.T, r *uring.Ring) {
		if err := r.WaitFor(1, time.Millisecond); !errors.Is(err, uring.ErrIdle) {
			t.Errorf("with nothing in flight: %v", err)
		}
		in, _ := pipe(t)
		var read uring.Op
		if err := r.Push(read.Read(in, some(1), uring.Current)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := r.WaitFor(1, 20*time.Millisecond); !errors.Is(err, uring.ErrTimeout) ||
			time.Since(began) < 20*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		do2(t, r, &read, new(uring.Op).Cancel(&read))
	},
	"self": func(t *testing.T, r *uring.Ring) { // nothing that is no operation, and nothing of another, ends a wait
		other := open(t, uring.Config{})
		var a, b uring.Op
		if err := errors.Join(other.Push(&a), other.Wait(1)); err != nil {
			t.Fatal(err)
		}
		if err := r.Push(b.Timeout(time.Millisecond, 0)); err != nil {
			t.Fatal(err)
		}
		if got := reap(t, r, 1)[0]; got != &b {
			t.Error("a completion of another ring")
		}
		if got := other.Next(); got != &a || other.Next() != nil {
			t.Error("the other ring has lost it")
		}
	},
	"probe": func(t *testing.T, _ *uring.Ring) { // what it says holds for each operation of this package
		if err := uring.Probe().HasOp(uring.OpNop); err != nil {
			t.Error(err)
		}
		if err := uring.Probe().HasOp(uring.Opcode(200)); err == nil || errors.Is(err, io.EOF) {
			t.Error("an operation that is none")
		}
		if s := uring.Probe().String(); strings.Count(s, "\n") < 50 {
			t.Errorf("%s", s)
		}
	},
}
