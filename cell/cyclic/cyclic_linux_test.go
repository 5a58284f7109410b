package cyclic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/uring"
)

// asProgram has this program measure a style, and say what it had.
const asProgram = "TALLYWHEEL_TEST_CYCLIC"

func TestMain(m *testing.M) {
	cell.Main()
	if style := os.Getenv(asProgram); style != "" {
		cfg := Config{Style: Style(style), Interval: time.Millisecond, Count: 3, Priority: 3}
		r, err := Run(context.Background(), cfg)
		fmt.Println(Line(cfg, r), err)
		for _, l := range r.Lacking {
			fmt.Println("lacks:", l)
		}
		os.Exit(0)
	}
	testenv.NoLeaks(m)
}

// TestStyles: each style wakes up for each release of one grid, none before it, and tells each
// once.
func TestStyles(t *testing.T) {
	for _, style := range Styles() {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			if err := uring.Probe().Has(uring.Rings); style == Uring && err != nil {
				t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			}
			const period = 3 * time.Millisecond
			var all []Sample
			r, err := Run(t.Context(),
				Config{Style: style, Interval: period, Count: 50, Sample: func(s Sample) { all = append(all, s) }})
			if err != nil || r.Cycles != 50 || r.Latency.Count != 50 || len(all) != 50 || r.LostSamples != 0 ||
				r.TID == 0 {
				t.Fatalf("%d samples, %+v: %v", len(all), r, err)
			}
			missed := uint64(0)
			for i, s := range all {
				if s.Woke < s.Release {
					t.Errorf("%d: woke %v early", i, s.Release-s.Woke)
				}
				if i == 0 {
					continue
				}
				step := s.Release - all[i-1].Release
				if step%period != 0 || step <= 0 {
					t.Fatalf("%d: a release %v behind the one before", i, step)
				}
				missed += uint64(step/period) - 1
			}
			if r.Missed < missed { // those behind the last one count, too
				t.Errorf("%d missed by the samples, %d by the account", missed, r.Missed)
			}
		})
	}
}

func TestEndsWithItsContext(t *testing.T) {
	for _, style := range []Style{Cell, Ticker} {
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		r, err := Run(ctx, Config{Style: style, Interval: time.Millisecond, Watch: func(r Result) {
			if seen++; r.TID == 0 {
				t.Error("no thread")
			}
			if r.Cycles > 0 { // not yet on a busy machine
				cancel()
			}
		}})
		if err != nil || r.Cycles == 0 || seen == 0 {
			t.Errorf("%s: %+v after %d looks: %v", style, r, seen, err)
		}
		cancel()
	}
}

// TestWithoutRights shows the priority that a thread has, not the one that it was refused.
func TestWithoutRights(t *testing.T) {
	has := "P: 3 I:1000 "
	if err := rt.TryScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 3}); err != nil {
		has = "P: 0 I:1000 "
	}
	by := map[string][]string{has: nil}
	if os.Geteuid() == 0 {
		setpriv := testenv.Program(t, "setpriv", "apt install util-linux")
		by["P: 0 I:1000 "] = []string{setpriv, "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"}
	}
	for want, by := range by {
		for _, style := range []Style{Cell, Ticker} {
			command := append(by, os.Args[0])
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Env = append(os.Environ(), asProgram+"="+string(style))
			out, err := cmd.CombinedOutput()
			if refused := strings.Contains(string(out), "lacks: scheduling fifo 3: "); err != nil ||
				!strings.Contains(string(out), want) || refused != strings.HasPrefix(want, "P: 0") {
				t.Errorf("%s: %v: %s; want %q", style, err, out, want)
			}
		}
	}
}

func TestBadConfigs(t *testing.T) {
	for want, cfg := range map[string]Config{
		`style "tea"`:                     {Style: "tea", Interval: time.Millisecond},
		"an interval of 0s: want":         {Style: Ticker},
		"an interval of 1ns: want":        {Style: Cell, Interval: 1},
		"an interval of 8760h0m0s: want":  {Style: Raw, Interval: 365 * 24 * time.Hour},
		"priority 100: want":              {Style: Sleep, Interval: time.Millisecond, Priority: 100},
		`CPUs "999": sched_setaffinity: `: {Style: Sleep, Interval: time.Millisecond, CPU: rt.CPUs{999}},
	} {
		_, err := Run(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, cell.ErrConfig) != (cfg.CPU == nil) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestShown draws a histogram of three latencies, and a line as cyclictest's.
func TestShown(t *testing.T) {
	a := cell.NewAccount(time.Millisecond)
	for i, late := range []time.Duration{2 * time.Microsecond, 2 * time.Microsecond, 3 * time.Microsecond} {
		a.Woke(time.Duration(i+1)*time.Millisecond, time.Duration(i+1)*time.Millisecond+late)
	}
	s := a.Stats()
	want := "       2.00 µs         2  ▇▇▇▇\n       2.51 µs         1  ▇▇\n"
	if got := Histogram(s.Latency, 4); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want = "T: 0 (   17) P:80 I:1000 C:      3 Min:      2 Act:    3 Avg:    2 Max:       3"
	r := Result{Stats: s, TID: 17, Priority: 80}
	if got := Line(Config{Interval: time.Millisecond, Priority: 90}, r); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Histogram(cell.Latency{}, 4); got != "" {
		t.Errorf("%q of nothing", got)
	}
}
