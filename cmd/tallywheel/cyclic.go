package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/cell/cyclic"
	"github.com/tallywheel/tallywheel/rt"
)

// styleC is a contestant of the laboratory, which builds it where there is a compiler: this program
// has none of C in it.
const styleC = "C"

// cyclicFlags is the flags of cyclic.
type cyclicFlags struct {
	cfg       cyclic.Config
	cpus, tsv string
	histogram bool
	asJSON    bool
}

func newCyclic() *cobra.Command {
	var f cyclicFlags
	c := &cobra.Command{
		Use: "cyclic", Short: "wake up each period and say how late: wake-up latency on this machine",
		Long: `Wakes up at the beginning of each period and does nothing else, as cyclictest does in C, by the way of waiting that is
chosen, and says how late that was, in µs:

  cell      a process of package cell: no garbage collector, locked memory, a thread of its own that keeps time
  raw       clock_nanosleep in a raw system call          syscall   clock_nanosleep
  timerfd   a timerfd, through the poller of Go's runtime uring     a time-out of io_uring
  ticker    time.Ticker                                   sleep     time.Sleep

The cell's steps allocate nothing. What it reports of allocations, 8 a second, is of the NATS server that forward has in
this program: it looks at its process once a second, also where nobody uses it.

A program in C is measured beside them by the laboratory: tallywheel lab run rt-cyclic. Without the right to a real-time
priority it runs on as an ordinary thread, and says what is missing.`,
		Example: "  tallywheel cyclic --interval 5ms --count 1000 --cpu 1 --priority 80 --histogram",
		Args:    exactly(0, "no argument"),
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fl := c.Flags()
	addWord(c, &f.cfg.Style, "style", cyclic.Cell, append(cyclic.Styles(), styleC), "how to wait")
	addSpan(c, &f.cfg.Interval, "interval", 5*time.Millisecond, false,
		fmt.Sprintf("period, %v to %v", cell.MinPeriod, cell.MaxPeriod))
	fl.Uint64Var(&f.cfg.Count, "count", 1000, "periods; 0: until it is interrupted")
	fl.StringVar(&f.cpus, "cpu", "", "CPU to run on, or several: 1, 0,2-3; default: all")
	fl.IntVar(&f.cfg.Priority, "priority", 80, "in SCHED_FIFO, 1 to 99; 0: an ordinary thread")
	fl.BoolVar(&f.histogram, "histogram", false, "draw the latencies below; with --json: histogram_ns")
	fl.StringVar(&f.tsv, "tsv", "",
		"write each wake-up to a file: cycle, release, wake-up, latency and period in ns; -: to stdout, alone")
	fl.BoolVar(&f.asJSON, "json", false, "print the result as JSON, on one line")
	return c
}

func (f *cyclicFlags) run(c *cobra.Command) (err error) {
	if f.cfg.Style == styleC {
		return fmt.Errorf("%w: cyclic: style C is a program in C, which the laboratory builds and measures: tallywheel lab run rt-cyclic --only c/", errUsage)
	}
	if f.cpus != "" {
		if f.cfg.CPU, err = rt.ParseCPUs(f.cpus); err != nil {
			return fmt.Errorf("%w: --cpu: %w", errUsage, err)
		}
	}
	out, talk := c.OutOrStdout(), c.ErrOrStderr()
	end := func() error { return nil }
	if f.tsv != "" {
		if f.cfg.Sample, end, err = tsv(f.tsv, out); err != nil {
			return err
		}
	}
	live := false
	if t, ok := talk.(*os.File); ok && terminal(t) {
		live = true
		f.cfg.Watch = func(r cyclic.Result) { fmt.Fprint(talk, "\r", cyclic.Line(f.cfg, r)) }
	}
	r, err := cyclic.Run(c.Context(), f.cfg)
	if live {
		fmt.Fprint(talk, "\r\x1b[K")
	}
	if errors.Is(err, cell.ErrConfig) {
		err = fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	for _, l := range r.Lacking {
		fmt.Fprintf(talk, "tallywheel: not as it should be: %s\n", l)
	}
	if r.LostSamples > 0 {
		fmt.Fprintf(talk, "tallywheel: %d wake-ups are not in %s: it was written too slowly\n", r.LostSamples, f.tsv)
	}
	switch {
	case f.asJSON:
		return json.NewEncoder(out).Encode(f.result(r))
	case f.tsv == "-":
		return nil
	}
	return f.print(out, r)
}

// print says what was measured, as cyclictest does; then what that does not say.
func (f *cyclicFlags) print(out io.Writer, r cyclic.Result) error {
	var b strings.Builder
	fmt.Fprintln(&b, cyclic.Line(f.cfg, r))
	q := func(share float64) float64 { return float64(r.Latency.Quantile(share).Nanoseconds()) / 1e3 }
	fmt.Fprintf(&b,
		"latency, µs: p50 %.1f, p99 %.1f, p99.9 %.1f; standard deviation of the period %.1f; %d releases missed\n",
		q(0.5), q(0.99), q(0.999), float64(r.PeriodStddev.Nanoseconds())/1e3, r.Missed)
	if f.cfg.Style == cyclic.Cell {
		fmt.Fprintf(&b,
			"behind the set-up: %d page faults, %d of them from a disk; %d involuntary switches; %d allocations of the whole process; longest wait for Go's scheduler, between the periods, %v\n",
			r.MinorFaults+r.MajorFaults, r.MajorFaults, r.Involuntary, r.Allocs,
			r.LongestYield.Round(100*time.Nanosecond))
	}
	if f.histogram {
		b.WriteString(cyclic.Histogram(r.Latency, 60))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// cyclicJSON is the result as --json prints it. Times are in ns.
type cyclicJSON struct {
	Style        cyclic.Style     `json:"style"`
	Interval     int64            `json:"interval_ns"`
	Count        uint64           `json:"count"`
	Missed       uint64           `json:"missed"`
	PeriodStddev int64            `json:"period_stddev_ns"`
	Latency      latencyJSON      `json:"latency_ns"`
	Priority     int              `json:"priority"` // that it had
	Lacking      []string         `json:"lacking,omitempty"`
	Cell         map[string]int64 `json:"cell,omitempty"` // counted behind its set-up
	Histogram    []rowJSON        `json:"histogram_ns,omitempty"`
}

type rowJSON struct {
	From  int64  `json:"from"`
	Count uint64 `json:"count"`
}

type latencyJSON struct {
	Min  int64 `json:"min"`
	P50  int64 `json:"p50"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

func (f *cyclicFlags) result(r cyclic.Result) cyclicJSON {
	l := r.Latency
	j := cyclicJSON{
		Style: f.cfg.Style, Interval: int64(f.cfg.Interval), Count: r.Cycles, Missed: r.Missed,
		PeriodStddev: int64(r.PeriodStddev),
		Latency: latencyJSON{
			int64(l.Min), int64(l.Quantile(0.5)), int64(l.Quantile(0.99)), int64(l.Quantile(0.999)),
			int64(l.Max),
		},
		Priority: r.Priority, Lacking: r.Lacking,
	}
	if f.cfg.Style == cyclic.Cell {
		j.Cell = map[string]int64{
			"page_faults": int64(r.MinorFaults + r.MajorFaults), "major_faults": int64(r.MajorFaults),
			"involuntary_switches": int64(r.Involuntary),
			"allocs":               int64(r.Allocs), "longest_step_ns": int64(r.LongestStep),
			"longest_yield_ns": int64(r.LongestYield),
		}
	}
	if f.histogram {
		for _, row := range cyclic.Rows(l) {
			j.Histogram = append(j.Histogram, rowJSON{int64(row.From), row.Count})
		}
	}
	return j
}

// tsv writes wake-ups to a file, or to stdout. end says whether all were written.
func tsv(path string, stdout io.Writer) (sample func(cyclic.Sample), end func() error, err error) {
	var file *os.File
	to := stdout
	if path != "-" {
		if file, err = os.Create(path); err != nil {
			return nil, nil, err
		}
		to = file
	}
	w := bufio.NewWriter(to)
	_, writeErr := w.WriteString("cycle\trelease_ns\twoke_ns\tlatency_ns\tperiod_ns\n")
	n, last := 0, cyclic.Sample{}
	sample = func(s cyclic.Sample) {
		period := ""
		if n > 0 {
			period = fmt.Sprint(int64(s.Woke - last.Woke))
		}
		if writeErr == nil {
			_, writeErr = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\n", n, int64(s.Release), int64(s.Woke),
				int64(s.Woke-s.Release), period)
		}
		n, last = n+1, s
	}
	return sample, func() error {
		err := errors.Join(writeErr, w.Flush())
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return err
	}, nil
}
