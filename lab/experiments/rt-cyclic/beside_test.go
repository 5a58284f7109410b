package rtcyclic

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/cell/cyclic"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/rt"
)

var besideFor = flag.Duration("beside", 0,
	"how long TestCellBesideC has a cell and a program in C keep 1 ms; make soak-cell has half an hour")

const (
	besidePeriod  = time.Millisecond
	besideQuickly = 300 * time.Millisecond
	besideMargin  = time.Second // that the program in C goes on behind the cell
)

// alone are the releases that the cell missed and the program in C did not: it missed none within a
// period of that. Both keep the same grid.
func alone(ofCell, ofC []time.Duration) (left []time.Duration) {
	for _, r := range ofCell {
		if !slices.ContainsFunc(ofC, func(c time.Duration) bool { return (c - r).Abs() <= besidePeriod }) {
			left = append(left, r)
		}
	}
	return left
}

func TestAlone(t *testing.T) {
	const ms = time.Millisecond
	got := alone([]time.Duration{10 * ms, 11 * ms, 20 * ms, 33 * ms}, []time.Duration{11 * ms, 34 * ms, 50 * ms})
	if !slices.Equal(got, []time.Duration{20 * ms}) {
		t.Errorf("%v", got)
	}
}

// gaps notes which releases are missing in the samples of a cell.
type gaps struct {
	first, last time.Duration
	missed      []time.Duration
	begun       chan time.Duration // told the first release
}

func (g *gaps) sample(s cyclic.Sample) {
	if g.first == 0 {
		g.first = s.Release
		g.begun <- s.Release
	} else {
		for r := g.last + besidePeriod; r < s.Release; r += besidePeriod {
			g.missed = append(g.missed, r)
		}
	}
	g.last = s.Release
}

// TestCellBesideC: on one CPU, at the same moments and with the same priority, a cell misses no
// release that a program in C does not miss, too: what takes the CPU from both is the machine's.
// That is asked for with -beside only, of a machine that does nothing else; else both just work.
func TestCellBesideC(t *testing.T) {
	testenv.Program(t, "cc", "apt install gcc")
	program := filepath.Join(t.TempDir(), "cyclic")
	build := exec.Command("cc", "-O2", "-o", program, "../../contestants/c/cyclic.c", "-lm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	length := max(*besideFor, besideQuickly)
	cpus, err := rt.Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	cpu := cpus[len(cpus)-1]
	ctx, cancel := context.WithTimeout(t.Context(), length+time.Minute)
	defer cancel()
	g := &gaps{begun: make(chan time.Duration, 1)}
	var result cyclic.Result
	ended := make(chan error, 1)
	go func() {
		var err error
		result, err = cyclic.Run(ctx, cyclic.Config{
			Style: cyclic.Cell, Interval: besidePeriod, Count: uint64(length / besidePeriod), Priority: priority,
			CPU: rt.CPUs{cpu}, Sample: g.sample,
		})
		ended <- err
	}()
	var phase time.Duration
	select {
	case release := <-g.begun:
		phase = release % besidePeriod
	case err := <-ended:
		t.Fatalf("the cell ended before its first period: %v", err)
	}
	from, ofC, said, err := besideC(ctx, program, phase, length+besideMargin, cpu)
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	compared := slices.DeleteFunc(slices.Clone(g.missed), func(r time.Duration) bool { return r < from })
	left := alone(compared, ofC)
	t.Logf("cell: %d periods, %d missed, %d of them beside C; p99 %v, longest %v. C: %d missed; %s", result.Cycles,
		result.Missed, len(compared), result.Latency.Quantile(0.99), result.Latency.Max, len(ofC), said)
	if result.Cycles != uint64(length/besidePeriod) || result.LostSamples > 0 ||
		uint64(len(g.missed)) > result.Missed || from%besidePeriod != phase {
		t.Errorf("%d periods of %v, %d samples lost, %d of %d missed releases noted; C begins at %v, the cell keeps %v",
			result.Cycles, length, result.LostSamples, len(g.missed), result.Missed, from, phase)
	}
	if *besideFor == 0 {
		return
	}
	if len(result.Lacking) > 0 {
		t.Skipf("SKIPPED: the cell lacks %q; run this as root", result.Lacking)
	}
	if len(left) > 0 {
		t.Errorf("%d releases that the cell missed, and C did not: %v", len(left), left)
	}
}

// besideC runs the program in C by the laboratory's protocol, and returns its first release, those
// that it missed, and its line of results.
func besideC(ctx context.Context, program string, phase, length time.Duration, cpu int) (from time.Duration,
	missed []time.Duration, said string, err error,
) {
	c := exec.CommandContext(ctx, program, "cyclic", "how=nanosleep",
		fmt.Sprintf("interval_us=%d", besidePeriod.Microseconds()), fmt.Sprintf("seconds=%g", length.Seconds()),
		fmt.Sprintf("phase_ns=%d", phase.Nanoseconds()), fmt.Sprintf("cpu=%d", cpu))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return 0, nil, "", err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return 0, nil, "", err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "ready":
			_, err = io.WriteString(in, "go\n")
		case line == "done":
			err = errors.Join(err, in.Close())
		case strings.HasPrefix(line, "Benchmark"):
			said = line
		default:
			var what string
			var ns int64
			if _, scanErr := fmt.Sscanf(line, "%s %d", &what, &ns); scanErr != nil {
				err = errors.Join(err, fmt.Errorf("%q: %w", line, scanErr))
			}
			if what == "first:" {
				from = time.Duration(ns)
			} else {
				missed = append(missed, time.Duration(ns))
			}
		}
	}
	if waitErr := c.Wait(); err == nil {
		err = waitErr
	}
	if err == nil && (said == "" || from == 0) {
		err = errors.New("the program in C has no result")
	}
	return from, missed, said, err
}
