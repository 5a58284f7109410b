package lab

import (
	"fmt"
	"math"
	"slices"
)

// MinRounds is the fewest rounds by which two contestants can be told apart, and by which a claim
// can be judged: of seven, even seven rounds that all say the same come by chance once in 64, which
// is more often than 1 %; of eight, once in 128.
const MinRounds = 8

// Ratio compares two contestants by the rounds in which they took turns. Median is the
// Hodges-Lehmann estimate, Lo and Hi are the interval of the signed-rank test at 99 %, all of the
// logarithms of the rounds' ratios. Of fewer than [MinRounds] rounds they are the range.
type Ratio struct {
	Median, Lo, Hi float64
	Rounds         []float64 // the ratio in each round

	disturbed string // what else the machine did in these rounds, if it was too much
	missing   int    // rounds that lack one of the figures
	open      bool   // those may be the worst, and are so many that the ratio may be anything
}

// Compare makes a ratio of a to b, whose rounds go together one by one; false if there is none, or
// b is nothing in all of them. That neither did anything in a round makes them alike there.
func Compare(a, b []float64) (Ratio, bool) { return pairs{a: a, b: b}.compare() }

// compare is [Compare] of the rounds that have both figures; the interval holds whatever the others
// would have been.
func (p pairs) compare() (Ratio, bool) {
	a, b := p.a, p.b
	n := min(len(a), len(b))
	logs, rounds, some := make([]float64, n), make([]float64, n), false
	for i := range n {
		if a[i] < 0 || b[i] < 0 {
			return Ratio{}, false // figures below 0 have no ratio
		}
		rounds[i] = a[i] / b[i]
		if a[i] == b[i] {
			rounds[i] = 1
		}
		logs[i] = math.Log(rounds[i])
		some = some || b[i] > 0
	}
	if !some {
		return Ratio{}, false
	}
	mid, lo, hi, open := signedRank(logs, p.missing)
	return Ratio{
		Median: math.Exp(mid), Lo: math.Exp(lo), Hi: math.Exp(hi), Rounds: rounds,
		disturbed: p.disturbed, missing: p.missing, open: open,
	}, true
}

// Enough reports whether there are rounds enough to tell the two apart.
func (r Ratio) Enough() bool { return len(r.Rounds) >= MinRounds }

// Differ reports whether the two differ by more than chance: whether 1 is outside the interval.
func (r Ratio) Differ() bool { return r.Enough() && (r.Lo > 1 || r.Hi < 1) }

// Quiet reports whether the machine did little else in these rounds, and no others lack the figures
// which could say the opposite.
func (r Ratio) Quiet() bool { return r.disturbed == "" && !r.open }

// Unseen is the largest difference that the rounds do not rule out, as a share: 0.03 is 3 %.
func (r Ratio) Unseen() float64 { return max(r.Hi-1, 1-r.Lo) }

// ApartAtMost is the verdict on a claim that two contestants are at most so far apart in a cell,
// however small their figures are: by the interval of the differences in each round.
func (v View) ApartAtMost(a, b *Contestant, cell Params, metric Metric, most float64, why string) (Verdict, bool) {
	r, ok := v.Ratio(a, b, cell, metric) // as many rounds, and as quiet ones
	if !ok {
		return Verdict{}, false
	}
	one, other := v.Row(a, cell), v.Row(b, cell)
	p := quietly(one.Metrics[metric.name], other.Metrics[metric.name], one, other)
	for i := range p.a {
		p.a[i] -= p.b[i]
	}
	mid, lo, hi, open := signedRank(p.a, p.missing)
	r.open = open
	needed := "at most " + inUnit(metric, most) + " apart"
	verdict := decide(r, -most <= lo && hi <= most, hi < -most || lo > most, needed, why)
	return verdict.As("%s apart (%.3g–%.3g)", inUnit(metric, mid), lo, hi), true
}

// String shows a ratio with its interval: 1.23× (1.20–1.27).
func (r Ratio) String() string { return fmt.Sprintf("%.2f× (%.2f–%.2f)", r.Median, r.Lo, r.Hi) }

// signedRank estimates the centre of values that are symmetric around it, with an interval that
// holds it at 1 − alpha: the median of all Walsh averages (Hodges and Lehmann, 1963), and those of
// them at which Wilcoxon's signed-rank test just does not reject (Tukey, 1949; Hollander, Wolfe and
// Chicken, Nonparametric Statistical Methods, 3.1 to 3.3). So the interval and the test never
// contradict each other. Values that are equal or 0 make it wider. Of too few values it is their
// range. It holds whatever missing values would be, as each end is where they are all beyond it
// (the worst case: Manski, Partial Identification of Probability Distributions, 1); where they are
// so many that this is anywhere it is open.
func signedRank(v []float64, missing int) (mid, lo, hi float64, open bool) {
	walsh := make([]float64, 0, len(v)*(len(v)+1)/2)
	for i, x := range v {
		for _, y := range v[:i+1] {
			w := (x + y) / 2
			if math.IsNaN(w) { // of +Inf and -Inf: once only this one did something, once only that one
				w = 0
			}
			walsh = append(walsh, w)
		}
	}
	slices.Sort(walsh)
	k := max(0, rejects(len(v)+missing)) - missing*len(v) - missing*(missing+1)/2 // averages of a missing one
	if k < 0 {
		k, open = 0, true
	}
	return Median(walsh), walsh[k], walsh[len(walsh)-1-k], open
}

// rejects returns the largest sum of the ranks of one sign that comes by chance in at most
// alpha ÷ 2 of n values, -1 if there is none. Each rank has that sign or not, so the chance of a
// sum is the number of sets of ranks that have it, of 2ⁿ.
func rejects(n int) int {
	chance := make([]float64, n*(n+1)/2+1)
	chance[0] = 1
	for rank := 1; rank <= n; rank++ {
		for sum := len(chance) - 1; sum >= 0; sum-- {
			chance[sum] /= 2
			if sum >= rank {
				chance[sum] += chance[sum-rank] / 2
			}
		}
	}
	below := 0.0
	for sum, p := range chance {
		if below += p; below > alpha/2 {
			return sum - 1
		}
	}
	return -1
}

// ByChance is the share of comparisons of equals that differ all the same.
const ByChance = alpha
