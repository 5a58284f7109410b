package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestAHalfClosedClientGetsAllAnswers: a client sends its requests, ends its side, and takes the
// answers when it likes. To a poll the end of its side is always an event; it is no room.
func TestAHalfClosedClientGetsAllAnswers(t *testing.T) {
	const requests, size = 40, 200_000
	page := []byte(strings.Repeat("0123456789", size/10))
	file := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	lean := func(w *server.LeanResponse, _ *server.LeanRequest) { _, _ = w.Write(page) }
	for _, kind := range []struct {
		name string
		ways []way
		h    http.HandlerFunc
	}{
		{"page", httpWays(t), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }},
		{"file", ways(t, ofHTTP), func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			eachWay(t, kind.ways, func(t *testing.T, w way) {
				r := serve(t, w, httpConfig(w, kind.h, lean))
				for _, late := range []bool{false, true} {
					c := newClient(t, r.addr)
					_ = c.SetReadBuffer(256 << 10)
					fmt.Fprint(c, strings.Repeat("GET /page HTTP/1.1\r\nHost: a\r\n\r\n", requests))
					if late {
						rests(t, r) // the server waits for room
					}
					_ = c.CloseWrite()
					rests(t, r)
					for i := range requests {
						if got, err := c.answer("GET"); err != nil || got != string(page) {
							t.Fatalf("late %v: answer %d of %d: %d bytes, %v", late, i, requests, len(got), err)
						}
					}
					if n, err := io.Copy(io.Discard, c.in); n > 0 || err != nil && !errors.Is(err, io.EOF) {
						t.Errorf("late %v: behind the answers: %d bytes, %v", late, n, err)
					}
				}
			})
		})
	}
}

// rests waits until the server's loops make no calls of the kernel.
func rests(t testing.TB, r *running) {
	t.Helper()
	const most = 20 // the timers' calls are a few
	ok := until(t, "the loops rest", func() bool {
		before := r.Stats().Calls
		time.Sleep(200 * time.Millisecond)
		return r.Stats().Calls-before < most
	})
	if !ok {
		t.FailNow()
	}
}
