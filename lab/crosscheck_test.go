package lab_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
)

var cross = flag.Bool("cross", false,
	"have TestCrossCheck measure each plane by other programs, too; nothing else should run meanwhile")

// crossCheck holds a figure of ours to that of a program which others wrote.
type crossCheck struct {
	plane      lab.Plane
	tool       string
	experiment string
	ours       string // a contestant
	cell       lab.Params
	metric     lab.Metric
	// who has the tool's figure, of the same experiment; "": ours, run under the tool; perf counts
	// while we do, strace in turns of its own
	theirs string
}

var crossChecks = []crossCheck{
	{lab.Serial, "perf", "serial-read", "os.File", lab.Params{"bytes_per_s": "100000"}, lab.ContextSwitchesPerOp, ""},
	{lab.Memory, "perf", "ring-copy", "ring+memcpy", lab.Params{"bytes": "64", "load": "max"}, lab.CPUPerOp, ""},
	{lab.Files, "fio", "file-random", "os.File", lab.Params{"depth": "1"}, lab.OpsPerSecond, "fio/psync"},
	{lab.Files, "fio", "file-random", "tallywheel/uring", lab.Params{"depth": "64"}, lab.OpsPerSecond, "fio/io_uring"},
	{lab.Files, "strace", "syscalls", "read: os.File", nil, lab.Calls("pread64"), ""},
	{lab.Log, "strace", "syscalls", "record: tallywheel/seglog", nil, lab.Calls("fdatasync"), ""},
	{
		lab.Log, "fio", "log-durable", "tallywheel/seglog",
		lab.Params{"producers": "1"},
		lab.OpsPerSecond,
		"fio/fdatasync",
	},
	{lab.Network, "wrk", "http-wrk", "net/http", lab.Params{"connections": "400"}, lab.OpsPerSecond, ""},
	{lab.Network, "wrk", "http-wrk", "net/http", lab.Params{"connections": "400"}, lab.CPUPerOp, ""},
	{lab.Processes, "perf", "process-ipc", "go/unix", lab.Params{"load": "turns"}, lab.ContextSwitchesPerOp, ""},
	{
		lab.RealTime, "cyclictest", "rt-cyclic", "c/clock_nanosleep",
		lab.Params{"interval_us": "1000", "load": "none"},
		lab.LatencyP50, "cyclictest",
	},
	{lab.Laboratory, "perf", "noise", "copy/a", nil, lab.CPUPerOp, ""},
}

// toolPackages are what apt calls the tools.
var toolPackages = map[string]string{"perf": "linux-perf", "cyclictest": "rt-tests"}

// TestCrossCheck is for a machine that does nothing else: go test ./lab -run CrossCheck -cross
// -timeout 20m -v. Our figures and those of fio, perf stat, strace -c, wrk and cyclictest agree, in
// each plane: their intervals meet, or the medians are within 5 %.
func TestCrossCheck(t *testing.T) {
	if !*cross {
		t.Skip("SKIPPED: this wants a machine for itself; run go test ./lab -run CrossCheck -cross -timeout 20m -v")
	}
	table := "| plane | figure | tool | its value | ours | agree |\n|---|---|---|---|---|---|\n"
	for _, c := range crossChecks {
		if _, err := exec.LookPath(c.tool); err != nil {
			t.Logf("SKIPPED: %s: there is no %s; apt install %s", c.plane, c.tool, packageOf(c.tool))
			continue
		}
		its, ours, err := c.measure(t)
		d := lab.Describe(c.metric.String())
		row := fmt.Sprintf("| %s | %s: %s, %s %s, %s | %s ", c.plane, c.experiment, c.ours, c.cell, d.Label, d.Unit,
			c.tool)
		if err != nil {
			table += row + "| – | – | " + err.Error() + " |\n"
			t.Errorf("%s, %s: %v", c.plane, c.ours, err)
			continue
		}
		agree := its.Lo <= ours.Hi && ours.Lo <= its.Hi || math.Abs(its.Median/ours.Median-1) <= 0.05
		table += row + fmt.Sprintf("| %s | %s | %s, %+.1f %% |\n", spread(its), spread(ours),
			lab.Or(agree, "yes", "no"), 100*(its.Median/ours.Median-1))
		if !agree {
			t.Errorf("%s, %s: %s has %s, we have %s", c.plane, c.ours, c.tool, spread(its), spread(ours))
		}
	}
	t.Log("\n" + table)
}

func packageOf(tool string) string {
	if p := toolPackages[tool]; p != "" {
		return p
	}
	return tool
}

func spread(f lab.Figure) string {
	if f.N == 1 {
		return fmt.Sprintf("%.4g (once)", f.Median)
	}
	return fmt.Sprintf("%.4g (%.4g–%.4g)", f.Median, f.Lo, f.Hi)
}

// measure runs what has both figures.
func (c crossCheck) measure(t *testing.T) (its, ours lab.Figure, err error) {
	e := *experiment(t, c.experiment)
	e.Claims, e.Advice, e.Least = nil, nil, nil
	e.Turn = time.Second
	cell := c.cell
	if e.Cells != nil {
		for _, whole := range e.Cells(lab.Quick()) {
			if whole.Has(c.cell) {
				cell = whole
				break
			}
		}
	}
	e.Cells = func(lab.Options) []lab.Params { return []lab.Params{cell} }
	e.Contestants = slices.DeleteFunc(slices.Clone(e.Contestants), func(of *lab.Contestant) bool {
		return of.Name != c.ours && of.Name != c.theirs
	})
	who, other := cell, cell
	theirs, mine, metric := c.theirs, c.ours, c.metric
	switch {
	case c.tool == "wrk": // the server is the same, the load is not
		who, other, theirs = lab.Params{"load": "ours"}, lab.Params{"load": "wrk"}, c.ours
		e.Cells = func(lab.Options) []lab.Params { return lab.Cells("load", "ours", "wrk") }
		n := cell.Int("connections")
		scenes := map[string]func(*lab.Bench) (*lab.Scene, error){
			"ours": load.HTTP{Connections: n}.Scene, "wrk": load.Wrk{Threads: 2, Connections: n}.Scene,
		}
		e.Scene = func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return scenes[cell["load"]](b)
		}
	case c.theirs == "":
		theirs, metric = c.tool, counted
		under := c.under(&e, e.Contestants[0], filepath.Join(t.TempDir(), "said"))
		if e.Contestants = append(e.Contestants, under); c.tool == "perf" {
			mine, e.Contestants = theirs, []*lab.Contestant{under}
		}
	}
	e.Base = nil
	o := lab.Quick()
	o.Dir, o.Budget, o.MaxRounds, o.Tight = t.TempDir(), 30*time.Second, lab.MinRounds, 0
	r, err := run(t, t.Context(), o, &e)
	if err != nil {
		return its, ours, err
	}
	find := func(name string, in lab.Params, metric lab.Metric) (lab.Figure, error) {
		for _, row := range r.Rows {
			if f, ok := row.Metrics[metric.String()]; ok && row.Contestant == name && row.Params.Has(in) {
				return f, nil
			}
			if row.Contestant == name && row.NotRun != "" {
				err = errors.New(row.NotRun)
			}
		}
		return lab.Figure{}, errors.Join(fmt.Errorf("%s has no %s", name, metric), err)
	}
	ours, err1 := find(mine, who, c.metric)
	its, err2 := find(theirs, other, metric)
	return its, ours, errors.Join(err1, err2)
}

// counted is the metric of what a tool has counted.
var counted = lab.Calls("by a tool")

// under is a contestant of an experiment as it runs under a tool that counts.
func (c crossCheck) under(e *lab.Experiment, of *lab.Contestant, said string) *lab.Contestant {
	self, err := os.Executable()
	if err != nil {
		panic(err) // there is no test without one
	}
	args := []string{"stat", "-x", ",", "-e", "task-clock,context-switches", "-o", said, "--"}
	if c.tool == "strace" {
		args = []string{"-f", "-c", "-o", said}
	}
	args = append(args, self, "lab", "contestant", e.Name, of.Name)
	derive := e.Derive
	warmUp, start, before := time.Duration(0), 0.0, 0.0
	e.Derive = func(cell lab.Params, length time.Duration, m lab.Metrics) {
		if derive != nil {
			derive(cell, length, m)
		}
		text, err := os.ReadFile(said)
		if err != nil {
			return // it was not a turn under the tool
		}
		_ = os.Remove(said)
		n, ok := c.count(string(text))
		switch {
		case !ok:
		case warmUp == 0: // the first turn warms up, and is short
			warmUp, start, before = length, n, m["ops"]
		case length > e.Turn/3 && m["ops"] > before: // no turn that counts calls, which are shorter
			// without the start, which ours do not count
			m[counted.String()] = (n - start) / (m["ops"] - before)
		}
	}
	w := lab.Tool(c.tool, "apt install "+packageOf(c.tool)).As(c.tool, args...).With(lab.OwnVariable + "=1")
	w.Skip = of.Skip
	return w
}

// count is what a tool has counted, in the unit of the metric.
func (c crossCheck) count(text string) (n float64, ok bool) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ",") // VALUE,UNIT,EVENT, …
		if c.tool == "strace" {
			f = strings.Fields(line) // SHARE SECONDS EACH CALLS [ERRORS] NAME
			if len(f) < 5 || "call_"+f[len(f)-1] != c.metric.String() {
				continue
			}
			n, err := strconv.ParseFloat(f[3], 64)
			return n, err == nil
		}
		if len(f) < 3 {
			continue
		}
		n, err := strconv.ParseFloat(f[0], 64)
		switch {
		case err != nil:
		case c.metric == lab.CPUPerOp && strings.HasPrefix(f[2], "task-clock"):
			return n * 1e3, true // ms
		case c.metric == lab.ContextSwitchesPerOp && strings.HasPrefix(f[2], "context-switches"):
			return n, true
		}
	}
	return 0, false
}
