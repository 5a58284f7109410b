package prom_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallywheel/tallywheel/server"
	"github.com/tallywheel/tallywheel/server/prom"
)

// TestSeveralServers: servers of one registry are told apart by a label, and are refused without.
func TestSeveralServers(t *testing.T) {
	registry := prometheus.NewRegistry()
	var collectors []prometheus.Collector
	for range 2 {
		s, err := server.New(server.Config{Handler: http.NotFoundHandler(), Engine: server.Std})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		collectors = append(collectors, prom.Collector(s))
	}
	if err := registry.Register(collectors[0]); err != nil {
		t.Fatal(err)
	}
	var already prometheus.AlreadyRegisteredError
	if err := registry.Register(collectors[1]); !errors.As(err, &already) {
		t.Errorf("a second server: %v", err)
	}
	registry = prometheus.NewRegistry() // one that has had a server without a label takes none with one
	for i, name := range []string{"api", "files"} {
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"server": name},
			registry).Register(collectors[i]); err != nil {
			t.Error(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tallywheel_server_requests_total" && len(f.GetMetric()) == 2 {
			return
		}
	}
	t.Errorf("no requests of two servers among %d families", len(families))
}
