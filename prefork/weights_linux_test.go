package prefork

import (
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestShareOut: connections come to the sockets of an address by the shares that were said last.
func TestShareOut(t *testing.T) {
	s, err := listen(&Config{Listen: anyPort, Workers: 3, Weights: []float64{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	const dials = 1200
	addr := s.addresses()[0]
	for _, shares := range [][]float64{{0.5, 0.25, 0.25}, {0, 1, 0}, {0.9, 0, 0.1}, nil} {
		if err := sys.ShareOut(int(s.slots[0][0].Fd()), shares); err != nil {
			t.Skipf("SKIPPED: the kernel shares no connections out: %v; run this on Linux 5.3 or later", err)
		}
		got := make([]int, 3)
		for range dials / 100 { // before the queues are full
			var open []net.Conn
			for range 100 {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, c)
			}
			for slot := range got {
				got[slot] += waiting(t, s.slots[slot][0])
			}
			for _, c := range open {
				_ = c.Close()
			}
		}
		t.Logf("shares %v: %v", shares, got)
		if shares == nil {
			shares = []float64{1. / 3, 1. / 3, 1. / 3}
		}
		for slot, share := range shares {
			sigma := math.Sqrt(dials * share * (1 - share))
			if math.Abs(float64(got[slot])-dials*share) > 5*sigma {
				t.Errorf("shares %v: %v of %d connections", shares, got, dials)
			}
		}
	}
}

// TestShares: weight × (1 − load), and nothing for who is not there.
func TestShares(t *testing.T) {
	now := time.Now()
	cfg := Config{Weights: []float64{1, 3}, Procs: 1, MaxConns: 100, Limit: Limit{CPU: 0.5, Memory: 1000}}
	at := func(pid int, cpu time.Duration, memory, opened int64) WorkerStatus {
		return WorkerStatus{PID: pid, CPU: cpu, Resident: memory, Count: Count{Opened: opened}}
	}
	for name, c := range map[string]struct {
		slots []WorkerStatus
		want  []float64
	}{
		"idle": {[]WorkerStatus{at(1, 0, 0, 0), at(2, 0, 0, 0)}, []float64{0.25, 0.75}},
		"half of its CPU": {
			[]WorkerStatus{at(1, 0, 0, 0), at(2, 250*time.Millisecond, 0, 0)},
			[]float64{1 / 2.5, 1.5 / 2.5},
		},
		"half its memory": {[]WorkerStatus{at(1, 0, 0, 0), at(2, 0, 500, 0)}, []float64{1 / 2.5, 1.5 / 2.5}},
		"half its places": {[]WorkerStatus{at(1, 0, 0, 0), at(2, 0, 400, 50)}, []float64{1 / 2.5, 1.5 / 2.5}},
		"full":            {[]WorkerStatus{at(1, 0, 0, 0), at(2, 0, 0, 100)}, []float64{1 / 1.15, 0.15 / 1.15}},
		"beyond its CPU": {
			[]WorkerStatus{at(1, 0, 0, 0), at(2, 2*time.Second, 0, 0)},
			[]float64{1 / 1.15, 0.15 / 1.15},
		},
		"another worker":    {[]WorkerStatus{at(1, 0, 0, 0), at(3, time.Hour, 0, 0)}, []float64{0.25, 0.75}},
		"only one is there": {[]WorkerStatus{at(0, 0, 0, 0), at(2, 0, 0, 0)}, []float64{0, 1}},
		"none is there":     {[]WorkerStatus{at(0, 0, 0, 0), at(0, 0, 0, 0)}, []float64{0.5, 0.5}},
	} {
		got := sharesOf(&cfg, c.slots, []look{{now.Add(-time.Second), 1, 0}, {now.Add(-time.Second), 2, 0}}, now)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	cfg = Config{Weights: []float64{1}, Procs: 1}
	if got := sharesOf(&cfg, []WorkerStatus{at(1, 0, 0, 30), at(2, 0, 0, 10)}, make([]look, 2),
		now); math.Abs(got[0]-0.25) > 1e-9 {
		t.Errorf("30 and 10 connections without a limit: %v", got)
	}
}

// TestWeights: the slot with nearly all weight gets nearly all connections, until its worker is
// full of them.
func TestWeights(t *testing.T) {
	t.Parallel()
	r := start(t, appConfig{Config: Config{
		Listen: anyPort, Workers: 2, Weights: []float64{1, 1e6}, MaxConns: 20,
		StartFor: patience,
	}}, nil)
	if !strings.Contains(r.said.String(), "shares=weights") {
		t.Skip("SKIPPED: the kernel takes no weights; SO_ATTACH_REUSEPORT_CBPF is Linux 4.5")
	}
	for range 64 {
		if a, err := r.get(""); err != nil || a.Slot != 1 {
			t.Fatalf("slot %d answers: %v", a.Slot, err)
		}
	}
	for range 19 { // places that are taken
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	testenv.Until(t, patience, "the share of who is nearly full falls",
		func() bool { return r.status()[1].Share < 1-1e-6*10 })
}

// TestWeightsThatCannotBe are refused.
func TestWeightsThatCannotBe(t *testing.T) {
	for want, cfg := range map[string]Config{
		"want each above 0":       {Listen: anyPort, Weights: []float64{1, 0}},
		"Weights are [NaN]":       {Listen: anyPort, Weights: []float64{math.NaN()}},
		"a socket for each slot":  {Listen: anyPort, Weights: []float64{1}, Shared: true},
		"that systemd passes":     {Weights: []float64{1}},
		"Weights are [+Inf]: wan": {Listen: anyPort, Weights: []float64{math.Inf(1)}},
	} {
		if _, err := cfg.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg.Weights, err)
		}
	}
}
