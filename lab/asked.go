package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// asked is a figure that somebody has asked a [View] for, perhaps to compare it.
type asked struct {
	contestant *Contestant
	cell       Params
	metric     Metric
	to         *Contestant // whom it was compared to; nil: nobody
}

// note keeps what is asked for, where that is wanted.
func (v View) note(a asked) {
	if v.asked != nil {
		*v.asked = append(*v.asked, a)
	}
}

// judge judges a claim, and says which figures it has asked for.
func (c Claim) judge(v View) (verdict Verdict, all []asked, ok bool) {
	r := *v.ExperimentResult
	r.asked = &all
	verdict, ok = c.Judge(View{&r})
	return verdict, all, ok
}

// spoils makes none of a verdict by what was counted, if the rounds of a figure that was asked for
// were disturbed, or some lack it: what was counted there is not known.
func (v View) spoils(all []asked, verdict Verdict) Verdict {
	for _, a := range all {
		row := v.Row(a.contestant, a.cell)
		if row == nil {
			continue
		}
		switch _, p := row.quiet(a.metric); {
		case p.disturbed != "":
			return verdict.tooNoisy(p.disturbed)
		case p.missing > 0:
			return verdict.tooFewValues(lackIt(p.missing, len(p.a)))
		}
	}
	return verdict
}

// failed says who of those that were asked about failed in a round, and was left out of those that
// followed; "" if none did.
func (v View) failed(all []asked) string {
	for _, a := range all {
		if row := v.Row(a.contestant, a.cell); row != nil && row.NotRun != "" {
			return Needs(row.Params, a.contestant) + " " + row.NotRun
		}
	}
	return ""
}

// notMeasured is the verdict on a claim that has asked for what there is not: for a percentile of
// turns that were too short for one, or for what its needs say.
func (v View) notMeasured(all []asked, needs string) Verdict {
	verdict := Verdict{Here: "–", Verdict: NotMeasurable, Why: "not measured: " + needs}
	for _, a := range all {
		row := v.Row(a.contestant, a.cell)
		if row == nil || row.Metrics[LatencyP50.name].N == 0 || row.Metrics[a.metric.name].N > 0 {
			continue
		}
		if n := valuesOf(a.metric); n > 0 {
			verdict.Reason = TooFewValues
			verdict.Why = fmt.Sprintf("Too few values: %s of %s takes %d in a turn.", Describe(a.metric.name).Label,
				Needs(row.Params, a.contestant), n)
		}
	}
	return verdict
}

// beyond is how many values a percentile has beyond it: of fewer it would be an accident, and
// contestants leave it out.
const beyond = 5

// valuesOf is how many values a turn must have for a percentile; 0 if the metric is none that is
// left out.
func valuesOf(m Metric) int {
	share := map[Metric]float64{LatencyP99: 0.01, LatencyP999: 0.001, LatencyP9999: 0.0001}[m]
	if share == 0 {
		return 0
	}
	return int(math.Round(beyond / share))
}

// advise is an experiment's advice. Of figures that it sets side by side and does not compare, it
// says which do not surely differ.
func (e *Experiment) advise(v View) string {
	r, all := *v.ExperimentResult, []asked{}
	r.asked = &all
	text := e.Advice(View{&r})
	if text == "" {
		return ""
	}
	return text + v.alike(all)
}

// alike names the contestants whose figures were asked for by one metric in one cell, lie side by
// side, and do not surely differ.
func (v View) alike(all []asked) (text string) {
	type group struct{ cell, metric string }
	groups, order := map[group][]asked{}, []group{}
	compared := func(a, b asked) bool {
		return slices.ContainsFunc(all, func(c asked) bool {
			return c.metric == a.metric && c.cell.String() == a.cell.String() &&
				(c.contestant == a.contestant && c.to == b.contestant ||
					c.contestant == b.contestant && c.to == a.contestant)
		})
	}
	for _, a := range all {
		g := group{a.cell.String(), a.metric.name}
		f, ok := v.Figure(a.contestant, a.cell, a.metric)
		if !ok || f.N < 2 || a.to != nil || // what is counted in a turn apart has no rounds
			slices.ContainsFunc(groups[g], func(b asked) bool { return b.contestant == a.contestant }) {
			continue
		}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], a)
	}
	for _, g := range order {
		members := groups[g]
		slices.SortStableFunc(members, func(a, b asked) int {
			x, _ := v.Median(a.contestant, a.cell, a.metric)
			y, _ := v.Median(b.contestant, b.cell, b.metric)
			return cmp.Compare(x, y)
		})
		for i := 1; i < len(members); i++ {
			a, b := members[i-1], members[i]
			if r, ok := v.Ratio(a.contestant, b.contestant, a.cell, a.metric); ok && !r.Sure() && !compared(a, b) {
				text += fmt.Sprintf(" No difference was measured between %s and %s in %s.", a.contestant.Name,
					Needs(a.cell, b.contestant), Describe(g.metric).Label)
			}
		}
	}
	return text
}
