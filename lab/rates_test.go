package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHeads: against the table of the sign test, at 0.8 % on both sides and at 5 % on one.
func TestHeads(t *testing.T) {
	for n, want := range map[int]struct{ often, most int }{
		8: {8, 7}, 9: {9, 8}, 10: {10, 9}, 11: {11, 9}, 12: {11, 10}, 16: {14, 12}, 24: {19, 17}, 40: {29, 26},
	} {
		if isOften(want.often-1, n) || !isOften(want.often, n) {
			t.Errorf("of %d rounds %d are not the fewest that are often", n, want.often)
		}
		if got := mostOf(n); got != want.most {
			t.Errorf("%d of %d rounds are most, want %d", got, n, want.most)
		}
	}
	if isSeldom(0, MinRounds-1) || isOften(MinRounds-1, MinRounds-1) || !isSeldom(0, MinRounds) {
		t.Errorf("%d rounds are not the fewest by which something is seldom or often", MinRounds)
	}
}

// opposites is how often two runs of the same truth give opposite verdicts, if each of many runs
// gives one.
func opposites(runs int, judge func() string) float64 {
	yes, no := 0, 0
	for range runs {
		switch judge() {
		case Reproduced:
			yes++
		case NotReproduced:
			no++
		}
	}
	return 2 * float64(yes) / float64(runs) * float64(no) / float64(runs)
}

// mostOpposites is the share of pairs of runs that may contradict each other.
const mostOpposites = 0.001

// neverBy is the verdict on "never", if so many rounds of all were beyond the level.
func neverBy(t *testing.T) func(beyond, all int) string {
	verdicts := map[[2]int]string{}
	return func(beyond, all int) string {
		key := [2]int{beyond, all}
		if v, ok := verdicts[key]; ok {
			return v
		}
		samples := slices.Concat(slices.Repeat([]float64{30}, beyond), slices.Repeat([]float64{3}, all-beyond))
		v := viewOf(map[string][]float64{LatencyMax.name: samples})
		never, _ := v.Never(who("a"), nil, LatencyMax, 12, "")
		sometimes, _ := v.Sometimes(who("a"), nil, LatencyMax, 12, "")
		if never.Verdict == sometimes.Verdict && never.Verdict != NotMeasurable {
			t.Errorf("%d of %d: never and sometimes are both %s", beyond, all, never.Verdict)
		}
		verdicts[key] = never.Verdict
		return never.Verdict
	}
}

// chances are those of either verdict on what is beyond in a share of rounds, by runs that end as
// soon as there is a verdict, looked for after so many rounds: exactly, by adding up all of them.
func chances(share float64, looks []int, judge func(beyond, all int) string) (yes, no float64) {
	at := []float64{1} // the chance of so many beyond, and no verdict yet
	for n := 1; n <= looks[len(looks)-1]; n++ {
		next := make([]float64, n+1)
		for k, p := range at {
			next[k] += p * (1 - share)
			next[k+1] += p * share
		}
		at = next
		if !slices.Contains(looks, n) {
			continue
		}
		for k, p := range at {
			switch judge(k, n) {
			case Reproduced:
				yes, at[k] = yes+p, 0
			case NotReproduced:
				no, at[k] = no+p, 0
			}
		}
	}
	return yes, no
}

// looksOf are when runs look for a verdict: quick ones, full ones, and those that go on for another
// claim and judge this one by all their rounds.
var looksOf = [][]int{{8}, {9}, {10}, {11}, {12}, {8, 12}, {24}, {40}, {8, 16, 24, 32, 40}}

// TestNeverDoesNotContradictItself: however often a round is beyond a level, two runs hardly ever
// say the opposite; and of what the machine does by itself in up to a third of rounds, or what
// happens in half of them and more, hardly any run says what is wrong.
func TestNeverDoesNotContradictItself(t *testing.T) {
	judge := neverBy(t)
	worst := 0.0
	for _, looks := range looksOf {
		for percent := range 101 {
			share := float64(percent) / 100
			yes, no := chances(share, looks, judge)
			if worst = max(worst, 2*yes*no); 2*yes*no > mostOpposites {
				t.Errorf("beyond in %d %% of rounds, looked at after %v: %.3f %% of pairs contradict each other", percent,
					looks, 200*yes*no)
			}
			if share >= 0.5 && yes > 0.004 {
				t.Errorf("beyond in %d %% of rounds: %v say never in %.2f %%", percent, looks, 100*yes)
			}
			if share <= 0.25 && no > 0.0005 || share <= 0.33 && no > 0.004 {
				t.Errorf("beyond in %d %% of rounds: %v say most in %.2f %%", percent, looks, 100*no)
			}
		}
	}
	t.Logf("at most %.3f %% of pairs contradict each other", 100*worst)
}

// TestRatiosDoNotContradictThemselves: of a ratio that is just what was claimed, or close to it,
// two runs hardly ever say the opposite, though each ends as soon as there is a verdict.
func TestRatiosDoNotContradictThemselves(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	worst := 0.0
	for _, off := range []float64{0, 0.005} {
		got := opposites(600, func() string {
			for rounds := []float64{}; ; {
				for range MinRounds {
					rounds = append(rounds, 1.5*math.Exp(off+0.02*rng.NormFloat64()))
				}
				if v := AtLeast(ratioOf(rounds...), 1.5, ""); v.Verdict != NotMeasurable || len(rounds) == 40 {
					return v.Verdict
				}
			}
		})
		if worst = max(worst, got); got > mostOpposites {
			t.Errorf("%g off: %.2f %% of pairs contradict each other", off, 100*got)
		}
	}
	t.Logf("at most %.3f %% of pairs contradict each other", 100*worst)
}

// TestRatesOfBursts: what is lost in bursts is not taken for so many losses by themselves: two runs
// hardly ever say the opposite, and of a rate that is just what may be, few say anything.
func TestRatesOfBursts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const sent, level = 10_000, 0.01
	for _, c := range []struct {
		share float64 // of rounds that have bursts
		mean  float64 // share of what is lost
	}{
		{0.1, 0.01},
		{0.1, 0.03},
		{0.2, 0.01},
		{0.3, 0.02},
		{0.5, 0.01},
		{0.5, 0.02},
		{0.7, 0.01},
		{0.9, 0.01},
		{1, 0.01},
	} {
		for _, rounds := range []int{8, 12, 40} {
			verdicts := map[string]int{}
			const runs = 500
			got := opposites(runs, func() string {
				var lost, all []float64
				for range rounds {
					x := 0.0
					if rng.Float64() < c.share { // how long a stall is differs, too
						x = min(sent, c.mean/c.share*sent*rng.ExpFloat64())
					}
					lost, all = append(lost, float64(int(x))), append(all, sent)
				}
				v := viewOf(map[string][]float64{LostFrames.name: lost, SentFrames.name: all})
				most, _ := v.RateAtMost(who("a"), nil, LostFrames, SentFrames, level, "")
				least, _ := v.RateAtLeast(who("a"), nil, LostFrames, SentFrames, level, "")
				if most.Verdict == least.Verdict && most.Verdict != NotMeasurable {
					t.Fatalf("%v: at most and at least are both %s", lost, most.Verdict)
				}
				verdicts[most.Verdict]++
				return most.Verdict
			})
			text := fmt.Sprintf("bursts in %.0f %% of %d rounds, %.0f %% lost: %v", 100*c.share, rounds, 100*c.mean, verdicts)
			t.Log(text)
			if got > mostOpposites {
				t.Errorf("%s: %.2f %% of pairs contradict each other", text, 100*got)
			}
			if verdicts[NotReproduced] > runs/50 && c.mean <= level {
				t.Errorf("%s: refuted though it is so", text)
			}
		}
	}
}

// TestSteadyRates: what is lost evenly is judged as sharply as its number allows.
func TestSteadyRates(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for level, want := range map[float64]string{0.005: NotReproduced, 0.02: Reproduced} {
		found := 0
		const runs = 200
		for range runs {
			var lost, all []float64
			for range 12 {
				lost, all = append(lost, math.Round(100+10*rng.NormFloat64())), append(all, 10_000)
			}
			v := viewOf(map[string][]float64{LostFrames.name: lost, SentFrames.name: all})
			if got, _ := v.RateAtMost(who("a"), nil, LostFrames, SentFrames, level, ""); got.Verdict == want {
				found++
			}
		}
		if found < runs*95/100 {
			t.Errorf("1 %% against %g: %s in %d of %d runs", level, want, found, runs)
		}
	}
}
