package main

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/probe"
)

// TestProbeMetricsAsTheyAreAskedFor: whoever asks for OpenMetrics gets it, and others what
// Prometheus has always read.
func TestProbeMetricsAsTheyAreAskedFor(t *testing.T) {
	p, err := probe.Start(probe.Sched, probe.Options{PID: os.Getpid()})
	if err != nil {
		t.Skipf("SKIPPED: %v; run as root, on a kernel with BTF", err)
	}
	defer p.Close()
	h := probeMetrics(p)
	for accept, want := range map[string]string{
		"": "text/plain; version=0.0.4",
		"application/openmetrics-text; version=1.0.0": "application/openmetrics-text; version=1.0.0",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, want) || w.Code != 200 {
			t.Errorf("%q is answered with %d, %s", accept, w.Code, got)
		}
		if !strings.Contains(w.Body.String(), "\ntallywheel_probe_events_total{") {
			t.Errorf("%q: no events in %s", accept, w.Body)
		}
	}
}
