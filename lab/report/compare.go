package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

// Comparison holds the deciding figures of two runs against each other, b over a, each with the
// interval of the ratio, or with how large a difference would have been seen. They were not taken
// in turn, so a difference may be one of the machines, of the hour, or of the programs.
func Comparison(w io.Writer, a, b *lab.Results) error {
	var out strings.Builder
	fmt.Fprintf(&out, "A: %s, %s\nB: %s, %s\n", a.Started.Format("2006-01-02 15:04"), machine(a.Machine),
		b.Started.Format("2006-01-02 15:04"), machine(b.Machine))
	common := false
	grid := [][]string{{"experiment, contestant", "metric", "A", "B", "B ÷ A"}}
	for i := range b.Experiments {
		e := &b.Experiments[i]
		old := find(a, e.Name)
		if old == nil {
			continue
		}
		for k := range e.Rows {
			row := &e.Rows[k]
			metric := e.Decides(row.Params)
			y, ok := row.Metrics[metric]
			before := old.Find(row.Contestant, row.Params)
			if !ok || before == nil {
				continue
			}
			x, ok := before.Metrics[metric]
			if !ok {
				continue
			}
			common = true
			if x.Median == 0 && y.Median == 0 {
				continue
			}
			text := overOf(y, x)
			name := e.Name + ", " + row.Contestant
			if len(row.Params) > 0 {
				name += ", " + row.Params.String()
			}
			grid = append(grid, []string{name, head(metric), Value(metric, x.Median), Value(metric, y.Median), text})
		}
	}
	switch {
	case !common:
		out.WriteString("they have no contestant in common\n")
	case len(grid) == 1:
		out.WriteString("all figures that they have in common are 0\n")
	}
	align(&out, grid)
	_, err := io.WriteString(w, Printable(out.String()))
	return err
}

// overOf holds a figure to the earlier one. There is no ratio to 0: that one of them is 0 can be
// seen beside it.
func overOf(now, before lab.Figure) string {
	if before.Median == 0 || now.Median == 0 {
		return "–"
	}
	r, ok := lab.CompareRuns(now.Samples, before.Samples)
	switch {
	case !ok:
		return fmt.Sprintf("%.2f×, %s", now.Median/before.Median, lab.TooFewRounds)
	case r.Lo <= 1 && r.Hi >= 1:
		return unseen(r)
	}
	return r.String()
}

func find(r *lab.Results, name string) *lab.ExperimentResult {
	for i := range r.Experiments {
		if r.Experiments[i].Name == name {
			return &r.Experiments[i]
		}
	}
	return nil
}
