package memfrag

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// Page writes a page with the curves, which a browser loads again each so often; 0: never.
func (s Summary) Page(to io.Writer, title string, again time.Duration) error {
	var b strings.Builder
	refresh := ""
	if again > 0 {
		refresh = fmt.Sprintf(`<meta http-equiv="refresh" content="%d">`, int(math.Ceil(again.Seconds())))
	}
	fmt.Fprintf(&b, `<!doctype html><html lang="en"><head><meta charset="utf-8">%s<title>%s</title>
<style>body{font:14px system-ui,sans-serif;margin:2em;max-width:60em}svg{width:100%%;height:12em;border:1px solid #8888}
polyline{fill:none;stroke:#06c;stroke-width:1.5;vector-effect:non-scaling-stroke}h2{font-size:1em}</style></head><body><h1>%[2]s</h1>
`, refresh, html.EscapeString(title))
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	s.Unusable.chart(&b, "free memory in blocks smaller than a huge page", percent, 1)
	for _, t := range s.Trials {
		t.Rate.chart(&b, fmt.Sprintf("%s: 1 − pages to be had ÷ pages that there should be; %d of %d trials fell short",
			t.Name, t.Short, t.Tried), percent, 1)
	}
	mib := func(v float64) string { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }
	s.RSS.chart(&b, "memory of the process", mib, 0)
	s.Huge.chart(&b, "… in huge pages", mib, 0)
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// chart draws a curve. top is its highest value; 0: the highest that there is.
func (c Curve) chart(b *strings.Builder, title string, say func(float64) string, top float64) {
	if len(c.points) == 0 {
		return
	}
	if top == 0 {
		top = max(c.Most, 1)
	}
	first, last := c.points[0].hour, c.points[len(c.points)-1].hour
	fmt.Fprintf(b,
		`<h2>%s</h2><p>first %s, last %s, mean %s, most %s; %s an hour; %.2f hours, %d samples; the chart ends at %s</p>
<svg viewBox="0 0 1000 100" preserveAspectRatio="none"><polyline points="`, html.EscapeString(title), say(c.First), say(c.Last), say(c.Mean), say(c.Most), say(c.PerHour),
		last-first, len(c.points), say(top))
	for _, p := range c.points {
		fmt.Fprintf(b, "%.1f,%.2f ", 1000*(p.hour-first)/max(last-first, 1e-9), 100-100*p.value/top)
	}
	b.WriteString(`"/></svg>` + "\n")
}
