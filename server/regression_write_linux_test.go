package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// TestAnEmptyWriteHoldsNothing: a handler that writes no bytes to its connection keeps nothing open
// by it: the connection ends, and so does Close.
func TestAnEmptyWriteHoldsNothing(t *testing.T) {
	gone := func(t *testing.T, r *running, c net.Conn) {
		t.Helper()
		ended(t, c)
		c.Close()
		until(t, "the end of the connection", func() bool { return r.Stats().Open == 0 })
		quiet(t)
	}
	t.Run("conn", func(t *testing.T) {
		eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
			r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
				if n, err := c.Write(nil); n != 0 || err != nil {
					t.Errorf("an empty Write gives %d, %v", n, err)
				}
			}})
			gone(t, r, dial(t, r.addr))
		})
	})
	t.Run("hijacked", func(t *testing.T) {
		eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
			r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Write(nil)
				c.Close()
			})})
			c := dial(t, r.addr)
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			gone(t, r, c)
		})
	})
}
