package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab"
	_ "github.com/tallywheel/tallywheel/lab/experiments"
	"github.com/tallywheel/tallywheel/lab/heatmap"
	"github.com/tallywheel/tallywheel/lab/report"
)

// laboratory is the flags of lab run and lab all.
type laboratory struct {
	full   bool
	quick  bool
	out    string
	dir    string
	budget time.Duration
	cpu    int
	only   string
	planes []string
	asJSON bool
	table  string
}

func newLab() *cobra.Command {
	c := &cobra.Command{
		Use: "lab", Short: "measure ways to do the same thing side by side, on this machine",
		Long: "The laboratory runs every way to do a thing in turns, on this machine, and says which is fastest here, by how much, and which\n" +
			"published claims hold. Contestants in C, Rust, Python and other Go modules are built where their tools are; what cannot be\n" +
			"run says why. Do not use the machine meanwhile.",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: there is no command lab %s", errUsage, args[0])
			}
			return c.Help()
		},
	}
	c.AddCommand(newLabList(), newLabRun("run NAME…"), newLabRun("all"), newLabCompare(), newLabVerdicts(),
		newLabTrace(), newLabContestant(), newLabBoard(), newLabInside())
	return c
}

func newLabList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list the experiments", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, e := range lab.Experiments() {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%-18s  %-10s  %s\n", e.Name, e.Plane.String(),
					e.Question); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newLabRun(use string) *cobra.Command {
	var l laboratory
	c := &cobra.Command{
		Use: use, Short: "run experiments and write a report",
		RunE: func(c *cobra.Command, args []string) error {
			chosen, err := chooseExperiments(use == "all", args, l.planes)
			if err != nil {
				return err
			}
			if use == "all" && !l.full && l.budget == 0 {
				l.budget = share(chosen)
			}
			return l.run(c.Context(), chosen, "tallywheel "+strings.Join(os.Args[1:], " "), c.OutOrStdout(), os.Stderr)
		},
	}
	if use == "all" {
		c.Short = "run all experiments and write a report"
	} else {
		for _, e := range lab.Experiments() {
			c.ValidArgs = append(c.ValidArgs, e.Name)
		}
	}
	f := c.Flags()
	if use == "all" {
		f.StringSliceVar(&l.planes, "plane", nil, "experiments of these planes alone: "+planeNames())
		complete := cobra.FixedCompletions(strings.Split(planeNames(), ", "), cobra.ShellCompDirectiveNoFileComp)
		if err := c.RegisterFlagCompletionFunc("plane", complete); err != nil {
			panic(err) // the flag is there, and has none yet
		}
	}
	f.BoolVar(&l.quick, "quick", false, "little more than a minute an experiment (the default)")
	f.BoolVar(&l.full, "full", false, "all settings, the articles' sizes, as many rounds as it takes")
	f.StringVar(&l.out, "out", "lab-results", "folder of the report")
	f.StringVar(&l.dir, "dir", ".", "where to make the files that are measured: on the disk that is asked about")
	addSpan(c, &l.budget, "budget", 0, true, "time for an experiment; 0: that of --quick or --full")
	f.IntVar(&l.cpu, "cpu", -1, "run contestants on this CPU alone; -1: on all")
	f.StringVar(&l.only, "only", "", "contestants whose name has this in it, and the one that all are compared to")
	f.BoolVar(&l.asJSON, "json", false, "print the results as JSON instead of tables")
	f.StringVar(&l.table, "parquet", "", "write each round of each figure into this file, as Parquet, too")
	return c
}

func chooseExperiments(all bool, names, planes []string) (chosen []*lab.Experiment, err error) {
	known := lab.Experiments()
	switch {
	case all && len(names) > 0:
		return nil, fmt.Errorf("%w: lab all takes no names; lab run does", errUsage)
	case all && len(planes) == 0:
		return known, nil
	case all:
		return ofPlanes(known, planes)
	case len(names) == 0:
		return nil, fmt.Errorf("%w: lab run: want the names of experiments; `tallywheel lab list` lists them", errUsage)
	}
	for _, name := range names {
		i := slices.IndexFunc(known, func(e *lab.Experiment) bool { return e.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: there is no experiment %q; `tallywheel lab list` lists them", errUsage, name)
		}
		chosen = append(chosen, known[i])
	}
	return chosen, nil
}

// quickAll is the time for the turns of all experiments in a quick run; building, preparing and
// what is asked once come on top.
const quickAll = 32 * time.Minute

// share is the time for each of the experiments that measure, so that all of them are soon done.
func share(chosen []*lab.Experiment) time.Duration {
	timed := time.Duration(0)
	for _, e := range chosen {
		if !e.Once {
			timed++
		}
	}
	return min(lab.Quick().Budget, quickAll/max(1, timed))
}

// planeNames lists the planes.
func planeNames() string {
	var names []string
	for _, p := range lab.Planes() {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// ofPlanes picks the experiments of some planes.
func ofPlanes(known []*lab.Experiment, planes []string) (chosen []*lab.Experiment, err error) {
	for _, plane := range planes {
		n := len(chosen)
		for _, e := range known {
			if e.Plane.String() == plane {
				chosen = append(chosen, e)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("%w: there is no experiment of plane %q: want one of %s", errUsage, plane,
				planeNames())
		}
	}
	return chosen, nil
}

func (l laboratory) options() (lab.Options, error) {
	if l.quick && l.full {
		return lab.Options{}, fmt.Errorf("%w: --quick or --full, not both", errUsage)
	}
	o := lab.Quick()
	if l.full {
		o = lab.Full()
	}
	if l.budget > 0 {
		o.Budget = l.budget
	}
	o.CPU, o.Dir, o.Only = l.cpu, l.dir, l.only
	return o, nil
}

// run carries the experiments out one by one. The report is written after each, so that whatever
// stops the run leaves one.
func (l laboratory) run(ctx context.Context, chosen []*lab.Experiment, command string, out, talk io.Writer) error {
	o, err := l.options()
	if err != nil {
		return err
	}
	folder, err := takeFolder(l.out)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // nothing was written to it
	keeps, err := l.holdsFigures()
	if err != nil {
		return err
	}
	b, err := lab.NewBench(ctx, o, talk)
	if err != nil {
		return err
	}
	r := &lab.Results{
		Schema: lab.Schema, Started: time.Now().UTC().Truncate(time.Second), Command: command,
		Machine: lab.ThisMachine(l.dir), Partial: true,
	}
	var unwritten error // that the newest report could not be
	for i, e := range chosen {
		result, err := b.Run(e)
		if err != nil && ctx.Err() == nil {
			result.Failed = err.Error() // the others can be run all the same
		}
		r.Experiments = append(r.Experiments, result)
		r.Partial = ctx.Err() != nil || i < len(chosen)-1
		keeps = keeps && !hasFigures(r)
		unwritten = l.write(r, keeps)
		if unwritten != nil { // the next one writes all again, and until then it is shown
			fmt.Fprintf(talk, "the report is not written; make room, or the results of this run are here alone: %v\n", unwritten)
		}
		if !l.asJSON {
			if err := report.Table(out, &result); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		if ctx.Err() != nil {
			if unwritten == nil {
				fmt.Fprintln(talk, "stopped;", l.outcome(keeps))
			}
			return errors.Join(b.Close(), errQuiet)
		}
	}
	if l.asJSON {
		if err := r.WriteJSON(out); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	if unwritten != nil {
		return errors.Join(unwritten, b.Close())
	}
	fmt.Fprintln(talk, l.outcome(keeps))
	return errors.Join(b.Close(), measured(r))
}

// holdsFigures reports whether there is a report already that is worth more than one of nothing.
// Results that cannot be read are: who can tell what they are.
func (l laboratory) holdsFigures() (bool, error) {
	path := filepath.Join(l.out, "results.json")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	r, err := lab.ReadJSON(path)
	return err != nil || hasFigures(r), nil
}

// hasFigures reports whether anything was measured.
func hasFigures(r *lab.Results) bool { return slices.ContainsFunc(r.Experiments, hasMeasured) }

// hasMeasured reports whether an experiment has measured anything.
func hasMeasured(e lab.ExperimentResult) bool {
	return slices.ContainsFunc(e.Rows, func(row lab.Row) bool { return row.Metrics != nil })
}

// write writes the report and the table, or keeps those that are there.
func (l laboratory) write(r *lab.Results, keeps bool) error {
	if keeps {
		return nil
	}
	return errors.Join(report.Write(l.out, r), l.writeTable(r))
}

// outcome says where the report is.
func (l laboratory) outcome(kept bool) string {
	if kept {
		return fmt.Sprintf("nothing was measured: the report in %s is left as it was", l.out)
	}
	return "the report is " + filepath.Join(l.out, "report.html")
}

// writeTable writes the results as Parquet, if that was asked for: a file that is whole, or as it
// was before.
func (l laboratory) writeTable(r *lab.Results) error {
	if l.table == "" {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(l.table), ".tallywheel-*")
	if err != nil {
		return err
	}
	if err := errors.Join(r.WriteParquet(f), f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), l.table)
}

// takeFolder makes the folder of a report and keeps others from it until it is closed.
func takeFolder(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if held, err := sys.Lock(folder); held {
		return nil, errors.Join(fmt.Errorf("%s: another run writes its report there; choose another folder by --out",
			path), folder.Close())
	} else if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// measured is an error if an experiment has measured nothing.
func measured(r *lab.Results) error {
	var nothing []string
	for _, e := range r.Experiments {
		if !hasMeasured(e) {
			nothing = append(nothing, e.Name)
		}
	}
	if len(nothing) > 0 {
		return fmt.Errorf("nothing was measured by %s; why is said above", strings.Join(nothing, ", "))
	}
	return nil
}

func newLabCompare() *cobra.Command {
	return &cobra.Command{
		Use: "compare A B", Short: "compare two runs: results.json of other days, kernels or machines",
		Args: exactly(2, "two files results.json"),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := lab.ReadJSON(args[0])
			if err != nil {
				return err
			}
			b, err := lab.ReadJSON(args[1])
			if err != nil {
				return err
			}
			return report.Comparison(c.OutOrStdout(), a, b)
		},
	}
}

func newLabVerdicts() *cobra.Command {
	var documents []string
	c := &cobra.Command{
		Use: "verdicts [RESULTS]", Short: "list the published claims and their verdicts, from results.json",
		RunE: func(c *cobra.Command, args []string) error {
			path := filepath.Join("lab-results", "results.json")
			switch len(args) {
			case 0:
			case 1:
				path = args[0]
			default:
				return fmt.Errorf("%w: lab verdicts: want one file at most", errUsage)
			}
			r, err := lab.ReadJSON(path)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%s is not there; `tallywheel lab all` makes it", path)
			} else if err != nil {
				return err
			}
			return report.Verdicts(c.OutOrStdout(), r, documents...)
		},
	}
	c.Flags().StringSliceVar(&documents, "claims", nil, "claims of these documents alone, by their numbers, as 000,003")
	return c
}

func newLabTrace() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "trace FILE",
		Short: "show where goroutines spent their time, from a trace of Go's runtime (runtime/trace)",
		Args:  exactly(1, "one file"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := heatmap.Read(args[0])
			if err != nil {
				return err
			}
			if err := m.Text(c.OutOrStdout()); err != nil {
				return err
			}
			f, err := os.Create(out)
			if err != nil {
				return err
			}
			if err := errors.Join(m.HTML(f, filepath.Base(args[0])), f.Close()); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "the heat map is %s\n", out)
			profile := profileOf(args[0])
			if _, err := os.Stat(profile); err == nil {
				fmt.Fprintf(os.Stderr, "a CPU profile lies beside the trace; go tool pprof %s shows it\n", profile)
			}
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "trace.html", "the page to write")
	return c
}

// newLabContestant is what the laboratory calls: our own contestants.
func newLabContestant() *cobra.Command {
	return &cobra.Command{
		Use: "contestant EXPERIMENT NAME KEY=VALUE…", Hidden: true, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error { return lab.Contest(args, os.Stdin, c.OutOrStdout()) },
	}
}
