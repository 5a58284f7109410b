package server_test

import (
	"net/http"
	"testing"
	"time"
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

// TestSuiteLatencyIsTheRequests: what is timed is each request by itself, on whatever it runs: all
// together take no longer than a client waits that sends them one after the other.
func TestSuiteLatencyIsTheRequests(t *testing.T) {
	const (
		rounds = 20
		get    = "GET / HTTP/1.1\nHost: a\n\n"
	)
	sends := []string{ // in mode coroutine all but the first go on on a goroutine, and so what is behind them
		get + get, upgrade + get, "POST" + upgrade[len("GET"):] + get, "CONNECT a:1 HTTP/1.1\nHost: a:1\n\n" + get,
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("ok"))
		began, answers := time.Now(), uint64(0)
		for range rounds {
			for _, send := range sends {
				c := s.dial(t)
				c.send(send)
				for range 2 {
					c.reply(t, "GET")
					answers++
				}
				c.Close()
			}
		}
		if !eventually(func() bool { n, _, _ := s.Latency(); return n == answers }) {
			n, _, _ := s.Latency()
			t.Errorf("%d answers are timed, want %d", n, answers)
		}
		// of two that come together each has waited as long; a turn's time is that of its beginning
		if _, sum, _ := s.Latency(); sum > 4*time.Since(began).Seconds() {
			t.Errorf("%d answers took %.3f s, in %v", answers, sum, time.Since(began))
		}
	})
}
