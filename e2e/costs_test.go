package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// costs is how long TestForwardCosts measures each load, of which it has two, three times:
//
//	go test ./e2e -run TestForwardCosts -costs 20s -delay 20ms -v
//
// With -away nobody is at the destination: what that costs is of the log that grows behind it.
var (
	costs = flag.Duration("costs", 0, "TestForwardCosts: how long to measure each time; 0: not at all")
	delay = flag.Duration("delay", 20*time.Millisecond, "TestForwardCosts: batch.delay")
	away  = flag.Bool("away", false, "TestForwardCosts: nobody is at the destination")
)

// clockTicks is how many of the ticks in /proc/PID/stat a second has, on every Linux for programs.
const clockTicks = 100

// TestForwardCosts prints the CPU time of `run` that forwards to the server within, or to nobody,
// beside that of one that does not, at the same time on devices of their own; and how late replay
// was with the first load, on a quiet machine.
func TestForwardCosts(t *testing.T) {
	if *costs == 0 {
		t.Skip("SKIPPED: it measures, and judges nothing; run with -costs 20s on a quiet machine")
	}
	for _, load := range []struct {
		ports, rate int
	}{{1, 400_000}, {64, 11_520}} {
		var ratios []float64
		for round := range 3 {
			forwards := []bool{false, true}
			if round%2 == 1 {
				slices.Reverse(forwards)
			}
			var used [2]time.Duration
			dir := t.TempDir()
			runBoth(t, dir, forwards, load.ports, load.rate, &used)
			ratios = append(ratios, float64(used[1])/float64(used[0]))
			t.Logf("%d × %d B/s: %v without, %v with forward, of %v: %.2f", load.ports, load.rate, used[0], used[1],
				*costs, ratios[round])
			if load.ports == 1 {
				replayed(t, filepath.Join(dir, "false", "data"))
			}
		}
		slices.Sort(ratios)
		t.Logf("%d × %d B/s: with ÷ without forward: %.2f [%.2f–%.2f]", load.ports, load.rate, ratios[1], ratios[0],
			ratios[2])
	}
}

// runBoth runs two recorders at the same time, and puts down what each has used.
func runBoth(t *testing.T, dir string, forwards []bool, ports, rate int, used *[2]time.Duration) {
	var recorders []*recorder
	ctx, cancel := context.WithCancel(t.Context())
	var devices sync.WaitGroup
	for _, with := range forwards {
		at := filepath.Join(dir, strconv.FormatBool(with))
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		var sources strings.Builder
		for n := range ports {
			port, err := serialtest.NewPort(filepath.Join(at, fmt.Sprintf("p%d", n)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = port.Close() })
			fmt.Fprintf(&sources, "  - {id: p%d, serial: {port: %s}, frame: tally128}\n", n, port.Link)
			device := serialtest.NewDevice(port, serialtest.Plan{Rate: rate, Device: uint32(n), Epoch: 1, Seed: 1})
			devices.Go(func() { _ = device.Run(ctx) })
		}
		if with {
			to := "listen: off"
			if *away {
				to = fmt.Sprintf(`urls: ["nats://127.0.0.1:%d"]`, freePort(t))
			}
			fmt.Fprintf(&sources, "forward: [{to: nats, %s, batch: {delay: %v}}]\n", to, *delay)
		}
		recorders = append(recorders, startRecorder(t, at, sources.String()))
	}
	for i, r := range recorders {
		testenv.Until(t, time.Minute, "frames come, and go on", func() bool {
			s := r.sheet(t)
			return s.Ports[ports-1].Frames.Durable > 100 && (!forwards[i] || *away || s.Forward[0].Through > 100)
		})
	}
	before := []time.Duration{cpu(t, recorders[0]), cpu(t, recorders[1])}
	time.Sleep(*costs) // what is measured
	for i, with := range forwards {
		n := 0
		if with {
			n = 1
		}
		used[n] = cpu(t, recorders[i]) - before[i]
	}
	cancel()
	devices.Wait()
	for i, r := range recorders {
		if s := r.stop(t); forwards[i] {
			t.Logf("%d of %d records forwarded, %d behind at the end", s.Forward[0].Through,
				s.Ports[0].Frames.Durable*uint64(ports), s.Forward[0].LagRecords)
		}
	}
}

// cpu is the CPU time of a process so far.
func cpu(t *testing.T, r *recorder) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / clockTicks
}

// replayed plays the first source of a log to a pty, and prints how late that was.
func replayed(t *testing.T, dir string) {
	link := filepath.Join(t.TempDir(), "line")
	p := testenv.Start(t, testenv.Binary(t), "replay", "--dir", dir, "--source", "p0", "--to", "pty:"+link, "--json")
	var port *os.File
	testenv.Until(t, time.Minute, "the port is there", func() (ok bool) {
		var err error
		port, err = os.OpenFile(link, os.O_RDWR, 0)
		return err == nil
	})
	defer port.Close()
	go func() { _, _ = io.Copy(io.Discard, port) }() // ends with the port
	if err := p.Cmd.Wait(); err != nil {
		t.Fatalf("replay: %v: %s", err, p.Err)
	}
	var r struct {
		Frames uint64
		Late   struct {
			P50 time.Duration `json:"p50_ns"`
			P99 time.Duration `json:"p99_ns"`
			Max time.Duration `json:"max_ns"`
		}
	}
	if err := json.Unmarshal([]byte(p.Out.String()), &r); err != nil {
		t.Fatal(err)
	}
	t.Logf("replay at speed 1 of %d frames: late by %v at the median, %v at 99 %%, %v at most", r.Frames, r.Late.P50,
		r.Late.P99, r.Late.Max)
}
