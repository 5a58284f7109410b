package ring

import (
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/uring"
)

// much is what is sent, when it is asked for, that no socket has room for.
const much = 64 << 20

// echoes serves by a loop on a ring each connection its own words, and much for a '!'. made is
// called with its driver.
func echoes(t *testing.T, made func(d *driver)) (addr string) {
	t.Helper()
	needRings(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := sys.SocketOf(ln.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // fd is the socket's other name
	g := loop.New(loop.Config{
		Loops: 1, MaxConns: 2 * sys.Backlog(), Locked: true, Log: slog.New(slog.DiscardHandler),
		NewDriver: func(l *loop.Loop) (loop.Driver, error) {
			d, err := New(l, Config{Conns: 100})
			if err == nil {
				made(d.(*driver))
			}
			return d, err
		},
		NewApp: func(c *loop.Conn) loop.App {
			return loop.NewGoConn(c, func(g *loop.GoConn) {
				defer g.Close()
				word := make([]byte, 100)
				for {
					n, err := g.Read(word)
					if err != nil {
						return
					}
					if word = word[:n]; string(word) == "!" {
						word = make([]byte, much)
					}
					if _, err := g.Write(word); err != nil {
						return
					}
					word = word[:min(100, cap(word))]
				}
			})
		},
	})
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
	g.Listen(&loop.Listener{FD: fd}, 0, func() error { return sys.CloseFD(fd) }, func(error) {})
	return ln.Addr().String()
}

// dial connects to the loop.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// echoed says a word, and hears it.
func echoed(t *testing.T, c net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != word {
		t.Fatalf("%q, %v; want %q", b, err, word)
	}
}

// TestReceiveThatFindsNothing: a receive that the kernel ends with EAGAIN has found nothing yet. It
// is tried again when there is something.
func TestReceiveThatFindsNothing(t *testing.T) {
	var again atomic.Int32
	addr := echoes(t, func(d *driver) {
		d.ended = func(op *uring.Op) error {
			if op.Err() == nil && op.Res > 0 && again.Add(1) <= 3 {
				return syscall.EAGAIN
			}
			return op.Err()
		}
	})
	c := dial(t, addr)
	for range 20 {
		echoed(t, c, "words")
	}
	if again.Load() < 3 {
		t.Errorf("%d receives found nothing, want 3", again.Load())
	}
}

// TestRoomInAFullRing: what finds the ring full is done once there is room, by retry.
func TestRoomInAFullRing(t *testing.T) {
	never, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	file := uring.NewFile(never)
	t.Cleanup(func() { file.Close() }) // behind the end of the loop, which is registered later
	var conns, late atomic.Int32
	addr := echoes(t, func(d *driver) {
		d.taken = func(op *uring.Op) (int, error) {
			switch conns.Add(1) {
			case 1:
			case 2:
				for d.ring.Push(d.op(tagOther, 0).Poll(file, sys.PollReadable)) == nil {
				}
			default:
				late.Store(int32(len(d.late)))
			}
			return taken(op)
		}
	})
	c := dial(t, addr)
	echoed(t, c, "there is room") // from now on its receive stays
	echoed(t, c, "there is room")
	dial(t, addr)
	testenv.Until(t, time.Minute, "the ring is full", func() bool { return conns.Load() >= 2 })
	if _, err := io.WriteString(c, "!"); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "who waits for room waits for the ring", func() bool {
		dial(t, addr).Close()
		return late.Load() > 0
	})
	sys.EventfdSignal(never)
	if n, err := io.CopyN(io.Discard, c, much); err != nil {
		t.Fatalf("%d bytes, %v; want %d", n, err, much)
	}
}
