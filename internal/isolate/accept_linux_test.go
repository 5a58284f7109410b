package isolate

import (
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// A connection that its other end has reset before the keeper accepts it tells no more where it
// comes from. The shelf has that, for whoever comes after a kill, too.
func TestAddressOfAConnectionThatWasReset(t *testing.T) {
	st := newStage(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := sys.SocketOf(l.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	st.k.mu.Lock()
	defer st.k.mu.Unlock()
	st.k.place(message{Op: opPut, Name: ListenerOf("x")}, []int{fd})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	from := c.LocalAddr().String()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	testenv.Until(t, time.Minute, "the keeper accepts", func() bool {
		in, err := sys.HasInput(fd)
		return in || err != nil
	})
	for range 2 { // the second asks for one that was accepted for somebody who has not heard of it
		answer, fds := st.k.accept("x", GuestOf("x", 1))
		if len(fds) != 1 {
			t.Fatalf("%d descriptors: %s", len(fds), answer.Data)
		}
		if a, err := sys.PeerOf(fds[0]); err == nil {
			t.Fatalf("the kernel still tells: %v", a)
		}
		e := Entry{Data: answer.Data}
		shelf := Entry{Data: st.k.entry(GuestOf("x", 1)).data}
		if e.Peer() != from || shelf.Peer() != from {
			t.Errorf("it comes from %q, and the shelf has %q: want %q", e.Peer(), shelf.Peer(), from)
		}
	}
}
