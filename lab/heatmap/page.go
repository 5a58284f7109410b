package heatmap

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed heatmap.html.tmpl
var page string

var pageTemplate = template.Must(template.New("heatmap").Parse(page))

// HTML writes the map as a page; title says what was traced.
func (m *Map) HTML(w io.Writer, title string) error {
	type line struct {
		Name    string
		Share   [states]string
		PerCall string
		Strip   template.HTML
	}
	view := struct {
		*Map
		Title, Length, Quantiles string
		States                   []string
		Whole                    [states]string
		Lines                    []line
		CallMap                  template.HTML
		Waits                    []wait
		Ps                       []processor
	}{Map: m, Title: title, Length: round(m.Length), Quantiles: quantiles(m.CallTimes), CallMap: m.callMap()}
	for s := range states {
		view.States = append(view.States, s.String())
		view.Whole[s] = round(m.Total[s])
	}
	for _, b := range m.Blockers {
		view.Waits = append(view.Waits, wait{b, round(b.Total), round(b.Longest)})
	}
	for _, p := range m.Processors {
		view.Ps = append(view.Ps,
			processor{p, 100 * p.Running.Seconds() / m.Length.Seconds(), 100 * p.Idle.Seconds() / m.Length.Seconds()})
	}
	for _, g := range m.Goroutines {
		name := g.Name
		if name == "" {
			name = "(began before the trace)"
		}
		l := line{Name: fmt.Sprintf("%s, %d", name, g.ID), Strip: g.strip(m.Length / bins)}
		for s := range states {
			l.Share[s] = round(g.Total[s])
		}
		l.PerCall = g.perCall()
		view.Lines = append(view.Lines, l)
	}
	return pageTemplate.Execute(w, view)
}

// perCall says what lies between one system call of a goroutine and the next, on average: for a
// reader, its life around a read.
func (g *Goroutine) perCall() string {
	if g.Calls < fewCalls {
		return ""
	}
	of := func(s State) string { return round(g.Total[s] / time.Duration(g.Calls)) }
	return fmt.Sprintf("%d system calls, for each: %s in it, running %s, runnable %s, blocked %s", g.Calls, of(Syscall),
		of(Running), of(Runnable), of(Waiting))
}

// fewCalls are too few for an average.
const fewCalls = 10

// processor is a P as it is shown.
type processor struct {
	Processor
	RunningPercent, IdlePercent float64
}

// wait is a blocker as it is shown.
type wait struct {
	Blocker
	InAll, Most string
}

// strip draws the life of a goroutine: for each stretch of time its states, one upon another.
func (g *Goroutine) strip(span time.Duration) template.HTML {
	const height = 18
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="life of goroutine %d">`,
		bins, height, g.ID)
	for i, states := range g.Bins {
		y := float64(height)
		for s, d := range states {
			if d <= 0 || span <= 0 {
				continue
			}
			h := min(y, max(0.7, float64(height)*float64(d)/float64(span)))
			y -= h
			fmt.Fprintf(&b, `<rect class="g%d" x="%d" y="%.1f" width="1.02" height="%.1f"/>`, s, i, y, h)
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // #nosec: numbers only
}

// callMap draws system calls: time to the right, length upwards, the more the darker.
func (m *Map) callMap() template.HTML {
	const width, height, left = bins * 4, callBuckets * 14, 60
	most := 0
	for _, column := range m.Calls {
		for _, n := range column {
			most = max(most, n)
		}
	}
	if most == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="calls" viewBox="0 0 %d %d" role="img" aria-label="system calls by time and length">`,
		width+left, height+20)
	for k := range callBuckets {
		y := height - (k+1)*14
		label := fmt.Sprintf("%d µs", 1<<k)
		if k >= 10 {
			label = fmt.Sprintf("%d ms", 1<<(k-10))
		}
		if k == callBuckets-1 {
			label = "longer"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-6, y+11, label)
		for i := range bins {
			if n := m.Calls[i][k]; n > 0 {
				fmt.Fprintf(&b, `<rect class="call" x="%d" y="%d" width="4" height="13" fill-opacity="%.2f"/>`,
					left+i*4, y, 0.15+0.85*float64(n)/float64(most))
			}
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text></svg>`, left,
		height+14, width+left, height+14, round(m.Length))
	return template.HTML(b.String()) // #nosec: numbers only
}

func quantiles(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "no system call that the runtime traces"
	}
	at := func(q float64) string { return round(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) }
	return fmt.Sprintf("%d system calls: median %s, 99 %% %s, longest %s", len(sorted), at(0.5), at(0.99),
		round(sorted[len(sorted)-1]))
}

// round shows a time with three digits that matter.
func round(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= time.Microsecond:
		return d.Round(10 * time.Nanosecond).String()
	}
	return d.String()
}

// Text writes the map in short, for a terminal.
func (m *Map) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %d events, %d goroutines\n", m.Length.Round(time.Microsecond), m.Events,
		len(m.Goroutines)+m.Others)
	if m.Partial != "" {
		fmt.Fprintf(&b, "%s\n", m.Partial)
	}
	for s := range states {
		fmt.Fprintf(&b, "  %-26s %12s\n", s, round(m.Total[s]))
	}
	fmt.Fprintf(&b, "%s\n", quantiles(m.CallTimes))
	for _, g := range m.Goroutines[:min(len(m.Goroutines), 5)] {
		if text := g.perCall(); text != "" {
			fmt.Fprintf(&b, "  %s, %d: %s\n", g.Name, g.ID, text)
		}
	}
	fmt.Fprintf(&b, "what blocked most:\n")
	for _, x := range m.Blockers {
		fmt.Fprintf(&b, "  %10s in %6d waits, longest %10s  %s, %s\n", round(x.Total), x.Times, round(x.Longest),
			x.Reason, x.Where)
	}
	for _, p := range m.Processors {
		fmt.Fprintf(&b, "  %v\n", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
