package lab

import (
	"fmt"
	"math"
)

// asked is a figure that somebody has asked a [View] for.
type asked struct {
	contestant *Contestant
	cell       Params
	metric     Metric
}

// note keeps what is asked for, where that is wanted.
func (v View) note(contestant *Contestant, cell Params, metric Metric) {
	if v.asked != nil {
		*v.asked = append(*v.asked, asked{contestant, cell, metric})
	}
}

// judge judges a claim, and says which figures it has asked for.
func (c Claim) judge(v View) (verdict Verdict, all []asked, ok bool) {
	r := *v.ExperimentResult
	r.asked = &all
	verdict, ok = c.Judge(View{&r})
	return verdict, all, ok
}

// disturbed is what disturbed the rounds of a figure that was asked for, if those that were quiet
// are too few; "" if there is none.
func (v View) disturbed(all []asked) string {
	for _, a := range all {
		if row := v.Row(a.contestant, a.cell); row != nil {
			if _, disturbed := row.quiet(a.metric); disturbed != "" {
				return disturbed
			}
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
