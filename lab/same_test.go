package lab_test

import (
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestQuickAndFullJudgeTheSame: a claim is judged by the same cell of a quick run as of a full one,
// if a quick one has it at all: what is asked for is the first cell that has the parameters.
func TestQuickAndFullJudgeTheSame(t *testing.T) {
	for _, e := range lab.Experiments() {
		if e.Cells == nil {
			continue
		}
		first := func(o lab.Options, of *lab.Contestant, want lab.Params) string {
			for _, cell := range e.Cells(o) {
				seldom := !o.Full && of.Seldom != nil && of.Seldom(cell)
				if cell.Has(want) && !seldom && (of.Skip == nil || !of.Skip(cell)) {
					return cell.String()
				}
			}
			return ""
		}
		contestants, cells, metrics := e.Asked()
		for i, of := range contestants {
			quick, full := first(lab.Quick(), of, cells[i]), first(lab.Full(), of, cells[i])
			if quick != "" && quick != full {
				t.Errorf("%s: %s of %s at %q is that of %q in a quick run, of %q in a full one", e.Name, metrics[i], of.Name,
					cells[i], quick, full)
			}
		}
	}
}
