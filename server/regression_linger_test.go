package server_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestASlowReaderThatStillSendsGetsAllAnswers: where a connection ends while the body of the last
// request is on its way, the answers before are there for a client that reads only when it has sent
// all of that. More of them than the client's socket takes wait in the server's kernel meanwhile.
func TestASlowReaderThatStillSendsGetsAllAnswers(t *testing.T) {
	const (
		answers, size = 3, 500_000
		body          = 100_000
		pieces        = 20
		pause         = 60 * time.Millisecond // in all more than the server waits for a client with nothing to lose
	)
	page := strings.Repeat("x", size)
	ends := map[string]struct {
		leave  func() // nil: nothing of the handler's doing
		most   int64  // of a body
		within time.Duration
		status int // of the answer to the last request; 0: there is none
	}{
		"panic":    {leave: func() { panic(http.ErrAbortHandler) }},
		"exit":     {leave: runtime.Goexit},
		"413":      {most: body / 2, status: http.StatusRequestEntityTooLarge},
		"too late": {within: pause},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			all := loops(httpWays(t))
			switch {
			case end.leave != nil: // inline has the body before it calls a handler
				all = ways(t, ofHTTP)
			case end.within > 0: // the others call one that hears of it
				all = ways(t, ofLean, server.Inline)
			}
			eachWay(t, all, func(t *testing.T, w way) {
				t.Parallel()
				cfg := httpConfig(w, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost && end.leave != nil {
						end.leave()
					}
					w.Header().Set("Content-Length", fmt.Sprint(size))
					_, _ = io.WriteString(w, page)
				}, func(w *server.LeanResponse, _ *server.LeanRequest) { _, _ = w.WriteString(page) })
				cfg.MaxBodyBytes, cfg.ReadTimeout = end.most, end.within
				c := newClient(t, serve(t, w, cfg).addr)
				_ = c.SetReadBuffer(64 << 10)
				fmt.Fprint(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", answers))
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", body)
				for range pieces {
					time.Sleep(pause) // a client that takes its time
					if _, err := c.Write(make([]byte, body/pieces)); err != nil {
						t.Errorf("the body is not taken: %v", err)
						break
					}
				}
				for i := range answers {
					if got, err := c.answer("GET"); err != nil || got != page {
						t.Fatalf("answer %d has %d bytes of %d, %v", i, len(got), size, err)
					}
				}
				if end.status > 0 {
					if line, err := c.in.ReadString('\n'); !strings.Contains(line, fmt.Sprint(end.status)) {
						t.Errorf("the last answer is %q, %v", line, err)
					}
				} else if got, err := io.ReadAll(c.in); len(got) > 0 {
					t.Errorf("the last answer is %q, %v", got, err)
				}
			})
		})
	}
}
