package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/memfrag"
)

// memfragFlags is the flags of memfrag.
type memfragFlags struct {
	cfg    memfrag.Config
	page   string
	asJSON bool

	shown  bool  // a page was written
	failed error // of the last one; nil: it was written
}

func newMemfrag() *cobra.Command {
	var f memfragFlags
	c := &cobra.Command{
		Use: "memfrag", Short: "follow how memory fragments, for hours or days: of the machine, and of a process",
		Long: `Looks each interval how much of the free memory is in blocks that hold no huge page (/proc/buddyinfo), every five minutes
what of it is pinned (/proc/pagetypeinfo, for root), and each interval whether huge pages are to be had: of each pool that is reserved,
or, where none is, by asking the kernel to make 8 now (MADV_COLLAPSE, Linux 6.1). The rate is 1 − pages to be had ÷ pages that there
should be. With --pid also how much memory a process has.

Samples go to a file (--log), of 10,000 at most: then each second one of the older half is left out. Called again with the same file it
goes on, also behind a kill, until --for has passed since the first sample. Ctrl-C ends it, and prints what there is.`,
		Example: "  tallywheel memfrag --interval 30s --for 72h --pid $(pidof -s tallywheel)",
		Args:    exactly(0, "no argument"),
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fl := c.Flags()
	addSpan(c, &f.cfg.Interval, "interval", 30*time.Second, false,
		fmt.Sprintf("time between samples, %v to %v", memfrag.MinInterval, memfrag.MaxInterval))
	addSpan(c, &f.cfg.For, "for", 72*time.Hour, false, "how long, from the first sample of the file on")
	fl.IntVar(&f.cfg.PID, "pid", 0, "number of a process to be followed, too")
	fl.StringVar(&f.cfg.Log, "log", "memfrag.ndjson", "file of the samples")
	fl.BoolVar(&f.cfg.NoTrial, "no-trial", false, "ask for no huge pages")
	fl.StringVar(&f.page, "html", "", "write a page with the curves to a file, anew with each sample")
	fl.BoolVar(&f.asJSON, "json", false, "print the result as JSON, on one line")
	return c
}

func (f *memfragFlags) run(c *cobra.Command) error {
	out, talk := c.OutOrStdout(), c.ErrOrStderr()
	live := false
	if t, ok := talk.(*os.File); ok {
		live = terminal(t)
	}
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	f.cfg.Watch = func(s memfrag.Sample, all func() memfrag.Summary) {
		if live {
			fmt.Fprint(talk, "\r\x1b[K", memfragLine(s))
		}
		if f.page != "" && !f.show(all(), talk) {
			stop()
		}
	}
	r, err := memfrag.Run(ctx, f.cfg)
	if live {
		fmt.Fprint(talk, "\r\x1b[K")
	}
	if errors.Is(err, memfrag.ErrConfig) {
		err = fmt.Errorf("%w: %w", errUsage, err)
	}
	if err != nil {
		return err
	}
	var pageErr error
	if f.page != "" {
		if pageErr = f.writePage(r.Summary, 0); pageErr != nil && !f.shown {
			return pageErr
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.Missing)) {
		fmt.Fprintf(talk, "tallywheel: not looked at: %s: %s\n", what, r.Missing[what])
	}
	if f.asJSON {
		return errors.Join(pageErr, json.NewEncoder(out).Encode(memfragResult(r)))
	}
	return errors.Join(pageErr, f.print(out, r))
}

// show writes the page of a run that goes on. false: it is in a place where none can be, as the
// first one says. Later a full disk is no reason to stop: the samples go on, and so may the page.
func (f *memfragFlags) show(s memfrag.Summary, talk io.Writer) bool {
	was := f.failed
	f.failed = f.writePage(s, f.cfg.Interval)
	if f.failed != nil && was == nil && f.shown {
		fmt.Fprintf(talk, "tallywheel: %v; samples are taken all the same\n", f.failed)
	}
	f.shown = f.shown || f.failed == nil
	return f.shown
}

// writePage writes the page beside, which then takes the name: whoever loads it gets one or the
// other.
func (f *memfragFlags) writePage(s memfrag.Summary, again time.Duration) error {
	file, err := sys.CreateBeside(f.page, os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	title := "memory of this machine"
	if f.cfg.PID != 0 {
		title += fmt.Sprintf(" and of process %d", f.cfg.PID)
	}
	if err = errors.Join(s.Page(file, title, again), file.Close()); err == nil {
		err = os.Rename(file.Name(), f.page)
	}
	if err != nil {
		return fmt.Errorf("--html: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

// memfragLine is a sample on one line.
func memfragLine(s memfrag.Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  unusable %.1f %%", time.UnixMilli(s.At).Format(time.TimeOnly), 100*s.Unusable())
	for _, t := range s.Trials {
		fmt.Fprintf(&b, "  %s %d of %d", t.Name(), t.Got, t.Most)
	}
	if s.Process != nil {
		fmt.Fprintf(&b, "  RSS %.1f MiB", float64(s.Process.RSS)/(1<<20))
	}
	return b.String()
}

// print says what the samples say together.
func (f *memfragFlags) print(out io.Writer, r memfrag.Result) error {
	var b strings.Builder
	const wide = 60
	share := func(name string, c memfrag.Curve) {
		fmt.Fprintf(&b,
			"%-18s first %5.1f %%, last %5.1f %%, mean %5.1f %%, most %5.1f %%; %+.2f points an hour\n%18s %s\n",
			name, 100*c.First, 100*c.Last, 100*c.Mean, 100*c.Most, 100*c.PerHour, "", c.Line(wide))
	}
	size := func(name string, c memfrag.Curve) {
		const mib = 1 << 20
		fmt.Fprintf(&b, "%-18s first %.1f MiB, last %.1f MiB, most %.1f MiB; %+.2f MiB an hour\n%18s %s\n",
			name, c.First/mib, c.Last/mib, c.Most/mib, c.PerHour/mib, "", c.Line(wide))
	}
	fmt.Fprintf(&b, "%d samples, %d of them from before\n", len(r.Samples), r.Resumed)
	share("unusable", r.Unusable)
	for _, t := range r.Trials {
		share(t.Name, t.Rate)
		fmt.Fprintf(&b, "%18s %d trials: %d fell short, %d got none\n", "", t.Tried, t.Short, t.Failed)
	}
	if f.cfg.PID != 0 {
		size("RSS", r.RSS)
		size("in huge pages", r.Huge)
	}
	fmt.Fprintf(&b, "%-18s %.3f %% of a CPU\n", "cost", 100*r.CPU)
	switch {
	case r.Ended:
		b.WriteString("the process has ended\n")
	case !r.Over:
		fmt.Fprintf(&b, "not over: the same command goes on with %s\n", f.cfg.Log)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// memfragJSON is the result as --json prints it. Shares are from 0 to 1, sizes in bytes.
type memfragJSON struct {
	Samples  int                      `json:"samples"`
	Resumed  int                      `json:"resumed"`
	Over     bool                     `json:"over"`
	Unusable memfrag.Curve            `json:"unusable"`
	Trials   map[string]memfrag.Tried `json:"trials"`
	RSS      *memfrag.Curve           `json:"rss,omitempty"`
	Huge     *memfrag.Curve           `json:"huge,omitempty"`
	CPU      float64                  `json:"cpu"`
	Missing  map[string]string        `json:"missing"`
}

func memfragResult(r memfrag.Result) memfragJSON {
	j := memfragJSON{
		Samples: len(r.Samples), Resumed: r.Resumed, Over: r.Over, Unusable: r.Unusable,
		Trials: map[string]memfrag.Tried{}, CPU: r.CPU, Missing: r.Missing,
	}
	for _, t := range r.Trials {
		j.Trials[t.Name] = t
	}
	if len(r.Samples) > 0 && r.Samples[0].Process != nil {
		j.RSS, j.Huge = &r.RSS, &r.Huge
	}
	return j
}
