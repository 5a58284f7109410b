package lab

import (
	"fmt"
	"math"
	"slices"
)

// Verdicts on what happens in some rounds and not in others: that a largest value is beyond a
// level, that things are lost. What happens comes in bursts, as one stall makes a thousand frames
// late, so it is rounds that are counted, and the share of all rounds is known by the exact bounds
// of Clopper and Pearson (Biometrika 26, 1934). That k of n rounds are beyond puts the share above
// p, with an error of at most e, if P(X ≥ k) ≤ e, where X is binomial (n, p), and below p if
// P(X ≤ k) ≤ e. Here p is one half, the share that eight rounds can just tell from none.

// isSeldom and isOften report whether something happens in fewer than half of all rounds, and in
// more, if it has happened in k of n: by the interval at 99 %, of which each end is wrong in at
// most alpha ÷ 2 of cases. A rate that is just what is claimed is exceeded in about half of all
// rounds, so this is the question where both sides can be true.
func isSeldom(k, n int) bool { return heads(k, n) <= alpha/2 }
func isOften(k, n int) bool  { return heads(n-k, n) <= alpha/2 }

// isMost reports whether something that was claimed never to happen happens in most rounds, if it
// has in k of n: by the lower bound alone, at 95 %. One side is enough, and the bound is far from
// the claim: half of all rounds is not "never" either. Wrong is only to say so of a machine that is
// beyond by itself in few rounds. If that is a quarter of all, five looks at up to 40 rounds say so
// in 0.05 % of runs, if a third in 0.4 %. It is as low as it can be: with less, two runs of a truth
// in between would contradict each other in more than one pair of a thousand.
func isMost(k, n int) bool { return heads(n-k, n) <= oneSided }

const oneSided = 0.05

// mostOf is the fewest rounds of n that are most.
func mostOf(n int) int {
	for k := range n {
		if isMost(k, n) {
			return k
		}
	}
	return n
}

// heads is the chance of at most k heads in n throws of a coin.
func heads(k, n int) (p float64) {
	term := math.Pow(0.5, float64(n))
	for i := 0; i <= k; i++ {
		p += term
		term *= float64(n-i) / float64(i+1)
	}
	return p
}

// Never is the verdict on a claim that a figure, the largest of a round, never exceeds a level. It
// holds if no round exceeds it, of eight at least, and it does not if most do: 7 of 8, 10 of 12, 26
// of 40. What few rounds exceed it by may be the machine's, and so decides nothing.
func (v View) Never(c *Contestant, cell Params, metric Metric, level float64, why string) (Verdict, bool) {
	return v.largest(c, cell, metric, level, false, "never more than ", why)
}

// Sometimes is the verdict on a claim that a figure, the largest of a round, exceeds a level again
// and again: the opposite of that of [View.Never], by the same rounds.
func (v View) Sometimes(c *Contestant, cell Params, metric Metric, level float64, why string) (Verdict, bool) {
	return v.largest(c, cell, metric, level, true, "in most rounds more than ", why)
}

// roundsOf is no ratio, but has the rounds of a figure that may judge, and what disturbed them;
// false if it was not measured.
func (v View) roundsOf(c *Contestant, cell Params, metric Metric) (r Ratio, ok bool) {
	v.note(asked{contestant: c, cell: cell, metric: metric})
	row := v.Row(c, cell)
	if row == nil {
		return r, false
	}
	f := row.Metrics[metric.name]
	p := quietly(f, f, row)
	return Ratio{Rounds: p.a, disturbed: p.disturbed, missing: p.missing}, len(p.a) > 0
}

// largest judges by how many rounds exceed a level: none, or most.
func (v View) largest(c *Contestant, cell Params, metric Metric, level float64, exceeds bool, needed, why string,
) (Verdict, bool) {
	r, ok := v.roundsOf(c, cell, metric)
	if !ok {
		return Verdict{}, false
	}
	most, beyond, n := slices.Max(r.Rounds), 0, len(r.Rounds)
	for _, x := range r.Rounds { // the figures themselves: a level of 0, and figures below 0, have no ratio
		if x > level {
			beyond++
		}
	}
	// a round that lacks the figure may have been beyond, or not
	yes, no := beyond == 0 && isSeldom(r.missing, n+r.missing), isMost(beyond, n+r.missing)
	if exceeds {
		yes, no = no, yes
	}
	verdict := decide(r, yes, no, needed+inUnit(metric, level), why)
	switch {
	case verdict.Reason != TooNoisy || !r.Quiet():
	case r.missing > 0:
		verdict = verdict.tooFewValues(lackIt(r.missing, n))
	default:
		verdict.Why = fmt.Sprintf("Too noisy: more than %s in %d of %d rounds, which may be the machine's. "+
			"A verdict needs none, or %d.", inUnit(metric, level), beyond, n, mostOf(n))
	}
	here := fmt.Sprintf("at most %s in %d rounds", inUnit(metric, most), n)
	if beyond > 0 {
		here += fmt.Sprintf(", more than %s in %d of them", inUnit(metric, level), beyond)
	}
	return verdict.As("%s", here), true
}

// rate is what is known of a share that is lost, from the rounds that were quiet.
type rate struct {
	lost, all float64
	lo, hi    float64 // of the share, at 99 %
	beyond    int     // rounds in which more was lost than may be
	rounds    Ratio   // no ratio, but its rounds, and what disturbed them
}

// rateOf adds up the rounds. Single losses of a steady rate would make the sums of rounds differ as
// Poisson's distribution has it. Where they differ more, losses come in bursts, and the interval
// counts bursts: of so many losses as the rounds' sums differ more than they would (the quasi-
// Poisson model: McCullagh and Nelder, Generalized Linear Models, 6.2).
func (v View) rateOf(c *Contestant, cell Params, some, of Metric, most float64) (r rate, ok bool) {
	v.note(asked{contestant: c, cell: cell, metric: some})
	v.note(asked{contestant: c, cell: cell, metric: of})
	row := v.Row(c, cell)
	if row == nil {
		return r, false
	}
	p := quietly(row.Metrics[some.name], row.Metrics[of.name], row)
	lost, all := p.a, p.b
	r = rate{
		lost: sum(lost), all: sum(all), rounds: Ratio{Rounds: lost, disturbed: p.disturbed, missing: p.missing},
	}
	if r.all <= 0 {
		return r, false
	}
	burst := 1.0
	spread := 0.0
	for i, x := range lost {
		if x > most*all[i] {
			r.beyond++
		}
		if expected := r.lost * all[i] / r.all; expected > 0 {
			spread += (x - expected) * (x - expected) / expected
		}
	}
	if len(lost) > 1 {
		burst = max(1, spread/float64(len(lost)-1))
	}
	lo, hi := poisson(math.Floor(r.lost/burst), alpha/2)
	_, hi2 := poisson(math.Ceil(r.lost/burst), alpha/2)
	r.lo, r.hi = lo*burst/r.all, max(hi, hi2)*burst/r.all
	return r, true
}

// RateAtMost is the verdict on a claim that at most such a share is lost, where some things of all
// are: it holds if the interval of the share is not higher, and few rounds lose more; it does not
// if the interval is higher, and most rounds lose more.
func (v View) RateAtMost(c *Contestant, cell Params, some, of Metric, most float64, why string) (Verdict, bool) {
	return v.rate(c, cell, some, of, most, true, why)
}

// RateAtLeast is the verdict on a claim that at least such a share is lost, the opposite of that of
// [View.RateAtMost] by the same rounds.
func (v View) RateAtLeast(c *Contestant, cell Params, some, of Metric, least float64, why string) (Verdict, bool) {
	return v.rate(c, cell, some, of, least, false, why)
}

func (v View) rate(c *Contestant, cell Params, some, of Metric, level float64, below bool, why string,
) (Verdict, bool) {
	r, ok := v.rateOf(c, cell, some, of, level)
	if !ok {
		return Verdict{}, false
	}
	n, missing := len(r.rounds.Rounds), r.rounds.missing // which may have lost more, or not
	yes, no := r.hi <= level && isSeldom(r.beyond+missing, n+missing), r.lo > level && isOften(r.beyond, n+missing)
	needed := fmt.Sprintf("a rate ≤ %.2g", level)
	if !below {
		yes, no = no, yes
		needed = fmt.Sprintf("a rate ≥ %.2g", level)
	}
	verdict := decide(r.rounds, yes, no, needed, why)
	if verdict.Reason == TooNoisy && r.rounds.Quiet() {
		verdict.Reason = TooFewRounds
		verdict.Why = fmt.Sprintf("Too few: by %.4g of %.4g the rate is from %.2g to %.2g, at 99 %%, and %d of %d rounds "+
			"lost more than %.2g.", r.lost, r.all, r.lo, r.hi, r.beyond, n, level)
	}
	return verdict.As("%.4g of %.4g, a rate from %.2g to %.2g", r.lost, r.all, r.lo, r.hi), true
}
