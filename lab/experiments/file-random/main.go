// Command file-random asks: how many random reads of 4 KiB past the page cache can one thread keep going, and what do they
// cost? All contestants take turns in each round, with the same depth and the same batch.
//
//	go run ./lab/experiments/file-random -depth 64 -batch 16 -for 3s -rounds 5
//	go run ./lab/experiments/file-random -depth 8 -batch 1
//
// It makes a file of -size bytes in -dir. It needs a C compiler with liburing for c/liburing, and fio.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

type options struct {
	dir, lock    string
	size         int64
	depth, batch int
	length       time.Duration
	rounds       int
}

// measure is what one round of one contestant gave.
type measure struct{ opsPerS, cpuUsPerOp float64 }

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", ".", "where to make the file: on the disk that is asked about")
	flag.StringVar(&o.lock, "lock", filepath.Join(os.TempDir(), "tallywheel-measure.lock"), "file that keeps other measurements out")
	flag.Int64Var(&o.size, "size", 1<<30, "bytes of the file")
	flag.IntVar(&o.depth, "depth", 64, "reads in flight")
	flag.IntVar(&o.batch, "batch", 16, "reads submitted and reaped at a time")
	flag.DurationVar(&o.length, "for", 3*time.Second, "length of a round")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "file-random:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	l, err := os.OpenFile(o.lock, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tallywheel-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(o.dir, "tallywheel-random.tmp")
	if err := fill(file, o.size); err != nil {
		return err
	}
	defer os.Remove(file)
	all := contestants(dir, file, o)
	results := map[string][]measure{}
	for round := range o.rounds {
		for _, c := range all {
			m, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], m)
			fmt.Fprintf(os.Stderr, "round %d %-20s %9.0f reads/s %6.2f µs CPU a read\n", round+1, c.name, m.opsPerS, m.cpuUsPerOp)
		}
	}
	report(all, results, o)
	return nil
}

// fill writes the file whole, so that no read meets a hole.
func fill(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for at := int64(0); at < size; at += int64(len(b)) {
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return errors.Join(f.Sync(), sys.DropCache(f))
}

// contestant is a program that reads for a time.
type contestant struct {
	name string
	args []string
	ops  func(output []byte, o options) (float64, error)
	o    options
}

func contestants(dir, file string, o options) (all []contestant) {
	seconds := strconv.FormatFloat(o.length.Seconds(), 'f', -1, 64)
	depth, batch := strconv.Itoa(o.depth), strconv.Itoa(o.batch)
	build := func(name string, args ...string) bool {
		c := exec.Command(args[0], args[1:]...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "not run: %s: %v %s\n", name, err, out)
			return false
		}
		return true
	}
	add := func(name string, ops func([]byte, options) (float64, error), args ...string) {
		all = append(all, contestant{name, args, ops, o})
	}
	if _, err := exec.LookPath("fio"); err != nil {
		fmt.Fprintln(os.Stderr, "not run: fio/io_uring:", err)
	} else {
		add("fio/io_uring", fioOps, "fio", "--name=r", "--filename="+file, "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring",
			"--iodepth="+depth, "--iodepth_batch_submit="+batch, "--iodepth_batch_complete_min="+batch, "--iodepth_batch_complete_max="+depth,
			"--norandommap", "--randrepeat=0", "--time_based", "--runtime="+seconds, "--output-format=json")
	}
	if c := dir + "/c-liburing"; build("c/liburing", "cc", "-O2", "-o", c, "lab/contestants/c/uring_random.c", "-luring") {
		add("c/liburing", printedOps, c, file, depth, batch, seconds)
	}
	if ours := dir + "/random"; build("tallywheel/uring", "go", "build", "-o", ours, "./lab/contestants/random") {
		add("tallywheel/uring", printedOps, ours, "uring", file, depth, batch, seconds)
		add("os.File", printedOps, ours, "os", file, depth, batch, seconds)
	}
	return all
}

func (c contestant) run() (m measure, err error) {
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, err
	}
	ops, err := c.ops(out, c.o)
	if err != nil {
		return m, err
	}
	if ops == 0 {
		return m, errors.New("no reads")
	}
	m.opsPerS = ops / c.o.length.Seconds()
	m.cpuUsPerOp = float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / ops
	return m, nil
}

func printedOps(out []byte, _ options) (n float64, err error) {
	_, err = fmt.Sscanf(strings.TrimSpace(string(out)), "ops %g", &n)
	return n, err
}

func fioOps(out []byte, o options) (float64, error) {
	var r struct {
		Jobs []struct {
			Read struct {
				IOPS float64 `json:"iops"`
			} `json:"read"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r.Jobs) != 1 {
		return 0, fmt.Errorf("fio's output: %d jobs, %w", len(r.Jobs), err)
	}
	return r.Jobs[0].Read.IOPS * o.length.Seconds(), nil
}

// report prints medians with the range of the rounds, and the medians of the ratios within each round.
func report(all []contestant, results map[string][]measure, o options) {
	fmt.Printf("random reads of 4 KiB, O_DIRECT, depth %d, batch %d\n", o.depth, o.batch)
	fmt.Printf("%-20s %28s %14s %16s %20s\n", "contestant", "reads/s median (range)", "CPU µs/read", "÷ fio/io_uring", "CPU ÷ c/liburing")
	for _, c := range all {
		ops := column(results[c.name], func(m measure) float64 { return m.opsPerS })
		cpu := column(results[c.name], func(m measure) float64 { return m.cpuUsPerOp })
		fmt.Printf("%-20s %9.0f (%.0f–%.0f) %14.2f %16s %20s\n", c.name, median(ops), slices.Min(ops), slices.Max(ops), median(cpu),
			ratio(ops, column(results["fio/io_uring"], func(m measure) float64 { return m.opsPerS })),
			ratio(cpu, column(results["c/liburing"], func(m measure) float64 { return m.cpuUsPerOp })))
	}
}

func column(all []measure, f func(measure) float64) (v []float64) {
	for _, m := range all {
		v = append(v, f(m))
	}
	return v
}

func ratio(a, b []float64) string {
	if len(a) != len(b) {
		return "–"
	}
	v := make([]float64, len(a))
	for i := range a {
		v[i] = a[i] / b[i]
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median(v), slices.Min(v), slices.Max(v))
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
