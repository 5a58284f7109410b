package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/trace"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

type demo struct {
	length    time.Duration
	ports     int
	rate      int
	condition serialtest.Condition
	seed      uint64
	strategy  string
	mode      string
	listen    string
	dir       string
	trace     string
	asJSON    bool
}

func newDemo() *cobra.Command {
	d := demo{}
	c := &cobra.Command{
		Use: "demo", Short: "record virtual ports whose devices do harm, and check the books against what they did",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return d.run(c.Context(), c.OutOrStdout(), os.Stderr) },
	}
	f := c.Flags()
	addSpan(c, &d.length, "for", 30*time.Second, false, "how long to record")
	f.IntVar(&d.ports, "ports", 8, "number of ports")
	f.IntVar(&d.rate, "rate", 0, "bytes a second and port; 0: that of the condition")
	addWord(c, &d.condition, "condition", serialtest.Disturbed, serialtest.Conditions(), "what the devices do")
	f.Uint64Var(&d.seed, "seed", 1, "seed of the faults")
	addWord(c, &d.strategy, "strategy", "ring", []string{"ring", "pipeline", "blocking", "polling"},
		"how ports are read")
	addWord(c, &d.mode, "mode", "latency", []string{"latency", "throughput", "hybrid"}, "mode of the strategy ring")
	f.StringVar(&d.listen, "listen", "127.0.0.1:0", "where the page is; off: nowhere")
	f.StringVar(&d.dir, "dir", "", "keep ports and log in this folder; default: a temporary one")
	f.StringVar(&d.trace, "trace", "", "write a trace of Go's runtime here, for lab trace")
	f.BoolVar(&d.asJSON, "json", false, "end with the sheet as JSON")
	return c
}

func (d demo) run(ctx context.Context, out, talk io.Writer) error {
	if d.listen != "off" {
		if err := checkLoopback(d.listen, "127.0.0.1:7411, or off"); err != nil {
			return err
		}
	}
	dir := d.dir
	if dir == "" {
		tmp, err := os.MkdirTemp("", "tallywheel-demo-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	lines := filepath.Join(dir, "ports")
	if err := os.MkdirAll(lines, 0o755); err != nil {
		return err
	}
	fleet, err := newFleet(lines, d.ports, d.condition, d.seed, d.rate)
	if err != nil {
		return err
	}
	g, err := recorder.Start(d.config(dir, lines), slog.New(slog.DiscardHandler))
	if err != nil {
		return errors.Join(err, fleet.close())
	}
	if d.listen != "off" {
		s, err := api.Serve(g, slog.New(slog.DiscardHandler))
		if err != nil {
			_, stopErr := g.Stop("the page could not be served")
			return errors.Join(err, stopErr, fleet.close())
		}
		defer s.Close()
		fmt.Fprintf(talk, "recording %d virtual ports, condition %s, for %v; page: %s\n", d.ports, d.condition,
			d.length, s.URL())
	}
	stop, err := startTrace(d.trace)
	if err != nil {
		_, stopErr := g.Stop("the trace could not be written")
		return errors.Join(err, stopErr, fleet.close())
	}
	sheet, err := d.record(ctx, g, fleet, talk)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if late := fleet.late(); late != "" {
		fmt.Fprintln(talk, late)
	}
	good := d.compare(fleet.truths(), sheet, talk)
	if err := printSheet(out, sheet, d.asJSON); err != nil {
		return err
	}
	if !good || !sheet.Balanced {
		return errQuiet
	}
	return nil
}

// startTrace writes a trace of Go's runtime until stop is called; nowhere if path is "".
func startTrace(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := trace.Start(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { trace.Stop(); return f.Close() }, nil
}

func (d demo) config(dir, lines string) config.Config {
	cfg := config.Config{
		Log: config.Log{Dir: filepath.Join(dir, "data")}, API: config.API{Listen: d.listen},
		Read: config.Read{Strategy: d.strategy, Mode: d.mode},
	}
	for i := range d.ports {
		cfg.Sources = append(cfg.Sources, config.Source{
			ID: lineID(i), Serial: &config.Serial{Port: filepath.Join(lines, lineID(i))},
			Frame: config.Frame{Kind: "tally128"},
		})
	}
	return cfg
}

// record lets the devices send for a while, telling how it goes, and stops everything in order.
func (d demo) record(ctx context.Context, g *recorder.Recorder, f *fleet, talk io.Writer) (ledger.Sheet, error) {
	ctx, cancel := context.WithTimeout(ctx, d.length)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- f.run(ctx) }()
	tell := time.NewTicker(5 * time.Second)
	defer tell.Stop()
	var err error
	for running := true; running; {
		select {
		case err = <-sent:
			running = false
		case <-tell.C:
			s := g.Sheet()
			fmt.Fprintf(talk, "   %s: %s\n", s.Verdict.Level, s.Verdict.Text)
		}
	}
	if !serialtest.DrainAll(f.ports, 5*time.Second) {
		err = errors.Join(err, errors.New("the ports were not read to the end"))
	}
	sheet, stopErr := g.Stop("the demo ended")
	return sheet, errors.Join(err, stopErr, f.close())
}

// compare holds the books against what the devices did and prints one line for each kind of fault.
func (d demo) compare(truths map[string]serialtest.Truth, sheet ledger.Sheet, talk io.Writer) (good bool) {
	type row struct {
		name  string
		truth func(serialtest.Truth) uint64
		found func(ledger.Port) uint64
	}
	rows := []row{
		{
			"valid frames", func(t serialtest.Truth) uint64 { return t.Sent },
			func(p ledger.Port) uint64 { return p.Frames.OK },
		},
		{
			"never sent", func(t serialtest.Truth) uint64 { return t.Unseen },
			func(p ledger.Port) uint64 { return p.Frames.MissingUnseen },
		},
		{
			"damaged", func(t serialtest.Truth) uint64 { return t.Corrupted },
			func(p ledger.Port) uint64 { return p.Frames.MissingCorrupt },
		},
		{
			"sent twice", func(t serialtest.Truth) uint64 { return t.Duplicated },
			func(p ledger.Port) uint64 { return p.Frames.Duplicate },
		},
		{
			"out of order", func(t serialtest.Truth) uint64 { return t.Reordered },
			func(p ledger.Port) uint64 { return p.Frames.Reordered },
		},
		{
			"unplugged", func(t serialtest.Truth) uint64 { return t.Outages },
			func(p ledger.Port) uint64 { return p.OutageCount },
		},
		{
			"bytes", func(t serialtest.Truth) uint64 { return t.Bytes },
			func(p ledger.Port) uint64 { return p.Bytes.Read },
		},
		{
			"durable", func(t serialtest.Truth) uint64 { return t.Sent },
			func(p ledger.Port) uint64 { return p.Frames.Durable },
		},
	}
	good = true
	w := tabwriter.NewWriter(talk, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what happened\tdone by the devices\tfound in the books\t\t")
	for _, r := range rows {
		var done, found uint64
		same := true
		for _, p := range sheet.Ports {
			a, b := r.truth(truths[p.ID]), r.found(p)
			done, found, same = done+a, found+b, same && a == b
		}
		mark := "exact"
		if !same {
			mark, good = "DIFFERENT", false
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t\n", r.name, done, found, mark)
	}
	_ = w.Flush() // talk is stderr
	return good
}
