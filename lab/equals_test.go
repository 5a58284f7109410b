package lab

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// viewOfRounds is a view of two contestants, a and b, which did so in each round.
func viewOfRounds(a, b []Metrics) View {
	one, other := &cellOf{c: who("a"), rounds: a}, &cellOf{c: who("b"), rounds: b}
	return View{&ExperimentResult{Rows: []Row{one.row(), other.row()}, Rounds: len(a)}}
}

// equal is what two equal contestants do in a round: they vary as much as each other, which is
// different from pair to pair, on a machine that varies for both; now and then one stalls, and then
// things are late and lost.
type equal struct{ noise, stalls, lost float64 }

func newEqual(rng *rand.Rand) equal {
	return equal{0.1 * rng.Float64(), 0.5 * rng.Float64() * rng.Float64(), 0.1 * rng.Float64()}
}

func (e equal) round(rng *rand.Rand) (both [2]Metrics) {
	machine := math.Exp(0.1 * rng.NormFloat64())
	for i := range both {
		ns, longest, lost := 100*machine*math.Exp(e.noise*rng.NormFloat64()), 3.0, 0.0
		if rng.Float64() < e.stalls {
			ns, longest, lost = 3*ns, 30, math.Round(1000*e.lost)
		}
		both[i] = Metrics{
			NsPerOp.name: ns, LatencyMax.name: longest, LostFrames.name: lost, SentFrames.name: 1000,
		}
	}
	return both
}

// judgesOfEquals say whether a verdict claims that two which are equal differ by much: by each kind
// of claim that compares two, and by two of each kind that is about one. r is their ratio.
var judgesOfEquals = map[string]func(v View, r Ratio) bool{
	"at least 1.05×":     func(_ View, r Ratio) bool { return AtLeast(r, 1.05, "").Verdict == Reproduced },
	"at most 0.95×":      func(_ View, r Ratio) bool { return AtMost(r, 0.95, "").Verdict == Reproduced },
	"not 0.95× to 1.05×": func(_ View, r Ratio) bool { return Within(r, 0.95, 1.05, "").Verdict == NotReproduced },
	"not alike by 5 %":   func(_ View, r Ratio) bool { return Alike(r, 0.05, "").Verdict == NotReproduced },
	"more than 5 ns apart": func(v View, _ Ratio) bool {
		verdict, _ := v.ApartAtMost(who("a"), who("b"), nil, NsPerOp, 5, "")
		return verdict.Verdict == NotReproduced
	},
	"one of them never": opposite(func(v View, c *Contestant) (Verdict, bool) {
		return v.Never(c, nil, LatencyMax, 12, "")
	}),
	"one of them sometimes": opposite(func(v View, c *Contestant) (Verdict, bool) {
		return v.Sometimes(c, nil, LatencyMax, 12, "")
	}),
	"one of them loses 1 %": opposite(func(v View, c *Contestant) (Verdict, bool) {
		return v.RateAtMost(c, nil, LostFrames, SentFrames, 0.01, "")
	}),
	"one of them at most 100 ns": opposite(func(v View, c *Contestant) (Verdict, bool) {
		return v.AtMost(c, nil, NsPerOp, 100, "")
	}),
}

// opposite reports whether a claim holds of one, and not of the other.
func opposite(judge func(View, *Contestant) (Verdict, bool)) func(View, Ratio) bool {
	return func(v View, _ Ratio) bool {
		a, _ := judge(v, who("a"))
		b, _ := judge(v, who("b"))
		return a.Verdict == Reproduced && b.Verdict == NotReproduced ||
			a.Verdict == NotReproduced && b.Verdict == Reproduced
	}
}

// TestNoVerdictTellsEqualsApart: of 14,000 pairs of equal contestants no more than 1 % differ, as
// the guide promises, and no kind of verdict says of two in a thousand that they do by 5 %, though
// it is looked at as often as a run looks, until it says so. Of a claim whose bound is just that
// the two are equal, as "at least as quick", a run that looks until it is judged says more.
func TestNoVerdictTellsEqualsApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, looks := range [][]int{{8, 12}, {8, 16, 24, 32, 40}} {
		// those that look more often take more time
		pairs, wrong := testenv.Rounds(20_000, 500)/len(looks), map[string]int{}
		for range pairs {
			one, said := newEqual(rng), map[string]bool{}
			var a, b []Metrics
			for _, n := range looks {
				for len(a) < n {
					both := one.round(rng)
					a, b = append(a, both[0]), append(b, both[1])
				}
				v := viewOfRounds(a, b)
				r, _ := v.Ratio(who("a"), who("b"), nil, NsPerOp)
				for name, differ := range judgesOfEquals {
					said[name] = said[name] || differ(v, r)
				}
				said["until they differ"] = said["until they differ"] || r.Differ()
				said["they differ"] = r.Differ() // in the end
			}
			for name, is := range said {
				if is {
					wrong[name]++
				}
			}
		}
		for name, n := range wrong {
			most := map[string]float64{"they differ": 1, "until they differ": 3}[name]
			if most == 0 {
				most = 0.2
			}
			percent := 100 * float64(n) / float64(pairs)
			t.Logf("looked at after %v rounds: %q of %.2f %% of equals", looks, name, percent)
			if !testenv.Race && percent > most {
				t.Errorf("that is more than %g %%", most)
			}
		}
	}
}
