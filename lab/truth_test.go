package lab

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// truth is what two contestants, a and b, do in a round, and what is claimed of it.
type truth struct {
	name  string
	holds bool // what is claimed is clearly so; else it clearly is not
	round func(rng *rand.Rand, i int) (a, b Metrics)
	judge func(v View) (Verdict, bool)
}

// verdictOf is that of an experiment that ends at the first look that gives one.
func (x truth) verdictOf(rng *rand.Rand, looks []int) string {
	e := Experiment{Name: "test", Claims: []Claim{{Claim: "It is so.", Source: Goal("so"), Judge: x.judge}}}
	var a, b []Metrics
	for _, n := range looks {
		for len(a) < n {
			of, other := x.round(rng, len(a))
			a, b = append(a, of), append(b, other)
		}
		if v := e.judge(viewOfRounds(a, b), Quick())[0]; v.Verdict != NotMeasurable {
			return v.Verdict
		}
	}
	return NotMeasurable
}

type noiseOf func(rng *rand.Rand, i int) float64

// noisesOfRounds are by what a figure of a round differs from the truth, as logarithms.
var noisesOfRounds = map[string]noiseOf{
	"no noise":     func(*rand.Rand, int) float64 { return 0 },
	"little noise": func(rng *rand.Rand, _ int) float64 { return 0.02 * rng.NormFloat64() },
	"much noise":   func(rng *rand.Rand, _ int) float64 { return 0.3 * rng.NormFloat64() },
	"ties":         func(rng *rand.Rand, _ int) float64 { return 0.1 * math.Round(1.5*rng.NormFloat64()) },
	"outliers of 150×": func(rng *rand.Rand, _ int) float64 {
		return 0.02*rng.NormFloat64() + 5*float64(rng.IntN(10)/9)
	},
	"stalls of 2×": func(rng *rand.Rand, _ int) float64 {
		return 0.02*rng.NormFloat64() + 0.7*float64(rng.IntN(5)/4)
	},
	"heavy tails":  func(rng *rand.Rand, _ int) float64 { return 0.05 * math.Tan(math.Pi*(rng.Float64()-0.5)) },
	"skewed noise": func(rng *rand.Rand, _ int) float64 { return 0.2 * (rng.ExpFloat64() - math.Ln2) },
	"three slow rounds of ten": func(rng *rand.Rand, i int) float64 {
		return 0.02*rng.NormFloat64() + float64(3/max(3, 1+i%10))
	},
}

var ofA, ofB = who("a"), who("b")

// byRatio is a claim on the ratio of a to b.
func byRatio(judge func(r Ratio) Verdict) func(v View) (Verdict, bool) {
	return func(v View) (Verdict, bool) {
		r, ok := v.Ratio(ofA, ofB, nil, NsPerOp)
		return judge(r), ok
	}
}

// claimsOnFigures are claims on a and b, of which b takes 100 ns and a so many times that.
var claimsOnFigures = []struct {
	times float64
	claim string
	holds bool
	judge func(v View) (Verdict, bool)
}{
	{2, "≥ 1.5×", true, byRatio(func(r Ratio) Verdict { return AtLeast(r, 1.5, "") })},
	{1.1, "≥ 1.5×", false, byRatio(func(r Ratio) Verdict { return AtLeast(r, 1.5, "") })},
	{1.1, "≤ 1.5×", true, byRatio(func(r Ratio) Verdict { return AtMost(r, 1.5, "") })},
	{2, "≤ 1.5×", false, byRatio(func(r Ratio) Verdict { return AtMost(r, 1.5, "") })},
	{2, "1.5× to 3×", true, byRatio(func(r Ratio) Verdict { return Within(r, 1.5, 3, "") })},
	{1, "1.5× to 3×", false, byRatio(func(r Ratio) Verdict { return Within(r, 1.5, 3, "") })},
	{5, "1.5× to 3×", false, byRatio(func(r Ratio) Verdict { return Within(r, 1.5, 3, "") })},
	{1, "alike by 20 %", true, byRatio(func(r Ratio) Verdict { return Alike(r, 0.2, "") })},
	{1.6, "alike by 20 %", false, byRatio(func(r Ratio) Verdict { return Alike(r, 0.2, "") })},
	{0.5, "alike by 20 %", false, byRatio(func(r Ratio) Verdict { return Alike(r, 0.2, "") })},
	{2, "≥ 1.5× and ≤ 3×", true, byRatio(func(r Ratio) Verdict {
		return All(AtLeast(r, 1.5, ""), AtMost(r, 3, ""))
	})},
	{2, "≥ 1.5× and ≤ 1.2×", false, byRatio(func(r Ratio) Verdict {
		return All(AtLeast(r, 1.5, ""), AtMost(r, 1.2, ""))
	})},
	{
		2, "all of them ≤ 1.2×", false,
		AllAtMost("", Source{}, []*Contestant{ofB, ofA}, ofB, nil, NsPerOp, 1.2, "").Judge,
	},
	{1, "≤ 300 ns", true, func(v View) (Verdict, bool) { return v.AtMost(ofA, nil, NsPerOp, 300, "") }},
	{1, "≤ 30 ns", false, func(v View) (Verdict, bool) { return v.AtMost(ofA, nil, NsPerOp, 30, "") }},
	{1, "≥ 30 ns", true, func(v View) (Verdict, bool) { return v.AtLeast(ofA, nil, NsPerOp, 30, "") }},
	{1, "≥ 300 ns", false, func(v View) (Verdict, bool) { return v.AtLeast(ofA, nil, NsPerOp, 300, "") }},
	{1, "30 % to 300 %", true, func(v View) (Verdict, bool) { return v.Share(ofA, nil, NsPerOp, 0.3, 3, "") }},
	{5, "30 % to 300 %", false, func(v View) (Verdict, bool) { return v.Share(ofA, nil, NsPerOp, 0.3, 2, "") }},
	{1, "100 ns apart", true, func(v View) (Verdict, bool) { return v.ApartAtMost(ofA, ofB, nil, NsPerOp, 100, "") }},
	{3, "50 ns apart", false, func(v View) (Verdict, bool) { return v.ApartAtMost(ofA, ofB, nil, NsPerOp, 50, "") }},
	{1, "grows by 300 ns", true, func(v View) (Verdict, bool) { return v.GrowsAtMost(ofA, nil, NsPerOp, 300, "") }},
	{1, "grows by 30 ns", false, func(v View) (Verdict, bool) { return v.GrowsAtMost(ofA, nil, NsPerOp, 30, "") }},
}

// truthsOfFigures are all claims on figures with all noises, and a machine that is as fast for both
// as it likes.
func truthsOfFigures() (all []truth) {
	for _, name := range slices.Sorted(maps.Keys(noisesOfRounds)) { // in the same order each time
		noise := noisesOfRounds[name]
		for _, c := range claimsOnFigures {
			round := func(rng *rand.Rand, i int) (a, b Metrics) {
				ns := 100 * math.Exp(0.2*rng.NormFloat64())
				return Metrics{NsPerOp.name: c.times * ns * math.Exp(noise(rng, i))},
					Metrics{NsPerOp.name: ns * math.Exp(noise(rng, i+5))}
			}
			all = append(all, truth{fmt.Sprintf("%g×: %s, %s", c.times, c.claim, name), c.holds, round, c.judge})
		}
	}
	return all
}

// truthsOfLosses are claims on what happens in a share of rounds: a frame is late, and as many of
// 1,000 are lost as a burst has.
func truthsOfLosses() (all []truth) {
	for _, c := range []struct {
		share, burst float64
		claim        string
		holds        bool
		judge        func(v View) (Verdict, bool)
	}{
		{0, 0, "never", true, neverLost},
		{0.25, 1, "never, but for the machine", true, neverLost},
		{0.5, 1, "never", false, neverLost},
		{1, 1, "never", false, neverLost},
		{0.5, 1, "sometimes", true, sometimesLost},
		{0, 0, "sometimes", false, sometimesLost},
		{0, 0, "≤ 1 %", true, onePercentAtMost},
		{1, 3, "≤ 1 %", true, onePercentAtMost},
		{0.1, 30, "≤ 1 %", true, onePercentAtMost},
		{0.5, 100, "≤ 1 %", false, onePercentAtMost},
		{1, 30, "≤ 1 %", false, onePercentAtMost},
		{1, 1000, "≤ 1 %", false, onePercentAtMost},
		{1, 30, "≥ 1 %", true, onePercentAtLeast},
		{0, 0, "≥ 1 %", false, onePercentAtLeast},
		{0, 0, inAll, true, noneInAll},
		{1, 1, inAll, false, noneInAll},
	} {
		round := func(rng *rand.Rand, _ int) (a, b Metrics) {
			lost := 0.0
			if rng.Float64() < c.share {
				lost = min(1000, max(1, math.Round(c.burst*(0.5+rng.Float64()))))
			}
			return Metrics{LostFrames.name: lost, SentFrames.name: 1000}, Metrics{SentFrames.name: 1000}
		}
		all = append(all, truth{
			fmt.Sprintf("%g lost in %g %% of rounds: %s", c.burst, 100*c.share, c.claim), c.holds, round, c.judge,
		})
	}
	return all
}

func neverLost(v View) (Verdict, bool)     { return v.Never(ofA, nil, LostFrames, 0, "") }
func sometimesLost(v View) (Verdict, bool) { return v.Sometimes(ofA, nil, LostFrames, 0, "") }
func onePercentAtMost(v View) (Verdict, bool) {
	return v.RateAtMost(ofA, nil, LostFrames, SentFrames, 0.01, "")
}

func onePercentAtLeast(v View) (Verdict, bool) {
	return v.RateAtLeast(ofA, nil, LostFrames, SentFrames, 0.01, "")
}

const inAll = "none in all"

// noneInAll is a claim that is judged by a count.
func noneInAll(v View) (Verdict, bool) {
	lost, ok := v.Sum(ofA, nil, LostFrames)
	return Holds(lost == 0, "", ""), ok
}

// Each of these makes other rounds of those of a truth, in which it is as true.

// disturbed has the figures of some rounds be anything, while others have the machine.
func disturbed(x truth) truth {
	round := x.round
	x.name += ", in disturbed rounds anything"
	x.round = func(rng *rand.Rand, i int) (a, b Metrics) {
		a, b = round(rng, i)
		a[Others.name], b[Others.name] = 0, 0
		if rng.IntN(4) == 0 {
			a[Others.name] = 50
			for _, m := range []Metrics{a, b} {
				for name := range m {
					if name == NsPerOp.name || name == LostFrames.name {
						m[name] *= math.Exp(5 * rng.NormFloat64())
					}
				}
			}
		}
		return a, b
	}
	return x
}

// turned has most rounds lack the figures in which it is so, as slow ones lack percentiles, so that
// what is claimed does not hold; the rounds that have them are those in which it would.
func turned(x truth) truth {
	round := x.round
	x.name += ", most rounds lack the figures"
	x.holds = !x.holds
	x.round = func(rng *rand.Rand, i int) (a, b Metrics) {
		a, b = round(rng, i)
		a[Wall.name], b[Wall.name] = 1, 1
		if rng.Float64() < 0.7 {
			delete(a, NsPerOp.name)
			delete(a, LostFrames.name)
		}
		return a, b
	}
	return x
}

// wrongly is how many of some runs say the opposite of a truth, and how many say it.
func (x truth) wrongly(rng *rand.Rand, looks []int, runs int) (wrong, right int) {
	got := map[string]int{}
	for range runs {
		got[x.verdictOf(rng, looks)]++
	}
	if x.holds {
		return got[NotReproduced], got[Reproduced]
	}
	return got[Reproduced], got[NotReproduced]
}

// TestTruths: no kind of claim that is clearly so is "not reproduced" in more than 1 % of runs, and
// none that clearly is not "reproduced": whatever noise the rounds have, where some are disturbed
// or lack what is asked for; and by quick rounds as by full ones, each looked at as often as runs
// do.
func TestTruths(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	few, many := testenv.Rounds(60, 10), testenv.Rounds(4000, 400)
	all := append(truthsOfFigures(), truthsOfLosses()...)
	for _, x := range all {
		all = append(all, disturbed(x), turned(x))
	}
	told := map[string]bool{}
	for _, x := range all {
		for _, looks := range [][]int{{8, 12}, {8, 16, 24, 32, 40}} {
			wrong, right := x.wrongly(rng, looks, few)
			if right > 0 {
				told[x.name] = true
			}
			if wrong == 0 {
				continue
			}
			if wrong, _ = x.wrongly(rng, looks, many); 100*wrong > many { // more often than by chance
				t.Errorf("%s, looked at after %v: %d of %d runs say the opposite", x.name, looks, wrong, many)
			}
		}
	}
	t.Logf("%d truths, of which %d were told", len(all), len(told))
}

// TestFewOrNoRounds: of fewer rounds than a verdict needs nothing is said, whatever is claimed, but
// by what is counted; and of zeros alone what is true of zeros.
func TestFewOrNoRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, x := range append(truthsOfFigures(), truthsOfLosses()...) {
		for n := range MinRounds {
			got := x.verdictOf(rng, []int{n})
			if got != NotMeasurable && (n == 0 || !strings.HasSuffix(x.name, inAll)) {
				t.Errorf("%s: %s by %d rounds", x.name, got, n)
			}
		}
	}
	zeros := truth{round: func(*rand.Rand, int) (a, b Metrics) {
		return Metrics{NsPerOp.name: 0}, Metrics{NsPerOp.name: 0}
	}}
	for _, c := range claimsOnFigures {
		zeros.judge = c.judge
		isSo := slices.Contains([]string{"≤ 300 ns", "≤ 30 ns", "grows by 300 ns", "grows by 30 ns"}, c.claim)
		if got := zeros.verdictOf(rng, []int{MinRounds}); isSo != (got == Reproduced) {
			t.Errorf("%s of zeros: %s", c.claim, got)
		}
	}
}
