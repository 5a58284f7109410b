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

// Needed says of each part of a need how it can be met. Runs are of this machine, by some of the
// experiments. A need is met by what a verdict would be by: figures of [lab.MinRounds] rounds in
// which the machine was quiet. That something failed once is enough to know that it does not meet
// one.
func Needed(runs []Run, experiments []*lab.Experiment, n Need, kernel string) (all []Line) {
	if n.Period > 0 {
		all = append(all, timing(runs, experiments, n, kernel))
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

// more is the command of a run that measures more than the one that a result is of.
func (f found) more(flags ...string) string {
	words := strings.Fields(strings.ReplaceAll(f.run.Command, "=", " "))
	if !slices.Contains(words, "--full") {
		return lab.Command(f.Name, append([]string{"--full"}, flags...)...)
	}
	budget := lab.Full().Budget
	if at := slices.Index(words, "--budget"); at >= 0 && at+1 < len(words) {
		if d, err := time.ParseDuration(words[at+1]); err == nil {
			budget = max(budget, d)
		}
	}
	longer := fmt.Sprintf("%.0fm", (2 * budget).Minutes())
	return lab.Command(f.Name, append([]string{"--full", "--budget", longer}, flags...)...)
}

// unknown is the line where what may meet a need was not measured enough, and what that lacks.
func (f found) unknown(l Line, lacking []string, measure string) Line {
	l.Text = "what was measured of what may do it is too little. " + strings.Join(lacking, "; ")
	l.Measure = measure
	return l
}

// Found lists what each experiment advises, and those that have none here.
func Found(runs []Run, experiments []*lab.Experiment, kernel string) (all []Line) {
	for _, e := range experiments {
		f, ok := newest(runs, e.Name, kernel)
		l := Line{About: e.Name, Measure: lab.Command(e.Name)}
		switch {
		case !ok:
			l.Text = e.Question
		case f.Advice == "":
			l.Text = cmp.Or(strings.Join(f.Warnings, "; "), "its figures are too few to advise anything")
			l.Measure = lab.Command(e.Name, "--budget", "3m")
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

// timing finds the plainest way to wake up that was never later than is allowed, beside all the
// loads that rt-cyclic has for it.
func timing(runs []Run, experiments []*lab.Experiment, n Need, kernel string) Line {
	l := Line{About: fmt.Sprintf("%v ±%v", n.Period, n.Tolerance), Measure: lab.Command("rt-cyclic", "--full")}
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
	if best == 0 {
		if strings.Contains(f.run.Command, "--full") {
			l.Measure = "" // there is no more that would
		}
		l.Text = "no period as short as that was measured"
		return l
	}
	var said, lacking []string
	meets := ""
	for _, way := range ways {
		w := f.latest(way, best, loadsOf(experiments, way))
		switch {
		case w.loads == 0:
			continue
		case w.most > float64(n.Tolerance.Nanoseconds())/1e3: // once is enough
		case w.lacks != "":
			lacking = append(lacking, way+": "+w.lacks)
		case meets == "":
			meets = way
		}
		said = append(said, fmt.Sprintf("%s at most %s", way, w))
	}
	switch {
	case len(said) == 0:
		l.Text = "no way to wait was measured at that period"
		return l
	case meets == "" && len(lacking) > 0:
		return f.unknown(l, lacking, f.more())
	}
	l.Known, l.Meets, l.Measure, l.From = true, meets != "", "", f.from()
	l.Text = fmt.Sprintf("%s. Late, at a period of %v, at SCHED_FIFO 80, in %s: %s",
		cmp.Or(prefixed("use ", meets), "nothing that was measured is so exact"), time.Duration(best)*time.Microsecond,
		lab.Count(f.Rounds, "round"), strings.Join(said, "; "))
	return l
}

// loadsOf is the loads beside which a full run of rt-cyclic measures a way to wait.
func loadsOf(experiments []*lab.Experiment, way string) (loads []string) {
	for _, e := range experiments {
		if e.Name != "rt-cyclic" {
			continue
		}
		for _, c := range e.Contestants {
			for _, cell := range e.Cells(lab.Full()) {
				load := cell["load"]
				if c.Name != way || c.Skip != nil && c.Skip(cell) || slices.Contains(loads, load) {
					continue
				}
				loads = append(loads, load)
			}
		}
	}
	return loads
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// wait is how late a way to wait was.
type wait struct {
	most   float64 // µs
	beside string  // the load beside which that was
	loads  int     // beside which it was measured
	lacks  string  // what it lacks to be known; "" if nothing
}

// String says it: "4ms (load gc, the worst of 2)".
func (w wait) String() string {
	worst := ""
	if w.loads > 1 {
		worst = fmt.Sprintf(", the worst of %d", w.loads)
	}
	return fmt.Sprintf("%s (load %s%s)", micros(w.most), w.beside, worst)
}

// latest is how late a way to wait was in all rounds, beside such loads and all others.
func (f found) latest(way string, every int, loads []string) (w wait) {
	var lacks []string
	missing := slices.Clone(loads)
	for i := range f.Rows {
		row := &f.Rows[i]
		figure := row.Metrics[lab.LatencyMax.String()]
		if row.Contestant != way || row.Params.Int("interval_us") != every || len(figure.Samples) == 0 {
			continue
		}
		load := row.Params["load"]
		w.loads++
		missing = slices.DeleteFunc(missing, func(l string) bool { return l == load })
		if lack := row.Lacks(lab.LatencyMax); lack != "" {
			lacks = append(lacks, "load "+load+": "+lack)
		}
		if most := slices.Max(figure.Samples); most >= w.most {
			w.most, w.beside = most, load
		}
	}
	if len(missing) > 0 {
		lacks = append(lacks, "not measured beside load "+strings.Join(missing, ", "))
	}
	w.lacks = strings.Join(lacks, ", ")
	return w
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
		About:   fmt.Sprintf("%s, %.0f B/s each", lab.Count(n.Ports, "port"), n.Rate),
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
		l.Text, l.Measure = "how ports are best read here", lab.Command(name)
		return l
	}
	var cell lab.Params
	for _, c := range f.Cells() {
		if fits(c) && (cell == nil || c.Int("ports") < cell.Int("ports")) {
			cell = c
		}
	}
	if cell == nil {
		l.Text, l.Measure = "so many ports were not measured in that run", f.more()
		return l
	}
	return f.mode(l, cell)
}

// mode is the line of the mode of reading that takes less CPU, in a cell.
func (f found) mode(l Line, cell lab.Params) Line {
	var said, lacking []string
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
		if sum(lost) > 0 {
			continue
		}
		if lack := row.Lacks(lab.LostFrames); lack != "" {
			lacking = append(lacking, fmt.Sprintf("%s at %s: %s", way, cell, lack))
			continue
		}
		switch r, ok := row.Over(best, lab.CPUPercent); {
		case best == nil || ok && r.Sure() && r.Hi < 1:
			best = row
		case !r.Sure():
			alike = "; no difference measured in CPU time"
		}
	}
	switch {
	case len(said) == 0:
		l.Text = "our ways to read were not measured there"
		return l
	case best == nil && len(lacking) > 0:
		return f.unknown(l, lacking, f.more())
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
	l := Line{About: "restart 0 loss", Measure: lab.Command("recorder-crash", "--full")}
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
	var lacking []string
	use := "nothing that was measured lost nothing"
	for _, c := range []crashes{isolated, none} { // the plainer one is said
		switch {
		case c.cost > 0:
		case c.lacks != "":
			lacking = append(lacking, "isolate: "+c.isolate+": "+c.lacks)
		default:
			l.Meets, use = true, "use isolate: "+c.isolate
		}
	}
	if !l.Meets && len(lacking) > 0 {
		return f.unknown(l, lacking, f.more())
	}
	l.Known, l.Measure, l.From = true, "", f.from()
	l.Text = fmt.Sprintf("%s. By kill -9: %s; %s", use, none, isolated)
	return l
}

// crashes is what those of one isolation have cost.
type crashes struct {
	isolate string
	struck  float64 // times
	cost    float64 // bytes lost, or stored twice
	where   []string
	lacks   string // what they lack to be known; "" if nothing
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
			if lack := row.Lacks(lab.Events); lack != "" {
				c.lacks = fmt.Sprintf("%s at %s: %s", way, row.Params, lack)
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

// onItsDisk is the flags by which a log is measured on the disk that it will be on.
var onItsDisk = []string{"--dir", "FOLDER-OF-THE-LOG"}

// durable finds the engine of the log that makes so many records durable in a second, each before
// its sender goes on, from the fewest producers.
func durable(runs []Run, n Need, kernel string) Line {
	l := Line{
		About:   fmt.Sprintf("%.0f durable/s", n.Durable),
		Measure: lab.Command("log-durable", onItsDisk...),
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
	var lacking []string
	for _, cell := range f.Cells() {
		for _, way := range []string{"tallywheel/seglog", "tallywheel/seglog uring"} {
			row := f.Find(way, cell)
			if row == nil || row.Metrics["ops_per_s"].N == 0 {
				continue
			}
			if rate := row.Metrics["ops_per_s"]; most == nil || rate.Median > most.Metrics["ops_per_s"].Median {
				most = row
			}
			rate := row.Metrics["ops_per_s"]
			switch lack := row.Lacks(lab.OpsPerSecond); {
			case lack != "":
				if slices.Max(rate.Samples) >= n.Durable { // else it made so many in no round
					lacking = append(lacking, fmt.Sprintf("%s at %s: %s", way, cell, lack))
				}
			case rate.Lo >= n.Durable:
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
	if len(lacking) > 0 {
		return f.unknown(l, lacking, f.more(onItsDisk...))
	}
	l.Known, l.Measure, l.From = true, "", f.from()
	l.Text = fmt.Sprintf("nothing that was measured makes so many; the most were %.0f a second, at %s",
		most.Metrics["ops_per_s"].Median, most.Params)
	return l
}
