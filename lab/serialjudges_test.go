package lab_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
)

// taken is a contestant in a cell, and the rounds of its figures.
type taken struct {
	contestant string
	cell       lab.Params
	figures    map[lab.Metric][]float64
}

// judgedBy is the verdict on a claim, by its number, where that was taken.
func judgedBy(t *testing.T, experimentName, id string, all ...taken) lab.Verdict {
	t.Helper()
	var r lab.ExperimentResult
	for _, m := range all {
		row := lab.Row{Contestant: m.contestant, Params: m.cell, Metrics: map[string]lab.Figure{}}
		for metric, samples := range m.figures {
			row.Metrics[metric.String()] = lab.Summarise("", samples)
		}
		r.Rows = append(r.Rows, row)
	}
	for _, c := range experiment(t, experimentName).Claims {
		if c.Source.ID == id {
			v, ok := c.Judge(lab.View{ExperimentResult: &r})
			if !ok {
				t.Fatalf("%s: not taken", id)
			}
			return v
		}
	}
	t.Fatalf("%s has no claim %s", experimentName, id)
	return lab.Verdict{}
}

func condition(name string) lab.Params { return lab.Params{"condition": name} }

// eightWith are eight rounds of one value, of which the first are others.
func eightWith(rest float64, first ...float64) []float64 {
	return append(slices.Clone(first), slices.Repeat([]float64{rest}, 8-len(first))...)
}

// TestVerdictsOnPorts: verdicts hold from run to run: what two runs of one machine show alike is
// not reproduced once and not reproduced the other time, and what was not asked for does not
// decide.
func TestVerdictsOnPorts(t *testing.T) {
	steady, disturbed := condition("steady"), condition("disturbed")
	udp := func(size string, lost ...float64) taken {
		return taken{
			"net.UDPConn",
			lab.Params{"input": "udp", "bytes": size},
			map[lab.Metric][]float64{lab.LostPercent: lost},
		}
	}
	lost := func(contestant string, cell lab.Params, lost []float64) taken {
		return taken{contestant, cell, map[lab.Metric][]float64{lab.LostFrames: lost, lab.SentFrames: eightWith(470)}}
	}
	brownOut := func(waits, looks []float64) []taken {
		return []taken{lost("tallywheel/blocking", disturbed, waits), lost("tallywheel/hybrid", disturbed, looks)}
	}
	latency := func(contestant string, p99, longest []float64) taken {
		return taken{contestant, steady, map[lab.Metric][]float64{lab.LatencyP99: p99, lab.LatencyMax: longest}}
	}
	faults := func(perFrame ...float64) taken {
		return taken{"os.File", steady, map[lab.Metric][]float64{lab.PageFaultsPerOp: perFrame}}
	}
	grown := func(contestant string, bytes ...float64) taken {
		return taken{contestant, lab.Params{"load": "waves"}, map[lab.Metric][]float64{lab.GrownBytes: bytes}}
	}
	const strategies = "serial-strategies"
	noisy := lab.NotMeasurable
	for _, c := range []struct {
		what, experiment, id string
		rows                 []taken
		want                 string
	}{
		{
			"one round is longer", strategies, "000-45",
			[]taken{latency("article/drop-oldest", eightWith(400), eightWith(900, 13e3))},
			noisy,
		},
		{
			"two are", strategies, "000-45",
			[]taken{latency("article/drop-oldest", eightWith(400), eightWith(900, 13e3, 15e3))},
			noisy,
		},
		{
			"all are", strategies, "000-45",
			[]taken{latency("article/drop-oldest", eightWith(400), eightWith(15e3))},
			lab.NotReproduced,
		},
		{
			"none is", strategies, "000-45",
			[]taken{latency("article/drop-oldest", eightWith(400), eightWith(900))},
			lab.Reproduced,
		},
		{
			"the longest of a reader by select", strategies, "000-36",
			[]taken{latency("article/select", eightWith(400), eightWith(900, 13e3))},
			noisy,
		},
		{
			"two of it", strategies, "000-36",
			[]taken{latency("article/select", eightWith(400), eightWith(900, 13e3, 15e3))},
			noisy,
		},
		{
			"all of it", strategies, "000-36",
			[]taken{latency("article/select", eightWith(400), eightWith(15e3))},
			lab.NotReproduced,
		},
		{"3 faults of 469 frames", strategies, "000-39", []taken{faults(eightWith(0.0064)...)}, lab.Reproduced},
		{"5 of them", strategies, "000-39", []taken{faults(eightWith(0.0107)...)}, lab.Reproduced},
		{"one a frame", strategies, "000-39", []taken{faults(eightWith(1)...)}, lab.NotReproduced},
		{
			"it is about the bound", strategies, "000-39",
			[]taken{faults(eightWith(0.2, 0.05, 0.05, 0.05)...)},
			noisy,
		},
		{
			"0 and 0 are lost", strategies, "000-46",
			brownOut(eightWith(0), eightWith(0)),
			lab.NotReproduced,
		},
		{
			"2 and 0 are lost", strategies, "000-46",
			brownOut(eightWith(0, 2), eightWith(0)),
			lab.NotReproduced,
		},
		{
			"many and 0 are lost", strategies, "000-46",
			brownOut(eightWith(20), eightWith(0)),
			lab.Reproduced,
		},
		{
			"all lose much", strategies, "000-46",
			brownOut(eightWith(20), eightWith(20)),
			lab.NotReproduced,
		},
		{
			"none is lost by poll", strategies, "000-41",
			[]taken{lost("article/poll", steady, eightWith(0))}, // a pty knows no TIOCGSERIAL
			lab.NotMeasurable,
		},
		{"a burst is", strategies, "000-41", []taken{lost("article/poll", steady, eightWith(0, 40))}, noisy},
		{
			"some in each", strategies, "000-41",
			[]taken{lost("article/poll", steady, eightWith(10))},
			lab.NotReproduced,
		},
		{
			"large loses as much as small", "serial-buffer", "000-30",
			[]taken{udp("65536", eightWith(1.85)...), udp("8192", eightWith(2.03)...)},
			lab.NotReproduced,
		},
		{
			"none loses anything", "serial-buffer", "000-30",
			[]taken{udp("65536", eightWith(0)...), udp("8192", eightWith(0)...)},
			lab.NotReproduced,
		},
		{
			"large alone loses", "serial-buffer", "000-30",
			[]taken{udp("65536", eightWith(1.7)...), udp("8192", eightWith(0)...)},
			lab.Reproduced,
		},
		{
			"now this one, now that", "serial-buffer", "000-30",
			[]taken{udp("65536", eightWith(2, 0, 0, 0)...), udp("8192", eightWith(0, 2, 2, 2)...)},
			noisy,
		},
		{
			"as seen", "pool", "000-35",
			[]taken{grown("fixed/8", eightWith(0)...), grown("dynamic/4-16", 0, 32768, 32768, 0, 0, 0, 32768, 0)},
			lab.NotReproduced,
		},
		{
			"as seen the next time", "pool", "000-35",
			[]taken{grown("fixed/8", eightWith(0)...), grown("dynamic/4-16", eightWith(32768)...)},
			lab.NotReproduced,
		},
		{
			"it wanders", "pool", "000-35",
			[]taken{grown("fixed/8", eightWith(32768)...), grown("dynamic/4-16", eightWith(786432)...)},
			lab.Reproduced,
		},
		{
			"both do", "pool", "000-35",
			[]taken{grown("fixed/8", eightWith(786432)...), grown("dynamic/4-16", eightWith(786432)...)},
			lab.NotReproduced,
		},
		{
			"it is about four stacks", "pool", "000-35",
			[]taken{
				grown("fixed/8", eightWith(0)...),
				grown("dynamic/4-16", eightWith(393216, 131072, 131072, 131072)...),
			},
			noisy,
		},
	} {
		if v := judgedBy(t, c.experiment, c.id, c.rows...); v.Verdict != c.want {
			t.Errorf("%s, %s: %+v, want %s", c.id, c.what, v, c.want)
		}
	}
}

// TestThePaceIsNoMeasurement: how long a read of a pty waits is what its sender was told, and no
// verdict is made of it; nor of what it brings.
func TestThePaceIsNoMeasurement(t *testing.T) {
	read := func(rate string, waits, works float64) taken {
		return taken{"os.File", lab.Params{"bytes_per_s": rate}, map[lab.Metric][]float64{
			lab.BlockedP50: eightWith(waits), lab.HandledP50: eightWith(works),
		}}
	}
	for _, waits := range []float64{100, 8300, 1e6} {
		if v := judgedBy(t, "serial-read", "000-23", read("100000", waits, 1)); v.Verdict != lab.NotMeasurable {
			t.Errorf("a read that waits %.0f µs: %+v", waits, v)
		}
		if v := judgedBy(t, "serial-read", "000-20", read("11520", waits, 1)); v.Verdict != lab.NotReproduced {
			t.Errorf("waits %.0f µs, works 1: %+v", waits, v)
		}
		if v := judgedBy(t, "serial-read", "000-20", read("11520", waits, 100)); v.Verdict != lab.NotMeasurable {
			t.Errorf("waits %.0f µs, works 100: %+v", waits, v)
		}
	}
	e := experiment(t, "serial-model")
	m := lab.Metrics{"MB_per_s": 0.01165, "ops_per_s": 90, "ns_per_op": 1, "latency_us_max": 200}
	e.Derive(lab.Params{"baud": "115200"}, time.Second, m)
	if len(m) != 2 || m[lab.SafeBaud.String()] != 100_000 { // 2 bytes × 10 bits ÷ 200 µs
		t.Errorf("serial-model shows %v", m)
	}
	m = lab.Metrics{"predicted_MB_per_s": 0.01152, "ops": 1, "ops_per_s": 1e6, "cpu_percent": 50}
	if e.Derive(lab.Params{"baud": "115200"}, time.Second, m); len(m) != 2 {
		t.Errorf("of arithmetic serial-model shows %v", m)
	}
}

// TestStacksGivenBack: stacks that a pool gave back while it worked are no growth below 0, of which
// no ratio would be.
func TestStacksGivenBack(t *testing.T) {
	m := lab.Metrics{lab.GrownBytes.String(): -65536}
	if experiment(t, "pool").Derive(nil, time.Second, m); m[lab.GrownBytes.String()] != 0 {
		t.Error(m)
	}
}

// TestQuickRoundsFit: the experiments on ports have so few turns in a quick run that the rounds
// which a verdict needs fit into its time, and their claims need no others.
func TestQuickRoundsFit(t *testing.T) {
	// Seconds that the shortest turn takes with its start and end, as seen on two CPUs: of this
	// program, of a smaller one, and more for each hundred ports.
	const own, other, hundredPorts = 0.47, 0.28, 0.35
	for _, name := range []string{"serial-buffer", "serial-ports", "serial-strategies"} {
		e, o := experiment(t, name), lab.Quick()
		var r lab.ExperimentResult
		round := 0.0
		for _, cell := range e.Cells(o) {
			for _, c := range e.Contestants {
				if c.Skip != nil && c.Skip(cell) || c.Seldom != nil && c.Seldom(cell) {
					continue
				}
				round += hundredPorts * float64(cell.Int("ports")) / 100
				if c.Work != nil {
					round += own
				} else {
					round += other
				}
				row := lab.Row{Contestant: c.Name, Params: cell, Metrics: map[string]lab.Figure{}}
				for _, m := range lab.AllMetrics() {
					row.Metrics[m.String()] = lab.Summarise("", eightWith(1))
				}
				r.Rows = append(r.Rows, row)
			}
		}
		counting := 0.0
		if e.Calls {
			counting = 0.6 * float64(len(r.Rows))
		}
		// the rounds may take half as much again, and one that warms up comes before them
		if all := (lab.MinRounds+0.8)*round + counting; all > 1.5*o.Budget.Seconds() {
			t.Errorf("%s: %d turns a round, some %.0f s in all", name, len(r.Rows), all)
		}
		for _, c := range e.Claims {
			if _, ok := c.Judge(lab.View{ExperimentResult: &r}); !ok {
				t.Errorf("%s: %q needs what a quick run does not measure: %s", name, c.Claim, c.Needs)
			}
		}
		if e.Advice(lab.View{ExperimentResult: &r}) == "" {
			t.Errorf("%s: its advice needs what a quick run does not measure", name)
		}
	}
}

// TestEachFaultIsInATurn: the shortest turn that counts has so many faults of each kind that the
// rounds of a verdict have twenty, and a port that is unplugged.
func TestEachFaultIsInATurn(t *testing.T) {
	e := *experiment(t, "serial-strategies")
	e.Cells = func(lab.Options) []lab.Params { return []lab.Params{condition("disturbed"), condition("unplugged")} }
	e.Contestants = slices.DeleteFunc(slices.Clone(e.Contestants), func(c *lab.Contestant) bool {
		return c.Name != "tallywheel/ring" && c.Name != "tallywheel/run"
	})
	e.Base, e.Claims, e.Advice, e.Turn = nil, nil, nil, 150*time.Millisecond
	testenv.Calm(t, func() error {
		o := quickly(t)
		o.Full, o.Budget, o.MaxRounds = true, time.Minute, 1
		r, err := run(t, t.Context(), o, &e)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			want := []lab.Metric{lab.DamagedFrames, lab.DroppedFrames, lab.RepeatedFrames}
			if strings.HasSuffix(row.Contestant, "/run") {
				want = append(want, lab.Unplugged)
			}
			for _, m := range want {
				if n := row.Metrics[m.String()].Median; n < load.FaultsEach || lab.MinRounds*n < 20 {
					t.Errorf("%s, %s: %s %.0f (not run: %q)", row.Contestant, row.Params, m, n, row.NotRun)
				}
			}
		}
		return nil
	})
}

// TestArticlesRings: the articles' two ways to read into a ring read what is sent, and the one that
// asks by ioctl says what the kernel answers.
func TestArticlesRings(t *testing.T) {
	e := *experiment(t, "serial-strategies")
	e.Cells = func(lab.Options) []lab.Params { return []lab.Params{condition("steady")} }
	e.Contestants = slices.DeleteFunc(slices.Clone(e.Contestants), func(c *lab.Contestant) bool {
		return c.Name != "article/poll" && c.Name != "article/drop-oldest"
	})
	e.Base, e.Claims, e.Advice = nil, nil, nil
	testenv.Calm(t, func() error {
		o := quickly(t)
		o.MaxRounds = 1
		r, err := run(t, t.Context(), o, &e)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			sent, lost := row.Metrics[lab.SentFrames.String()].Median, row.Metrics[lab.LostFrames.String()].Median
			if sent == 0 || row.Metrics[lab.LatencyMax.String()].N == 0 {
				t.Fatalf("%s: %+v", row.Contestant, row)
			}
			if asks := row.Contestant == "article/poll"; asks != strings.HasPrefix(row.Said, "ioctl TIOCGSERIAL: ") {
				t.Errorf("%s says %q", row.Contestant, row.Said)
			}
			if lost > 0 {
				return fmt.Errorf("%s: %.0f frames of %.0f are lost", row.Contestant, lost, sent)
			}
		}
		return nil
	})
}

// TestSeldom: a contestant that is for a full run alone in a cell is not in a quick one.
func TestSeldom(t *testing.T) {
	for _, full := range []bool{false, true} {
		e := &lab.Experiment{
			Name: "seldom", Metrics: []lab.Metric{lab.NsPerOp},
			Cells:       func(lab.Options) []lab.Params { return lab.Cells("n", 1, 2) },
			Contestants: []*lab.Contestant{our("a"), our("b").InQuick(lab.Params{"n": "2"})},
		}
		o := quickly(t)
		o.Full, o.Budget, o.MaxRounds = full, time.Millisecond, 1
		r, err := run(t, t.Context(), o, e)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.Rows); full && n != 4 || !full && n != 3 {
			t.Errorf("full %v: %d rows: %+v", full, n, r.Rows)
		}
	}
}
