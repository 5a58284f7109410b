package lab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
)

// TestUnplugged: under the condition of that name the port is unplugged, only who opens it again
// takes part, and that one stores all that was sent.
func TestUnplugged(t *testing.T) {
	e := *experiment(t, "serial-strategies")
	cells := e.Cells
	e.Cells = func(o lab.Options) (some []lab.Params) {
		for _, c := range cells(o) {
			if c["condition"] == "unplugged" {
				some = append(some, c)
			}
		}
		return some
	}
	e.Base, e.Claims, e.Advice, e.Turn = nil, nil, nil, 3*time.Second
	testenv.Calm(t, func() error {
		o := quickly(t)
		o.Budget, o.MaxRounds = time.Minute, 1
		r, err := run(t, t.Context(), o, &e)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 1 || r.Rows[0].NotRun != "" {
			t.Fatalf("rows: %+v, want the recorder's", r.Rows)
		}
		m := r.Rows[0].Metrics
		if lost := m[lab.LostFrames.String()].Median; lost != 0 {
			t.Errorf("%.0f frames of %.0f are lost", lost, m[lab.SentFrames.String()].Median)
		}
		if m[lab.Unplugged.String()].Median == 0 { // it is up to chance
			return fmt.Errorf("it was never unplugged: %.0f frames", m[lab.SentFrames.String()].Median)
		}
		return nil
	})
}
