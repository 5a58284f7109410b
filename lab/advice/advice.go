// Package advice says which ways to do a thing meet a need, from what the laboratory has measured
// on a machine.
//
// Each [Line] has a figure of a result behind it, and says from which file that is. What was not
// measured, or on another machine, is unknown, and the line has the command that would measure it.
// Nothing is computed from figures of another size: 8 ports at 400 KB/s are not known of 1.
package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// Run is a file of results.
type Run struct {
	File string
	*lab.Results
}

// Line is one sentence.
type Line struct {
	About   string `json:"about"`             // part of the need, or an experiment
	Known   bool   `json:"known"`             // there is a figure behind it
	Meets   bool   `json:"meets,omitempty"`   // the need, by that figure
	Text    string `json:"text"`              // what was measured, or why it is not known
	From    string `json:"from,omitempty"`    // file of the figure, and when it was measured
	Measure string `json:"measure,omitempty"` // what would measure it
}

// OfMachine splits runs into those of a machine and the others. It is the same machine if it has
// the same CPUs; kernels may differ, which lines say.
func OfMachine(runs []Run, m lab.Machine) (own, others []Run) {
	for _, r := range runs {
		o := r.Machine
		if o.CPU == m.CPU && o.CPUs == m.CPUs && o.Arch == m.Arch && o.OS == m.OS {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	return own, others
}

// found is the newest result of an experiment.
type found struct {
	*lab.ExperimentResult
	run    Run
	kernel string // of the machine now
}

// from names where figures are from.
func (f found) from() string {
	text := fmt.Sprintf("%s, %s", f.run.File, f.run.Started.Format("2006-01-02 15:04"))
	if f.run.Machine.Kernel != f.kernel {
		text += ", Linux " + f.run.Machine.Kernel
	}
	return text
}

// newest finds the newest result of an experiment that has figures.
func newest(runs []Run, name string, kernel string) (f found, ok bool) {
	for _, r := range runs {
		at := slices.IndexFunc(r.Experiments,
			func(e lab.ExperimentResult) bool { return e.Name == name && e.Failed == "" && len(e.Rows) > 0 })
		if at >= 0 && (!ok || r.Started.After(f.run.Started)) {
			f, ok = found{&r.Experiments[at], r, kernel}, true
		}
	}
	return f, ok
}

// Needed says of each part of a need how it can be met. Runs are of this machine.
func Needed(runs []Run, n Need, kernel string) (all []Line) {
	if n.Period > 0 {
		all = append(all, timing(runs, n, kernel))
	}
	if n.Ports > 0 {
		all = append(all, reading(runs, n, kernel))
	}
	if n.Durable > 0 {
		all = append(all, durable(runs, n, kernel))
	}
	if n.NoLossAtRestart {
		all = append(all, restart(runs, kernel))
	}
	return all
}

// Found lists what each experiment advises, and those that have none here.
func Found(runs []Run, experiments []*lab.Experiment, kernel string) (all []Line) {
	for _, e := range experiments {
		f, ok := newest(runs, e.Name, kernel)
		l := Line{About: e.Name, Measure: "tallywheel lab run " + e.Name}
		switch {
		case !ok:
			l.Text = e.Question
		case f.Advice == "":
			l.Text = cmp.Or(strings.Join(f.Warnings, "; "), "its figures are too few to advise anything")
			l.Measure += " --budget 3m"
		default:
			l = Line{About: e.Name, Known: true, Text: f.Advice, From: f.from()}
		}
		all = append(all, l)
	}
	return all
}

// ways to wait, from the plainest on.
var ways = []string{
	"go/time.Sleep", "go/time.Ticker", "go/timerfd", "go/clock_nanosleep", "tallywheel/cell",
	"c/clock_nanosleep",
}

// timing finds the plainest way to wake up that was never later than is allowed, beside whatever
// load was measured.
func timing(runs []Run, n Need, kernel string) Line {
	l := Line{About: fmt.Sprintf("%v ±%v", n.Period, n.Tolerance), Measure: "tallywheel lab run rt-cyclic --full"}
	f, ok := newest(runs, "rt-cyclic", kernel)
	if !ok {
		l.Text = "how late this machine wakes up"
		return l
	}
	// The longest period that is not above the one that is needed: what wakes up more often is as
	// late, or later.
	best := 0
	for _, cell := range f.Cells() {
		if every := cell.Int("interval_us"); time.Duration(every)*time.Microsecond <= n.Period {
			best = max(best, every)
		}
	}
	if strings.Contains(f.run.Command, "--full") {
		l.Measure = "" // there is no more that would
	}
	if best == 0 {
		l.Text = "no period as short as that was measured"
		return l
	}
	var said []string
	meets := ""
	for _, way := range ways {
		worst, beside, loads := latest(f, way, best)
		if loads == 0 {
			continue
		}
		said = append(said, fmt.Sprintf("%s at most %s (load %s, %d loads)", way, micros(worst), beside, loads))
		if meets == "" && worst <= float64(n.Tolerance.Nanoseconds())/1e3 {
			meets = way
		}
	}
	if len(said) == 0 {
		l.Text = "no way to wait was measured at that period"
		return l
	}
	l.Known, l.Meets, l.Measure, l.From = true, meets != "", "", f.from()
	l.Text = fmt.Sprintf("%s. Late, at a period of %v, at SCHED_FIFO 80, in %d rounds: %s",
		cmp.Or(prefixed("use ", meets), "nothing that was measured is so exact"), time.Duration(best)*time.Microsecond,
		f.Rounds, strings.Join(said, "; "))
	return l
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// latest is how late a way to wait was, at most, in µs, and beside which load.
func latest(f found, way string, every int) (worst float64, beside string, loads int) {
	for _, row := range f.Rows {
		figure, ok := row.Metrics["latency_us_max"]
		if row.Contestant != way || row.Params.Int("interval_us") != every || !ok || len(figure.Samples) == 0 {
			continue
		}
		loads++
		if most := slices.Max(figure.Samples); most >= worst {
			worst, beside = most, row.Params["load"]
		}
	}
	return worst, beside, loads
}

func micros(us float64) string {
	return time.Duration(us * 1e3).Round(100 * time.Nanosecond).String()
}

// measuredRates is how fast ports were in an experiment, in bytes a second; it is in no parameter.
const (
	portsRate = 11_520  // serial-ports: 115,200 baud
	mostPorts = 256     // serial-ports, also in a quick run
	oneRate   = 400_000 // serial-strategies, steady: one port
)

// modes of reading, by the names of contestants.
var modes = map[string]string{
	"tallywheel/ring":       "read: {strategy: ring, mode: latency}",
	"tallywheel/throughput": "read: {strategy: ring, mode: throughput}",
}

// reading finds the mode of reading that takes less CPU of those that lost nothing, at as many
// ports and bytes or more: where none surely does, the one that waits least.
func reading(runs []Run, n Need, kernel string) Line {
	l := Line{
		About:   fmt.Sprintf("%d ports, %.0f B/s each", n.Ports, n.Rate),
		Measure: fmt.Sprintf("tallywheel demo --ports %d --rate %.0f --for 1m", n.Ports, n.Rate),
	}
	name, most := "serial-ports", mostPorts
	fits := func(p lab.Params) bool { return p.Int("ports") >= n.Ports }
	if n.Rate > portsRate {
		name, most = "serial-strategies", 1
		fits = func(p lab.Params) bool { return p["condition"] == "steady" }
	}
	if n.Ports > most || n.Rate > oneRate {
		l.Text = fmt.Sprintf("the laboratory measures up to %d ports at %d B/s, and one at %d B/s", mostPorts,
			portsRate, oneRate)
		return l
	}
	f, ok := newest(runs, name, kernel)
	if !ok {
		l.Text, l.Measure = "how ports are best read here", "tallywheel lab run "+name
		return l
	}
	var cell lab.Params
	for _, c := range f.Cells() {
		if fits(c) && (cell == nil || c.Int("ports") < cell.Int("ports")) {
			cell = c
		}
	}
	if cell == nil {
		l.Text, l.Measure = "so many ports were not measured in that run", "tallywheel lab run "+name
		return l
	}
	var said []string
	var best *lab.Row
	alike := ""
	for _, way := range []string{"tallywheel/ring", "tallywheel/throughput"} {
		row := f.Find(way, cell)
		if row == nil {
			continue
		}
		cpu, lost := row.Metrics["cpu_percent"], row.Metrics["lost_frames"]
		if cpu.N == 0 || lost.N == 0 {
			continue
		}
		said = append(said, fmt.Sprintf("%s: %.1f %% of a CPU, %.0f frames lost, 99 %% within %s",
			strings.TrimPrefix(way, "tallywheel/"), cpu.Median, sum(lost), late(row)))
		switch r, ok := row.Over(best, lab.CPUPercent); {
		case sum(lost) > 0:
		case best == nil || ok && r.Sure() && r.Hi < 1:
			best = row
		case !r.Sure():
			alike = "; no difference measured in CPU time"
		}
	}
	if len(said) == 0 {
		l.Text = "our ways to read were not measured there"
		return l
	}
	l.Known, l.Meets, l.Measure, l.From = true, best != nil, "", f.from()
	use := "nothing that was measured lost nothing"
	if best != nil {
		use = modes[best.Contestant]
	}
	l.Text = fmt.Sprintf("%s. Measured at %s: %s%s", use, cell, strings.Join(said, "; "), alike)
	return l
}

func sum(f lab.Figure) (s float64) {
	for _, x := range f.Samples {
		s += x
	}
	return s
}

func late(row *lab.Row) string {
	if p99 := row.Metrics["latency_us_p99"]; p99.N > 0 {
		return micros(p99.Median)
	}
	return "a time that was not measured"
}

// restart finds the plainest isolation of which no crash of a recorder has cost a byte.
func restart(runs []Run, kernel string) Line {
	l := Line{About: "restart 0 loss", Measure: "tallywheel lab run recorder-crash --full"}
	f, ok := newest(runs, "recorder-crash", kernel)
	if !ok {
		l.Text = "what a crash of a recorder costs here"
		return l
	}
	none, ok := f.crashes("none", "tallywheel/none")
	if !ok {
		l.Text = "what a crash of a recorder costs was not measured whole"
		return l
	}
	isolated, ok := f.crashes("process", "tallywheel/process recorder", "tallywheel/process reader")
	if !ok {
		l.Text = "what a crash costs with isolate: process was not measured whole"
		return l
	}
	l.Known, l.Measure, l.From = true, "", f.from()
	use := "nothing that was measured lost nothing"
	for _, c := range []crashes{isolated, none} { // the plainer one is said
		if c.cost == 0 {
			l.Meets, use = true, "use isolate: "+c.isolate
		}
	}
	l.Text = fmt.Sprintf("%s. By kill -9: %s; %s", use, none, isolated)
	return l
}

// crashes is what those of one isolation have cost.
type crashes struct {
	isolate string
	struck  float64 // times
	cost    float64 // bytes lost, or stored twice
	where   []string
}

func (c crashes) String() string {
	return fmt.Sprintf("%s, struck %.0f times (%s): %.0f B lost or stored twice", c.isolate, c.struck,
		strings.Join(c.where, "; "), c.cost)
}

// crashes adds up what kills have cost, in all rounds and cells of who; false if one has no
// figures.
// Of a connection that counts what nobody took, too: its end. A port that is full is no fault of
// the recorder's death.
func (f found) crashes(isolate string, who ...string) (c crashes, ok bool) {
	c.isolate = isolate
	for _, way := range who {
		measured := false
		for i := range f.Rows {
			row := &f.Rows[i]
			if row.Contestant != way || row.Params["event"] != "kill" {
				continue
			}
			events, lost := row.Metrics["events"], row.Metrics["lost_bytes_per_event"]
			doubled, unsent := row.Metrics["doubled_bytes_per_event"], row.Metrics["unsent_bytes_per_event"]
			if events.N == 0 || lost.N != events.N || doubled.N != events.N || unsent.N != events.N {
				return c, false
			}
			for round, n := range events.Samples {
				c.struck += n
				cost := lost.Samples[round] + doubled.Samples[round]
				if row.Params["line"] == "tcp" {
					cost += unsent.Samples[round]
				}
				c.cost += math.Round(n * cost)
			}
			if cell := row.Params.String(); !slices.Contains(c.where, cell) {
				c.where = append(c.where, cell)
			}
			measured = true
		}
		if !measured {
			return c, false
		}
	}
	return c, true
}

// durable finds the engine of the log that makes so many records durable in a second, each before
// its sender goes on, from the fewest producers.
func durable(runs []Run, n Need, kernel string) Line {
	l := Line{
		About:   fmt.Sprintf("%.0f durable/s", n.Durable),
		Measure: "tallywheel lab run log-durable --dir FOLDER-OF-THE-LOG",
	}
	f, ok := newest(runs, "log-durable", kernel)
	if !ok {
		l.Text = "how fast this disk makes records durable"
		return l
	}
	engines := map[string]string{
		"tallywheel/seglog":       "log: {engine: std, sync: always}",
		"tallywheel/seglog uring": "log: {engine: uring, sync: always}",
	}
	var most *lab.Row
	for _, cell := range f.Cells() {
		for _, way := range []string{"tallywheel/seglog", "tallywheel/seglog uring"} {
			row := f.Find(way, cell)
			if row == nil || row.Metrics["ops_per_s"].N == 0 {
				continue
			}
			if rate := row.Metrics["ops_per_s"]; most == nil || rate.Median > most.Metrics["ops_per_s"].Median {
				most = row
			}
			if rate := row.Metrics["ops_per_s"]; rate.Lo >= n.Durable {
				l.Known, l.Meets, l.Measure, l.From = true, true, "", f.from()
				l.Text = fmt.Sprintf("%s. Measured at %s: %.0f a second [%.0f–%.0f], 99 %% within %s", engines[way],
					cell, rate.Median, rate.Lo, rate.Hi, late(row))
				return l
			}
		}
	}
	if most == nil {
		l.Text = "our log was not measured there"
		return l
	}
	l.Known, l.Measure, l.From = true, "", f.from()
	l.Text = fmt.Sprintf("nothing that was measured makes so many; the most were %.0f a second, at %s",
		most.Metrics["ops_per_s"].Median, most.Params)
	return l
}
