package advice

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	_ "github.com/tallywheel/tallywheel/lab/experiments"
)

func TestParseNeed(t *testing.T) {
	for text, want := range map[string]Need{
		"5ms ±100us, 8 ports 400KB/s, restart 0 loss": {
			Period: 5 * time.Millisecond, Tolerance: 100 * time.Microsecond,
			Ports: 8, Rate: 400_000, NoLossAtRestart: true,
		},
		"1ms +-50us":      {Period: time.Millisecond, Tolerance: 50 * time.Microsecond},
		"1 port 1.5KiB/s": {Ports: 1, Rate: 1536},
		" 20 durable/s ":  {Durable: 20},
	} {
		if got, err := ParseNeed(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", ",", "5ms", "5ms ±", "0s ±1us", "5ms ±-1us", "5ms ±1us, 5ms ±1us", "0 ports 1KB/s", "8 ports",
		"8 ports 0KB/s", "8 ports 1e999KB/s",
		"8 ports NaNKB/s", "8 ports 400", "-1 durable/s", "NaN durable/s", "Inf durable/s", "restart 1 loss",
		"fast please",
	} {
		if got, err := ParseNeed(text); !errors.Is(err, ErrNeed) {
			t.Errorf("%q is read as %+v: %v", text, got, err)
		}
	}
}

func figures(samples ...float64) lab.Figure { return lab.Summarise("", samples) }

// eight is the samples of as many rounds as a verdict takes, of which the last are given.
func eight(first float64, last ...float64) []float64 {
	return append(slices.Repeat([]float64{first}, lab.MinRounds-len(last)), last...)
}

// runOf is a file of one experiment.
func runOf(file string, day int, e lab.ExperimentResult) Run {
	return Run{file, &lab.Results{
		Started: time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC), Machine: lab.Machine{CPU: "x", CPUs: 2, Kernel: "6.1"},
		Experiments: []lab.ExperimentResult{e},
	}}
}

// cyclicRow is a row of rt-cyclic.
func cyclicRow(who, every, load string, most ...float64) lab.Row {
	return lab.Row{
		Contestant: who, Params: lab.Params{"interval_us": every, "load": load},
		Metrics: map[string]lab.Figure{"latency_us_max": figures(most...)},
	}
}

var cyclic = lab.ExperimentResult{Name: "rt-cyclic", Rounds: 8, Rows: []lab.Row{
	cyclicRow("go/time.Sleep", "1000", "none", eight(10)...), // its like is late beside gc
	cyclicRow("go/time.Ticker", "1000", "none", eight(80, 90, 100)...),
	cyclicRow("go/time.Ticker", "1000", "gc", eight(80, 4000, 90)...),
	cyclicRow("tallywheel/cell", "1000", "none", eight(20, 30, 40)...),
	cyclicRow("tallywheel/cell", "1000", "gc", eight(50, 60, 70)...),
	cyclicRow("tallywheel/cell", "5000", "none", eight(900)...),
	cyclicRow("tallywheel/cell", "5000", "gc", eight(900)...),
	cyclicRow("c/clock_nanosleep", "5000", "none", eight(300)...),
}}

// known is rt-cyclic as it is registered, in short.
var known = []*lab.Experiment{{
	Name:  "rt-cyclic",
	Cells: func(lab.Options) []lab.Params { return lab.Cells("load", "none", "gc") },
	Contestants: []*lab.Contestant{
		{Name: "go/time.Sleep", Seldom: func(lab.Params) bool { return true }},
		{Name: "go/time.Ticker"},
		{Name: "tallywheel/cell"},
		{Name: "c/clock_nanosleep", Skip: func(cell lab.Params) bool { return cell["load"] == "gc" }},
	},
}}

// only is the one line of a need.
func only(t *testing.T, n Need, runs ...Run) Line {
	t.Helper()
	all := Needed(runs, known, n, "6.1")
	if len(all) != 1 {
		t.Fatalf("%d lines: %+v", len(all), all)
	}
	if l := all[0]; l.Known != (l.From != "") || l.Known == (l.Measure != "") || l.Meets && !l.Known || l.Text == "" ||
		l.About == "" {
		t.Errorf("%+v", l)
	}
	return all[0]
}

// TestTiming takes the plainest way that was never later, beside no load: the longest of all rounds
// counts, not a median.
func TestTiming(t *testing.T) {
	run := runOf("a", 1, cyclic)
	for _, c := range []struct {
		period, tolerance time.Duration
		known, meets      bool
		text              string
	}{
		{2 * time.Millisecond, 5 * time.Millisecond, true, true, "use go/time.Ticker. "},
		{2 * time.Millisecond, 100 * time.Microsecond, true, true, "use tallywheel/cell. "},
		{
			2 * time.Millisecond, 9 * time.Microsecond, true, false,
			"nothing that was measured is so exact. Late, at a period of 1ms, at SCHED_FIFO 80, in 8 rounds: go/time.Sleep at most 10µs (load none); go/time.Ticker at most 4ms (load gc, the worst of 2); tallywheel",
		},
		{
			2 * time.Millisecond, 69 * time.Microsecond, false, false,
			"it is too little. go/time.Sleep: not measured beside load gc",
		},
		{9 * time.Millisecond, 100 * time.Microsecond, true, false, "tallywheel/cell at most 900µs"},
		// what has no collector was measured beside all that there is for it
		{9 * time.Millisecond, 400 * time.Microsecond, true, true, "use c/clock_nanosleep. "},
		{500 * time.Microsecond, time.Second, false, false, "no period as short as that"},
	} {
		l := only(t, Need{Period: c.period, Tolerance: c.tolerance}, run)
		if l.Known != c.known || l.Meets != c.meets || !strings.Contains(l.Text, c.text) {
			t.Errorf("%v ±%v: %+v, want %q", c.period, c.tolerance, l, c.text)
		}
	}
	if l := only(t, Need{Period: time.Second, Tolerance: time.Second}); l.Known ||
		l.Measure != "tallywheel lab run rt-cyclic --full --out lab-results-rt-cyclic" {
		t.Errorf("of no results: %+v", l)
	}
}

// TestFullHasNoMore: who has run --full is not told to.
func TestFullHasNoMore(t *testing.T) {
	run := runOf("a", 1, cyclic)
	run.Command = "tallywheel lab run rt-cyclic --full"
	if l := only(t, Need{Period: time.Millisecond, Tolerance: 69 * time.Microsecond}, run); l.Known ||
		l.Measure != "tallywheel lab run rt-cyclic --full --budget 20m --out lab-results-rt-cyclic" {
		t.Errorf("%+v", l)
	}
	run.Command += " --budget 15m"
	if l := only(t, Need{Period: time.Millisecond, Tolerance: 69 * time.Microsecond}, run); !strings.Contains(l.Measure,
		"--full --budget 30m") {
		t.Errorf("%+v", l)
	}
	need := Need{Period: time.Microsecond, Tolerance: time.Second}
	if l := Needed([]Run{run}, known, need, "6.1")[0]; l.Known || l.Measure != "" {
		t.Errorf("%+v", l)
	}
}

// TestNewest: the newest result counts, and one that failed is none.
func TestNewest(t *testing.T) {
	later := cyclic
	later.Rows = []lab.Row{cyclicRow("tallywheel/cell", "1000", "none", 500)}
	need := Need{Period: time.Millisecond, Tolerance: 400 * time.Microsecond}
	runs := []Run{
		runOf("new", 9, later),
		runOf("failed", 10, lab.ExperimentResult{Name: "rt-cyclic", Failed: "x", Rows: cyclic.Rows}),
		runOf("old", 1, cyclic),
	}
	if l := only(t, need, runs...); l.Meets || !strings.HasPrefix(l.From, "new, 2026-11-09") {
		t.Errorf("%+v", l)
	}
	if l := Needed(runs[:1], known, need, "6.18")[0]; !strings.HasSuffix(l.From, ", Linux 6.1") {
		t.Errorf("measured with another kernel: %+v", l)
	}
	if own, others := OfMachine(runs, lab.Machine{CPU: "x", CPUs: 4}); len(own) != 0 || len(others) != 3 {
		t.Errorf("a machine with more CPUs: %d own, %d others", len(own), len(others))
	}
}

func portsRow(who string, ports string, cpu float64, lost ...float64) lab.Row {
	return lab.Row{
		Contestant: who, Params: lab.Params{"ports": ports},
		Metrics: map[string]lab.Figure{"cpu_percent": figures(cpu), "lost_frames": figures(lost...)},
	}
}

// TestReading takes what costs least of what lost nothing, in any round, and says nothing of more
// ports or bytes than were measured.
func TestReading(t *testing.T) {
	cpu := func(row lab.Row, rounds ...float64) lab.Row {
		row.Metrics["cpu_percent"] = figures(rounds...)
		return row
	}
	steady := func(x float64) []float64 { return []float64{x, x, x, x, x, x, x, x} }
	run := runOf("a", 1, lab.ExperimentResult{Name: "serial-ports", Rows: []lab.Row{
		portsRow("tallywheel/ring", "8", 3, eight(0)...), portsRow("tallywheel/throughput", "8", 1, 0, 0, 1),
		cpu(portsRow("tallywheel/ring", "64", 9, eight(0)...), steady(9)...),
		cpu(portsRow("tallywheel/throughput", "64", 2, eight(0)...), steady(2)...),
		cpu(portsRow("tallywheel/ring", "256", 9, eight(0)...), steady(9)...),
		cpu(portsRow("tallywheel/throughput", "256", 2, eight(0)...), 8, 8, 8, 8, 8, 8, 8, 10),
	}})
	if l := only(t, Need{Ports: 65, Rate: 100}, run); !l.Meets || !strings.HasPrefix(l.Text, "read: {strategy: ring, mode: latency}.") ||
		!strings.HasSuffix(l.Text, "; no difference measured in CPU time") {
		t.Errorf("%+v", l)
	}
	if l := only(t, Need{Ports: 8, Rate: 11_520}, run); !l.Meets ||
		!strings.Contains(l.Text, "mode: latency}. Measured at ports=8: ring: 3.0 % of a CPU, 0 frames lost") {
		t.Errorf("%+v", l)
	}
	if l := only(t, Need{Ports: 9, Rate: 100}, run); !l.Meets ||
		!strings.Contains(l.Text, "mode: throughput}. Measured at ports=64") {
		t.Errorf("%+v", l)
	}
	if l := only(t, Need{Ports: 257, Rate: 100}, run); l.Known ||
		l.Measure != "tallywheel demo --ports 257 --rate 100 --for 1m" {
		t.Errorf("%+v", l)
	}
	if l := only(t, Need{Ports: 8, Rate: 400_000}, run); l.Known ||
		l.Measure != "tallywheel demo --ports 8 --rate 400000 --for 1m" {
		t.Errorf("what no experiment has, whatever is run: %+v", l)
	}
	if l := only(t, Need{Ports: 1, Rate: 400_000}, run); l.Known ||
		l.Measure != "tallywheel lab run serial-strategies --out lab-results-serial-strategies" ||
		!strings.HasPrefix(l.About, "1 port, ") {
		t.Errorf("%+v", l)
	}
}

// TestRestart holds all crashes of an isolation to no byte, and takes the plainest that has lost
// none.
func TestRestart(t *testing.T) {
	names := []string{"events", "lost_bytes_per_event", "doubled_bytes_per_event", "unsent_bytes_per_event"}
	row := func(who, event, line string, metrics ...lab.Figure) lab.Row {
		r := lab.Row{
			Contestant: "tallywheel/" + who, Params: lab.Params{"event": event, "line": line, "rate": "400000"},
			Metrics: map[string]lab.Figure{},
		}
		for i, m := range metrics {
			r.Metrics[names[i]] = m
		}
		return r
	}
	of := figures
	struck, nothing := of(eight(3)...), of(eight(0)...)
	quiet := []lab.Figure{struck, nothing, nothing, nothing}
	few := []lab.Figure{of(3, 3), of(0, 0), of(0, 0), of(0, 0)}
	none := row("none", "kill", "tcp", of(3, 4), of(100, 0), of(0, 0), of(0, 5))
	recorder, reader := row("process recorder", "kill", "tcp", quiet...), row("process reader", "kill", "tcp", quiet...)
	port := row("process reader", "kill", "pty", struck, nothing, nothing, of(eight(9)...))
	twice := row("process reader", "kill", "pty", of(3, 3), of(0, 0), of(1, 0), of(0, 0))
	quietNone, half := row("none", "kill", "tcp", quiet...), row("none", "kill", "tcp", of(3, 3))
	stopped := row("process reader", "restart", "tcp", quiet...)
	fewOfReader, fewOfNone := row("process reader", "kill", "tcp", few...), row("none", "kill", "tcp", few...)
	for text, c := range map[string]struct {
		rows  []lab.Row
		known bool
		meets bool
	}{
		"use isolate: process. By kill -9: none, struck 7 times (event=kill line=tcp rate=400000): 320 B lost or stored twice; process, struck 48 times (": {
			[]lab.Row{none, recorder, reader}, true, true,
		},
		"use isolate: process. By kill -9: none, struck 7": {[]lab.Row{none, recorder, reader, port}, true, true},
		"use isolate: none. ":                              {[]lab.Row{quietNone, recorder, reader}, true, true},
		"isolate: process: tallywheel/process reader at event=kill line=tcp rate=400000: 2 rounds of the 8 that it takes": {
			[]lab.Row{none, recorder, fewOfReader}, false, false,
		},
		"use isolate: process. By kill -9: none, struck 6": {[]lab.Row{fewOfNone, recorder, reader}, true, true},
		"nothing that was measured lost nothing. ":         {[]lab.Row{none, recorder, twice}, true, false},
		"with isolate: process was not measured whole":     {[]lab.Row{none, recorder, stopped}, false, false},
		"costs was not measured whole":                     {[]lab.Row{recorder, reader, half}, false, false},
	} {
		result := lab.ExperimentResult{Name: "recorder-crash", Rows: c.rows}
		l := only(t, Need{NoLossAtRestart: true}, runOf("a", 1, result))
		if !strings.Contains(l.Text, text) || l.Known != c.known || l.Meets != c.meets {
			t.Errorf("%+v, want %q", l, text)
		}
	}
	if l := only(t, Need{NoLossAtRestart: true}); l.Known || l.Measure != "tallywheel lab run recorder-crash --full --out lab-results-recorder-crash" {
		t.Errorf("of no results: %+v", l)
	}
}

// TestDurable holds the lower end of what was measured to the need.
func TestDurable(t *testing.T) {
	row := func(who, producers string, rates ...float64) lab.Row {
		return lab.Row{
			Contestant: who, Params: lab.Params{"producers": producers},
			Metrics: map[string]lab.Figure{"ops_per_s": figures(rates...)},
		}
	}
	rates := func(lo, mid, hi float64) []float64 { return append(eight(mid, hi, hi, hi), lo, lo, lo) }
	run := runOf("a", 1, lab.ExperimentResult{Name: "log-durable", Rows: []lab.Row{
		row("tallywheel/seglog", "1", rates(90, 100, 110)...),
		row("tallywheel/seglog uring", "1", rates(200, 210, 220)...),
		row("tallywheel/seglog", "16", rates(1000, 1100, 1200)...),
		row("tallywheel/seglog uring", "16", 1300, 1400), row("other", "16", 9e9),
	}})
	for need, want := range map[float64]string{90: "engine: std, sync: always}. Measured at producers=1: 100 a second [90–110]", 150: "engine: uring", 500: "producers=16", 1399: "seglog uring at producers=16: 2 rounds of the 8", 1401: "the most were 1350 a second"} {
		if l := only(t, Need{Durable: need}, run); !strings.Contains(l.Text, want) || l.Meets != (need < 1001) ||
			l.Known != (need != 1399) {
			t.Errorf("%v: %+v", need, l)
		}
	}
}

// TestFound says what each experiment advises, and how to measure what was not.
func TestFound(t *testing.T) {
	run := runOf("a", 1, lab.ExperimentResult{Name: "one", Advice: "take it", Rows: []lab.Row{{}}})
	run.Experiments = append(run.Experiments,
		lab.ExperimentResult{Name: "two", Warnings: []string{"too few"}, Rows: []lab.Row{{}}})
	all := Found([]Run{run}, []*lab.Experiment{{Name: "one"}, {Name: "two"}, {Name: "three", Question: "why?"}}, "6.1")
	want := []Line{
		{About: "one", Known: true, Text: "take it", From: "a, 2026-11-01 00:00"},
		{About: "two", Text: "too few", Measure: "tallywheel lab run two --budget 3m --out lab-results-two"},
		{About: "three", Text: "why?", Measure: "tallywheel lab run three --out lab-results-three"},
	}
	for i, l := range all {
		if l != want[i] {
			t.Errorf("%+v, want %+v", l, want[i])
		}
	}
}

// TestWaysAreMeasured: a full run measures each way to wait that is advised beside several loads,
// so that each can meet a need.
func TestWaysAreMeasured(t *testing.T) {
	for _, way := range ways {
		if loads := loadsOf(lab.Experiments(), way); len(loads) < 4 {
			t.Errorf("%s is measured beside %q", way, loads)
		}
	}
}
