package server_test

import (
	"net/http"
	"testing"
)

// TestSuiteEventStreamsAreNotTimed: how long one is open says nothing of how quick the server is.
func TestSuiteEventStreamsAreNotTimed(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/events" {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			_, _ = w.Write([]byte("data: x\n\n"))
		})
		for _, path := range []string{"/", "/events", "/", "/events"} {
			s.get(t, path)
		}
		count := func() (timed, all uint64) {
			timed, _, _ = s.Latency()
			return timed, s.Stats().Requests
		}
		if !eventually(func() bool { timed, all := count(); return timed == 2 && all == 4 }) {
			timed, all := count()
			t.Errorf("%d answers of %d are timed, want 2 of 4", timed, all)
		}
	})
}
