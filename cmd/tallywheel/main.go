// Command tallywheel records what industrial devices say, loses nothing, and proves it.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/cell"
)

// Exit codes.
const (
	exitGood   = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks a command that was called wrong; errQuiet one whose failure has been shown
// already.
var (
	errUsage = errors.New("wrong use")
	errQuiet = errors.New("failed")
)

func main() { os.Exit(run(os.Args[1:])) }

// run is main with an exit code. Messages for people go to stderr: one line each, lower case, what
// happened and what to do. Data goes to stdout.
func run(args []string) int {
	cell.Main()                 // does not return in the process of a cell
	if code, ok := role(); ok { // which hears signals by itself
		return code
	}
	ctx, end := untilStopped()
	defer end()
	root := newRoot()
	root.SetArgs(args)
	out := &output{w: os.Stdout}
	root.SetOut(out)
	strictDefaults(root)
	err := root.ExecuteContext(ctx)
	if err == nil && !errors.Is(out.err, syscall.EPIPE) { // whoever read it has gone, as head does
		err = out.err
	}
	switch {
	case err == nil:
		return exitGood
	case errors.Is(err, errQuiet):
		return exitFailed
	}
	for line := range strings.Lines(err.Error()) { // several things may be wrong at once
		fmt.Fprintf(os.Stderr, "tallywheel: %s\n", strings.TrimSuffix(line, "\n"))
	}
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// output is stdout, which may be a file on a full disk. It keeps the first error, so that no
// command needs to look at each line.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tallywheel",
		Short: "records what industrial devices say, loses nothing, and proves it",
		Long: "Tallywheel reads serial, TCP and UDP devices, cuts the bytes into frames, writes them to a durable log,\n" +
			"and keeps a balance sheet for every port: wire = stored + lost (by cause) + in flight.",
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: there is no command %q; `tallywheel help` lists them", errUsage, args[0])
			}
			return nil
		},
		PersistentPreRunE: exclusive,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.Version = thisBuild().String()
	root.SetVersionTemplate("tallywheel {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(badFlag)
	root.AddCommand(newDemo(), newRun(), newUpgrade(), newCheck(), newAck(), newPorts(), newTap(), newSim(), newLog(),
		newProve(), newReplay(), newTail(), newLab(), newAdvise(), newLoad(), newServe(), newProbe(), newCyclic(),
		newMemfrag(), newDoctor(), newVersion())
	return root
}

// strictDefaults makes of what cobra adds commands that say what is wrong with their arguments:
// `help demmo` and `completion foo` were exit code 0. The output is set before: completion keeps
// it.
func strictDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(c *cobra.Command, args []string) error {
				if _, rest, err := c.Root().Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("%w: there is no command %q; `tallywheel help` lists them", errUsage,
						strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			var shells []string
			for _, shell := range c.Commands() {
				shells = append(shells, shell.Name())
				shell.Args = exactly(0, "no argument")
			}
			oneOf(c, shells)
			c.RunE = func(*cobra.Command, []string) error { return nil } // a shell's name is a command
		}
	}
}

// exactly makes a wrong number of arguments a wrong use.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%w: %s: want %s", errUsage, c.CommandPath(), what)
		}
		return nil
	}
}

// build says which program this is.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified,omitempty"` // the tree had changes that no revision has
}

func thisBuild() build {
	b := build{Version: "(unknown)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string { return b.Version + " " + b.Go }

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "print the version", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(thisBuild())
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), "tallywheel", thisBuild())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON, with the revision")
	return c
}
