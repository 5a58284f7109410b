package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// TestEarlyConnections: who connects while the server is still starting is served like all others,
// without Nagle's algorithm, which would hold back every second of small answers for 40 ms.
func TestEarlyConnections(t *testing.T) {
	eachOf(t, ways(t, Goroutine), func(t *testing.T, w way) {
		if w.Engine == Std {
			return // net/http's own
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		early := dial(t, ln.Addr().String())
		options := make(chan [2]int, 1)
		s, err := New(Config{Engine: w.Engine, Loops: 1, Conn: func(_ context.Context, c net.Conn) {
			defer c.Close()
			fd := c.(*loop.GoConn).Socket().FD()
			noDelay, _ := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
			keepAlive, _ := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
			options <- [2]int{noDelay, keepAlive}
		}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ln) }()
		if _, err := io.ReadAll(early); err != nil {
			t.Error(err)
		}
		if got := <-options; got != [2]int{1, 1} {
			t.Errorf("TCP_NODELAY and SO_KEEPALIVE are %v", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// TestAListenerIsClosedWhenServeReturns: the end of Serve waits for the loop to close its
// descriptor of the socket, and no longer.
func TestAListenerIsClosedWhenServeReturns(t *testing.T) {
	eachOf(t, ways(t, Goroutine), func(t *testing.T, w way) {
		if w.Engine == Std {
			return // net/http's own
		}
		s, _ := start(t, Config{Engine: w.Engine, Handler: http.NotFoundHandler()})
		const tries = 5 // the machine may stand still meanwhile
		for i := range tries {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			stop, err := s.listen(ln, make(chan error, 1))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if stop(); time.Since(began) < unlistens {
				return
			}
			if i == tries-1 {
				t.Errorf("it took more than %v each time", unlistens)
			}
		}
	})
}
