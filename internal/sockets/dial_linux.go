package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// AnswersWithin is how long a device that is dialled has to answer. The kernel asks again after
// 1, 3 and 7 s, so that a slow link has four tries; left to itself it would go on for two minutes,
// and ask less and less often.
const AnswersWithin = 10 * time.Second

// AnswersAtOnce is how long a device that is dialled may take to answer without an outage: then the
// kernel calls again, for the call or its answer was lost, or nobody is there.
const AnswersAtOnce = time.Second

// Dial connects to a device that listens. A device may accept, send and hang up before connect has
// returned here, which is an error then, or the context may end at that moment: its connection is
// open all the same if the kernel has taken bytes from it. try, if it is not nil, gets each socket
// before it connects; the descriptor is lent.
func Dial(ctx context.Context, addr string, within time.Duration, try func(fd int)) (fd int, peer string, err error) {
	t := tries{each: try}
	defer t.close()
	conn, err := (&net.Dialer{
		ControlContext: t.add, KeepAliveConfig: keepAlive, Timeout: within,
	}).DialContext(ctx, "tcp", addr)
	if err != nil {
		if fd, ok := t.spoke(); ok {
			return fd, addr, nil
		}
		return -1, "", silence(err, addr, within)
	}
	defer conn.Close()
	fd, err = sys.SocketOf(conn.(*net.TCPConn))
	return fd, conn.RemoteAddr().String(), err
}

// silence says that the device did not answer in time, where err is that. Others say it themselves:
// that of a name server, and that of a kernel which gives up sooner.
func silence(err error, addr string, within time.Duration) error {
	var names *net.DNSError
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() || errors.As(err, &names) || errors.Is(err, syscall.ETIMEDOUT) {
		return err
	}
	return fmt.Errorf("dial tcp %s: the device does not answer within %v", addr, within)
}

// tries has a second descriptor for each socket that a Dialer tries, which closes those that fail.
type tries struct {
	each func(fd int)

	mu     sync.Mutex // a name of several addresses is tried by several goroutines
	fds    []int
	closed bool
}

// add is a Dialer's ControlContext. A socket without a second descriptor is tried as well.
func (t *tries) add(_ context.Context, _, _ string, c syscall.RawConn) error {
	if err := inlineUrgent("", "", c); err != nil {
		return err
	}
	return c.Control(func(fd uintptr) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.closed {
			return
		}
		if t.each != nil {
			t.each(int(fd))
		}
		if n, err := sys.Dup(int(fd)); err == nil {
			t.fds = append(t.fds, n)
		}
	})
}

// spoke returns the connection that has brought something, if there is one. It brings nothing more.
func (t *tries) spoke() (fd int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, fd := range t.fds {
		sys.Hang(fd)
		if Waiting(fd) > 0 {
			t.fds = slices.Delete(t.fds, i, i+1)
			return fd, true
		}
	}
	return -1, false
}

func (t *tries) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, fd := range t.fds {
		_ = sys.CloseFD(fd)
	}
}
