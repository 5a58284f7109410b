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
// many. Rounds in which the machine was not quiet decide nothing. A run that is stopped leaves what
// it has.
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
	Turn time.Duration
	// how long a turn in a cell must be, whatever time there is, for the figures that claims ask
	// for; nil: as short as there is time for
	Least   func(cell Params) time.Duration
	Prepare func(ctx context.Context, b *Bench) error                  // makes in b.Dir what all turns need
	Scene   func(b *Bench, c *Contestant, cell Params) (*Scene, error) // makes what one turn needs
	Calls   bool                                                       // count system calls, in a turn apart
	Claims  []Claim                                                    // that were published, and goals
	// what a busy person should do, in one or two sentences; "" if nothing can be said
	Advice func(v View) string
	Derive func(cell Params, length time.Duration, m Metrics) // figures that follow from others
	// the command with more rounds, of an experiment that lab run does not know; "": lab run
	Again string
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
	Starts  Program                // what that starts besides: see [Contestant.Starting]
	Args    []string               // what another program is called with, its own name first
	Note    string                 // what a reader should know: what it does not do
	Skip    func(cell Params) bool // not for this cell
	Seldom  func(cell Params) bool // for this cell in a full run alone: a quick one has no time for all
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
