package server_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// memoryOf is what a server holds for its connections: heap and mapped buffers.
func memoryOf(r *running) int { return liveHeap() + int(r.Stats().Mapped) }

// TestSmallAnswersThatNobodyTakesAreBounded: what a client does not take is at most 64 KiB of
// answers, and costs about as much memory, however small the pieces are in which it was written.
func TestSmallAnswersThatNobodyTakesAreBounded(t *testing.T) {
	const peers, most = 1, 2 << 20 // bytes for each of them; a ring maps a MiB at a time
	eachWay(t, loops(ways(t, ofLean)), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Lean: func(w *server.LeanResponse, _ *server.LeanRequest) {}})
		newClient(t, r.addr).want(t, "/", "")
		before := memoryOf(r)
		const batch = 50
		some := []byte(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", batch))
		for range peers {
			c := dial(t, r.addr)
			_ = c.SetReadBuffer(4 << 10)
			for answered := true; answered; { // until the server holds it back
				want := r.Stats().Requests + batch
				if _, err := c.Write(some); err != nil {
					t.Fatal(err)
				}
				answered = false
				for end := time.Now().Add(300 * time.Millisecond); !answered &&
					time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
					answered = r.Stats().Requests >= want
				}
			}
		}
		if each := (memoryOf(r) - before) / peers; each > most {
			t.Errorf("a client that does not read costs %d KiB", each>>10)
		}
	})
}

// TestATimeoutLosesNothingThatWasWritten: a Write that reported success is not taken back by the
// time-out of a later one.
func TestATimeoutLosesNothingThatWasWritten(t *testing.T) {
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		wrote := make(chan int, 1)
		full := make(chan struct{})
		r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
			s, n := newStream(7), 0
			write := func(size int) bool {
				b := make([]byte, size)
				for i := range b {
					b[i] = s.block[(n+i)%len(s.block)]
				}
				m, err := c.Write(b)
				n += m
				return err == nil
			}
			_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			for write(8 << 10) {
			}
			_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			write(16 << 10) // by reference
			close(full)
			_ = c.SetWriteDeadline(time.Time{})
			write(8 << 10)
			wrote <- n
		}})
		c := dial(t, r.addr)
		take(t, full, "a socket that is full")
		got, buf, s := 0, make([]byte, 64<<10), newStream(7)
		for {
			n, err := c.Read(buf)
			for i := range buf[:n] {
				if buf[i] != s.block[(got+i)%len(s.block)] {
					t.Fatalf("byte %d is another", got+i)
				}
			}
			if got += n; err != nil {
				break
			}
		}
		if n := take(t, wrote, "the handler"); n != got {
			t.Errorf("%d bytes were written, %d came", n, got)
		}
	})
}
