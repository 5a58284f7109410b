package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// disturbance is what else went on while contestants worked.
type disturbance struct {
	others  float64 // share of the machine's CPU time that went to others
	steal   float64 // share that the hypervisor took
	stopped float64 // times that a CPU limit stopped a contestant
}

// The bounds of a machine that is quiet enough for a verdict, and of a turn. A turn may be as short
// as 15 ticks of a CPU, and one tick that the hypervisor took of 30 is not a noisy turn yet: its
// bound is three of them.
const (
	busyShare  = 0.15
	stealShare = 0.03
	stealTurn  = 0.10
)

// excess says what of it was more than a verdict bears.
func (d disturbance) excess() string {
	var w []string
	if d.others > busyShare {
		w = append(w, fmt.Sprintf("the machine was busy: %.0f %% of its CPU time went to others", 100*d.others))
	}
	if d.steal > stealShare {
		w = append(w, fmt.Sprintf("the hypervisor took %.0f %% of the CPU time", 100*d.steal))
	}
	if d.stopped > 0 {
		w = append(w, fmt.Sprintf("a CPU limit stopped contestants %.0f times", d.stopped))
	}
	return strings.Join(w, ", ")
}

// noisyRounds are the numbers of the rounds in which the turn of one of some rows was disturbed.
func noisyRounds(rows ...*Row) map[int]bool {
	noisy := map[int]bool{}
	for _, row := range rows {
		for metric, most := range map[Metric]float64{Others: 100 * busyShare, Steal: 100 * stealTurn, Throttled: 0} {
			f := row.Metrics[metric.name]
			for i, x := range f.Samples {
				if x > most {
					noisy[f.Round(i)] = true
				}
			}
		}
	}
	return noisy
}

// disturbanceOf is what went on in those rounds of some rows that are wanted: in the row that was
// disturbed most.
func disturbanceOf(wanted func(round int) bool, rows ...*Row) (d disturbance) {
	for _, row := range rows {
		d.others = max(d.others, mean(row.Metrics[Others.name].only(wanted).Samples)/100)
		d.steal = max(d.steal, mean(row.Metrics[Steal.name].only(wanted).Samples)/100)
		d.stopped += sum(row.Metrics[Throttled.name].only(wanted).Samples)
	}
	return d
}

// only is a figure's rounds that are wanted, with their numbers, and without a summary.
func (f Figure) only(wanted func(round int) bool) Figure {
	g := Figure{Unit: f.Unit, Rounds: []int{}}
	for i, x := range f.Samples {
		if round := f.Round(i); wanted(round) {
			g.Samples, g.Rounds = append(g.Samples, x), append(g.Rounds, round)
		}
	}
	g.N = len(g.Samples)
	return g
}

// pairs are the rounds of two figures that go together.
type pairs struct {
	a, b      []float64
	missing   int    // rounds, as quiet as these, that lack one of the figures
	disturbed string // what disturbed them, if that was too much
}

// quietly returns the rounds of two figures of some rows that go together, without those in which
// the turn of one of the rows was disturbed: no such round decides anything. Where too few are left
// for a verdict, it returns all rounds, and says what disturbed them.
func quietly(f, g Figure, rows ...*Row) (p pairs) {
	noisy := noisyRounds(rows...)
	quiet := func(round int) bool { return !noisy[round] }
	all, other := together(f, g)
	p.a, p.b = together(f.only(quiet), g.only(quiet))
	if len(p.a) >= min(len(all), MinRounds) {
		p.missing = missing(len(p.a), noisy, rows...)
		p.disturbed = disturbanceOf(quiet, rows...).excess()
		return p
	}
	why := disturbanceOf(func(round int) bool { return noisy[round] }, rows...)
	return pairs{all, other, 0, fmt.Sprintf("%d of %d rounds were quiet, in the others %s", len(p.a), len(all), why.excess())}
}

// missing is how many quiet rounds lack a figure that so many have: rounds in which each of some
// rows had its turn.
func missing(have int, noisy map[int]bool, rows ...*Row) int {
	n := rows[0].rounds()
	for _, row := range rows {
		n = min(n, row.rounds())
	}
	for i := range n {
		if noisy[i] {
			have++
		}
	}
	return max(0, n-have)
}

// lackIt says of so many rounds that they lack a figure, of others that have it.
func lackIt(missing, others int) string {
	return fmt.Sprintf("%d of %d rounds lack the figure, as one of too few values does, and may be the worst",
		missing, missing+others)
}

// quiet is a figure of the rounds that [quietly] leaves, and why they decide nothing, if they do
// not. What is counted once, in a turn apart, has no noise, and what is the same in all rounds
// was not disturbed.
func (row *Row) quiet(metric Metric) (f Figure, p pairs) {
	f = row.Metrics[metric.name]
	if len(f.Samples) == 0 || len(f.Samples) == 1 && metric.isCountedApart() {
		return f, p
	}
	p = quietly(f, f, row)
	if len(f.Samples) > 1 && slices.Min(f.Samples) == slices.Max(f.Samples) {
		p.disturbed = ""
	}
	if len(p.a) == len(f.Samples) {
		return f, p
	}
	noisy := noisyRounds(row)
	q := f.only(func(round int) bool { return !noisy[round] })
	whole := Summarise(f.Unit, q.Samples)
	whole.Rounds = q.Rounds
	return whole, p
}

// with is a row with other samples of a metric, in the same rounds.
func (row *Row) with(metric Metric, samples []float64) *Row {
	copied := *row
	copied.Metrics = maps.Clone(row.Metrics)
	f := row.Metrics[metric.name]
	f.Samples = samples
	copied.Metrics[metric.name] = f
	return &copied
}

// Lacks is what a figure of a row lacks to decide anything, as a verdict would: it is of eight
// rounds in which the machine was quiet, at least, and of all such. It is "" if it lacks nothing.
func (row *Row) Lacks(metric Metric) string {
	switch _, p := row.quiet(metric); {
	case row.NotRun != "":
		return row.NotRun
	case len(p.a) < MinRounds:
		return fmt.Sprintf("%s of the %d that it takes", Count(len(p.a), "round"), MinRounds)
	case p.disturbed != "":
		return p.disturbed
	case p.missing > 0:
		return lackIt(p.missing, len(p.a))
	}
	return ""
}
