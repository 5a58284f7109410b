package report_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/report"
)

// TestSourcesAreLinked: a reader finds each document: by its address, or that none is known; what
// results of others have for an address is no script.
func TestSourcesAreLinked(t *testing.T) {
	r := sample()
	known, unknown := lab.FilesArticle.Says("1", ""), lab.ProcessesArticle.Says("1", "")
	evil := lab.NetworkArticle.Says("1", "")
	evil.Link = "javascript:alert(1)"
	r.Experiments[0].Verdicts = []lab.Verdict{
		{Claim: "A.", Verdict: lab.Reproduced, Source: &known},
		{Claim: "B.", Verdict: lab.Reproduced, Source: &unknown},
		{Claim: "C.", Verdict: lab.Reproduced, Source: &evil},
	}
	for name, of := range map[string]struct {
		write func(io.Writer) error
		link  string
	}{
		"report.md":   {func(w io.Writer) error { return report.Markdown(w, r) }, known.Link},
		"report.html": {func(w io.Writer) error { return report.HTML(w, r) }, `<a href="` + known.Link + `">`},
		"verdicts":    {func(w io.Writer) error { return report.Verdicts(w, r) }, known.Link},
	} {
		var b bytes.Buffer
		if err := of.write(&b); err != nil {
			t.Fatal(name, err)
		}
		if !strings.Contains(b.String(), of.link) || !strings.Contains(b.String(), "(no public address is known)") {
			t.Errorf("%s does not say where its sources are", name)
		}
		if strings.Contains(b.String(), `href="javascript:`) {
			t.Errorf("%s has a script for a link", name)
		}
	}
}
