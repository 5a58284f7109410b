// Package turns measures programs side by side: all contestants take turns in each round, so that what the machine does meanwhile
// meets all of them, and ratios are taken within a round.
package turns

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Contestant is a program that works for a time and says how many operations it did.
type Contestant struct {
	Name string
	Args []string                          // program and arguments
	Ops  func(out []byte) (float64, error) // operations, from its output; nil: it prints "ops N"
}

// Measure is what one round of one contestant gave.
type Measure struct {
	OpsPerS    float64
	CPUUsPerOp float64 // user and system time, µs
}

// Results are the measures of each contestant, one a round.
type Results map[string][]Measure

// Lock keeps other measurements of this machine out until the program ends.
func Lock() error {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "tallywheel-measure.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return os.NewSyscallError("flock", syscall.Flock(int(f.Fd()), syscall.LOCK_EX)) // open until the end, and so is the lock
}

// Build runs a command that makes a contestant, in a directory, and reports whether it worked; if not it says so aloud.
func Build(name, dir string, args ...string) bool {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "not run: %s: %v %s\n", name, err, out)
		return false
	}
	return true
}

// Run lets every contestant work in each round. length is how long each was told to work.
func Run(all []Contestant, rounds int, length time.Duration) (Results, error) {
	results := Results{}
	for round := range rounds {
		for _, c := range all {
			m, err := c.measure(length)
			if err != nil {
				return results, fmt.Errorf("%s: %w", c.Name, err)
			}
			results[c.Name] = append(results[c.Name], m)
			fmt.Fprintf(os.Stderr, "round %d %-24s %10.0f/s %8.2f µs CPU each\n", round+1, c.Name, m.OpsPerS, m.CPUUsPerOp)
		}
	}
	return results, nil
}

func (c Contestant) measure(length time.Duration) (m Measure, err error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, err
	}
	var ops float64
	if c.Ops != nil {
		ops, err = c.Ops(out)
	} else {
		_, err = fmt.Sscanf(strings.TrimSpace(string(out)), "ops %g", &ops)
	}
	if err == nil && ops == 0 {
		err = errors.New("it did nothing")
	}
	m.OpsPerS = ops / length.Seconds()
	m.CPUUsPerOp = float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / ops
	return m, err
}

// FIO reads the operations out of fio's output as JSON, of one job that worked for so long.
func FIO(length time.Duration) func(out []byte) (float64, error) {
	return func(out []byte) (float64, error) {
		type side struct {
			IOPS float64 `json:"iops"`
		}
		var r struct {
			Jobs []struct {
				Read, Write side
			} `json:"jobs"`
		}
		if err := json.Unmarshal(out, &r); err != nil || len(r.Jobs) != 1 {
			return 0, fmt.Errorf("fio's output: %d jobs, %w", len(r.Jobs), err)
		}
		return (r.Jobs[0].Read.IOPS + r.Jobs[0].Write.IOPS) * length.Seconds(), nil
	}
}

// Rate picks the operations a second.
func Rate(m Measure) float64 { return m.OpsPerS }

// CPU picks the CPU time.
func CPU(m Measure) float64 { return m.CPUUsPerOp }

// Column is one figure of a contestant, a round each.
func (r Results) Column(name string, f func(Measure) float64) (v []float64) {
	for _, m := range r[name] {
		v = append(v, f(m))
	}
	return v
}

// Ratio is the median, and in brackets the range, of a figure of one contestant over that of another, round by round; "–" if either
// did not run.
func (r Results) Ratio(a, b string, f func(Measure) float64, scale float64) string {
	x, y := r.Column(a, f), r.Column(b, f)
	if len(x) != len(y) || len(x) == 0 {
		return "–"
	}
	v := make([]float64, len(x))
	for i := range x {
		v[i] = x[i] / y[i] * scale
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", Median(v), slices.Min(v), slices.Max(v))
}

// Spread is the median with the range.
func (r Results) Spread(name string, f func(Measure) float64) string {
	v := r.Column(name, f)
	return fmt.Sprintf("%.0f (%.0f–%.0f)", Median(v), slices.Min(v), slices.Max(v))
}

// Median of at least one figure.
func Median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
