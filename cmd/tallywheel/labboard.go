package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/board"
	"github.com/tallywheel/tallywheel/lab/report"
)

// kernelFolder is where make deps-board leaves kernels, seen from the repository.
const kernelFolder = ".deps-board"

// boardFlags is the flags of lab board.
type boardFlags struct {
	cfg     board.Config
	kernels []string
	target  string
	full    bool
	out     string
	asJSON  bool
}

func newLabBoard() *cobra.Command {
	var f boardFlags
	c := &cobra.Command{
		Use: "board", Short: "measure on a board that QEMU emulates, and whose time goes by instructions",
		Long: `Boots kernels for boards in QEMU (-M virt, one Cortex-A7), with this program as the first process, and measures there: how
late a cell wakes up, a time.Ticker, and programs in C and Rust where there are compilers for it; what a switch of tasks costs; and how
long it takes from the kernel's start to the first line. An instruction takes 8 ns there, whatever the host does meanwhile, so that each
boot is the same, to the last byte. As many boots again have a seed each, by which a start scatters.

What a board says comes over its serial console, as lines of JSON; this program's recorder reads them from QEMU's terminal, and the report
says whether each line is in its log, and whether its books balance. Caches, memory and flash are not emulated.

It needs qemu-system-arm, a kernel (make deps-board fetches both, by Debian's apt), and this program for ARMv7.

With --target nothing is booted: a board that is there does the same, in as many rounds, with this program and c-cyclic, c-switch and
rust-cyclic in one folder of it. serial:PORT is a line on which its shell listens, at 115200 baud; ssh:USER@HOST asks for no password.`,
		Example: "  tallywheel lab board --kernel armmp --guest ./tallywheel-armv7\n" +
			"  tallywheel lab board --target serial:/dev/ttyUSB0 --guest /root/tallywheel",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.kernels, "kernel", []string{"armmp"}, "kernels: files, or names of files in "+kernelFolder)
	fl.StringVar(&f.target, "target", "", "a board that is there: serial:PORT or ssh:USER@HOST")
	fl.StringVar(&f.cfg.Guest, "guest", "",
		"file of this program for ARMv7; default: it is built, where its sources and Go are; with --target its path there, by default tallywheel")
	fl.IntVar(&f.cfg.Boots, "boots", 10, "boots of each kernel, and as many with a seed each, or rounds, 1 to 1000")
	fl.BoolVar(&f.full, "full", false, "as --boots 50")
	c.MarkFlagsMutuallyExclusive("boots", "full")
	boardPlan(c, &f.cfg.Plan)
	fl.StringVar(&f.out, "out", "lab-results-board", "folder of the report")
	fl.BoolVar(&f.asJSON, "json", false, "print the results as JSON instead of tables")
	return c
}

// boardPlan has the flags that the verb and the board's own part have in common.
func boardPlan(c *cobra.Command, p *board.Plan) {
	addSpan(c, &p.Interval, "interval", 5*time.Millisecond, false,
		fmt.Sprintf("period, %v to %v", cell.MinPeriod, cell.MaxPeriod))
	c.Flags().IntVar(&p.Periods, "periods", 1000, "wake-ups of each contestant")
}

// newLabInside is what a board does; see package board.
func newLabInside() *cobra.Command {
	var p board.Plan
	c := &cobra.Command{
		Use: "inside", Hidden: true, Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return p.Inside(c.Context(), c.OutOrStdout()) },
	}
	boardPlan(c, &p)
	c.Flags().StringVar(&p.Programs, "programs", ".", "folder of the contestants in other languages")
	return c
}

func (f *boardFlags) run(c *cobra.Command) error {
	if f.full {
		f.cfg.Boots = 50
	}
	if f.cfg.Boots < 1 || f.cfg.Boots > 1000 {
		return fmt.Errorf("%w: --boots: want 1 to 1000", errUsage)
	}
	if f.cfg.Periods < 1 {
		return fmt.Errorf("%w: --periods: want 1 at least", errUsage)
	}
	if f.cfg.Interval < cell.MinPeriod || f.cfg.Interval > cell.MaxPeriod {
		return fmt.Errorf("%w: --interval: want %v to %v", errUsage, cell.MinPeriod, cell.MaxPeriod)
	}
	if f.target != "" {
		if err := idle(c, "is for what QEMU boots, and with --target nothing is booted", "kernel"); err != nil {
			return err
		}
	}
	if err := f.find(); err != nil {
		return err
	}
	folder, err := takeFolder(f.out)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // nothing was written to it
	b, err := lab.NewBench(c.Context(), lab.Quick(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	err = f.measure(c, b)
	return errors.Join(err, b.Close())
}

// find finds what a board needs, and says all that is missing at once.
func (f *boardFlags) find() (err error) {
	if f.target != "" {
		f.cfg.Guest = cmp.Or(f.cfg.Guest, "tallywheel")
		if f.cfg.Target, err = board.ParseTarget(f.target); err != nil {
			return fmt.Errorf("%w: --target: %w", errUsage, err)
		}
		return nil
	}
	var missing []error
	qemu, err := exec.LookPath("qemu-system-arm")
	if err != nil {
		missing = append(missing, errors.New("there is no qemu-system-arm; make deps-board, or apt install qemu-system-arm"))
	}
	f.cfg.QEMU = qemu
	for _, name := range f.kernels {
		file := name
		if !strings.ContainsRune(name, os.PathSeparator) {
			file = filepath.Join(kernelFolder, name)
		}
		if err := board.CheckKernel(file); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, fmt.Errorf("there is no kernel %s; make deps-board fetches armmp, and --kernel takes the file of any other for ARMv7 and QEMU's virt", file))
		} else if err != nil {
			missing = append(missing, fmt.Errorf("--kernel: %w", err))
		}
		f.cfg.Kernels = append(f.cfg.Kernels, board.Kernel{Name: filepath.Base(name), File: file})
	}
	if f.cfg.Guest != "" {
		if err := board.CheckGuest(f.cfg.Guest); err != nil {
			missing = append(missing, fmt.Errorf("--guest: %w", err))
		}
	}
	return errors.Join(missing...)
}

// guest builds this program for ARMv7, where nobody has named one.
func (f *boardFlags) guest(c *cobra.Command, b *lab.Bench) error {
	if f.cfg.Guest != "" {
		return nil
	}
	if self, err := os.Executable(); err == nil && runtime.GOARCH == "arm" {
		f.cfg.Guest = self
		return nil
	}
	const pkg = "github.com/tallywheel/tallywheel/cmd/tallywheel"
	f.cfg.Guest = filepath.Join(b.Scratch(), "tallywheel-armv7")
	b.Tell("building %s for ARMv7", pkg)
	build := exec.CommandContext(c.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", f.cfg.Guest, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm", "GOARM=7")
	if out, err := build.CombinedOutput(); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("there is no program for ARMv7: name one by --guest, which `GOOS=linux GOARCH=arm GOARM=7 CGO_ENABLED=0 go build %s` makes in the sources: %w %s", pkg, err, said)
	}
	return nil
}

// measure boots, and writes the report.
func (f *boardFlags) measure(c *cobra.Command, b *lab.Bench) error {
	if err := f.guest(c, b); err != nil {
		return err
	}
	r, err := board.Run(c.Context(), b, f.cfg)
	if c.Context().Err() != nil {
		fmt.Fprintln(c.ErrOrStderr(), "stopped; nothing was written")
		return errQuiet
	}
	if err != nil {
		return err
	}
	r.Command = "tallywheel " + strings.Join(os.Args[1:], " ")
	if err := report.Write(f.out, r); err != nil {
		return err
	}
	if f.asJSON {
		return r.WriteJSON(c.OutOrStdout())
	}
	for i := range r.Experiments {
		if err := report.Table(c.OutOrStdout(), &r.Experiments[i]); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.ErrOrStderr(), "the report is %s\n", filepath.Join(f.out, "report.html"))
	return nil
}
