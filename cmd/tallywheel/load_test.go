package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// loadOf runs tallywheel load, and returns what it prints and its error.
func loadOf(args ...string) (string, error) {
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(append([]string{"load"}, args...))
	err := root.Execute()
	return out.String(), err
}

// What programs read is JSON whose lists are lists; what people read says of a stall what it is.
func TestLoadSaysWhatWasNotAnswered(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	text, err := loadOf("-c", "2", "--rate", "200", "--for", "200ms", s.URL+"/", s.URL+"/bad")
	if err != nil || !strings.Contains(text, "requests had no good answer, and count as long as they had waited") || !strings.Contains(text, "failed: status 503 ×") {
		t.Errorf("%v: %s", err, text)
	}
	for _, path := range []string{"/", "/bad"} {
		text, err := loadOf("-c", "2", "--for", "50ms", "--json", s.URL+path)
		var r struct {
			Requests uint64           `json:"requests"`
			Errors   map[string]int   `json:"errors"`
			Latency  map[string]any   `json:"latency_us"`
			Samples  []map[string]any `json:"samples"`
		}
		if strings.Contains(text, "null") || json.Unmarshal([]byte(text), &r) != nil || r.Latency["p99.9"] == nil {
			t.Errorf("%s: %v: %s", path, err, text)
		}
		if good := path == "/"; good != (r.Requests > 0) || good != (r.Errors["status 503"] == 0) || good != (err == nil) {
			t.Errorf("%s: %v: %s", path, err, text)
		}
	}
}

// A server that dies under a load was exit code 0, since it had answered before.
func TestLoadSaysThatTheServerHasGone(t *testing.T) {
	var served atomic.Int64
	var s *httptest.Server
	var ends sync.WaitGroup
	s = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if served.Add(1) == 200 {
			ends.Go(func() {
				_ = s.Listener.Close()
				s.CloseClientConnections()
			})
		}
	}))
	out, err := loadOf("-c", "4", "--for", "700ms", s.URL)
	ends.Wait()
	s.Close()
	if err == nil || !strings.Contains(err.Error(), "the server has gone") || !strings.Contains(out, "failed: ") {
		t.Errorf("%v, after %q", err, out)
	}
	if !strings.Contains(out, "connect ×") {
		t.Errorf("no failed connection is told: %q", out)
	}
}
