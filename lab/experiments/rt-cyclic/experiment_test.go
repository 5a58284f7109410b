package rtcyclic

import (
	"bytes"
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

// TestHistogramOfCyclictest reads what cyclictest -q -h prints.
func TestHistogramOfCyclictest(t *testing.T) {
	m, err := readHistogram([]byte(`# /dev/cpu_dma_latency set to 0us
# Histogram
000000 000000
000002 000600
000003 000398
000400 000002
# Total: 000001000
# Min Latencies: 00002
# Avg Latencies: 00003
# Max Latencies: 00400
# Histogram Overflows: 00000
`), time.Second)
	if err != nil || m["ops"] != 1000 || m["latency_us_p50"] != 2 || m["latency_us_p90"] != 3 ||
		m["latency_us_p99"] != 3 || m["latency_us_max"] != 400 {
		t.Errorf("%v: %v", m, err)
	}
	if _, there := m["latency_us_p999"]; there {
		t.Error("one wake-up decides about 99.9 %")
	}
	if _, err := readHistogram([]byte("# Histogram\n000000 000000\n"), time.Second); err == nil {
		t.Error("nothing is a histogram")
	}
}
