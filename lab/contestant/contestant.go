// Package contestant is the laboratory's protocol, for contestants that are written in Go. It needs
// the standard library alone, so that peers in modules of their own can use it.
//
// # The protocol
//
// A contestant is a program. It is called with a name, which says which of several things it shall
// do, and with parameters, KEY=VALUE.
//
//  1. It prepares, and prints the line "ready".
//  2. It waits for the line "go" on its standard input.
//  3. It works: for as many seconds as the parameter "seconds" says, or, where others send it data,
//     until its standard input ends.
//  4. If it has worked for its time, it prints the line "done" and waits until its standard input
//     ends: the moment at which it is looked at.
//  5. It prints its results as lines of a Go benchmark, BenchmarkNAME OPS VALUE UNIT …, where OPS
//     is how many operations it did, "ns/op" the time on the clock divided by that, and every other
//     unit a metric's name; and ends with exit status 0.
//
// A line "found: TEXT" before that says in words what it found out.
//
// What goes wrong is said on standard error, with another exit status. Whoever runs it counts the
// rest: CPU time, switches, faults, memory.
package contestant

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Value is a figure of one metric.
type Value struct {
	Metric string // such as latency_us_p99
	V      float64
}

// Turn is one turn of a contestant.
type Turn struct {
	Name string

	params map[string]string
	in     *bufio.Reader
	out    io.Writer
	began  time.Time
}

// New reads what is to be done from arguments: the name, then KEY=VALUE.
func New(args []string, in io.Reader, out io.Writer) (*Turn, error) {
	if len(args) == 0 {
		return nil, errors.New("want NAME KEY=VALUE …")
	}
	t := &Turn{Name: args[0], params: map[string]string{}, in: bufio.NewReader(in), out: out}
	for _, a := range args[1:] {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", a)
		}
		t.params[k] = v
	}
	return t, nil
}

// Work is what a contestant does in a turn.
type Work func(*Turn) error

// Main runs a contestant program: work does what the turn says, and its error ends the program.
func Main(work Work) {
	t, err := New(os.Args[1:], os.Stdin, os.Stdout)
	if err == nil {
		err = work(t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Text is a parameter; "" if there is none.
func (t *Turn) Text(key string) string { return t.params[key] }

// Int is a parameter that is a whole number, or otherwise if it was not given or is not one.
func (t *Turn) Int(key string, otherwise int) int {
	if n, err := strconv.Atoi(t.params[key]); err == nil {
		return n
	}
	return otherwise
}

// Paths is the parameter "paths", a list with commas.
func (t *Turn) Paths() []string { return strings.Split(t.params["paths"], ",") }

// Seconds is how long to work: the parameter "seconds", or 1.
func (t *Turn) Seconds() time.Duration {
	s, err := strconv.ParseFloat(t.params["seconds"], 64)
	if err != nil || s <= 0 {
		return time.Second
	}
	return time.Duration(s * float64(time.Second))
}

// Ready says that all is prepared, waits for the start, and returns when the work is to end.
func (t *Turn) Ready() (until time.Time, err error) {
	if _, err := fmt.Fprintln(t.out, "ready"); err != nil {
		return until, err
	}
	line, err := t.in.ReadString('\n')
	if err != nil || line != "go\n" {
		return until, fmt.Errorf("no go, but %q: %w", line, err)
	}
	t.began = time.Now()
	return t.began.Add(t.Seconds()), nil
}

// End waits until the standard input ends.
func (t *Turn) End() { _, _ = io.Copy(io.Discard, t.in) }

// Done ends the work of a contestant that has worked for its time: it says so, waits until it has
// been looked at, and returns how long the work took.
func (t *Turn) Done() (took time.Duration, err error) {
	took = time.Since(t.began)
	_, err = fmt.Fprintln(t.out, "done")
	t.End()
	return took, err
}

// Elapsed is the time since the start.
func (t *Turn) Elapsed() time.Duration { return time.Since(t.began) }

// Result prints the line of results: what was done in the time that the work took.
func (t *Turn) Result(took time.Duration, ops uint64, values ...Value) error {
	if ops == 0 {
		return errors.New("it did nothing")
	}
	line := fmt.Sprintf("Benchmark%s %d %g ns/op", strings.ToUpper(t.Name[:1])+t.Name[1:], ops,
		float64(took.Nanoseconds())/float64(ops))
	for _, v := range values {
		line += fmt.Sprintf(" %g %s", v.V, v.Metric)
	}
	_, err := fmt.Fprintln(t.out, line)
	return err
}

// FoundPrefix begins a line that says what a contestant found out.
const FoundPrefix = "found: "

// Answer ends a turn that has asked the machine something, by yes or no: what was found out, in one
// line, is said beside the answer.
func (t *Turn) Answer(yes bool, format string, args ...any) error {
	if _, err := t.Ready(); err != nil {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	if err := t.Found(format, args...); err != nil {
		return err
	}
	v := Value{Metric: "answer"}
	if yes {
		v.V = 1
	}
	return t.Result(max(1, took), 1, v)
}

// Finding is an answer, by yes or no, and in words what shows it.
type Finding struct {
	Yes  bool
	Text string
}

// Asks is a contestant that tries something once, and answers; the error says why it cannot be
// tried here.
func Asks(try func(*Turn) (Finding, error)) Work {
	return func(t *Turn) error {
		f, err := try(t)
		if err != nil {
			return err
		}
		return t.Answer(f.Yes, "%s", f.Text)
	}
}

// Found says in one line what was found out, beside the figures.
func (t *Turn) Found(format string, args ...any) error {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	_, err := fmt.Fprintln(t.out, FoundPrefix+text)
	return err
}

// Latencies summarises latencies in ns: the values at 50, 90, 99, 99.9 and 99.99 % and the longest,
// in µs. It sorts ns. A percentile that has fewer than five values beyond it is left out: it would
// be an accident.
func Latencies(ns []int64) (v []Value) {
	if len(ns) == 0 {
		return nil
	}
	slices.Sort(ns)
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}} {
		if beyond := float64(len(ns)) * (1 - p.p); p.p < 0.99 || beyond >= 5 {
			v = append(v, Value{"latency_us_" + p.name, float64(ns[int(float64(len(ns))*p.p)]) / 1e3})
		}
	}
	return append(v, Value{"latency_us_max", float64(ns[len(ns)-1]) / 1e3})
}
