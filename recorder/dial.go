package recorder

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

// answersWithin is how long a device that is dialled has to answer. The kernel asks again after
// 1, 3 and 7 s, so that a slow link has four tries; left to itself it would go on for two minutes,
// and ask less and less often.
const answersWithin = 10 * time.Second

// dialOpener connects to a device that listens.
type dialOpener struct {
	addr   string
	within time.Duration // the device has to answer: answersWithin, but in tests
}

// dials implements dialler.
func (o *dialOpener) dials() string { return o.addr }

// open connects. A device may accept, send and hang up before connect has returned here, which is
// an error then, or the context may end at that moment: its connection is open all the same if the
// kernel has taken bytes from it.
func (o *dialOpener) open(ctx context.Context) (device, error) {
	var t tries
	defer t.close()
	conn, err := (&net.Dialer{
		ControlContext: t.add, KeepAliveConfig: keepAlive, Timeout: o.within,
	}).DialContext(ctx, "tcp", o.addr)
	if err != nil {
		if d := t.spoke(); d != nil {
			d.peer = o.addr
			return d, nil
		}
		return nil, o.silence(err)
	}
	defer conn.Close()
	return asDevice(newSocket(conn))
}

// silence says that the device did not answer in time, where err is that. Others say it themselves:
// that of a name server, and that of a kernel which gives up sooner.
func (o *dialOpener) silence(err error) error {
	var names *net.DNSError
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() || errors.As(err, &names) || errors.Is(err, syscall.ETIMEDOUT) {
		return err
	}
	return fmt.Errorf("dial tcp %s: the device does not answer within %v", o.addr, o.within)
}

func (o *dialOpener) replaced() <-chan struct{}          { return nil }
func (o *dialOpener) close(bool) ([]device, bool, error) { return nil, false, nil }

// tries has a second descriptor for each socket that a Dialer tries, which closes those that fail.
type tries struct {
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
		if n, err := sys.Dup(int(fd)); err == nil {
			t.fds = append(t.fds, n)
		}
	})
}

// spoke returns the connection that has brought something, nil if there is none. It brings nothing
// more.
func (t *tries) spoke() *socket {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, fd := range t.fds {
		sys.Hang(fd)
		if waiting(fd) > 0 {
			t.fds = slices.Delete(t.fds, i, i+1)
			return &socket{descriptor: fd}
		}
	}
	return nil
}

func (t *tries) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, fd := range t.fds {
		_ = sys.CloseFD(fd)
	}
}
