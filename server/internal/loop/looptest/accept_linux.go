package looptest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// What accept(2) says of errors: those of the network, which come from the connection that would
// have been next, are to be treated like EAGAIN; so are a connection that has gone and one that a
// firewall forbids. Of descriptors and memory there may be more later. Others are the listener's.
var (
	passing = []syscall.Errno{
		syscall.ENETDOWN, syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.ENONET, syscall.EHOSTUNREACH,
		syscall.EOPNOTSUPP, syscall.ENETUNREACH,
		syscall.ECONNABORTED, syscall.EPERM, syscall.ETIMEDOUT,
	}
	limits = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}
	final  = []syscall.Errno{
		syscall.EBADF, syscall.EFAULT, syscall.EINVAL, syscall.ENOTSOCK, syscall.ESOCKTNOSUPPORT,
		syscall.EPROTONOSUPPORT,
	}
)

// NewDriver makes a driver of a kernel whose accepts fail where fail is not nil: the connection
// that was accepted is closed then.
type NewDriver func(l *loop.Loop, fail func() error) (loop.Driver, error)

// AcceptErrors checks what a driver makes of each error of accept(2).
func AcceptErrors(t *testing.T, newDriver NewDriver) {
	const quick = 15 // errors of single connections that are tried again at once
	for _, e := range passing {
		t.Run("passing/"+e.Error(), func(t *testing.T) { retried(t, newDriver, e, quick) })
	}
	for _, e := range limits {
		t.Run("limit/"+e.Error(), func(t *testing.T) { retried(t, newDriver, e, 0) })
	}
	for _, e := range final {
		t.Run("final/"+e.Error(), func(t *testing.T) {
			a := accepting(t, newDriver, e, 1)
			select {
			case err := <-a.ended:
				if err != e {
					t.Errorf("the listener ends by %v, want %v", err, e)
				}
			case <-time.After(time.Minute):
				t.Error("the listener goes on")
			}
		})
	}
}

// retried checks that after quick errors each further one is waited for twice as long, that the log
// has one line of it and one of its end, and that connections are accepted then.
func retried(t *testing.T, newDriver NewDriver, e syscall.Errno, quick int) {
	t.Parallel() // it waits
	const slow = 4
	a := accepting(t, newDriver, e, quick+slow)
	select {
	case <-a.accepted:
	case err := <-a.ended:
		t.Fatalf("the listener ends by %v", err)
	case <-time.After(time.Minute):
		t.Fatal("no connection is accepted")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tries) != quick+slow {
		t.Fatalf("%d accepts failed, want %d", len(a.tries), quick+slow)
	}
	least := 5 * time.Millisecond
	for i := quick + 1; i < len(a.tries); i++ {
		if d := a.tries[i].Sub(a.tries[i-1]); d < least*4/5 { // it counts from the turn's beginning
			t.Errorf("try %d came %v after the one before, want %v or more", i, d, least)
		}
		least *= 2
	}
	if len(a.lines) != 2 || a.lines[0] != slog.LevelWarn || a.lines[1] != slog.LevelInfo {
		t.Errorf("the log has lines of levels %v, want a warning and its end", a.lines)
	}
}

// acceptor is a loop with a listener at which many have connected, and whose first accepts fail.
type acceptor struct {
	ended    chan error
	accepted chan struct{}

	mu    sync.Mutex
	left  int // accepts that are to fail
	tries []time.Time
	lines []slog.Level
}

func accepting(t *testing.T, newDriver NewDriver, e syscall.Errno, fails int) *acceptor {
	a := &acceptor{ended: make(chan error, 1), accepted: make(chan struct{}, 1), left: fails}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range fails + 1 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	fd, err := sys.SocketOf(ln.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // fd is the socket's other name
	g := loop.New(loop.Config{
		Loops: 1, MaxConns: 100, Locked: true, Log: slog.New(levels{slog.DiscardHandler, a}),
		NewDriver: func(l *loop.Loop) (loop.Driver, error) { return newDriver(l, func() error { return a.fail(e) }) },
		NewApp: func(c *loop.Conn) loop.App {
			select {
			case a.accepted <- struct{}{}:
			default:
			}
			return loop.NewGoConn(c, func(g *loop.GoConn) { _ = g.Close() })
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
	g.Listen(&loop.Listener{FD: fd}, 0, func() error { return sys.CloseFD(fd) }, func(err error) { a.ended <- err })
	return a
}

// fail is what becomes of an accept.
func (a *acceptor) fail(e syscall.Errno) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == 0 {
		return nil
	}
	a.left--
	a.tries = append(a.tries, time.Now())
	return e
}

// levels keeps the level of each line of a log.
type levels struct {
	slog.Handler
	a *acceptor
}

// Enabled implements slog.Handler.
func (levels) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l levels) Handle(_ context.Context, r slog.Record) error {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	l.a.lines = append(l.a.lines, r.Level)
	return nil
}
