// Package report shows what the laboratory found out: as text for a terminal, as Markdown, and as
// one self-contained page of HTML whose charts are drawn here, so that it reads the same with
// scripts off. Everything it says is in the results; it decides nothing.
package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tallywheel/tallywheel/lab"
)

// Write writes results.json, results.txt, report.md and report.html into a folder, which is made if
// it is not there. What was there is replaced only once the new file is whole.
func Write(dir string, r *lab.Results) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for name, write := range map[string]func(io.Writer) error{
		"results.json": r.WriteJSON, "results.txt": r.WriteText,
		"report.md":   func(w io.Writer) error { return Markdown(w, r) },
		"report.html": func(w io.Writer) error { return HTML(w, r) },
	} {
		errs = append(errs, replace(filepath.Join(dir, name), write))
	}
	return errors.Join(errs...)
}

func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

// Number shows a value with three digits that matter: 463 k, 12.3, 0.0123.
func Number(v float64) string {
	abs := math.Abs(v)
	for _, s := range []struct {
		from float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e4, " k"}} {
		if abs >= s.from {
			div := map[string]float64{" G": 1e9, " M": 1e6, " k": 1e3}[s.name]
			return digits(v/div) + s.name
		}
	}
	return digits(v)
}

func digits(v float64) string {
	switch abs := math.Abs(v); {
	case v == math.Trunc(v) && abs < 1e6:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case abs >= 0.001:
		return strconv.FormatFloat(v, 'f', 3+int(-math.Floor(math.Log10(abs)))-1, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// Value shows a figure of a metric.
func Value(metric string, v float64) string {
	if metric == "rss_bytes" {
		return digits(v/(1<<20)) + " MiB"
	}
	return Number(v)
}

// head is how a metric is called above its column.
func head(metric string) string {
	m := lab.Describe(metric)
	if m.Unit == "" || metric == "rss_bytes" || strings.HasSuffix(m.Label, m.Unit) {
		return m.Label
	}
	return m.Label + ", " + m.Unit
}

// columns are the metrics of an experiment that any of its rows has.
func columns(e *lab.ExperimentResult) (names []string) {
	for _, name := range e.Shown {
		if slices.ContainsFunc(e.Rows, func(r lab.Row) bool { _, ok := r.Metrics[name]; return ok }) {
			names = append(names, name)
		}
	}
	return names
}

// cell shows a figure of a row, and of what went wrong that of all rounds; "–" where it has none.
func cell(r *lab.Row, metric string, interval bool) string {
	f, ok := r.Metrics[metric]
	switch {
	case !ok:
		return "–"
	case metric == lab.Answer.String():
		return answer(r)
	case f.Total != nil:
		return Value(metric, *f.Total)
	case !interval || f.N < 2 || f.Lo == f.Hi:
		return Value(metric, f.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Value(metric, f.Median), Value(metric, f.Lo), Value(metric, f.Hi))
}

// answer is what a contestant found out: yes or no, and in its words.
func answer(r *lab.Row) string {
	text := lab.Or(r.Metrics[lab.Answer.String()].Median == 1, "yes", "no")
	if r.Said != "" {
		text += ": " + r.Said
	}
	return text
}

// against compares a row with the base of its cell by the experiment's deciding metric; "" if it
// cannot be.
func against(e *lab.ExperimentResult, row *lab.Row) string {
	r, ok := ratio(e, row)
	switch {
	case !ok:
		return ""
	case row.Contestant == e.Base:
		return "base"
	}
	return versus(r)
}

// versus says what a comparison came to, with the interval that decides it: "1.23× (1.20–1.27)",
// "no difference above 4 %", which is the end of it that is further from 1, or why nothing is sure.
func versus(r lab.Ratio) string {
	switch {
	case !r.Enough():
		return r.String() + ", " + lab.TooFewRounds
	case !r.Quiet():
		return r.String() + ", " + lab.TooNoisy
	case !r.Differ():
		return unseen(r)
	}
	return r.String()
}

// unseen says how large a difference would have been seen, rounded up. What a logarithm and back
// adds to 2 % does not make 3 of it. Of a round that took twice as long or more nothing is sure.
func unseen(r lab.Ratio) string {
	if r.Unseen() >= 1 {
		return "no difference that is sure"
	}
	return fmt.Sprintf("no difference above %s %%", digits(math.Ceil(max(0, 100*r.Unseen()-1e-9))))
}

func ratio(e *lab.ExperimentResult, row *lab.Row) (lab.Ratio, bool) {
	return e.Compared(row, lab.Named(e.Decides(row.Params)))
}

// Table writes an experiment for a terminal.
func Table(w io.Writer, e *lab.ExperimentResult) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n", e.Name, e.Question)
	if e.Failed != "" {
		fmt.Fprintf(&b, "  not run: %s\n", e.Failed)
	}
	names := columns(e)
	names = names[:min(len(names), 5)]
	for _, params := range e.Cells() {
		grid := [][]string{append([]string{params.String()}, heads(names)...)}
		if e.Base != "" {
			grid[0] = append(grid[0], "÷ "+e.Base)
		}
		var missing []string
		for i := range e.Rows {
			row := &e.Rows[i]
			if row.Params.String() != params.String() {
				continue
			}
			if row.Metrics == nil {
				missing = append(missing, row.Contestant+": "+row.NotRun)
				continue
			}
			line := []string{row.Contestant}
			for k, name := range names {
				line = append(line, cell(row, name, k == 0))
			}
			if e.Base != "" {
				line = append(line, against(e, row))
			}
			grid = append(grid, line)
		}
		align(&b, grid)
		for _, m := range missing {
			fmt.Fprintf(&b, "  not run: %s\n", m)
		}
	}
	for _, warning := range e.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", warning)
	}
	for _, v := range e.Verdicts {
		kind := "Published"
		if v.Goal {
			kind = "Goal"
		}
		fmt.Fprintf(&b, "  %s: %s %s: %s. ", v.Verdict, v.Claim, kind, published(v))
		if v.Needed != "" {
			fmt.Fprintf(&b, "Needed: %s. ", v.Needed)
		}
		fmt.Fprintf(&b, "Here: %s.\n", v.Here)
		if v.Verdict == lab.NotMeasurable {
			fmt.Fprintf(&b, "    %s\n", v.Why)
		}
	}
	_, err := io.WriteString(w, Printable(b.String()))
	return err
}

// Printable leaves out what a terminal would not show, but obey: results may come from anybody.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func heads(names []string) (h []string) {
	for _, n := range names {
		h = append(h, head(n))
	}
	return h
}

// align writes a grid, its first column to the left, the others to the right.
func align(b *strings.Builder, grid [][]string) {
	if len(grid) < 2 {
		return
	}
	width := make([]int, len(grid[0]))
	for _, line := range grid {
		for i, c := range line {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, line := range grid {
		for i, c := range line {
			pad := strings.Repeat(" ", width[i]-len([]rune(c)))
			if i == 0 || grid[0][i] == head(lab.Answer.String()) {
				b.WriteString("  " + c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteString("\n")
	}
}

// Summary is the advice of each plane, in the order of the experiments.
func Summary(r *lab.Results) (planes []Plane) {
	for i := range r.Experiments {
		e := &r.Experiments[i]
		if e.Advice == "" {
			continue
		}
		at := slices.IndexFunc(planes, func(p Plane) bool { return p.Name == e.Plane })
		if at < 0 {
			planes = append(planes, Plane{Name: e.Plane})
			at = len(planes) - 1
		}
		planes[at].Advice = append(planes[at].Advice, Advice{e.Name, e.Advice})
	}
	return planes
}

// Plane is what to do for one kind of work.
type Plane struct {
	Name   string
	Advice []Advice
}

// Advice is what one experiment advises.
type Advice struct{ Experiment, Text string }

// counts says how many claims got which verdict.
func counts(r *lab.Results) string {
	return count(r, "published claims", false) + "; " + count(r, "goals of this project", true)
}

// chance says how many of the comparisons may differ by chance; "" where none is sure enough to.
func chance(r *lab.Results) string {
	compared, differ := 0, 0
	for i := range r.Experiments {
		e := &r.Experiments[i]
		for k := range e.Rows {
			row := &e.Rows[k]
			if c, ok := ratio(e, row); ok && row.Contestant != e.Base && c.Enough() && c.Quiet() {
				compared++
				if c.Differ() {
					differ++
				}
			}
		}
	}
	if compared == 0 {
		return ""
	}
	most := "fewer than one"
	if n := lab.ByChance * float64(compared); n >= 1 {
		most = fmt.Sprintf("about %.0f", n)
	}
	return fmt.Sprintf("%d of %d comparisons show a difference. Of so many between equals %s would, by chance alone: "+
		"a ratio close to 1 is worth a second run.", differ, compared, most)
}

func count(r *lab.Results, what string, goals bool) string {
	n, total := map[string]int{}, 0
	for _, e := range r.Experiments {
		for _, v := range ofKind(e.Verdicts, goals) {
			n[v.Verdict]++
			total++
		}
	}
	var parts []string
	for _, v := range []string{lab.Reproduced, lab.NotReproduced, lab.Impossible, lab.NotMeasurable} {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], v))
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", total, what, strings.Join(parts, ", ")), ": ")
}

// ofKind is the verdicts on claims that were published, or those on goals of this project.
func ofKind(all []lab.Verdict, goals bool) (some []lab.Verdict) {
	for _, v := range all {
		if v.Goal == goals {
			some = append(some, v)
		}
	}
	return some
}

// published is the figure of a claim, with where it is from.
func published(v lab.Verdict) string {
	if v.Source == nil {
		return strings.TrimPrefix(v.Seed, lab.GoalPrefix)
	}
	return fmt.Sprintf("%s (%s, chapter %s)", v.Seed, v.Source.Number, v.Source.Chapter)
}

// document is one whose claims are judged, and where it is public.
type document struct{ Text, Link string }

// String is the document, with its address or that none is known.
func (d document) String() string {
	if d.Link == "" {
		return d.Text + " (no public address is known)"
	}
	return d.Text + " " + d.Link
}

// sources lists the documents whose claims are judged.
func sources(r *lab.Results) (all []document) {
	for _, e := range r.Experiments {
		for _, v := range e.Verdicts {
			if s := v.Source; s != nil {
				all = append(all, document{fmt.Sprintf("%s: %s. %s", s.Number, s.InEn, s.Title), s.Link})
			}
		}
	}
	slices.SortFunc(all, func(a, b document) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// machine is the machine in one line.
func machine(m lab.Machine) string {
	parts := []string{
		m.CPU, fmt.Sprintf("%d CPUs", m.CPUs), fmt.Sprintf("%.0f GiB", float64(m.MemoryBytes)/(1<<30)),
		m.OS + "/" + m.Arch + " " + m.Kernel, m.Go,
	}
	for _, p := range []string{m.Disk, m.Virtual, m.Clock, m.Governor} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ", ")
}
