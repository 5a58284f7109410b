package report

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestSaidBesideFigures: what a contestant has said beside its figures is in the report, with its
// cell.
func TestSaidBesideFigures(t *testing.T) {
	figures := map[string]lab.Figure{lab.NsPerOp.String(): {N: 1, Median: 1}}
	e := lab.ExperimentResult{
		Name: "one", Shown: lab.Names(lab.NsPerOp),
		Rows: []lab.Row{
			{Contestant: "a", Params: lab.Params{"depth": "1"}, Metrics: figures, Said: "EIO ×2 at index 3"},
			{Contestant: "b", Metrics: figures, Said: "all was well"},
		},
	}
	notes := strings.Join(htmlOf(&e).Notes, "\n")
	for _, want := range []string{
		"a, depth=1, in the last round: EIO ×2 at index 3", "b, in the last round: all was well",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in %q", want, notes)
		}
	}
}
