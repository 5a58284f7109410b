package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

// The size of bars of parts, in the units of a chart.
const (
	barLeft, barRight    = 190, 76
	barHeight, barPitch  = 18, 26
	keyPitch, keyColumns = 18, 3
)

// whole is a contestant's parts, one on the other.
type whole struct {
	name  string
	parts []float64
	sum   float64
}

// parts draws what each contestant's figure is made of in a cell: a bar of parts on one axis.
// What is less than nothing, since two clocks are held against each other, is drawn as nothing.
func parts(e *lab.ExperimentResult, params lab.Params) template.HTML {
	names := e.Chart.Parts
	var all []whole
	longest := 0.0
	for _, row := range e.Rows {
		if row.Params.String() != params.String() || row.Metrics == nil {
			continue
		}
		w := whole{name: row.Contestant}
		for _, n := range names {
			v := max(0, row.Metrics[n].Median)
			w.parts, w.sum = append(w.parts, v), w.sum+v
		}
		if w.sum > 0 {
			all = append(all, w)
			longest = max(longest, w.sum)
		}
	}
	if len(all) == 0 || len(names) > mostSeries {
		return ""
	}
	title := "The parts of the whole, " + lab.Describe(names[0]).Unit
	if len(params) > 0 {
		title += ", " + params.String()
	}
	keys := (len(names) + keyColumns - 1) / keyColumns * keyPitch
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth,
		top+len(all)*barPitch+keys+10, template.HTMLEscapeString(title))
	fmt.Fprintf(&b, `<text class="title" x="%d" y="16">%s</text>`, barLeft, template.HTMLEscapeString(title))
	for i, w := range all {
		drawWhole(&b, w, names, top+i*barPitch, (chartWidth-barLeft-barRight)/longest)
	}
	for i, n := range names {
		x, y := 10+i%keyColumns*(chartWidth-10)/keyColumns, top+len(all)*barPitch+8+i/keyColumns*keyPitch
		fmt.Fprintf(&b, `<rect class="p%d" x="%d" y="%d" width="11" height="11"/><text class="tick" x="%d" y="%d">%s</text>`,
			i, x, y, x+16, y+10, template.HTMLEscapeString(lab.Describe(n).Label))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // #nosec: all text in it was escaped above
}

// drawWhole draws a bar from y down, with so many units of length for each of the figure's.
func drawWhole(b *strings.Builder, w whole, names []string, y int, scale float64) {
	text := y + barHeight - 5
	fmt.Fprintf(b, `<text class="tick" text-anchor="end" x="%d" y="%d">%s</text>`, barLeft-8, text,
		template.HTMLEscapeString(w.name))
	x := float64(barLeft)
	for i, v := range w.parts {
		said := lab.Describe(names[i]).Label + ": " + Value(names[i], v)
		fmt.Fprintf(b, `<rect class="p%d" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`, i, x, y,
			v*scale, barHeight, template.HTMLEscapeString(said))
		x += v * scale
	}
	fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%d">%s</text>`, x+6, text,
		template.HTMLEscapeString(Value(names[0], w.sum)))
}
