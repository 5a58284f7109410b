package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestAHookThatAlwaysEndsItsGoroutine, in the clean-up after itself, too, ends connections but no
// loop.
func TestAHookThatAlwaysEndsItsGoroutine(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP, server.Coroutine)), func(t *testing.T, w way) {
		var over atomic.Bool
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(hello), ConnState: func(net.Conn, http.ConnState) {
			if !over.Load() {
				runtime.Goexit()
			}
		}})
		c := dial(t, r.addr)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.Copy(io.Discard, c)
		time.Sleep(50 * time.Millisecond) // the hook runs after the client has seen the end
		over.Store(true)
		d := newClient(t, r.addr)
		_ = d.SetDeadline(time.Now().Add(soon))
		d.want(t, "/x", "/x")
	})
}
