package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// TestInputWaitsUnharmedWhileItsHandlerWrites: what was received is the connection's own while its
// handler waits for room to write. The steps are those by which a loop's receive buffer once was
// read after it had been handed on: input that was held and read to its end, then input of which a
// handler reads a part, then a write that has to wait while others receive.
func TestInputWaitsUnharmedWhileItsHandlerWrites(t *testing.T) {
	const small, part, input, much = 4000, 100, 500, 16 << 20
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		s, out := newStream(3), make([]byte, much)
		var first atomic.Bool
		failed := make(chan error, 1)
		steps := func(c net.Conn) error {
			b := make([]byte, small+2*input)
			_, err := c.Write(out) // waits; small bytes come meanwhile
			_, e := io.ReadFull(c, b[:small])
			_, e1 := c.Write(out[:1]) // the client may go on
			_, e2 := io.ReadFull(c, b[small:small+part])
			_, e3 := c.Write(out) // waits; the others receive, and more comes for this one
			_, e4 := io.ReadFull(c, b[small+part:])
			return errors.Join(err, e, e1, e2, e3, e4, s.check(b, 0))
		}
		r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
			if first.CompareAndSwap(false, true) {
				failed <- steps(c)
				return
			}
			_, _ = io.Copy(c, c)
		}})
		c := dial(t, r.addr)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the handler is in its first write
			t.Fatal(err)
		}
		_, e := c.Write(s.block[:small])
		echoMuch(t, r.addr)
		_, e1 := io.ReadFull(c, make([]byte, much)) // what is left, and the one byte
		_, e2 := c.Write(s.block[small : small+input])
		_, e3 := io.ReadFull(c, make([]byte, 1)) // the handler is in its second write
		echoMuch(t, r.addr)
		_, e4 := c.Write(s.block[small+input : small+2*input])
		echoMuch(t, r.addr)
		_, e5 := io.ReadFull(c, make([]byte, much-1))
		if err := errors.Join(e, e1, e2, e3, e4, e5); err != nil {
			t.Errorf("the client: %v", err)
		}
		if err := take(t, failed, "the end of the handler"); err != nil {
			t.Errorf("the handler: %v", err)
		}
	})
}

// echoMuch passes more through a loop than its receive buffers hold.
func echoMuch(t *testing.T, addr string) {
	t.Helper()
	const size = 8 << 20
	c := dial(t, addr)
	defer c.Close()
	s := newStream(4)
	go func() {
		for off := 0; off < size; {
			n, err := c.Write(s.block[:min(len(s.block), size-off)])
			if err != nil {
				return // its reader says more
			}
			off += n
		}
	}()
	if _, err := io.CopyN(io.Discard, c, size); err != nil {
		t.Errorf("another connection: %v", err)
	}
}
