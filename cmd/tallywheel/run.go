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
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/forward"
	"github.com/tallywheel/tallywheel/internal/early"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/seglog"
)

func newRun() *cobra.Command {
	var file string
	var asJSON bool
	var traced tracing
	c := &cobra.Command{
		Use: "run -c FILE", Short: "record: read the sources of FILE into the log, serve the API and the page",
		Long: "run records until SIGTERM or Ctrl-C: then it drains what is held, syncs, and prints the balance sheet.\n" +
			"SIGHUP reads FILE again: sources are started, stopped or changed; the log and unchanged ports are not touched.\n" +
			"With `isolate: process` SIGUSR2 has a new program go on: see upgrade.\n" +
			"Exit code: 0 after SIGTERM or Ctrl-C; 1 if it cannot start, as where another recorder has the log, or cannot go on,\n" +
			"as where the log has failed, or where a stop gives up what the log did not take in time; 2 for wrong use.",
		Args: exactly(0, "no argument, and the configuration by -c FILE"),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if file == "" {
				return fmt.Errorf("%w: run: which configuration? use -c FILE", errUsage)
			}
			if traced.length == 0 {
				if err := idle(c, "is the file of --trace", "trace-out"); err != nil {
					return err
				}
			}
			hup := early.Hangups // from the first moment on: a reload must not end a start
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			stop, err := traced.start(os.Stderr)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stop()) }()
			return record(c.Context(), file, hup, asJSON, c.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	c.Flags().BoolVar(&asJSON, "json", false, "print the last sheet as JSON")
	addSpan(c, &traced.length, "trace", 0, true,
		"trace Go's runtime for so long from the start, in the process that records, for 'tallywheel lab trace', with a CPU profile beside; 0: not at all")
	c.Flags().StringVar(&traced.out, "trace-out", "tallywheel.trace", "the file of --trace; its CPU profile lies beside it, as tallywheel.pprof")
	return c
}

func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// calm is when a recorder gives back what only its beginning took: with little to record, half of
// its memory.
const calm = 2 * time.Second

func record(ctx context.Context, file string, hup <-chan os.Signal, asJSON bool, out io.Writer) error {
	var level slog.LevelVar
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &level}))
	b, err := begin(ctx, file, logger)
	if err != nil {
		if errors.Is(err, errStopped) {
			return nil
		}
		return err
	}
	cfg := b.cfg
	if b.quiet && (b.held || cfg.API.Off()) { // else it says where the page is
		level.Set(slog.LevelWarn) // until it records
	}
	b.speak = func() { level.Set(slog.LevelInfo) }
	for _, warning := range risks(cfg, file) {
		logger.Warn(warning)
	}
	limitMemory(cfg, logger)
	var g *recorder.Recorder
	if b.link != nil {
		g, err = recorder.StartIsolated(cfg, logger, b.link)
	} else {
		g, err = recorder.Start(cfg, logger)
	}
	if err != nil {
		return err
	}
	onward := forward.Start(cfg, g.Archive(), logger)
	if onward != nil {
		g.Forwards(onward)
	}
	end, err := serve(ctx, g, b, file, hup, logger)
	yields, dies := errors.Is(err, errYields), b.link != nil && errors.Is(err, errLogFailed)
	if onward != nil && (yields || dies) { // else it ends with the recorder, behind the last frame
		onward.Stop()
	}
	switch {
	case yields && g.Leaves():
		sheet, err := g.Leave(end)
		return errors.Join(err, printSheet(out, sheet, asJSON))
	case yields:
		return g.Yield()
	case dies:
		return err // as if it had been killed: the next recorder goes on at what the log has, and loses nothing
	}
	notify("STOPPING=1")
	sheet, stopErr := g.Stop(end)
	return errors.Join(err, stopErr, printSheet(out, sheet, asJSON))
}

// errLogFailed ends a recorder that can store nothing more.
var errLogFailed = errors.New("recording has ended, because the log takes nothing more; start it again, as a supervisor does: the next " +
	"start recovers the log and names what is lost")

// errYields ends a recorder in whose place another goes on.
var errYields = errors.New("another recorder goes on")

// errKeeper ends a recorder whose keeper is gone.
var errKeeper = errors.New("recording has ended, because the process that keeps the ports open has ended; start it again, as a supervisor does")

// serve runs the API until the context ends or the log fails, reloading on SIGHUP, and returns why
// it ended.
func serve(
	ctx context.Context, g *recorder.Recorder, b beginning, file string, hup <-chan os.Signal, logger *slog.Logger,
) (string, error) {
	failed, nobodyReads := (<-chan error)(nil), false
	if !b.cfg.API.Off() {
		if b.listener == nil {
			var err error
			if b.listener, err = api.Listen(b.cfg.API); err != nil {
				return "the API could not be served", err
			}
		}
		s, err := api.ServeOn(g, b.listener, logger)
		if err != nil {
			return "the API could not be served", err
		}
		defer func() {
			if nobodyReads { // the devices, until this process has ended
				_ = s.CloseWithin(requestsMay)
			} else {
				_ = s.Close()
			}
		}()
		failed = s.Err()
		logger.Info("page and API", "url", s.URL())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reload := &reloader{
		load: func() (config.Config, error) { return config.Reload(file) }, change: g.Reload, keep: b.keep, file: file,
		log: logger,
	}
	go reload.run(ctx, hup)
	defer reload.end()
	notify("READY=1")
	b.ready()
	b.speak()
	shrinks := time.AfterFunc(calm, sys.Shrink)
	defer shrinks.Stop()
	asked := ctx.Done()
	for {
		select {
		case <-g.Yields():
			nobodyReads = g.Leaves()
			return stoppedOnRequest, errYields
		case <-g.KeeperEnded():
			nobodyReads = true
			if g.Kept() != nil {
				logger.Error("the keeper has ended: the next one goes on with what systemd keeps, from what is in the log")
				return "the keeper has ended", errYields
			}
			logger.Error("the keeper has ended: what is in memory is recorded, and the recorder stops")
			return "the keeper has ended", errKeeper
		case <-asked:
			// systemd tells all processes of a service; the keeper tells this one when
			if kept := g.Kept(); kept != nil {
				asked = kept
				continue
			}
			return stoppedOnRequest, nil
		case err := <-failed:
			return "the API failed", err
		case err := <-g.Failed():
			logger.Error("the log has failed", "error", err)
			return "the log has failed", errLogFailed
		}
	}
}

const stoppedOnRequest = "stopped on request"

// requestsMay is how long requests may take to end while nobody reads the devices.
const requestsMay = 50 * time.Millisecond

// reloader reads the configuration again at each signal, on a goroutine of its own: the file may be
// on a disk that does not answer, and a stop waits for no disk.
type reloader struct {
	load   func() (config.Config, error)
	change func(config.Config) error
	keep   func(config.Config) // what is recorded with from now on
	file   string
	log    *slog.Logger

	mu   sync.Mutex // held while the recorder changes
	over bool       // it is to change no more
}

func (r *reloader) run(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			r.reload()
		}
	}
}

func (r *reloader) reload() {
	next, err := r.load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if err == nil {
		err = r.change(next)
	}
	switch {
	case errors.Is(err, recorder.ErrRenews):
		r.log.Info("reload: another recorder is started for what has changed", "file", r.file)
	case err != nil:
		r.log.Error("reload", "error", err)
	default:
		r.keep(next)
		r.log.Info("reloaded", "file", r.file)
	}
}

// end waits for a change that has begun; no other begins.
func (r *reloader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
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
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w,
		"port\tread B\tframes\tunique\tduplicate\treordered\tcorrupt\tmissing\tmissing by time\tunanswered\tstored\tdurable\tdropped\tin flight\toutages\t")
	for _, p := range s.Ports {
		f := p.Frames
		var dropped uint64
		for _, n := range f.Dropped {
			dropped += n
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", p.ID, p.Bytes.Read, f.OK,
			f.Unique, f.Duplicate,
			f.Reordered, f.Corrupt, f.Missing, f.MissingByTime, f.Unanswered, f.Stored, f.Durable, dropped, f.InFlight,
			p.OutageCount)
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
	v := s.Verdict
	_, err := fmt.Fprintf(out, "%s: %s; %s\n", v.Level, v.Text, balanced)
	return err
}

// checkHere reports what a good configuration asks for, and this machine does not have now.
func checkHere(cfg config.Config) config.Problems {
	p := cfg.Aliases()
	if err := seglog.CheckDir(cfg.Log.Dir); err != nil {
		p = append(p, config.Problem{Path: "log.dir", Text: err.Error()})
	}
	for i, s := range cfg.Sources {
		if s.Spill == nil || s.Spill.Path == "" {
			continue
		}
		if err := seglog.CheckDir(s.Spill.Path); err != nil {
			p = append(p, config.Problem{Path: fmt.Sprintf("sources[%d].spill.path", i), Text: err.Error()})
		} else if _, err := os.Stat(s.Spill.Path); err != nil { // unlike that of the log nobody makes it
			p = append(p, config.Problem{
				Path: fmt.Sprintf("sources[%d].spill.path", i),
				Text: err.Error() + ": make the folder, or mount its disk",
			})
		}
	}
	if _, err := cfg.Log.Signer(); err != nil {
		p = append(p, config.Problem{Path: "log.sign", Text: err.Error()})
	}
	return p
}

// risks lists what a good configuration risks, a line each: secrets that everybody can read, and
// a log that is gone with the machine's next start.
func risks(cfg config.Config, file string) []string {
	all := cfg.Exposed(file)
	if cfg.Log.Dir == "" { // the configuration is not good
		return all
	}
	if _, memory := sys.FileSystem(cfg.Log.Dir); memory != "" {
		all = append(all, fmt.Sprintf("log.dir: %s is on %s, in memory: what is recorded is gone when the machine starts again, and takes "+
			"its memory until then; name a folder on a disk", cfg.Log.Dir, memory))
	}
	return all
}

func newCheck() *cobra.Command {
	var asJSON, schema bool
	c := &cobra.Command{
		Use: "check FILE", Short: "check a configuration without starting anything",
		Args: func(c *cobra.Command, args []string) error {
			if schema {
				return errors.Join(exactly(0, "no file beside --schema")(c, args),
					idle(c, "says nothing of a schema, which is JSON", "json"))
			}
			return exactly(1, "one configuration file")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if schema {
				b, err := config.Schema()
				if err == nil {
					_, err = c.OutOrStdout().Write(append(b, '\n'))
				}
				return err
			}
			cfg, err := loading(c.Context(), args[0], 0, func(file string) (config.Config, error) {
				return config.LoadAnd(file, checkHere)
			})
			warnings := risks(cfg, args[0])
			if asJSON {
				r := map[string]any{"ok": err == nil, "sources": len(cfg.Sources)}
				if len(warnings) > 0 {
					r["warnings"] = warnings
				}
				if err != nil {
					r["error"] = err.Error()
				}
				if p := config.Problems(nil); errors.As(err, &p) {
					r["problems"] = p
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
			for _, warning := range warnings {
				fmt.Fprintf(os.Stderr, "tallywheel: warning: %s\n", warning)
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
	c.Flags().BoolVar(&schema, "schema", false,
		"print the JSON schema of the file, for editors and programs that write one")
	return c
}
