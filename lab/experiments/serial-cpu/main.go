// Command serial-cpu asks: what does it cost to read serial ports? It feeds virtual ports at a fixed rate, a write a
// frame, and measures the CPU time that each contestant takes for them, all contestants in turn in each round.
//
//	go run ./lab/experiments/serial-cpu -ports 1 -rate 400000 -for 5s -rounds 5
//	go run ./lab/experiments/serial-cpu -ports 256 -rate 11520
//	go run ./lab/experiments/serial-cpu -rate 0            # as fast as the ports take it
//
// It needs a C compiler for c/epoll and the module lab/contestants/go for go.bug.st/serial.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/turns"
)

// contestant is a way to read the ports. Its command gets the paths of the ports behind its arguments.
type contestant struct {
	name string
	args []string
	// config: the command takes a configuration file instead, which is made for the ports.
	config string
}

// measure is what one round of one contestant gave.
type measure struct {
	cpuPercent float64 // of one CPU
	cpuMsPerMB float64
	mbPerS     float64
	frames     uint64 // that the contestant says it has seen
}

func main() {
	ports := flag.Int("ports", 1, "number of ports")
	rate := flag.Float64("rate", 400_000, "bytes a second and port; 0: as fast as the ports take it")
	length := flag.Duration("for", 5*time.Second, "length of a round")
	rounds := flag.Int("rounds", 5, "rounds")
	only := flag.String("only", "", "contestants whose name has this in it")
	flag.Parse()
	if err := run(*ports, *rate, *length, *rounds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "serial-cpu:", err)
		os.Exit(1)
	}
}

func run(ports int, rate float64, length time.Duration, rounds int, only string) error {
	if err := turns.Lock(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tallywheel-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := build(dir)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c contestant) bool { return !strings.Contains(c.name, only) })
	results := map[string][]measure{}
	for round := range rounds {
		for _, c := range all {
			m, err := c.measure(dir, ports, rate, length)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], m)
			fmt.Fprintf(os.Stderr, "round %d %-28s %6.2f %% CPU %8.2f MB/s\n", round+1, c.name, m.cpuPercent, m.mbPerS)
		}
	}
	report(all, results)
	return nil
}

// build makes the contestants that this machine can run, and says which it cannot.
func build(dir string) ([]contestant, error) {
	var all []contestant
	steps := []struct {
		name string
		cmd  []string
		in   string
		use  []contestant
	}{
		{"c/epoll", []string{"cc", "-O2", "-o", dir + "/c-epoll", "lab/contestants/c/epoll_reader.c"}, ".", []contestant{
			{name: "c/epoll", args: []string{dir + "/c-epoll"}},
		}},
		{"go.bug.st/serial", []string{"go", "build", "-o", dir + "/bugst", "./bugst"}, "lab/contestants/go", []contestant{
			{name: "go.bug.st/serial", args: []string{dir + "/bugst"}},
		}},
		{"tallywheel", []string{"go", "build", "-o", dir + "/ours", "./lab/contestants/tallywheel"}, ".", []contestant{
			{name: "tallywheel/ring", args: []string{dir + "/ours", "latency"}},
			{name: "tallywheel/ring throughput", args: []string{dir + "/ours", "throughput"}},
			{name: "tallywheel/blocking", args: []string{dir + "/ours", "blocking"}},
		}},
		{"tallywheel run", []string{"go", "build", "-o", dir + "/tallywheel", "./cmd/tallywheel"}, ".", []contestant{
			{name: "tallywheel/run", args: []string{dir + "/tallywheel", "run", "--json", "-c"}, config: "latency"},
			{name: "tallywheel/run throughput", args: []string{dir + "/tallywheel", "run", "--json", "-c"}, config: "throughput"},
		}},
	}
	for _, s := range steps {
		c := exec.Command(s.cmd[0], s.cmd[1:]...)
		c.Dir = s.in
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "not run: %s: %v %s\n", s.name, err, out)
			continue
		}
		all = append(all, s.use...)
	}
	if len(all) == 0 {
		return nil, errors.New("no contestant can be built here")
	}
	return all, nil
}

// report prints medians with the range of the rounds, and ratios to c/epoll.
func report(all []contestant, results map[string][]measure) {
	base := 0.0
	fmt.Printf("%-28s %26s %16s %18s %10s\n", "contestant", "CPU % median (range)", "CPU ms/MB", "MB/s", "÷ c/epoll")
	for _, c := range all {
		pick := func(f func(measure) float64) (lo, mid, hi float64) {
			var v []float64
			for _, m := range results[c.name] {
				v = append(v, f(m))
			}
			slices.Sort(v)
			return v[0], v[len(v)/2], v[len(v)-1]
		}
		lo, mid, hi := pick(func(m measure) float64 { return m.cpuPercent })
		_, perMB, _ := pick(func(m measure) float64 { return m.cpuMsPerMB })
		_, mb, _ := pick(func(m measure) float64 { return m.mbPerS })
		if c.name == "c/epoll" {
			base = perMB
		}
		ratio := "–"
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", perMB/base)
		}
		fmt.Printf("%-28s %8.2f (%.2f–%.2f) %16.2f %18.2f %10s\n", c.name, mid, lo, hi, perMB, mb, ratio)
	}
}
