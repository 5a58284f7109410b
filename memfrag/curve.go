package memfrag

import (
	"slices"
	"strings"
	"time"
)

// Summary is what samples say together.
type Summary struct {
	Samples []Sample

	Unusable Curve   // the share of free memory that is in blocks smaller than a huge page
	Trials   []Tried // by kind
	RSS      Curve   // of the process, in bytes
	Huge     Curve   // … in huge pages
}

// Tried is trials of one kind.
type Tried struct {
	Name   string `json:"-"`
	Rate   Curve  `json:"rate"`   // 1 − huge pages to be had ÷ those that there should be
	Tried  int    `json:"tried"`  // trials
	Short  int    `json:"short"`  // … in which some were missing
	Failed int    `json:"failed"` // … in which none was to be had
}

// Curve is figures over time. The slope is that of a straight line through all, for each hour.
type Curve struct {
	First   float64 `json:"first"`
	Last    float64 `json:"last"`
	Mean    float64 `json:"mean"`
	Most    float64 `json:"most"`
	PerHour float64 `json:"per_hour"`
	points  []point
}

type point struct{ hour, value float64 }

func (c *Curve) add(hour, value float64) {
	c.points = append(c.points, point{hour, value})
}

// fill computes what a curve says.
func (c *Curve) fill() {
	if len(c.points) == 0 {
		return
	}
	c.First, c.Last, c.Most = c.points[0].value, c.points[len(c.points)-1].value, c.points[0].value
	var n, x, y, xx, xy float64
	for _, p := range c.points {
		n, x, y, xx, xy = n+1, x+p.hour, y+p.value, xx+p.hour*p.hour, xy+p.hour*p.value
		c.Most = max(c.Most, p.value)
	}
	c.Mean = y / n
	if d := n*xx - x*x; d > 0 {
		c.PerHour = (n*xy - x*y) / d
	}
}

func summarise(began int64, all []Sample) Summary {
	s := Summary{Samples: all}
	for _, a := range all {
		hour := float64(a.At-began) / float64(time.Hour.Milliseconds())
		s.Unusable.add(hour, a.Unusable())
		for _, t := range a.Trials {
			s.tried(t).add(hour, t)
		}
		if a.Process != nil {
			s.RSS.add(hour, float64(a.Process.RSS))
			s.Huge.add(hour, float64(a.Process.Huge))
		}
	}
	s.Unusable.fill()
	s.RSS.fill()
	s.Huge.fill()
	for i := range s.Trials {
		s.Trials[i].Rate.fill()
	}
	return s
}

func (s *Summary) tried(t Trial) *Tried {
	at := slices.IndexFunc(s.Trials, func(o Tried) bool { return o.Name == t.Name() })
	if at < 0 {
		at = len(s.Trials)
		s.Trials = append(s.Trials, Tried{Name: t.Name()})
	}
	return &s.Trials[at]
}

func (t *Tried) add(hour float64, of Trial) {
	t.Rate.add(hour, of.Rate())
	t.Tried++
	switch of.Got {
	case of.Most:
	case 0:
		t.Failed++
		fallthrough
	default:
		t.Short++
	}
}

// Line draws a curve of so many columns, from its least to its most.
func (c Curve) Line(wide int) string {
	if len(c.points) == 0 {
		return ""
	}
	marks := []rune("▁▂▃▄▅▆▇█")
	least := c.Most
	for _, p := range c.points {
		least = min(least, p.value)
	}
	var b strings.Builder
	for col := range min(wide, len(c.points)) {
		from, to := col*len(c.points)/min(wide, len(c.points)), (col+1)*len(c.points)/min(wide, len(c.points))
		most := c.points[from].value
		for _, p := range c.points[from:to] {
			most = max(most, p.value)
		}
		at := 0
		if c.Most > least {
			at = int((most - least) / (c.Most - least) * float64(len(marks)-1))
		}
		b.WriteRune(marks[at])
	}
	return b.String()
}
