package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/gateway"
	"github.com/tallywheel/tallywheel/ledger"
)

func newRun() *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use: "run -c FILE", Short: "record: read the sources of FILE into the log, serve the API and the page",
		Long: "run records until SIGTERM or Ctrl-C: then it drains what is held, syncs, and prints the balance sheet.\n" +
			"SIGHUP reads FILE again: sources are started, stopped or changed; the log and unchanged ports are not touched.",
		Args: exactly(0, "no argument, and the configuration by -c FILE"),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: run: which configuration? use -c FILE", errUsage)
			}
			return record(c.Context(), file, asJSON, c.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	c.Flags().BoolVar(&asJSON, "json", false, "print the last sheet as JSON")
	return c
}

func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func record(ctx context.Context, file string, asJSON bool, out io.Writer) error {
	cfg, err := gateway.Load(file)
	if err != nil {
		return err
	}
	logger := newLogger(os.Stderr)
	g, err := gateway.Start(cfg, logger)
	if err != nil {
		return err
	}
	end, err := serve(ctx, g, cfg, file, logger)
	sheet, stopErr := g.Stop(end)
	notify("STOPPING=1")
	return errors.Join(err, stopErr, printSheet(out, sheet, asJSON))
}

// serve runs the API until the context ends, reloading on SIGHUP, and returns why it ended.
func serve(ctx context.Context, g *gateway.Gateway, cfg gateway.Config, file string, logger *slog.Logger) (string, error) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	failed := (<-chan error)(nil)
	if cfg.API.Listen != "off" {
		s, err := g.Serve()
		if err != nil {
			return "the API could not be served", err
		}
		defer s.Close()
		failed = s.Err()
		logger.Info("page and API", "url", s.URL())
	}
	notify("READY=1")
	for {
		select {
		case <-ctx.Done():
			return "stopped on request", nil
		case err := <-failed:
			return "the API failed", err
		case <-hup:
			next, err := gateway.Load(file)
			if err == nil {
				err = g.Reload(next)
			}
			if err != nil {
				logger.Error("reload: nothing changed beyond what is logged above", "error", err)
			} else {
				logger.Info("reloaded", "file", file)
			}
		}
	}
}

// notify tells systemd, if it started us (sd_notify(3)).
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return // whoever set the variable is not listening: nothing depends on it
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}

// printSheet prints a balance sheet for people or for machines.
func printSheet(out io.Writer, s ledger.Sheet, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(s)
	}
	text, _ := gateway.Verdict(s)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "port\tread B\tframes\tunique\tduplicate\treordered\tcorrupt\tmissing\tstored\tdurable\tdropped\tin flight\toutages\t")
	for _, p := range s.Ports {
		f := p.Frames
		var dropped uint64
		for _, n := range f.Dropped {
			dropped += n
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", p.ID, p.Bytes.Read, f.OK, f.Unique, f.Duplicate,
			f.Reordered, f.Corrupt, f.Missing, f.Stored, f.Durable, dropped, f.InFlight, p.OutageCount)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	balanced := "every equation balances"
	if !s.Balanced {
		balanced = "THE BOOKS DO NOT BALANCE"
		for _, p := range s.Ports {
			for _, u := range p.Unbalanced {
				balanced += fmt.Sprintf("\n  %s: %s", p.ID, u)
			}
		}
	}
	_, err := fmt.Fprintf(out, "%s; %s\n", text, balanced)
	return err
}

func newCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "check FILE", Short: "check a configuration without starting anything", Args: exactly(1, "one configuration file"),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := gateway.Load(args[0])
			if asJSON {
				r := map[string]any{"ok": err == nil, "sources": len(cfg.Sources)}
				if err != nil {
					r["error"] = err.Error()
				}
				if encodeErr := json.NewEncoder(c.OutOrStdout()).Encode(r); encodeErr != nil {
					return encodeErr
				}
				if err != nil {
					return errQuiet
				}
				return nil
			}
			if err != nil {
				return err
			}
			noun := "sources"
			if len(cfg.Sources) == 1 {
				noun = "source"
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is good: %d %s, log in %s with sync %s, page at %s\n",
				args[0], len(cfg.Sources), noun, cfg.Log.Dir, cfg.Log.Sync, cfg.API.Listen)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer as JSON")
	return c
}
