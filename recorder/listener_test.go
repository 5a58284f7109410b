package recorder

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// closings is how many listeners TestClosingLosesNothing closes.
const closings = 25

// A listener that closes while devices connect gives up no connection of which the kernel has
// acknowledged a byte.
func TestClosingLosesNothing(t *testing.T) {
	for n := range closings {
		o := newListener("127.0.0.1:0", config.PeersFirst)
		addr := o.l.Addr().String()
		var acked, sent, read atomic.Uint64
		var senders sync.WaitGroup
		quit := make(chan struct{})
		for range 4 {
			senders.Go(func() {
				for !isDone(quit) {
					acked.Add(sendAll(addr, &sent))
				}
			})
		}
		var readers sync.WaitGroup
		take := func(d device) {
			readers.Go(func() {
				d.deafen()
				read.Add(readAll(d))
				_ = d.close()
			})
		}
		testenv.Until(t, 20*time.Second, "senders send", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if d, err := o.open(ctx); err == nil {
				take(d)
			}
			return sent.Load() > uint64(100*n)
		})
		for more := true; more; {
			var rest []device
			var err error
			if rest, more, err = o.close(false); err != nil {
				t.Fatal(err)
			}
			for _, d := range rest {
				take(d)
			}
		}
		close(quit)
		readers.Wait()
		senders.Wait()
		if read.Load() < acked.Load() || read.Load() > sent.Load() {
			t.Errorf("closing %d: %d bytes sent, %d acknowledged, %d read", n, sent.Load(), acked.Load(), read.Load())
		}
	}
}

func isDone(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sendAll makes one connection, and returns how many of its bytes were acknowledged.
func sendAll(addr string, sent *atomic.Uint64) (acked uint64) {
	conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond) // a listener that closes answers nobody
	if err != nil {
		return 0
	}
	defer conn.Close()
	n, _ := conn.Write(bytes.Repeat([]byte("x"), 100))
	sent.Add(uint64(n))
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	_, _ = conn.Read(make([]byte, 1)) // the other side has ended, in order or not
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { acked, _ = sys.Acknowledged(int(fd)) })
	}
	return min(acked, uint64(n))
}

// readAll reads a connection that is deaf to its end.
func readAll(d device) (all uint64) {
	b := make([]byte, 1000)
	for {
		n, err := sys.Receive(d.fd(), b)
		if n == 0 || err != nil {
			return all
		}
		all += uint64(n)
	}
}
