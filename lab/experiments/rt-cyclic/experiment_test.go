package rtcyclic

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/uring"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cell.Main()
	os.Exit(m.Run())
}

// TestOurs: each contestant of ours wakes up for its periods, and says how late.
func TestOurs(t *testing.T) {
	for _, c := range []*lab.Contestant{ofCell, raw, syscall, timerfd, uringTimeout, ticker, sleep} {
		if err := uring.Probe().Has(uring.Rings); c == uringTimeout && err != nil {
			continue
		}
		for _, l := range []string{load.None, load.SameGC} {
			var out bytes.Buffer
			turn, err := contestant.New([]string{"own", "seconds=0.02", "interval_us=1000", "load=" + l},
				strings.NewReader("go\n"), &out)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Work(turn); err != nil {
				t.Errorf("%s, %s: %v", c.Name, l, err)
			}
			for _, want := range []string{
				"\nBenchmarkOwn 20 ", " missed_releases", " latency_us_p50",
				" latency_us_max",
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s, %s: no %q in %q", c.Name, l, want, out.String())
				}
			}
		}
	}
}

// TestBurdensEnd: what loads the machine ends when it is told to.
func TestBurdensEnd(t *testing.T) {
	for _, kind := range []string{load.None, load.CPU, load.Memory, load.GC} {
		load.Burden(kind)()
	}
}

// TestReadCyclictest reads what cyclictest -N -v prints.
func TestReadCyclictest(t *testing.T) {
	out := "WARN: not setting cpu_dma_latency from cyclictest\nMax CPUs = 2\nThread 0 Interval: 1500\n"
	for i := range 1000 {
		out += fmt.Sprintf("%8d:%8d:%8d\n", 0, i, 2000+i)
	}
	m, err := readCyclictest([]byte(out), time.Second)
	if err != nil || m["ops"] != 1000 || m["latency_us_p50"] != 2.5 || m["latency_us_p90"] != 2.9 ||
		m["latency_us_p99"] != 2.99 || m["latency_us_max"] != 2.999 {
		t.Errorf("%v: %v", m, err)
	}
	if _, there := m["latency_us_p999"]; there {
		t.Error("one wake-up decides about 99.9 %")
	}
	if _, err := readCyclictest([]byte("Thread 0 Interval: 1500\n"), time.Second); err == nil {
		t.Error("nothing is a latency")
	}
}

// TestAgreement: cyclictest and our program agree by rounds in which both are within 10 % of each
// other, at the median and at 99 %; one that is off is seen, and where one has not run it is said.
func TestAgreement(t *testing.T) {
	var claim lab.Claim
	for _, c := range judges() {
		if strings.HasPrefix(c.Claim, "cyclictest and a program of ours") {
			claim = c
		}
	}
	rounds := func(us float64) (v []float64) {
		for i := range 12 {
			v = append(v, us*(1+0.005*float64(i%3)))
		}
		return v
	}
	quiet := lab.Summarise("%", make([]float64, 12))
	row := func(c *lab.Contestant, p50, p99 float64) lab.Row {
		return lab.Row{Contestant: c.Name, Params: idle, Metrics: map[string]lab.Figure{
			"latency_us_p50": lab.Summarise("µs", rounds(p50)), "latency_us_p99": lab.Summarise("µs", rounds(p99)),
			"others_percent": quiet, "steal_percent": quiet, "throttled": quiet,
		}}
	}
	ours := row(c, 4, 9)
	for want, rows := range map[string][]lab.Row{
		lab.Reproduced:    {row(reference, 4.1, 9.3), ours},
		lab.NotReproduced: {row(reference, 4.1, 12), ours},
		lab.NotMeasurable: {{Contestant: reference.Name, Params: idle, NotRun: "no cyclictest"}, ours},
	} {
		v, ok := claim.Judge(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: rows}})
		if !ok || v.Verdict != want {
			t.Errorf("%+v, want %s", v, want)
		}
	}
}
