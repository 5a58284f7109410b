package lab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
)

// TestOverflowIsAccountedFor: every frame that a source has sent which does not wait is stored, or
// counted at the port, or by the policy; and a disk that stands still has each policy lose where it
// says that it does.
func TestOverflowIsAccountedFor(t *testing.T) {
	e := *experiment(t, "serial-overflow")
	e.Turn = 2 * time.Second
	testenv.Calm(t, func() error {
		o := quickly(t)
		o.Budget, o.MaxRounds = 20*time.Second, 1
		r, err := run(t, t.Context(), o, &e)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			if row.NotRun != "" {
				t.Fatalf("%s: not run: %s", row.Contestant, row.NotRun)
			}
			figure := func(m lab.Metric) float64 { return row.Metrics[m.String()].Median }
			who := fmt.Sprintf("%s, %s", row.Contestant, row.Params)
			sent, lost := figure(lab.SentFrames), figure(lab.LostFrames)
			port, policy := figure(lab.LostAtPort), figure(lab.LostByPolicy)
			t.Logf("%s: %.0f of %.0f lost, %.0f at the port, %.0f by the policy, a rate below %.1e", who, lost, sent, port,
				policy, figure(lab.ErrorBound))
			if lost != port+policy || sent == 0 || figure(lab.FalseFrames) != 0 {
				t.Errorf("%s: %.0f lost, %.0f at the port, %.0f by the policy", who, lost, port, policy)
			}
			if drops := strings.HasPrefix(row.Contestant, "tallywheel/drop-"); !drops && policy != 0 {
				t.Errorf("%s: %.0f given up by a policy that gives nothing up", who, policy)
			} else if row.Params["disk"] == "works" || row.Contestant == "tallywheel/spill" {
				continue
			} else if drops && policy == 0 || !drops && port == 0 {
				return fmt.Errorf("%s: nothing overflowed: %.0f sent", who, sent)
			}
		}
		return nil
	})
}
