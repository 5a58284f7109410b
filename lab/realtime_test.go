package lab_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// TestRealTimeContestants: each contestant of these questions does what it is asked for a moment,
// and has all that is shown of it, also as a table; or it says what is missing here.
func TestRealTimeContestants(t *testing.T) {
	missing := map[string][]string{ // besides a compiler
		"rt-event":  {"no /dev/gpiochip", "connect two of its lines"},
		"rt-cyclic": {"no cyclictest", "io_uring"},
		"rt-const":  {"no go", "no gcc", "go: "}, // peers whose modules cannot be fetched
		"rt-suite":  {},
		// libraries, and crates that cannot be fetched
		"rt-memory": {"no cargo", "cannot find -ljemalloc", "cannot find -lmimalloc", "cargo: error: failed to"},
		"rt-switch": {"no cargo", "cargo: error: failed to"},
		"rt-path":   {"may not load programs into the kernel", "has no BTF", "lacks a tracepoint"},
	}
	for name, lacks := range missing {
		t.Run(name, func(t *testing.T) {
			e := *experiment(t, name)
			o := quickly(t)
			o.Budget, o.MaxRounds = time.Millisecond, 1 // the shortest turn there is
			r, err := run(t, t.Context(), o, &e)
			if err != nil {
				t.Fatal(err)
			}
			inTable(t, r)
			for _, row := range r.Rows {
				who := row.Contestant + " " + row.Params.String()
				if row.NotRun != "" {
					known := strings.HasPrefix(row.NotRun, "no cc") || strings.HasPrefix(row.NotRun, "no rustc") ||
						strings.HasPrefix(row.NotRun, "no python3")
					for _, l := range lacks {
						known = known || strings.Contains(row.NotRun, l)
					}
					if !known {
						t.Errorf("%s: not run: %s", who, row.NotRun)
					} else {
						t.Logf("SKIPPED: %s: %s", who, row.NotRun)
					}
					continue
				}
				v := lab.View{ExperimentResult: &r}
				if f, ops := row.Metrics[v.Decides(row.Params)], row.Metrics["ops_per_s"]; f.N != 1 || f.Median < 0 ||
					ops.Median <= 0 {
					t.Errorf("%s: %s is %+v, of %+v operations a second", who, v.Decides(row.Params), f, ops)
				}
			}
		})
	}
}
