package report_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/report"
)

// TestNeededIsShown: what it takes for a claim to hold stands beside what was found, wherever a
// verdict is shown; where a claim has no bound, nothing is said of one.
func TestNeededIsShown(t *testing.T) {
	r := sample()
	e := &r.Experiments[0]
	e.Verdicts = []lab.Verdict{
		{Claim: "Bounded.", Seed: "2×", Needed: "≥ 1.75×", Here: "1.80× (1.78–1.83)", Verdict: lab.Reproduced},
		{Claim: "Looked up.", Seed: "yes", Here: "no", Verdict: lab.NotReproduced},
	}
	for name, of := range map[string]struct {
		write func(io.Writer) error
		want  []string
	}{
		"report.md": {
			func(w io.Writer) error { return report.Markdown(w, r) },
			[]string{
				"| ≥ 1.75× | 1.80× (1.78–1.83) | **reproduced** |  |",
				"| 2× | ≥ 1.75× | 1.80× (1.78–1.83) | **reproduced** | [",
			},
		},
		"report.html": {
			func(w io.Writer) error { return report.HTML(w, r) },
			[]string{`<td data-head="needed">≥ 1.75×</td><td data-head="here">`, `2×</td><td data-head="needed">≥ 1.75×`},
		},
		"table": {
			func(w io.Writer) error { return report.Table(w, e) },
			[]string{"Needed: ≥ 1.75×. Here:", "yes. Here: no"},
		},
		"verdicts": {
			func(w io.Writer) error { return report.Verdicts(w, r) },
			[]string{"needed:    ≥ 1.75×\n", "yes\n  here:"},
		},
	} {
		var b bytes.Buffer
		if err := of.write(&b); err != nil {
			t.Fatal(name, err)
		}
		for _, want := range of.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
}
