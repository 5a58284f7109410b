package report

import (
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

// method is what the figures mean.
const method = "Figures are medians of rounds in which all contestants took turns, with intervals that hold the true median at 95 %, of five rounds or fewer their range; frames sent, lost or damaged are those of all rounds together. " +
	"1.23× (1.20–1.27) compares the two in each round in which the machine was quiet for both, by the Hodges-Lehmann estimate and the interval of the signed-rank test at 99 %, of fewer than eight rounds their range: they differ if 1 is outside; “no difference above 4 %”: none was found, and a larger one would have been. " +
	"A claim is judged by eight such rounds at least: the whole interval has to be in what is needed, or none of it."

// Markdown writes the report as Markdown.
func Markdown(w io.Writer, r *lab.Results) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Laboratory report\n\n%s. `%s`, %s.\n\n", escape(machine(r.Machine)),
		strings.ReplaceAll(r.Command, "`", "'"), r.Started.Format("2006-01-02 15:04 MST"))
	if r.Partial {
		b.WriteString("**The run was stopped: what is missing was not measured.**\n\n")
	}
	b.WriteString("## What to do here\n\n")
	for _, p := range Summary(r) {
		fmt.Fprintf(&b, "**%s**\n\n", p.Name)
		for _, a := range p.Advice {
			fmt.Fprintf(&b, "- %s (%s)\n", escape(a.Text), a.Experiment)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s.\n\n", counts(r))
	if text := chance(r); text != "" {
		fmt.Fprintf(&b, "%s\n\n", text)
	}
	for i := range r.Experiments {
		markdownExperiment(&b, &r.Experiments[i])
	}
	markdownClaims(&b, r)
	for _, s := range sources(r) {
		fmt.Fprintf(&b, "- %s\n", escape(s.String()))
	}
	fmt.Fprintf(&b, "\n%s\n", method)
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownExperiment(b *strings.Builder, e *lab.ExperimentResult) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n%s\n\n", e.Name, escape(e.Question), escape(e.Method))
	if e.Failed != "" {
		fmt.Fprintf(b, "Not run: %s\n\n", escape(e.Failed))
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(b, "*%s*\n\n", escape(w))
	}
	names := columns(e)
	for _, params := range e.Cells() {
		if len(params) > 0 {
			fmt.Fprintf(b, "`%s`\n\n", params)
		}
		b.WriteString("| contestant |")
		for _, n := range names {
			fmt.Fprintf(b, " %s |", head(n))
		}
		if e.Base != "" {
			fmt.Fprintf(b, " ÷ %s |", escape(e.Base))
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(names)))
		if e.Base != "" {
			b.WriteString("---:|")
		}
		b.WriteString("\n")
		for i := range e.Rows {
			if row := &e.Rows[i]; row.Params.String() == params.String() {
				markdownRow(b, e, row, names)
			}
		}
		b.WriteString("\n")
	}
	for head, verdicts := range claimsAndGoals(e.Verdicts) {
		fmt.Fprintf(b, "| %s | needed | here | verdict | why |\n|---|---|---|---|---|---|\n", strings.Join(head[:], " | "))
		for _, v := range verdicts {
			fmt.Fprintf(b, "| %s | %s | %s | %s | **%s** | %s |\n", escape(v.Claim), escape(published(v)),
				escape(v.Needed), escape(v.Here), v.Verdict, escape(v.Why))
		}
		b.WriteString("\n")
	}
}

// claimsAndGoals yields the heads of two columns and the verdicts below them, of published claims
// first.
func claimsAndGoals(all []lab.Verdict) iter.Seq2[[2]string, []lab.Verdict] {
	return func(yield func([2]string, []lab.Verdict) bool) {
		for _, goals := range []bool{false, true} {
			head := [2]string{"claim", "published"}
			if goals {
				head = [2]string{"goal of this project", "goal"}
			}
			if some := ofKind(all, goals); len(some) > 0 && !yield(head, some) {
				return
			}
		}
	}
}

func markdownRow(b *strings.Builder, e *lab.ExperimentResult, row *lab.Row, names []string) {
	fmt.Fprintf(b, "| %s |", escape(row.Contestant))
	if row.Metrics == nil {
		fmt.Fprintf(b, " not run: %s |%s\n", escape(row.NotRun), strings.Repeat(" |", len(names)))
		return
	}
	for i, n := range names {
		fmt.Fprintf(b, " %s |", escape(cell(row, n, i == 0)))
	}
	if e.Base != "" {
		fmt.Fprintf(b, " %s |", against(e, row))
	}
	b.WriteString("\n")
}

// escape keeps text from ending a cell or a line of a table, and from being taken for HTML.
func escape(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;", "&", "&amp;").Replace(s)
}
