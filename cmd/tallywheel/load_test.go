package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

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
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"load", "-c", "4", "--for", "700ms", s.URL})
	err := root.Execute()
	ends.Wait()
	s.Close()
	if err == nil || !strings.Contains(err.Error(), "the server has gone") || !strings.Contains(out.String(), "failed: ") {
		t.Errorf("%v, after %q", err, out.String())
	}
	if !strings.Contains(out.String(), "connect ×") {
		t.Errorf("no failed connection is told: %q", out.String())
	}
}
