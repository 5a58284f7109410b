package report

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

// The size of a chart, in its own units; the page scales it.
const (
	chartWidth, chartHeight       = 720, 340
	left, right, top, bottom      = 64, 168, 34, 44
	plotWidth                     = chartWidth - left - right
	plotHeight                    = chartHeight - top - bottom
	labelHeight, mostSeries, dots = 15, 12, 3.2
)

// point is a figure on a chart.
type point struct{ x, y, lo, hi float64 }

// series is one contestant.
type series struct {
	name   string
	points []point
}

// plot is a chart with a logarithmic y axis.
type plot struct {
	title  string
	xLabel string
	ticks  map[float64]string // on the x axis, by position 0 … 1
	series []series
	metric string
}

// growth draws the cost as work grows: the experiment's chart over a parameter, one line for each
// contestant; a chart for each setting of the other parameters.
func growth(e *lab.ExperimentResult) (charts []template.HTML) {
	var seen []string
	for _, cell := range e.Cells() {
		rest := maps.Clone(cell)
		delete(rest, e.Chart.Over)
		delete(rest, e.Chart.Along)
		if key := rest.String(); !slices.Contains(seen, key) {
			seen = append(seen, key)
			if svg := growthOf(e, rest); svg != "" {
				charts = append(charts, svg)
			}
		}
	}
	return charts
}

func growthOf(e *lab.ExperimentResult, rest lab.Params) template.HTML {
	over, metric := e.Chart.Over, e.Chart.Metric
	if over == "" || len(e.Shown) == 0 || len(e.Rows) == 0 {
		return ""
	}
	if metric == "" {
		metric = e.Decides(e.Rows[0].Params)
	}
	var rows []lab.Row
	var values []float64
	for _, row := range e.Rows {
		v, err := strconv.ParseFloat(row.Params[over], 64)
		if f := row.Metrics[metric]; err != nil || v <= 0 || f.Median <= 0 || !row.Params.Has(rest) {
			continue
		}
		rows = append(rows, row)
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	if len(values) < 2 {
		return ""
	}
	lowest, span := math.Log(values[0]), math.Log(values[len(values)-1])-math.Log(values[0])
	p := plot{title: head(metric) + ", by " + over, xLabel: over, ticks: map[float64]string{}, metric: metric}
	if len(rest) > 0 {
		p.title += ", " + rest.String()
	}
	at := func(v float64) float64 { return (math.Log(v) - lowest) / span }
	for _, v := range values {
		p.ticks[at(v)] = Number(v)
	}
	for _, row := range rows {
		v, _ := strconv.ParseFloat(row.Params[over], 64) // it was one above
		f := row.Metrics[metric]
		p.add(row.Contestant, point{at(v), f.Median, f.Lo, f.Hi})
	}
	p.series = slices.DeleteFunc(p.series, func(s series) bool { return len(s.points) < 2 })
	return p.svg()
}

// percentiles draws the distribution of latencies in a cell: the share of operations that took
// longer, from half of them to one in ten thousand.
func percentiles(e *lab.ExperimentResult, params lab.Params) template.HTML {
	names := []struct {
		metric string
		beyond float64
		label  string
	}{
		{"latency_us_p50", 0.5, "50 %"},
		{"latency_us_p90", 0.1, "90 %"},
		{"latency_us_p99", 0.01, "99 %"},
		{"latency_us_p999", 0.001, "99.9 %"},
		{"latency_us_p9999", 0.0001, "99.99 %"},
	}
	title := "Latency by percentile, µs"
	if len(params) > 0 {
		title += ", " + params.String()
	}
	p := plot{title: title, xLabel: "share of operations", ticks: map[float64]string{}, metric: "latency_us_p99"}
	deepest := 0.5
	for _, row := range e.Rows {
		for _, n := range names {
			if _, ok := row.Metrics[n.metric]; ok && row.Params.String() == params.String() {
				deepest = min(deepest, n.beyond)
			}
		}
	}
	if deepest > 0.01 {
		return "" // two points say no more than the table
	}
	at := func(beyond float64) float64 { return math.Log(0.5/beyond) / math.Log(0.5/deepest) }
	for _, n := range names {
		if n.beyond >= deepest {
			p.ticks[at(n.beyond)] = n.label
		}
	}
	for _, row := range e.Rows {
		if row.Params.String() != params.String() {
			continue
		}
		for _, n := range names {
			if f, ok := row.Metrics[n.metric]; ok && f.Median > 0 {
				p.add(row.Contestant, point{at(n.beyond), f.Median, f.Lo, f.Hi})
			}
		}
	}
	return p.svg()
}

func (p *plot) add(name string, at point) {
	i := slices.IndexFunc(p.series, func(s series) bool { return s.name == name })
	if i < 0 {
		p.series = append(p.series, series{name: name})
		i = len(p.series) - 1
	}
	p.series[i].points = append(p.series[i].points, at)
}

// svg draws the plot; nothing if there is nothing to draw.
func (p *plot) svg() template.HTML {
	p.series = p.series[:min(len(p.series), mostSeries)]
	lo, hi := math.Inf(1), 0.0
	for _, s := range p.series {
		for _, q := range s.points {
			lo, hi = min(lo, q.y), max(hi, q.y)
		}
	}
	if len(p.series) == 0 || hi == 0 {
		return ""
	}
	floor, ceil := math.Floor(math.Log10(lo)*2)/2, math.Ceil(math.Log10(hi)*2)/2 // half decades
	if ceil <= floor {
		ceil = floor + 0.5
	}
	y := func(v float64) float64 {
		at := (math.Log10(v) - floor) / (ceil - floor)
		return top + plotHeight*(1-min(1, max(0, at)))
	}
	x := func(v float64) float64 { return left + plotWidth*v }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, chartHeight,
		template.HTMLEscapeString(p.title))
	fmt.Fprintf(&b, `<text class="title" x="%d" y="16">%s</text>`, left, template.HTMLEscapeString(p.title))
	for _, v := range yTicks(floor, ceil) {
		fmt.Fprintf(&b,
			`<line class="grid" x1="%d" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="tick" text-anchor="end" x="%d" y="%.1f">%s</text>`,
			left, x(1), y(v), y(v), left-8, y(v)+4, template.HTMLEscapeString(Value(p.metric, v)))
	}
	for at, label := range sorted(p.ticks) {
		fmt.Fprintf(&b,
			`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`,
			x(at), x(at), top, top+plotHeight, x(at), top+plotHeight+18, template.HTMLEscapeString(label))
	}
	fmt.Fprintf(&b, `<text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`, x(0.5), chartHeight-6,
		template.HTMLEscapeString(p.xLabel))
	for i, s := range p.series {
		drawSeries(&b, i, s, x, y)
	}
	drawLabels(&b, p.series, x, y)
	b.WriteString("</svg>")
	return template.HTML(b.String()) // #nosec: all text in it was escaped above
}

func drawSeries(b *strings.Builder, i int, s series, x, y func(float64) float64) {
	var path []string
	for _, q := range s.points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", x(q.x), y(q.y)))
	}
	fmt.Fprintf(b, `<g class="s%d"><title>%s</title><polyline points="%s"/>`, i, template.HTMLEscapeString(s.name),
		strings.Join(path, " "))
	for _, q := range s.points {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><circle cx="%.1f" cy="%.1f" r="%.1f"/>`, x(q.x),
			x(q.x), y(q.lo), y(q.hi), x(q.x), y(q.y), dots)
	}
	b.WriteString("</g>")
}

// drawLabels names the lines at their ends, moved apart where they would cover each other.
func drawLabels(b *strings.Builder, all []series, x, y func(float64) float64) {
	type label struct {
		i    int
		at   float64
		want float64
	}
	var labels []label
	for i, s := range all {
		at := y(s.points[len(s.points)-1].y)
		labels = append(labels, label{i, at, at})
	}
	slices.SortFunc(labels, func(a, b label) int { return int(math.Copysign(1, a.at-b.at)) })
	for k := 1; k < len(labels); k++ {
		labels[k].at = max(labels[k].at, labels[k-1].at+labelHeight)
	}
	limit := float64(top + plotHeight + 6)
	for k := len(labels) - 1; k >= 0; k-- {
		labels[k].at = min(labels[k].at, limit)
		limit = labels[k].at - labelHeight
	}
	for _, l := range labels {
		s := all[l.i]
		end := s.points[len(s.points)-1]
		fmt.Fprintf(b,
			`<g class="s%d"><line class="lead" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/></g><text class="label t%d" x="%.1f" y="%.1f">%s</text>`,
			l.i, x(end.x)+dots, l.want, x(1)+12, l.at, l.i, x(1)+15, l.at+4, template.HTMLEscapeString(s.name))
	}
}

// yTicks are round values between two powers of ten, two to eight of them.
func yTicks(floor, ceil float64) (v []float64) {
	steps := []float64{1, 2, 5}
	if ceil-floor > 3 {
		steps = []float64{1}
	}
	for d := math.Floor(floor); d <= ceil; d++ {
		for _, s := range steps {
			if t := s * math.Pow(10, d); math.Log10(t) >= floor-1e-9 && math.Log10(t) <= ceil+1e-9 {
				v = append(v, t)
			}
		}
	}
	return v
}

// sorted iterates over ticks from left to right.
func sorted(ticks map[float64]string) func(yield func(float64, string) bool) {
	return func(yield func(float64, string) bool) {
		var at []float64
		for v := range ticks {
			at = append(at, v)
		}
		slices.Sort(at)
		for _, v := range at {
			if !yield(v, ticks[v]) {
				return
			}
		}
	}
}
