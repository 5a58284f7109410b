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
			if !ok || x.Median == 0 || y.Median == 0 {
				continue
			}
			text := fmt.Sprintf("%.2f×, %s", y.Median/x.Median, lab.TooFewRounds)
			if r, ok := lab.CompareRuns(y.Samples, x.Samples); ok {
				text = r.String()
				if r.Lo <= 1 && r.Hi >= 1 {
					text = unseen(r)
				}
			}
			name := e.Name + ", " + row.Contestant
			if len(row.Params) > 0 {
				name += ", " + row.Params.String()
			}
			grid = append(grid, []string{name, head(metric), Value(metric, x.Median), Value(metric, y.Median), text})
		}
	}
	if len(grid) == 1 {
		out.WriteString("they have no contestant in common\n")
	}
	align(&out, grid)
	_, err := io.WriteString(w, Printable(out.String()))
	return err
}

func find(r *lab.Results, name string) *lab.ExperimentResult {
	for i := range r.Experiments {
		if r.Experiments[i].Name == name {
			return &r.Experiments[i]
		}
	}
	return nil
}
