package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

// claim is a verdict and the experiment that it is of.
type claim struct {
	Experiment string
	lab.Verdict
}

// of reports whether a claim is of a document.
func (c claim) of(number string) bool { return c.Source != nil && c.Source.Number == number }

// Where is the document and the chapter of a claim: 004, 3.1; "" if the results do not say it.
func (c claim) Where() string {
	if c.Source == nil {
		return ""
	}
	return c.Source.Number + ", " + c.Source.Chapter
}

// allClaims lists what was published by document and chapter, then the goals of this project as the
// experiments have them.
func allClaims(r *lab.Results) (all []claim) {
	for _, e := range r.Experiments {
		for _, v := range e.Verdicts {
			all = append(all, claim{e.Name, v})
		}
	}
	slices.SortStableFunc(all, func(a, b claim) int {
		goal := func(c claim) int {
			if c.Goal {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(goal(a), goal(b)), strings.Compare(a.Where(), b.Where()))
	})
	return all
}

// Verdicts lists all claims and what was found, by document and chapter, then the goals of this
// project; if documents are given, the claims of those alone. It is an error if one has none.
func Verdicts(w io.Writer, r *lab.Results, documents ...string) error {
	var out strings.Builder
	all := allClaims(r)
	for _, d := range documents {
		if !slices.ContainsFunc(all, func(c claim) bool { return c.of(d) }) {
			return fmt.Errorf("these results have no claim of document %q", d)
		}
	}
	for _, c := range all {
		if len(documents) > 0 && !slices.ContainsFunc(documents, c.of) {
			continue
		}
		what := "published:"
		if c.Goal {
			what = "goal:     "
		}
		fmt.Fprintf(&out, "%s: %s\n  %s %s\n", strings.ToUpper(c.Verdict.Verdict), c.Claim, what, published(c.Verdict))
		if c.Needed != "" {
			fmt.Fprintf(&out, "  needed:    %s\n", c.Needed)
		}
		fmt.Fprintf(&out, "  here:      %s (%s)\n  %s\n\n", c.Here, c.Experiment, c.Why)
	}
	for _, s := range sources(r) {
		fmt.Fprintln(&out, s)
	}
	fmt.Fprintf(&out, "%s (%s)\n", counts(r), machine(r.Machine))
	_, err := io.WriteString(w, Printable(out.String()))
	return err
}

// markdownClaims is the table of all claims at the end of the report.
func markdownClaims(b *strings.Builder, r *lab.Results) {
	all := allClaims(r)
	if len(all) == 0 {
		return
	}
	b.WriteString("## All claims\n\n| document, chapter | claim | figure | needed | here | verdict | experiment |\n|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		where := c.Where()
		if c.Goal {
			where = "this project"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | **%s** | [%s](#%s) |\n", where, escape(c.Claim),
			escape(strings.TrimPrefix(c.Seed, lab.GoalPrefix)), escape(c.Needed), escape(c.Here), c.Verdict.Verdict,
			c.Experiment, c.Experiment)
	}
	b.WriteString("\n")
}
