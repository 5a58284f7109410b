package sockets

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestTaken holds what the kernel says was read from a connection to what was, before and behind
// the peer's end.
func TestTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fd, err := sys.SocketOf(conn.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(fd)
	read := uint64(0)
	want := func(when string) {
		t.Helper()
		if n, ok := sys.Taken(fd); !ok || n != read {
			t.Errorf("%s: %d, %v; want %d", when, n, ok, read)
		}
	}
	if _, ok := sys.Taken(fd); !ok {
		t.Skip("SKIPPED: the kernel does not tell what a connection has received; run this on Linux 4.1 or later")
	}
	want("at the beginning")
	for _, n := range []int{1, 1000, 30_000} {
		if _, err := peer.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, "the bytes have come",
			func() bool { w, err := sys.Waiting(fd); return err == nil && w >= n })
		want("with bytes that wait")
		if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		read += uint64(n)
		want("behind a read")
	}
	if _, err := peer.Write(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = peer.(*net.TCPConn).CloseWrite()
	testenv.Until(t, time.Minute, "the end has come", func() bool { return sys.PeerEnded(fd) })
	want("with bytes before the end")
	for _, n := range []int{4, 6} {
		if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		read += uint64(n)
		want("behind bytes before the end")
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatal(n, err)
	}
	want("behind the end")
}
