package lab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
)

// TestProbeAgrees: what the probe says of requests is never more than what their program waited,
// and on a machine that is not too busy it is nearly all of it.
func TestProbeAgrees(t *testing.T) {
	e := *experiment(t, "probe-latency")
	testenv.Calm(t, func() error {
		o := quickly(t)
		o.Budget, o.MaxRounds = time.Millisecond, 1 // the shortest turn there is
		r, err := run(t, t.Context(), o, &e)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			if why := row.NotRun; why != "" {
				for _, lacks := range []string{
					"may not load programs", "has no BTF", "lacks a tracepoint", "io_uring",
				} {
					if strings.Contains(why, lacks) {
						t.Skipf("SKIPPED: %s; run as root, outside of a container, on a kernel with BTF", why)
					}
				}
				t.Fatalf("%s: not run: %s", row.Contestant, why)
			}
			share := row.Metrics[lab.ProbeShare.String()].Median
			if share > 101 {
				t.Fatalf("%s: the probe says %.1f %% of what the program waited", row.Contestant, share)
			}
			least := 80.0
			if row.Contestant == "arrivals" { // who sends is waited for, too
				least = 40
			}
			if share < least {
				return fmt.Errorf("%s: the probe says %.1f %% of what the program waited", row.Contestant, share)
			}
			if row.Metrics[lab.ProbeReaped.String()].Median <= 0 {
				t.Errorf("%s: nothing was reaped: %+v", row.Contestant, row.Metrics)
			}
		}
		return nil
	})
}
