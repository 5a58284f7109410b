package lab

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Schema is the version of the results' format; schema.json describes it. Fields may be added; what
// is there keeps its meaning.
const Schema = 1

// Results are what a run of the laboratory found out.
type Results struct {
	Schema      int                `json:"schema"`
	Started     time.Time          `json:"started"`
	Command     string             `json:"command"`
	Partial     bool               `json:"partial,omitempty"` // it was stopped
	Machine     Machine            `json:"machine"`
	Experiments []ExperimentResult `json:"experiments"`
}

// ExperimentResult is what one experiment found out.
type ExperimentResult struct {
	Name     string    `json:"name"`
	Plane    string    `json:"plane"`
	Question string    `json:"question"`
	Method   string    `json:"method"`
	Base     string    `json:"base,omitempty"`
	Shown    []string  `json:"shown"`
	Chart    Chart     `json:"chart"`
	Rounds   int       `json:"rounds"`
	Seconds  float64   `json:"seconds"`
	Advice   string    `json:"advice,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	Rows     []Row     `json:"rows"`
	Verdicts []Verdict `json:"verdicts"`
	Failed   string    `json:"failed,omitempty"` // why there is nothing

	asked *[]asked // which figures are asked for, if somebody wants to know
}

// Row is one contestant in one cell.
type Row struct {
	Contestant string            `json:"contestant"`
	Params     Params            `json:"params"`
	Metrics    map[string]Figure `json:"metrics,omitempty"`
	Note       string            `json:"note,omitempty"`
	Said       string            `json:"said,omitempty"` // what it found out, in words
	NotRun     string            `json:"not_run,omitempty"`
}

// Find returns the row of a contestant in the first cell that has the parameters; nil if it has no
// figures.
func (r *ExperimentResult) Find(contestant string, cell Params) *Row {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Contestant == contestant && row.Params.Has(cell) && row.Metrics != nil {
			return row
		}
	}
	return nil
}

// Compared is a row's ratio to the row of the contestant that all are compared to, by a metric;
// false if there is none.
func (r *ExperimentResult) Compared(row *Row, metric Metric) (Ratio, bool) {
	return r.Find(row.Contestant, row.Params).Over(r.Find(r.Base, row.Params), metric)
}

// Over is the ratio of one row to another, of the rounds in which the machine was quiet for both;
// false if one was not measured.
func (row *Row) Over(other *Row, metric Metric) (Ratio, bool) {
	if row == nil || other == nil {
		return Ratio{}, false
	}
	return quietly(row.Metrics[metric.name], other.Metrics[metric.name], row, other).compare()
}

// Decides is the metric that a cell is judged by: the first of those shown that it has, losses
// aside.
func (r *ExperimentResult) Decides(cell Params) string {
	return decisive(r.Shown, func(name string) bool {
		return slices.ContainsFunc(r.Rows, func(row Row) bool {
			_, ok := row.Metrics[name]
			return ok && row.Params.String() == cell.String()
		})
	})
}

// Cells lists the settings of the rows, in their order.
func (r *ExperimentResult) Cells() (cells []Params) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if key := row.Params.String(); !seen[key] {
			seen[key] = true
			cells = append(cells, row.Params)
		}
	}
	return cells
}

// View is what claims and advice are judged by.
type View struct{ *ExperimentResult }

// Row is the row of a contestant in the first cell that has the parameters; nil if it has no
// figures.
func (v View) Row(contestant *Contestant, cell Params) *Row { return v.Find(contestant.Name, cell) }

// Figure is a figure of a contestant in a cell, of the rounds in which the machine was quiet, if
// those are enough for a verdict; false if it was not measured.
func (v View) Figure(contestant *Contestant, cell Params, metric Metric) (Figure, bool) {
	v.note(asked{contestant: contestant, cell: cell, metric: metric})
	row := v.Row(contestant, cell)
	if row == nil {
		return Figure{}, false
	}
	f, _ := row.quiet(metric)
	return f, f.N > 0
}

// Median is the median of a figure, false if it was not measured.
func (v View) Median(contestant *Contestant, cell Params, metric Metric) (float64, bool) {
	f, ok := v.Figure(contestant, cell, metric)
	return f.Median, ok
}

// Answer is what a contestant found out, by yes or no, and what it said of it; false if it could
// not be asked.
func (v View) Answer(contestant *Contestant) (yes bool, said string, ok bool) {
	row := v.Row(contestant, nil)
	if row == nil || row.Metrics[Answer.name].N == 0 {
		return false, "", false
	}
	return row.Metrics[Answer.name].Median == 1, cmp.Or(row.Said,
		Or(row.Metrics[Answer.name].Median == 1, "yes", "no")), true
}

// HowManySo makes the advice of an experiment whose contestants answer by yes or no. The format
// gets how many answered, and how many of those by yes.
func HowManySo(format string) func(View) string {
	return func(v View) string {
		n, yes := 0, 0
		for _, row := range v.Rows {
			if f, ok := row.Metrics[Answer.name]; ok {
				n++
				yes += int(f.Median)
			}
		}
		if n == 0 {
			return ""
		}
		return fmt.Sprintf(format, n, yes)
	}
}

// notRun is why a contestant has no figures; "" if it has some, or took no part.
func (v View) notRun(contestant *Contestant) string {
	for _, row := range v.Rows {
		if row.Contestant == contestant.Name && row.NotRun != "" {
			return row.NotRun
		}
	}
	return ""
}

// notAsked is the verdict on a claim that a contestant could not be asked about; false if it took
// no part.
func (v View) notAsked(contestant *Contestant) (Verdict, bool) {
	why := v.notRun(contestant)
	return NotHere("not measured: " + why), why != ""
}

// Largest is the largest value of the rounds that [View.Figure] has, false if there is none.
func (v View) Largest(contestant *Contestant, cell Params, metric Metric) (float64, bool) {
	f, ok := v.Figure(contestant, cell, metric)
	if !ok || len(f.Samples) == 0 {
		return 0, false
	}
	return slices.Max(f.Samples), true
}

// Sum is the sum of the rounds that [View.Figure] has, false if there is none.
func (v View) Sum(contestant *Contestant, cell Params, metric Metric) (sum float64, ok bool) {
	f, ok := v.Figure(contestant, cell, metric)
	for _, x := range f.Samples {
		sum += x
	}
	return sum, ok && len(f.Samples) > 0
}

// RoundsOf is how many rounds have a figure; 0 if it was not measured.
func (v View) RoundsOf(contestant *Contestant, cell Params, metric Metric) int {
	f, _ := v.Figure(contestant, cell, metric)
	return f.N
}

// Total is a figure of all rounds together where it has one, as the share that was lost has: of
// what is lost in few rounds the median is 0. Else it is the median.
func (v View) Total(contestant *Contestant, cell Params, metric Metric) (float64, bool) {
	f, ok := v.Figure(contestant, cell, metric)
	if f.Total != nil {
		return *f.Total, ok
	}
	return f.Median, ok
}

// Medians are several medians of a cell at once; false if one was not measured.
func (v View) Medians(cell Params, metric Metric, contestants ...*Contestant) ([]float64, bool) {
	var all []float64
	for _, c := range contestants {
		m, ok := v.Median(c, cell, metric)
		if !ok {
			return nil, false
		}
		all = append(all, m)
	}
	return all, true
}

// Ratio compares two contestants in a cell.
func (v View) Ratio(a, b *Contestant, cell Params, metric Metric) (Ratio, bool) {
	return v.Across(a, cell, b, cell, metric)
}

// Across compares two contestants, each in a cell of its own.
func (v View) Across(a *Contestant, cellA Params, b *Contestant, cellB Params, metric Metric) (Ratio, bool) {
	v.note(asked{a, cellA, metric, b})
	v.note(asked{b, cellB, metric, a})
	return v.Row(a, cellA).Over(v.Row(b, cellB), metric)
}

// Level compares a contestant to a level: the ratio of its figure to so much.
func (v View) Level(contestant *Contestant, cell Params, metric Metric, level float64) (Ratio, bool) {
	v.note(asked{contestant: contestant, cell: cell, metric: metric})
	x := v.Row(contestant, cell)
	if x == nil {
		return Ratio{}, false
	}
	f := x.Metrics[metric.name]
	p := quietly(f, f, x)
	p.b = slices.Repeat([]float64{level}, len(p.a))
	return p.compare()
}

// Share judges whether a figure in percent is within bounds, as shares, by the interval of its
// rounds, which is shown.
func (v View) Share(c *Contestant, cell Params, metric Metric, least, most float64, why string) (Verdict, bool) {
	r, ok := v.Level(c, cell, metric, 100)
	verdict := Within(r, least, most, why).As("%s", r.times(metric, 100))
	verdict.Needed = fmt.Sprintf("%.4g %% to %.4g %%", 100*least, 100*most)
	return verdict, ok
}

// Beats reports whether one contestant is better than another in a cell, by more than chance.
func (v View) Beats(a, b *Contestant, cell Params, metric Metric) bool {
	r, ok := v.Ratio(a, b, cell, metric)
	return ok && r.Sure() && (r.Median > 1) == (Describe(metric.name).Better > 0)
}

// Best is the contestant of some that is better than the others in a cell, by more than chance; the
// first of them if none is, and false.
func (v View) Best(cell Params, metric Metric, of ...*Contestant) (*Contestant, bool) {
	for _, c := range of {
		beaten := slices.DeleteFunc(slices.Clone(of),
			func(other *Contestant) bool { return other == c || v.Beats(c, other, cell, metric) })
		if len(beaten) == 0 {
			return c, true
		}
	}
	return of[0], false
}

// Or says one thing if it is so, and another if not.
func Or(so bool, yes, no string) string {
	if so {
		return yes
	}
	return no
}

// mostResults bounds a file of results, in bytes.
const mostResults = 256 << 20

// WriteJSON writes the results.
func (r *Results) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// ReadJSON reads results that WriteJSON wrote; a name that ends in .gz is of a file packed by gzip.
func ReadJSON(path string) (*Results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var r Results
	d := json.NewDecoder(io.LimitReader(in, mostResults))
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: results of schema %d; this program reads %d", path, r.Schema, Schema)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more behind the results", path)
	}
	if r.Machine.Kernel == "" || r.Started.IsZero() {
		return nil, fmt.Errorf("%s: results of no machine, or of no time", path)
	}
	for _, e := range r.Experiments {
		for i, v := range e.Verdicts { // results of before 2026-11-23 have no source, but say it in words
			e.Verdicts[i].Goal = v.Goal || strings.HasPrefix(v.Seed, "this project")
		}
	}
	return &r, nil
}

// WriteText writes the rounds in the format of Go's benchmarks, for benchstat and its like:
//
//	benchstat -filter .unit:ops_per_s -row .name,/depth -col contestant results.txt
func (r *Results) WriteText(w io.Writer) error {
	var errs []error
	say := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	say("goos: linux\ngoarch: %s\ncpu: %s\nkernel: %s\n", r.Machine.Arch, r.Machine.CPU, r.Machine.Kernel)
	for _, name := range slices.Sorted(maps.Keys(descriptions)) {
		switch descriptions[name].Better {
		case 1:
			say("Unit %s better=higher\n", name)
		case -1:
			say("Unit %s better=lower\n", name)
		}
	}
	for _, e := range r.Experiments {
		say("\nexperiment: %s\n", e.Name)
		for _, row := range e.Rows {
			if len(row.Metrics) == 0 {
				continue
			}
			say("contestant: %s\n", row.Contestant)
			row.lines(e.Name, say)
		}
	}
	return errors.Join(errs...)
}

// lines writes a line for each round.
func (row *Row) lines(experiment string, say func(string, ...any)) {
	name := "Benchmark"
	for part := range strings.SplitSeq(experiment, "-") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	for _, k := range slices.Sorted(maps.Keys(row.Params)) {
		name += "/" + k + "=" + strings.ReplaceAll(row.Params[k], " ", "_")
	}
	for i := range row.rounds() {
		say("%s 1", name)
		for _, m := range slices.Sorted(maps.Keys(row.Metrics)) {
			f := row.Metrics[m]
			for j, x := range f.Samples {
				if f.Round(j) == i {
					say(" %v %s", x, m)
				}
			}
		}
		say("\n")
	}
}

func (row *Row) rounds() (n int) {
	for _, f := range row.Metrics {
		if last := len(f.Samples) - 1; last >= 0 {
			n = max(n, f.Round(last)+1)
		}
	}
	return n
}

// AcrossFrom is [View.Across] of figures of which less than a floor counts as that much: of two
// that are next to nothing none is many times the other, and of what is nothing there is no ratio.
func (v View) AcrossFrom(a *Contestant, cellA Params, b *Contestant, cellB Params, metric Metric, floor float64,
) (Ratio, bool) {
	raised := func(row *Row) *Row {
		if row == nil {
			return nil
		}
		samples := slices.Clone(row.Metrics[metric.name].Samples)
		for i := range samples {
			samples[i] = max(floor, samples[i])
		}
		return row.with(metric, samples)
	}
	return raised(v.Row(a, cellA)).Over(raised(v.Row(b, cellB)), metric)
}
