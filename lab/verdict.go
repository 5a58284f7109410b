package lab

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The verdicts.
const (
	Reproduced    = "reproduced"
	NotReproduced = "not reproduced"
	Impossible    = "impossible"
	NotMeasurable = "not measurable here"
)

// Claim is something that was published, or a goal of this project, and how to judge it.
type Claim struct {
	Claim  string                       // in one sentence, which says all that it means
	Source Source                       // where it comes from: [Document.Says], or [Goal]
	Judge  func(v View) (Verdict, bool) // false: what it needs was not measured
	Needs  string                       // what must have been measured, for the case that it was not
}

// Why a claim that this machine could tell about was not judged.
const (
	TooFewRounds = "too few rounds"
	TooNoisy     = "too noisy"
	TooFewValues = "too few values" // of a percentile, in a turn
)

// Verdict is the judgement of a claim.
type Verdict struct {
	Claim   string `json:"claim"`
	Seed    string `json:"seed"` // the figure that was published, or is the goal
	Here    string `json:"here"`
	Needed  string `json:"needed,omitempty"` // what it takes here for the claim to hold: "≥ 1.5×"
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"` // TooFewRounds, TooNoisy or TooFewValues, where another run may tell
	Why     string `json:"why"`

	Source *Source `json:"source,omitempty"` // where it was published
	Goal   bool    `json:"goal,omitempty"`   // a claim of this project

	sided   bool // it has a reason for the case that the claim is not reproduced
	counted bool // it is by [Holds], which does not see by which rounds

	disturbed bool // it is none, because too few rounds were quiet
}

// As says in other words what was found here.
func (v Verdict) As(format string, args ...any) Verdict {
	v.Here = fmt.Sprintf(format, args...)
	return v
}

// otherwise begins a reason that the figures contradict.
const otherwise = "Expected was otherwise: "

// IfNot is the reason why a claim is not reproduced. Where that is the only one, as where nothing
// speaks for the claim, and it is reproduced all the same, the reader is told that this was not
// expected.
func (v Verdict) IfNot(why string) Verdict {
	v.sided = true
	switch {
	case v.Verdict == NotReproduced:
		v.Why = why
	case v.Verdict == Reproduced && v.Why == "":
		v.Why = otherwise + why
	}
	return v
}

// judge judges all claims of an experiment that was run with such options.
func (e *Experiment) judge(v View, o Options) []Verdict {
	var all []Verdict
	for _, c := range e.Claims {
		verdict, asked, ok := c.judge(v)
		switch {
		case !ok:
			verdict = v.notMeasured(asked, c.Needs)
		case verdict.counted:
			verdict = v.spoils(asked, verdict)
		}
		// who failed has no figures of the round that went wrong: by the others everything is well
		if failed := v.failed(asked); failed != "" && verdict.Verdict == Reproduced {
			verdict.Verdict, verdict.Why = NotMeasurable, "Not judged by the rounds before: "+failed+"."
		}
		if verdict.Reason != "" {
			verdict.Why += " " + e.mayTell(verdict.Reason, v.Rounds, o)
		}
		if !c.Source.published() && !verdict.sided { // a goal's reason is why it should be met
			verdict = verdict.IfNot(otherwise + verdict.Why)
		}
		verdict.Claim, verdict.Seed, verdict.Goal = c.Claim, c.Source.figure, !c.Source.published()
		if !verdict.Goal {
			verdict.Source = &c.Source
		}
		all = append(all, verdict)
	}
	return all
}

// mayTell says what may tell about a claim that could not be judged by a run with such options.
func (e *Experiment) mayTell(reason string, rounds int, o Options) string {
	const alone = "on a machine that does nothing else."
	switch {
	case e.Again != "":
		return fmt.Sprintf("`%s` may tell.", e.Again)
	case !o.Full:
		return fmt.Sprintf("`%s` may tell, %s", Command(e.Name, append([]string{"--full"}, o.where()...)...), alone)
	case reason != TooFewValues && rounds >= o.MaxRounds:
		return fmt.Sprintf("This run had all %d rounds of --full: a quieter machine may tell, or the truth is too close "+
			"to what was claimed.", rounds)
	}
	longer := (2 * o.Budget).String()
	if strings.HasSuffix(longer, "m0s") {
		longer = strings.TrimSuffix(longer, "0s")
	}
	flags := append([]string{"--full", "--budget", longer}, o.where()...)
	return fmt.Sprintf("`%s` may tell, %s", Command(e.Name, flags...), alone)
}

// Holds is the verdict that a claim is reproduced here, or not, by what was counted or looked up:
// whether there is a file, how many calls were made. What was timed is judged by [AtLeast] and its
// like. It becomes none where the figures that the claim has asked for are of too few quiet rounds.
func Holds(yes bool, here, why string) Verdict {
	return Verdict{Here: here, Verdict: Or(yes, Reproduced, NotReproduced), Why: why, counted: true}
}

// NoneIn is the verdict on a claim that something never happens, by what was counted in so many
// rounds: once refutes it, in however few; that it did not happen in fewer than [MinRounds] says
// nothing.
func NoneIn(rounds int, none bool, here, why string) Verdict {
	if none && rounds < MinRounds {
		return Verdict{Here: here, Verdict: NotMeasurable, Reason: TooFewRounds, Why: tooFew(rounds)}
	}
	return Holds(none, here, why)
}

// AtLeast is the verdict on a claim that a ratio is at least x: it holds if the whole interval is
// there, and it does not if none of it is. Else, with fewer than [MinRounds] rounds, or where
// others had too much of the machine, there is none.
func AtLeast(r Ratio, x float64, why string) Verdict {
	return decide(r, r.Lo >= x, r.Hi < x, fmt.Sprintf("≥ %.4g×", x), why)
}

// AtMost is AtLeast the other way round.
func AtMost(r Ratio, x float64, why string) Verdict {
	return decide(r, r.Hi <= x, r.Lo > x, fmt.Sprintf("≤ %.4g×", x), why)
}

// Within is the verdict on a claim that a ratio is from lo to hi.
func Within(r Ratio, lo, hi float64, why string) Verdict {
	return decide(r, lo <= r.Lo && r.Hi <= hi, r.Hi < lo || r.Lo > hi, fmt.Sprintf("%.4g× to %.4g×", lo, hi), why)
}

// Alike is the verdict on a claim that two do not differ by more than a share: no difference that
// could be one is larger, or each is.
func Alike(r Ratio, share float64, why string) Verdict {
	needed := fmt.Sprintf("at most %.4g %% apart", 100*share)
	return decide(r, r.Unseen() <= share, r.Hi < 1-share || r.Lo > 1+share, needed, why)
}

func decide(r Ratio, yes, no bool, needed, why string) Verdict {
	v := Verdict{Here: r.String(), Needed: needed, Verdict: NotMeasurable, Reason: TooNoisy}
	switch {
	case !r.Enough():
		v.Reason, v.Why = TooFewRounds, tooFew(len(r.Rounds))
	case r.disturbed != "":
		return v.tooNoisy(r.disturbed)
	case r.open:
		return v.tooFewValues(lackIt(r.missing, len(r.Rounds)))
	case yes || no:
		v.Verdict, v.Reason, v.Why = Or(yes, Reproduced, NotReproduced), "", why
	default:
		v.Why = "Too noisy: the interval is neither in nor out of " + needed + "."
	}
	return v
}

// tooNoisy makes none of a verdict, for what disturbed the rounds that it is by.
func (v Verdict) tooNoisy(disturbed string) Verdict {
	v.Verdict, v.Reason, v.disturbed = NotMeasurable, TooNoisy, true
	v.Why = "Too noisy: " + disturbed + "."
	return v
}

// tooFewValues makes none of a verdict, for the rounds that lack a figure.
func (v Verdict) tooFewValues(lacking string) Verdict {
	v.Verdict, v.Reason, v.Why = NotMeasurable, TooFewValues, "Too few values: "+lacking+"."
	return v
}

func tooFew(rounds int) string {
	return fmt.Sprintf("Too few rounds: %d, a verdict needs %d.", rounds, MinRounds)
}

// AtMost is the verdict on a claim that a figure is at most at a level, as [AtMost] is on that of a
// ratio; false if it was not measured.
func (v View) AtMost(c *Contestant, cell Params, metric Metric, level float64, why string) (Verdict, bool) {
	r, ok := v.Level(c, cell, metric, level)
	return decide(r, r.Hi <= 1, r.Lo > 1, "≤ "+inUnit(metric, level), why).As("%s", r.times(metric, level)), ok
}

// AtLeast is AtMost the other way round.
func (v View) AtLeast(c *Contestant, cell Params, metric Metric, level float64, why string) (Verdict, bool) {
	r, ok := v.Level(c, cell, metric, level)
	return decide(r, r.Lo >= 1, r.Hi < 1, "≥ "+inUnit(metric, level), why).As("%s", r.times(metric, level)), ok
}

// times shows a ratio to a level as the figure itself.
func (r Ratio) times(metric Metric, level float64) string {
	return fmt.Sprintf("%s (%s–%s)", inUnit(metric, r.Median*level), plain(r.Lo*level, 3), plain(r.Hi*level, 3))
}

func inUnit(metric Metric, x float64) string {
	return strings.TrimSpace(plain(x, 4) + " " + Describe(metric.name).Unit)
}

// plain shows so many digits that matter, and large numbers without an exponent.
func plain(x float64, digits int) string {
	if math.Abs(x) >= 1000 && !math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', digits, 64)
}

// All is the verdict on a claim of several parts: it does not hold if one part does not; else it
// cannot be measured if one part cannot; it holds if all of them do. A part that is no verdict was
// not measured. Of parts that refute the claim one with an interval speaks for it, for that stands
// whatever disturbed the others.
func All(parts ...Verdict) Verdict {
	worst, counted, here, needed := Verdict{}, false, []string{}, []string{}
	rank := []string{"", Reproduced, NotMeasurable, NotReproduced, Impossible}
	for _, p := range parts {
		if p.Verdict == "" {
			p = NotHere("not measured: a part of it")
		}
		here = append(here, p.Here)
		if p.Needed != "" && !slices.Contains(needed, p.Needed) {
			needed = append(needed, p.Needed)
		}
		counted = counted || p.counted
		before, now := slices.Index(rank, worst.Verdict), slices.Index(rank, p.Verdict)
		if now > before || now == before && worst.counted && !p.counted && p.Verdict == NotReproduced {
			worst = p
		}
	}
	if worst.Verdict == Reproduced {
		worst.counted = counted
	}
	worst.Needed = strings.Join(needed, "; ")
	return worst.As("%s", strings.Join(here, "; "))
}

// AllAtMost is a claim that each of several contestants takes at most x of what another one does,
// in a cell, by a metric. The verdict is on the worst of them and names it.
func AllAtMost(text string, source Source, of []*Contestant, b *Contestant, cell Params, metric Metric, x float64,
	why string,
) Claim {
	return Claim{
		Claim: text, Source: source, Needs: Needs(cell, append(slices.Clone(of), b)...),
		Judge: func(v View) (Verdict, bool) {
			var parts []Verdict
			for _, c := range of {
				r, ok := v.Ratio(c, b, cell, metric)
				if !ok {
					return Verdict{}, false
				}
				part := AtMost(r, x, why)
				if len(of) > 1 {
					part.Here = c.Name + " " + part.Here
				}
				parts = append(parts, part)
			}
			return All(parts...), true
		},
	}
}

// Needs says that contestants must have been measured, in a cell if one is given.
func Needs(cell Params, of ...*Contestant) string {
	var names []string
	for _, c := range of {
		names = append(names, c.Name)
	}
	text := strings.Join(names, ", ")
	if i := strings.LastIndex(text, ", "); i >= 0 {
		text = text[:i] + " and " + text[i+2:]
	}
	if len(cell) > 0 {
		text += " at " + cell.String()
	}
	return text
}

// CannotBe is the verdict that a claim is impossible, with what happens instead, and the reason
// with its source.
func CannotBe(here, why string) Verdict {
	return Verdict{Here: here, Verdict: Impossible, Why: why}
}

// NotHere is the verdict that this machine lacks what the claim is about.
func NotHere(missing string) Verdict {
	return Verdict{Here: "–", Verdict: NotMeasurable, Why: missing}
}

// Sure reports whether two differ by more than chance, on a quiet machine.
func (r Ratio) Sure() bool { return r.Differ() && r.Quiet() }

// Tell is how advice speaks of a ratio: above or below where it surely is that, else that nothing
// was seen, and how large a difference would have been.
func (r Ratio) Tell(above, below string) string {
	switch unseen := r.Unseen(); {
	case r.Sure() && r.Lo > 1:
		return above
	case r.Sure():
		return below
	case r.Enough() && r.Quiet() && unseen < 1:
		return fmt.Sprintf("no difference above %.2g %%", 100*unseen)
	}
	return "no difference that is sure"
}
