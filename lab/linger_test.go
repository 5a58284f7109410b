package lab_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// TestLingering: who appends alone to a log whose batches are left open waits for at least that
// long, and for its record to be durable; and of a log that writes chains it is said how many were
// whole.
func TestLingering(t *testing.T) {
	e := *experiment(t, "log-durable")
	var linger, linked *lab.Contestant
	for _, c := range e.Contestants {
		switch c.Name {
		case "tallywheel/seglog linger":
			linger = c
		case "tallywheel/seglog linked linger":
			linked = c
		}
	}
	if linger == nil || linked == nil {
		t.Fatal("no contestant lingers")
	}
	e.Base, e.Claims, e.Advice = nil, nil, nil
	e.Contestants = []*lab.Contestant{linger, linked}
	o := quickly(t)
	o.Budget, o.MaxRounds = time.Millisecond, 1 // the shortest turn there is
	r, err := run(t, t.Context(), o, &e)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.NotRun != "" {
			if row.Contestant == linked.Name {
				t.Logf("SKIPPED: %s: %s", row.Contestant, row.NotRun)
				continue
			}
			t.Fatalf("%s: not run: %s", row.Contestant, row.NotRun)
		}
		p50, whole := row.Metrics[lab.LatencyP50.String()], row.Metrics[lab.ChainsWhole.String()]
		if row.Params["producers"] == "1" && slices.Min(p50.Samples) < 1000 {
			t.Errorf("%s: half of the appends took %v µs, and a batch is open for 1 ms", row.Contestant, p50.Samples)
		}
		if isChain := row.Contestant == linked.Name; isChain && whole.Median != 100 || !isChain && whole.N > 0 {
			t.Errorf("%s: chains whole: %+v", row.Contestant, whole)
		} else if isChain && !strings.Contains(row.Said, "batches whole (100.00 %)") {
			t.Errorf("%s: said of its chains: %q", row.Contestant, row.Said)
		}
	}
}
