package uring_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// sockets returns a connected pair of stream sockets.
func sockets(t testing.TB) (a, b *uring.File) {
	t.Helper()
	return socketsOf(t, unix.SOCK_STREAM)
}

// socketsOf returns a connected pair of sockets of that kind.
func socketsOf(t testing.TB, kind int) (a, b *uring.File) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = uring.NewFile(p[0]), uring.NewFile(p[1])
	t.Cleanup(func() {
		for _, f := range []*uring.File{a, b} {
			if err := f.Close(); err != nil && !errors.Is(err, uring.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return a, b
}

func listen(t testing.TB) (*uring.File, netip.AddrPort) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // it has no zero-copy send
	ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := uring.FileOf(ln.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	ln.Close() // the duplicate listens on
	t.Cleanup(func() { f.Close() })
	return f, addr
}

func TestConnectAcceptSendReceive(t *testing.T) {
	needs(t, uring.OpSocket)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		ln, addr := listen(t)
		var accept, op uring.Op
		do(t, r, op.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
		client, err := op.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		do(t, r, accept.Accept(ln), op.Connect(client, addr))
		is(t, &op, 0)
		server, err := accept.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		hello, got := uring.Wrap([]byte("hello")), uring.Wrap(make([]byte, 5))
		var recv uring.Op
		do(t, r, op.Send(client, hello), recv.Recv(server, got).WaitAll())
		is(t, &op, 5)
		is(t, &recv, 5)
		if string(got.Bytes()) != "hello" {
			t.Errorf("%q", got.Bytes())
		}
		do(t, r, op.Shutdown(client, unix.SHUT_WR))
		is(t, &op, 0)
		do(t, r, recv.Recv(server, got))
		is(t, &recv, 0)
		do(t, r, op.Connect(client, netip.MustParseAddrPort("[::1]:1")))
		if op.Err() == nil {
			t.Error("an IPv6 address on an IPv4 socket")
		}
		if err := r.Push(op.Connect(client, netip.AddrPort{})); err == nil {
			t.Error("no address")
		}
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestAcceptEach(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotAccept); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	for _, direct := range []bool{false, true} {
		r := open(t, uring.Config{})
		if err := r.RegisterFiles(8); err != nil {
			t.Fatal(err)
		}
		ln, addr := listen(t)
		var accept, cancel uring.Op
		accept.AcceptEach(ln)
		if direct {
			accept.Direct()
		}
		if err := errors.Join(r.Push(&accept), r.Submit()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			c, err := net.Dial("tcp4", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.WaitFor(1, time.Minute); err != nil {
				t.Fatal(err)
			}
			if op := r.Next(); op != &accept || !op.More() {
				t.Fatal("accept ended")
			}
			f, err := accept.NewFile(r)
			if err != nil || f.Direct() != direct {
				t.Fatal(f, err)
			}
			if err := errors.Join(f.Close(), c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		do2(t, r, &accept, cancel.Cancel(&accept))
		fails(t, &accept, unix.ECANCELED)
	}
}

func TestReceiveEach(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotReceive); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	for _, incremental := range []bool{false, true} {
		r := open(t, uring.Config{})
		g, err := r.NewBufferRing(4, 1024, incremental)
		if err != nil {
			t.Fatal(err)
		}
		if g.Incremental() != incremental && uring.Probe().Has(uring.IncrementalBuffers) == nil {
			t.Errorf("incremental: %v", g.Incremental())
		}
		a, b := sockets(t)
		var recv, send uring.Op
		if err := r.Push(recv.RecvEach(a, g)); err != nil {
			t.Fatal(err)
		}
		data := random(100_000)
		var got bytes.Buffer
		starved := 0
		for sent, ended := 0, false; !ended; {
			if sent < len(data) && !send.InFlight() {
				n := min(len(data)-sent, 1+sent%3000)
				if err := r.Push(send.Send(b, uring.Wrap(data[sent:sent+n])).WaitAll()); err != nil {
					t.Fatal(err)
				}
				sent += n
			} else if sent == len(data) && !send.InFlight() && got.Len() == len(data) {
				if err := r.Push(send.Shutdown(b, unix.SHUT_WR)); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			if err := r.WaitFor(1, time.Minute); err != nil {
				t.Fatalf("sent %d, received %d: %v", sent, got.Len(), err)
			}
			var held []uring.Piece
			for op := r.Next(); op != nil; op = r.Next() {
				if op != &recv {
					continue
				}
				if p, ok := op.Picked(); ok {
					got.Write(p.Bytes)
					held = append(held, p)
				}
				if op.More() {
					continue
				}
				if errors.Is(op.Err(), unix.ENOBUFS) {
					starved++
				} else if op.Res == 0 {
					ended = true
				} else if op.Err() != nil {
					t.Fatal(op.Err())
				}
			}
			for _, p := range held {
				p.Give()
			}
			if !recv.InFlight() && !ended {
				if err := r.Push(&recv); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Errorf("incremental %v: %d bytes received are not the %d sent", incremental, got.Len(), len(data))
		}
		if !incremental && g.Free() != 4 {
			t.Errorf("%d of 4 buffers came back", g.Free())
		}
		t.Logf("incremental %v: out of buffers %d times", incremental, starved)
		for send.InFlight() {
			reap(t, r, 1)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestZeroCopySend(t *testing.T) {
	needs(t, uring.OpSendZC)
	r := open(t, uring.Config{})
	ln, addr := listen(t)
	c, err := net.Dial("tcp4", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var op uring.Op
	do(t, r, op.Accept(ln))
	f, err := op.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := random(50_000)
	received := make(chan []byte, 1)
	go func() {
		got := make([]byte, len(data))
		_, err := io.ReadFull(c, got)
		if err != nil {
			got = nil
		}
		received <- got
	}()
	buf := uring.Wrap(data)
	if err := r.Push(op.SendZeroCopy(f, buf).WaitAll()); err != nil {
		t.Fatal(err)
	}
	for completions := 0; completions < 2; {
		if err := r.WaitFor(1, time.Minute); err != nil {
			t.Fatal(err)
		}
		for r.Next() != nil {
			if completions++; completions == 1 {
				is(t, &op, len(data))
			}
			if last := completions == 2; op.More() == last || buf.InFlight() == last || op.Notification() != last {
				t.Errorf("completion %d: more %v, buffer in flight %v, notification %v", completions, op.More(),
					buf.InFlight(), op.Notification())
			}
		}
	}
	if !bytes.Equal(<-received, data) {
		t.Error("other bytes arrived")
	}
}

func TestMessages(t *testing.T) {
	r := open(t, uring.Config{})
	socket := func() (*uring.File, netip.AddrPort) {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f, err := uring.FileOf(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f, c.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	a, from := socket()
	b, to := socket()
	if _, err := unix.GetsockoptInt(b.FD(), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		t.Fatal(err)
	}
	one, two := uring.Wrap([]byte("two ")), uring.Wrap([]byte("parts"))
	got := uring.Wrap(make([]byte, 64))
	control := make([]byte, 64)
	var send, recv uring.Op
	for _, fill := range []func() *uring.Op{
		func() *uring.Op { return send.SendMsg(a, to, nil, one, two) },
		func() *uring.Op { return send.SendMsgZeroCopy(a, to, nil, one, two) },
	} {
		op := fill()
		if uring.Probe().HasOp(op.Code()) != nil {
			continue
		}
		if err := errors.Join(r.Push(op), r.Push(recv.RecvMsg(b, control, got))); err != nil {
			t.Fatal(err)
		}
		for op.InFlight() || recv.InFlight() {
			if err := r.WaitFor(1, time.Minute); err != nil {
				t.Fatal(err)
			}
			for next := r.Next(); next != nil; next = r.Next() {
				if next.Err() != nil {
					t.Fatal(next.Result())
				}
			}
		}
		is(t, &recv, 9)
		if string(got.Bytes()[:9]) != "two parts" || recv.From() != from || len(recv.Control()) != 0 {
			t.Errorf("%q from %v", got.Bytes()[:9], recv.From())
		}
	}
}

// A socket may be a direct descriptor, too.
func TestDirectSocket(t *testing.T) {
	needs(t, uring.OpSocket)
	r := open(t, uring.Config{Entries: 8})
	if err := r.RegisterFiles(4); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	ln, addr := listen(t)
	var accept, op uring.Op
	do(t, r, op.Socket(unix.AF_INET, unix.SOCK_STREAM, 0).Direct())
	client, err := op.NewFile(r)
	if err != nil || !client.Direct() {
		t.Fatalf("%+v: %v", client, err)
	}
	do(t, r, accept.Accept(ln).Direct(), op.Connect(client, addr))
	is(t, &op, 0)
	server, err := accept.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	got := uring.Wrap(make([]byte, 2))
	var recv uring.Op
	do(t, r, op.Send(client, uring.Wrap([]byte("hi"))), recv.Recv(server, got))
	is(t, &op, 2)
	is(t, &recv, 2)
	for _, f := range []*uring.File{client, server} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
