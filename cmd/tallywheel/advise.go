package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/advice"
	"github.com/tallywheel/tallywheel/lab/report"
)

// resultFiles is where the laboratory leaves results, seen from where it was called.
const resultFiles = "lab-results*/results.json"

func newAdvise() *cobra.Command {
	var need string
	var asJSON bool
	c := &cobra.Command{
		Use:   "advise [RESULTS…]",
		Short: "say what suits this machine, and what meets a need, by what the laboratory has measured here",
		Long: "advise reads results of the laboratory, by default " + resultFiles +
			" below this folder, and says what they advise: the newest of each\n" +
			"experiment that was measured on a machine with these CPUs. Each sentence has its figure, and the file that this is from. What was\n" +
			"not measured here is said to be unknown, with the command that would measure it. Nothing is computed for sizes that were not measured.\n\n" +
			"--need takes " + needForm +
			"\nExit code with it: 0 if each part is met by what was measured, 1 if one is not, or is unknown, 2 for wrong use.",
		Example: "  tallywheel lab run rt-cyclic --full --out lab-results-rt\n  tallywheel advise --need '5ms ±100us, 8 ports 400KB/s, restart 0 loss'",
		RunE:    func(c *cobra.Command, args []string) error { return advise(c, args, need, asJSON) },
	}
	c.Flags().StringVar(&need, "need", "", "what is needed, as '5ms ±100us, 8 ports 400KB/s, restart 0 loss'")
	c.Flags().BoolVar(&asJSON, "json", false, "print lines of JSON")
	return c
}

// needForm is what --need takes.
const needForm = `parts with commas between: "5ms ±100us" (a period, and how late at most), "8 ports 400KB/s" (each), "1000 durable/s"
(records), "restart 0 loss".`

func advise(c *cobra.Command, files []string, need string, asJSON bool) error {
	var n advice.Need
	var err error
	needed := c.Flags().Changed("need")
	if needed {
		if n, err = advice.ParseNeed(need); err != nil {
			return fmt.Errorf("%w: --need: %w", errUsage, err)
		}
	}
	if len(files) == 0 {
		if files, err = filepath.Glob(resultFiles); err != nil {
			return err
		}
	}
	var runs []advice.Run
	for _, name := range files {
		r, err := lab.ReadJSON(name)
		if err != nil {
			return err
		}
		runs = append(runs, advice.Run{File: name, Results: r})
	}
	machine := lab.ThisMachine(".")
	own, others := advice.OfMachine(runs, machine)
	for _, r := range others {
		fmt.Fprintf(c.ErrOrStderr(), "tallywheel: %s is left out: it is of another machine: %s, %d CPUs\n", r.File,
			report.Printable(r.Machine.CPU), r.Machine.CPUs)
	}
	if len(own) == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "tallywheel: there are no results of this machine: tallywheel lab all makes them")
	}
	var lines []advice.Line
	if needed {
		lines = advice.Needed(own, lab.Experiments(), n, machine.Kernel)
	} else {
		lines = advice.Found(own, lab.Experiments(), machine.Kernel)
	}
	if err := showAdvice(c.OutOrStdout(), lines, needed, asJSON); err != nil {
		return err
	}
	for _, l := range lines {
		if needed && !l.Meets {
			return errQuiet
		}
	}
	return nil
}

// showAdvice prints lines: what is known first.
func showAdvice(out io.Writer, lines []advice.Line, isNeed, asJSON bool) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, known := range []bool{true, false} {
		for _, l := range lines {
			if l.Known != known {
				continue
			}
			if asJSON {
				if err := e.Encode(l); err != nil {
					return err
				}
				continue
			}
			word := map[bool]string{true: "", false: "unknown: "}[known]
			if isNeed && known {
				word = lab.Or(l.Meets, "met: ", "not met: ")
			}
			fmt.Fprintf(&b, "%s: %s%s\n", l.About, word, l.Text)
			if l.From != "" {
				fmt.Fprintf(&b, "  by %s\n", l.From)
			}
			if l.Measure != "" {
				fmt.Fprintf(&b, "  measure it: %s\n", l.Measure)
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
