package lab_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestCallColumnsAddUp: the system calls that http-plaintext names are most of what a server
// makes, whatever it is made of, and with the others they are all. A share is asked for, not a
// number: what a process does by time, or once, weighs more the slower the machine is.
func TestCallColumnsAddUp(t *testing.T) {
	e := *experiment(t, "http-plaintext")
	e.Claims, e.Advice = nil, nil // which ask for more
	e.Cells = func(lab.Options) []lab.Params { return []lab.Params{{"connections": "64", "pipeline": "1"}} }
	e.Contestants = slices.DeleteFunc(slices.Clone(e.Contestants), func(c *lab.Contestant) bool {
		return !slices.Contains([]string{"net/http", "tallywheel/uring-inline", "c/epoll", "nginx"}, c.Name)
	})
	o := quickly(t)
	o.MaxRounds = 1
	r, err := run(t, t.Context(), o, &e)
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, row := range r.Rows {
		all, ok := row.Metrics[lab.SyscallsPerOp.String()]
		if row.NotRun != "" || !ok {
			t.Logf("%s: no calls: %s", row.Contestant, row.NotRun)
			if row.NotRun == "" && row.Contestant == "nginx" {
				t.Error("nginx has run, and its calls were not counted")
			}
			continue
		}
		counted++
		sum, others := 0.0, row.Metrics[lab.Calls("others").String()].Median
		for _, m := range e.Metrics {
			if strings.HasPrefix(m.String(), lab.Calls("").String()) {
				sum += row.Metrics[m.String()].Median
			}
		}
		t.Logf("%s: %.3f calls a request, %.3f of them others", row.Contestant, all.Median, others)
		if math.Abs(sum-all.Median) > 1e-9 || others > all.Median/3 {
			t.Errorf("%s: %.3f calls a request, %.3f in the columns, %.3f others", row.Contestant, all.Median, sum, others)
		}
	}
	if counted == 0 {
		t.Skip("SKIPPED: no system calls can be counted here; run as root, outside of a container")
	}
}
