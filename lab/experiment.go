// Package lab measures ways to do the same thing side by side, on the machine it runs on, and says
// which published claims hold there.
//
// # Concepts
//
// An [Experiment] asks one question. It has [Contestant]s, which are programs that speak the
// protocol of package contestant; cells, which are settings of parameters; and [Claim]s, which it
// judges. A turn is one contestant working in one cell for a while. In a round every contestant has
// one turn in every cell, one after the other, in an order of chance, so that whatever else the
// machine does meets all of them alike; what is compared are the ratios in each round, with
// intervals. Each turn is a process of its
// own, and the laboratory counts from outside what it cost: CPU time, context switches, page
// faults, memory, and, in a turn apart, system calls.
//
// # Guarantees
//
// No figure is made up: a cell that was not run says why. Two contestants are said to differ only
// if the ratios of at least eight rounds do, by a paired test at 1 %; a claim is judged only by as
// many, on a machine that was quiet meanwhile. A run that is stopped leaves what it has.
//
// # When not to use it
//
// To time a function: go test -bench does that with less ado. Linux only.
package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// Params are the settings of a cell by name. Values are text; those that are numbers are numbers in
// JSON.
type Params map[string]string

// String lists the parameters, sorted: depth=64 file=cold.
func (p Params) String() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, k+"="+p[k])
	}
	return strings.Join(parts, " ")
}

// Int is a parameter as a number, 0 if it is none.
func (p Params) Int(name string) int {
	n, _ := strconv.Atoi(p[name]) // 0 is what is said above
	return n
}

// Has reports whether all of want are among the parameters.
func (p Params) Has(want Params) bool {
	for k, v := range want {
		if p[k] != v {
			return false
		}
	}
	return true
}

// MarshalJSON writes an object whose values are numbers where they can be.
func (p Params) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	for k, v := range p {
		if f, err := strconv.ParseFloat(v, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == v {
			out[k] = json.Number(v)
		} else {
			out[k] = v
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Params) UnmarshalJSON(b []byte) error {
	var in map[string]any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return err
	}
	*p = Params{}
	for k, v := range in {
		(*p)[k] = fmt.Sprint(v)
	}
	return nil
}

// Metrics are the figures of one turn by name.
type Metrics map[string]float64

// Cells makes one cell for each value of a parameter.
func Cells(name string, values ...any) (cells []Params) {
	for _, v := range values {
		cells = append(cells, Params{name: fmt.Sprint(v)})
	}
	return cells
}

// Experiment is a question and how it is put to the machine.
type Experiment struct {
	Name     string // as its folder is called
	Plane    Plane
	Question string
	Method   string      // what is done, what the figures mean, what they do not
	Metrics  []Metric    // what is shown, the deciding one first
	Base     *Contestant // whom the others are compared to; nil: nobody
	Chart    Chart

	Cells       func(o Options) []Params // nil: one cell without parameters
	Contestants []*Contestant
	// one round will do: what is asked for is counted or looked up, not timed
	Once bool
	// how long a turn should be where there is time; 0: 1 s
	Turn    time.Duration
	Prepare func(ctx context.Context, b *Bench) error                  // makes in b.Dir what all turns need
	Scene   func(b *Bench, c *Contestant, cell Params) (*Scene, error) // makes what one turn needs
	Calls   bool                                                       // count system calls, in a turn apart
	Claims  []Claim                                                    // that were published, and goals
	// what a busy person should do, in one or two sentences; "" if nothing can be said
	Advice func(v View) string
	Derive func(cell Params, length time.Duration, m Metrics) // figures that follow from others
}

// Plane is a kind of I/O.
type Plane struct{ name string }

// The planes.
var (
	Serial     = Plane{"serial"}
	Memory     = Plane{"memory"}
	Files      = Plane{"files"}
	Log        = Plane{"log"}
	Network    = Plane{"network"}
	Processes  = Plane{"processes"}
	RealTime   = Plane{"realtime"}
	Laboratory = Plane{"laboratory"}
)

// Planes lists them.
func Planes() []Plane {
	return []Plane{Serial, Memory, Files, Log, Network, Processes, RealTime, Laboratory}
}

// String is the plane's name.
func (p Plane) String() string { return p.name }

// Chart is how the main figure is drawn.
type Chart struct {
	Over   string `json:"over,omitempty"`   // the parameter on the x axis: cost as work grows; "": bars for each cell
	Along  string `json:"along,omitempty"`  // a parameter that changes along with it, if there is one
	Metric string `json:"metric,omitempty"` // its name; "": the first of the experiment's metrics
	// the names of metrics of one unit that follow each other and make up a whole: each contestant
	// is a bar of them, a chart for each cell
	Parts []string `json:"parts,omitempty"`
}

// Contestant is one way to do it. Claims and advice name it by this value, so that a misspelt one
// does not compile; its name is what results and reports call it. The makers are [Ours],
// [Program.As] and [FIO].
type Contestant struct {
	Name    string
	Program Program
	Work    contestant.Work        // what it does, if this program carries it
	Args    []string               // what another program is called with, its own name first
	Note    string                 // what a reader should know: what it does not do
	Skip    func(cell Params) bool // not for this cell
	Env     []string               // besides that of the laboratory

	// For a program that does not speak the protocol: how it is called, cell being the cell's
	// parameters and the scene's, and what its output means. A server has no Output.
	Command func(b *Bench, cell Params, length time.Duration) []string
	Output  func(out []byte, length time.Duration) (Metrics, error)
}

// Scene is what surrounds one turn.
type Scene struct {
	Params Params     // given to the contestant besides those of the cell
	Files  []*os.File // open in the contestant as descriptors 3, 4 …
	// Load is what others do while the contestant works; when it returns the contestant is told to
	// end. The figures it returns are completed by judge, which sees those of the contestant, too.
	// nil: the contestant works for its time.
	Load  func(ctx context.Context, length time.Duration) (judge func(m Metrics), err error)
	Close func() error

	// Serves is the address at which the contestant is a server. Such a contestant does not speak
	// the protocol: it is ready when it accepts connections there, works until it is killed, and
	// what it has done is what Load says, which gives "ops" and "wall_s".
	Serves  string
	Started func(pid int) // told before the load begins; may be nil
}

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
)

// Verdict is the judgement of a claim.
type Verdict struct {
	Claim   string `json:"claim"`
	Seed    string `json:"seed"` // the figure that was published, or is the goal
	Here    string `json:"here"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"` // TooFewRounds or TooNoisy, where another run may tell
	Why     string `json:"why"`

	Source *Source `json:"source,omitempty"` // where it was published
	Goal   bool    `json:"goal,omitempty"`   // a claim of this project
}

// As says in other words what was found here.
func (v Verdict) As(format string, args ...any) Verdict {
	v.Here = fmt.Sprintf(format, args...)
	return v
}

// judge judges all claims of an experiment.
func (e *Experiment) judge(v View) []Verdict {
	var all []Verdict
	for _, c := range e.Claims {
		verdict, ok := c.Judge(v)
		if !ok {
			verdict = Verdict{Here: "–", Verdict: NotMeasurable, Why: "not measured: " + c.Needs}
		}
		if verdict.Reason != "" {
			verdict.Why += fmt.Sprintf(" `tallywheel lab run %s --full` may tell, on a machine that does nothing else.",
				e.Name)
		}
		verdict.Claim, verdict.Seed, verdict.Goal = c.Claim, c.Source.figure, !c.Source.published()
		if !verdict.Goal {
			verdict.Source = &c.Source
		}
		all = append(all, verdict)
	}
	return all
}

// Holds is the verdict that a claim is reproduced here, or not, by what was counted or looked up:
// whether there is a file, how many calls were made. What was timed is judged by [AtLeast] and its
// like.
func Holds(yes bool, here, why string) Verdict {
	if yes {
		return Verdict{Here: here, Verdict: Reproduced, Why: why}
	}
	return Verdict{Here: here, Verdict: NotReproduced, Why: why}
}

// AtLeast is the verdict on a claim that a ratio is at least x: it holds if the whole interval is
// there, and it does not if none of it is. Else, with fewer than [MinRounds] rounds, or where
// others had too much of the machine, there is none.
func AtLeast(r Ratio, x float64, why string) Verdict {
	return decide(r, r.Lo >= x, r.Hi < x, x, why)
}

// AtMost is AtLeast the other way round.
func AtMost(r Ratio, x float64, why string) Verdict {
	return decide(r, r.Hi <= x, r.Lo > x, x, why)
}

func decide(r Ratio, yes, no bool, x float64, why string) Verdict {
	v := Verdict{Here: r.String(), Verdict: NotMeasurable, Reason: TooNoisy}
	switch {
	case !r.Enough():
		v.Reason, v.Why = TooFewRounds, fmt.Sprintf("Too few rounds: %d, a verdict needs %d.", len(r.Rounds), MinRounds)
	case !r.Quiet():
		v.Why = "Too noisy: " + r.disturbed + "."
	case yes || no:
		return Holds(yes, v.Here, why)
	default:
		v.Why = fmt.Sprintf("Too noisy: the interval is on both sides of %.4g×.", x)
	}
	return v
}

// Within is the verdict on a claim that a ratio is from lo to hi.
func Within(r Ratio, lo, hi float64, why string) Verdict {
	v := decide(r, lo <= r.Lo && r.Hi <= hi, r.Hi < lo || r.Lo > hi, lo, why)
	if v.Reason == TooNoisy && r.Quiet() {
		v.Why = fmt.Sprintf("Too noisy: the interval is neither in nor out of %.4g× to %.4g×.", lo, hi)
	}
	return v
}

// Alike is the verdict on a claim that two do not differ: they are not seen to, and a difference of
// so large a share would have been.
func Alike(r Ratio, share float64, why string) Verdict {
	v := decide(r, !r.Differ() && r.Unseen() <= share, r.Differ(), 1, why)
	if v.Reason == TooNoisy && r.Quiet() {
		v.Why = fmt.Sprintf("Too noisy: a difference of %.0f %% could not have been seen.", 100*share)
	}
	return v
}

// All is the verdict on a claim of several parts: it holds if all of them do, and it does not if
// one does not.
func All(parts ...Verdict) Verdict {
	worst, here := parts[0], []string{}
	rank := []string{Reproduced, NotMeasurable, NotReproduced, Impossible}
	for _, p := range parts {
		here = append(here, p.Here)
		if slices.Index(rank, p.Verdict) > slices.Index(rank, worst.Verdict) {
			worst = p
		}
	}
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
