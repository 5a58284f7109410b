package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/doctor"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// examination is the flags of doctor.
type examination struct {
	fix, undo, yes, asJSON, all bool
	record, config              string
}

func newDoctor() *cobra.Command {
	var e examination
	c := &cobra.Command{
		Use: "doctor", Short: "look at what this machine allows and how it is set; --fix changes what is safe",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			return e.run(c.Context(), doctor.Kernel{}, c.InOrStdin(), c.OutOrStdout(), os.Stderr)
		},
	}
	f := c.Flags()
	f.BoolVar(&e.fix, "fix", false, "change what is safe to change, and write the old values down")
	f.BoolVar(&e.undo, "undo", false, "put back what --fix has changed")
	f.BoolVar(&e.yes, "yes", false, "do not ask")
	f.BoolVar(&e.asJSON, "json", false, "print the findings as JSON")
	f.BoolVar(&e.all, "all", false, "explain what is good, too")
	f.StringVarP(&e.config, "config", "c", "",
		"judge by what this configuration needs, and look who can read its secrets")
	f.StringVar(&e.record, "record", defaultRecord(), "where the old values are written down")
	return c
}

// defaultRecord is in the system's state for root, who alone can change anything, else in the
// user's.
func defaultRecord() string {
	const name = "tallywheel/doctor.json"
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib", name)
	}
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, name)
	}
	return filepath.Base(name)
}

func (e examination) run(ctx context.Context, k doctor.Kernel, in io.Reader, out, talk io.Writer) error {
	if e.fix && e.undo {
		return fmt.Errorf("%w: --fix or --undo, not both", errUsage)
	}
	if e.undo {
		t, err := k.Undo(e.record)
		return e.treat(t, err, "nothing is written down in "+e.record+" that could be undone", in, talk)
	}
	var findings []doctor.Finding
	if e.config == "" {
		findings = k.Examine()
	} else {
		cfg, err := loading(ctx, e.config, 0, config.Load)
		if err != nil {
			return err
		}
		findings = append(k.ExamineFor(jobOf(cfg)), examineSecrets(cfg, e.config)...)
	}
	if e.asJSON {
		j := json.NewEncoder(out)
		j.SetIndent("", "\t")
		if err := j.Encode(findings); err != nil {
			return err
		}
	} else if err := e.print(out, findings); err != nil {
		return err
	}
	if !e.fix {
		return nil
	}
	t, err := k.Prescribe(findings, e.record)
	return e.treat(t, err, "nothing is left that is safe to change", in, talk)
}

// examineSecrets looks who can read the secrets of a configuration.
func examineSecrets(cfg config.Config, file string) (all []doctor.Finding) {
	const area, name = "configuration", "secrets"
	const wanted, why = "only owner and group read them",
		"whoever has the token or the key can read all that is recorded, and answer in this recorder's place; whoever has the URL of a webhook can send there, too"
	for _, found := range cfg.Exposed(file) {
		what, how, _ := strings.Cut(found, ": ")
		all = append(all, doctor.Finding{
			Area: area, Name: name, State: doctor.Poor, Found: what, Wanted: wanted,
			Why: why, How: how,
		})
	}
	if all == nil {
		all = append(all, doctor.Finding{
			Area: area, Name: name, State: doctor.Good, Found: "nobody else can read them",
			Wanted: wanted, Why: why,
		})
	}
	return all
}

// print writes a line for each finding, and below it, where it is not good, why it matters and what
// to do.
func (e examination) print(out io.Writer, findings []doctor.Finding) error {
	var b strings.Builder
	area, fixable := "", 0
	for _, f := range findings {
		if f.Area != area {
			area = f.Area
			fmt.Fprintf(&b, "%s\n", area)
		}
		mark := map[doctor.State]string{
			doctor.Good: "ok", doctor.Poor: "!", doctor.Missing: "!!",
			doctor.Unknown: "?",
		}[f.State]
		fmt.Fprintf(&b, "  %-2s  %-32s %s\n", mark, f.Name, f.Found)
		if f.State != doctor.Good || e.all {
			fmt.Fprintf(&b, "        wanted: %s; %s\n", f.Wanted, f.Why)
		}
		if f.How != "" {
			fmt.Fprintf(&b, "        %s\n", f.How)
		}
		if f.Fix != nil {
			fixable++
		}
	}
	if fixable > 0 && !e.fix {
		fmt.Fprintf(&b, "\n%d of these can be changed safely: tallywheel doctor --fix\n", fixable)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// treat says what will be done, asks, and does it.
func (e examination) treat(t *doctor.Treatment, err error, nothing string, in io.Reader, talk io.Writer) error {
	if errors.Is(err, doctor.ErrNothing) {
		fmt.Fprintln(talk, nothing)
		return nil
	} else if err != nil {
		return err
	}
	for _, c := range t.Changes {
		if c.Skip != "" {
			fmt.Fprintf(talk, "left alone: %s: %s\n", c.Path, c.Skip)
			continue
		}
		fmt.Fprintf(talk, "will be set: %s: %s instead of %s\n", c.Path, c.New, c.Old)
	}
	if !e.undo {
		fmt.Fprintf(talk, "the old values are written to %s; tallywheel doctor --undo puts them back\n", e.record)
	}
	if !e.yes {
		if f, ok := in.(*os.File); !ok || !terminal(f) {
			return fmt.Errorf("%w: this is no terminal to ask on: --yes does it without asking", errUsage)
		}
		fmt.Fprint(talk, "go on? [y/N] ")
		answer, _ := bufio.NewReader(in).ReadString('\n') // no answer is a no
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return errors.New("nothing was changed")
		}
	}
	return t.Apply()
}

func terminal(f *os.File) bool {
	_, err := sys.GetTermios(int(f.Fd()))
	return err == nil
}
