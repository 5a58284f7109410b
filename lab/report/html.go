package report

import (
	_ "embed"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

//go:embed report.html.tmpl
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"head": head, "published": published, "claimsAndGoals": claimsAndGoals,
	"goal":   func(figure string) string { return strings.TrimPrefix(figure, lab.GoalPrefix) },
	"anchor": func(s string) string { return "v-" + strings.ReplaceAll(s, " ", "-") },
}).Parse(page))

// HTML writes the report as a page.
func HTML(w io.Writer, r *lab.Results) error {
	view := htmlReport{
		Machine: machine(r.Machine), Command: r.Command, Started: r.Started.Format("2006-01-02 15:04 MST"),
		Partial: r.Partial,
		Planes:  Summary(r), Counts: counts(r), Chance: chance(r), Method: method, Sources: sources(r),
		Claims: allClaims(r),
		Series: make([]int, mostSeries),
	}
	for i := range view.Series {
		view.Series[i] = i
	}
	for i := range r.Experiments {
		view.Experiments = append(view.Experiments, htmlOf(&r.Experiments[i]))
	}
	return pageTemplate.Execute(w, view)
}

type htmlReport struct {
	Machine, Command, Started, Counts, Chance, Method string

	Partial     bool
	Series      []int // the numbers of the colours
	Sources     []document
	Claims      []claim
	Planes      []Plane
	Experiments []htmlExperiment
}

type htmlExperiment struct {
	*lab.ExperimentResult
	Columns []string
	Groups  []htmlGroup
	Charts  []template.HTML // SVG, made here
	Notes   []string        // what a reader should know of single contestants
}

// htmlGroup is one cell of the experiment.
type htmlGroup struct {
	Params string
	Bars   []bar
	Scale  string
	Rows   []htmlRow
}

type htmlRow struct {
	Contestant, Against, NotRun string
	Ours                        bool
	Figures                     []htmlFigure
}

type htmlFigure struct{ Median, Interval string }

// bar is one contestant's deciding figure, over the base of its cell, as positions in % of the
// width.
type bar struct {
	Contestant, Text string
	Ours             bool
	Length, Lo, Wide float64
}

func htmlOf(e *lab.ExperimentResult) htmlExperiment {
	h := htmlExperiment{ExperimentResult: e, Columns: columns(e)}
	noted := map[string]bool{}
	for _, params := range e.Cells() {
		g := htmlGroup{Params: params.String()}
		for i := range e.Rows {
			row := &e.Rows[i]
			if row.Params.String() != params.String() {
				continue
			}
			g.Rows = append(g.Rows, htmlRowOf(e, row, h.Columns))
			if row.Note != "" && !noted[row.Contestant] {
				noted[row.Contestant] = true
				h.Notes = append(h.Notes, row.Contestant+": "+row.Note)
			}
			if _, answers := row.Metrics[lab.Answer.String()]; row.Said != "" && !answers { // whose cell has it
				where := strings.TrimSuffix(row.Contestant+", "+row.Params.String(), ", ")
				h.Notes = append(h.Notes, where+", in the last round: "+row.Said)
			}
		}
		g.Bars, g.Scale = bars(e, params)
		h.Groups = append(h.Groups, g)
	}
	h.Charts = growth(e)
	for _, params := range e.Cells() {
		for _, svg := range []template.HTML{parts(e, params), percentiles(e, params)} {
			if svg != "" {
				h.Charts = append(h.Charts, svg)
			}
		}
	}
	return h
}

func htmlRowOf(e *lab.ExperimentResult, row *lab.Row, names []string) htmlRow {
	h := htmlRow{Contestant: row.Contestant, NotRun: row.NotRun, Ours: ours(row.Contestant)}
	if row.Metrics == nil {
		return h
	}
	h.Against = against(e, row)
	for _, n := range names {
		f, ok := row.Metrics[n]
		switch {
		case !ok:
			h.Figures = append(h.Figures, htmlFigure{Median: "–"})
		case n == lab.Answer.String():
			h.Figures = append(h.Figures, htmlFigure{Median: answer(row)})
		case f.Total != nil:
			h.Figures = append(h.Figures, htmlFigure{Median: Value(n, *f.Total)})
		case f.N < 2 || f.Lo == f.Hi:
			h.Figures = append(h.Figures, htmlFigure{Median: Value(n, f.Median)})
		default:
			h.Figures = append(h.Figures, htmlFigure{Value(n, f.Median), Value(n, f.Lo) + "–" + Value(n, f.Hi)})
		}
	}
	return h
}

func ours(contestant string) bool { return strings.Contains(contestant, "tallywheel/") }

// crowded is the ratio of the longest bar to the shortest beyond which a linear scale shows nothing
// of most.
const crowded = 30

// bars shows the deciding figure of each contestant of a cell with its interval, on one scale: from
// 0, or logarithmic.
func bars(e *lab.ExperimentResult, params lab.Params) (all []bar, scale string) {
	metric, most, least := e.Decides(params), 0.0, math.Inf(1)
	var rows []*lab.Row
	for i := range e.Rows {
		row := &e.Rows[i]
		if f, ok := row.Metrics[metric]; ok && row.Params.String() == params.String() {
			rows = append(rows, row)
			most = max(most, f.Hi)
			if f.Lo > 0 {
				least = min(least, f.Lo)
			}
		}
	}
	if len(rows) < 2 || most <= 0 || metric == lab.Answer.String() {
		return nil, ""
	}
	at := func(v float64) float64 { return 100 * v / most }
	kind := ""
	if most/least > crowded {
		floor := least / 3 // so that the shortest bar is one
		at = func(v float64) float64 { return 100 * max(0, math.Log(v/floor)/math.Log(most/floor)) }
		kind = ", logarithmic scale"
	}
	for _, row := range rows {
		f := row.Metrics[metric]
		b := bar{
			Contestant: row.Contestant, Ours: ours(row.Contestant), Text: Value(metric, f.Median),
			Length: at(f.Median), Lo: at(f.Lo), Wide: at(f.Hi) - at(f.Lo),
		}
		if r, ok := ratio(e, row); ok && row.Contestant != e.Base {
			b.Text += " · " + versus(r)
		}
		all = append(all, b)
	}
	better := kind
	switch lab.Describe(metric).Better {
	case 1:
		better += ": more is better"
	case -1:
		better += ": less is better"
	}
	if e.Base != "" {
		better += "; × against " + e.Base
	}
	return all, head(metric) + better
}
