package server

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestACloseTakesFourCompletions: a request with a connection of its own takes a ring an accept, a
// receive, a send and a close, and no receive that has to be called back.
func TestACloseTakesFourCompletions(t *testing.T) {
	if err := Available(Uring); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	s, addr := start(t, Config{Engine: Uring, Mode: Coroutine, Loops: 1, Handler: http.HandlerFunc(hello)})
	const n = 200
	for range n {
		c := dial(t, addr)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, time.Minute, "the connections are gone", func() bool { return s.Stats().Open == 0 })
	if got := s.Stats().Completed; got > 4*n+n/2 {
		t.Errorf("%d completions for %d connections, want four of each", got, n)
	}
}
