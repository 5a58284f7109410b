package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// TestBodiesThatWaitAreBounded: in mode inline the bodies that wait in memory until they are whole
// are at most MaxBodyMemory bytes, all connections together. A request for which there is no room
// is answered 503 and its connection ends; the others are served; and memory that a request had is
// there for the next.
func TestBodiesThatWaitAreBounded(t *testing.T) {
	const memory, body, clients = 1 << 20, 256 << 10, 64
	for name, chunked := range map[string]bool{"length": false, "chunked": true} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, ways(t, ofLean, server.Inline), func(t *testing.T, w way) {
				r := serve(t, w, server.Config{
					MaxBodyBytes: body, MaxBodyMemory: memory, Loops: 2,
					Lean: func(w *server.LeanResponse, r *server.LeanRequest) { fmt.Fprint(w, len(r.Body())) },
				})
				newClient(t, r.addr).want(t, "/", "0")
				for _, leave := range []bool{true, false} { // those who leave give their room back, too
					bodiesWait(t, r, memory, body, clients, chunked, leave)
				}
			})
		})
	}
}

// waiting is a client whose answer may come at any time.
type waiting struct {
	*client
	come chan bool // closed when it has
	resp *http.Response
	body string
	err  error
}

func (c *waiting) read() {
	defer close(c.come)
	if c.resp, c.err = http.ReadResponse(c.in, nil); c.err == nil {
		b, _ := io.ReadAll(c.resp.Body)
		c.body = string(b)
	}
}

func bodiesWait(t *testing.T, r *running, memory, body, clients int, chunked, leave bool) {
	t.Helper()
	half := strings.Repeat("x", body/2)
	head, rest := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", body), half
	first := half
	if chunked {
		head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		first, rest = fmt.Sprintf("%x\r\n%s\r\n", body/2, half), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", body/2, half)
	}
	before := liveHeap()
	var all []*waiting
	for range clients {
		c := &waiting{client: newClient(t, r.addr), come: make(chan bool)}
		go c.read()
		_, _ = io.WriteString(c, head+first)
		all = append(all, c)
	}
	for range 3 { // each loop has seen what came before
		newClient(t, r.addr).want(t, "/", "0")
	}
	if grown := liveHeap() - before; grown > 3*memory+clients*16<<10 {
		t.Errorf("%d bodies of which half has come hold %d bytes, want about %d", clients, grown, memory)
	}
	served, refused := 0, 0
	for _, c := range all {
		if leave {
			_ = c.SetLinger(0)
			c.Close()
			continue
		}
		select {
		case <-c.come: // it was refused, and may be closed by now
		default:
			_, _ = io.WriteString(c, rest)
			take(t, c.come, "an answer")
		}
		if c.err != nil {
			t.Errorf("no answer: %v", c.err)
			continue
		}
		switch {
		case c.resp.StatusCode == http.StatusOK && c.body == fmt.Sprint(body):
			served++
		case c.resp.StatusCode == http.StatusServiceUnavailable && c.resp.Close:
			refused++
			ended(t, c)
		default:
			t.Errorf("the answer is %s, %q", c.resp.Status, c.body)
		}
	}
	until(t, "room", func() bool {
		c := newClient(t, r.addr)
		defer c.Close()
		_, _ = io.WriteString(c, head+first+rest)
		got, err := c.answer("POST")
		return err == nil && got == fmt.Sprint(body)
	})
	if !leave && (served < memory/body || refused == 0) {
		t.Errorf("%d requests were served and %d refused, want at least %d and 1", served, refused, memory/body)
	}
}

// TestBodiesThatHaveHardlyBegunHoldLittle: what is lent to a large body while the socket is asked
// goes back, so that clients who say that they will send much leave room for those who do.
func TestBodiesThatHaveHardlyBegunHoldLittle(t *testing.T) {
	const memory, body, clients = 1 << 20, 1 << 20, 12
	eachWay(t, ways(t, ofLean, server.Inline), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{
			MaxBodyBytes: body, MaxBodyMemory: memory,
			Lean: func(w *server.LeanResponse, r *server.LeanRequest) { fmt.Fprint(w, len(r.Body())) },
		})
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", body)
		for range clients {
			c := newClient(t, r.addr)
			_, _ = io.WriteString(c, head+strings.Repeat("x", 5_000))
		}
		for range 3 { // the loop has seen what came before
			newClient(t, r.addr).want(t, "/", "0")
		}
		const half = memory / 2
		c := newClient(t, r.addr)
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", half,
			strings.Repeat("y", half))
		if got, err := c.answer("POST"); err != nil || got != fmt.Sprint(half) {
			t.Errorf("beside %d bodies that have hardly begun one of %d bytes is answered by %.200q, %v", clients, half,
				got, err)
		}
	})
}
