package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/replay"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial"
)

// replayFlags is what the command line of replay says.
type replayFlags struct {
	dir    string
	to     string
	baud   int
	mode   string
	flow   serial.Flow
	cfg    replay.Config
	bounds replay.Bounds
	window window
	asJSON bool
}

func newReplay() *cobra.Command {
	v := &replayFlags{cfg: replay.Config{Speed: 1}}
	c := &cobra.Command{
		Use:   "replay --source ID --to pty[:LINK] | /dev/ttyX | tcp:HOST:PORT | tcp-listen:ADDRESS | udp:HOST:PORT",
		Short: "play what was recorded of a source onto a wire again, byte for byte and pause for pause",
		Long: "replay plays the frames of a source, and the bytes between them that were no frame where the source was recorded\n" +
			"with `quarantine: true`. What was read at once goes out at once, and the time between two reads passes again.\n" +
			"docs/guide/replay.md says what a log cannot play.\n\n" +
			"Exit code: 0 if all was played; 1 if the receiver went away or took nothing, or after another error; 2 for wrong use.",
		Example: "  tallywheel replay --dir ./data --source line-1 --to pty:./line-1\n" +
			"  tallywheel replay --dir ./data --source plc --to tcp:127.0.0.1:4001 --since 2026-11-20T10:00 --until 2026-11-20T10:05 --tz Europe/Berlin\n" +
			"  tallywheel replay --dir ./data --source gps --to /dev/ttyUSB0 -b 4800 --speed 10",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return v.run(c) },
	}
	f := c.Flags()
	f.StringVar(&v.dir, "dir", "./data", "folder of the log")
	f.StringVar(&v.cfg.Source, "source", "", "source to play; a peer by its whole name, as line-1/10.0.0.7")
	f.StringVar(&v.to, "to", "", "where to")
	f.Var(&parsed{words: "1", kind: "number", read: v.speed}, "speed",
		"times as fast as it was recorded, or max: as fast as the receiver takes it")
	addSpan(c, &v.cfg.MaxPause, "max-pause", 0, true, "make longer pauses so short; 0: do not")
	f.Uint64Var(&v.cfg.From, "from", 0, "begin with this sequence of the log")
	v.window.flags(c, true)
	f.IntVarP(&v.baud, "baud", "b", 115200, "rate of a serial port")
	f.StringVar(&v.mode, "mode", "8N1", "data bits, parity and stop bits of a serial port")
	addWord(c, &v.flow, "flow", serial.NoFlow, []serial.Flow{serial.NoFlow, serial.RTSCTS, serial.XonXoff},
		"flow control of a serial port")
	addSpan(c, &v.bounds.Open, "wait", time.Minute, false, "how long to wait for a receiver")
	addSpan(c, &v.bounds.Stall, "stall", 10*time.Second, false, "how long a receiver may take nothing")
	f.BoolVar(&v.asJSON, "json", false, "print what was played as JSON")
	return c
}

// speed reads the flag --speed.
func (v *replayFlags) speed(s string) (err error) {
	if s == "max" {
		v.cfg.Speed = 0
		return nil
	}
	const least, most = 0.001, 1e6
	if v.cfg.Speed, err = strconv.ParseFloat(s, 64); err != nil || !(v.cfg.Speed >= least && v.cfg.Speed <= most) {
		return errors.New("want 0.001 to 1000000, or max")
	}
	return nil
}

func (v *replayFlags) run(c *cobra.Command) (err error) {
	ctx := c.Context()
	if v.cfg.Since, v.cfg.Until, err = v.window.moments(time.Now()); err != nil {
		return err
	}
	if v.cfg.Source == "" || v.to == "" {
		return fmt.Errorf("%w: replay: want --source ID and --to WIRE; `tallywheel help replay` lists wires", errUsage)
	}
	if err := v.idle(c); err != nil {
		return err
	}
	if _, err := archive.Folder(v.dir); err != nil {
		return fmt.Errorf("%w; name the folder of the log with --dir", err)
	}
	log, err := archive.Open(v.dir)
	if err != nil {
		return err
	}
	if err := v.known(log.Streams); err != nil {
		return err
	}
	w, err := v.wire(ctx)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted while it waited for a receiver: nothing was played")
	}
	if err != nil {
		return err
	}
	line := &progressLine{on: isTerminal(os.Stderr)}
	v.cfg.OnGap = func(gap *seglog.GapError) {
		line.clear()
		fmt.Fprintln(os.Stderr, "tallywheel:", gap)
	}
	if line.on {
		v.cfg.OnProgress = func(r replay.Result) {
			line.write(fmt.Sprintf("%s, %d frames, %d bytes", ledger.Time(r.Last.UnixNano()), r.Frames, r.Bytes))
		}
	}
	r, err := replay.Run(ctx, log, v.cfg, w)
	line.clear()
	err = errors.Join(err, w.Close())
	if r.Bytes > 0 {
		if v.asJSON {
			err = errors.Join(err, json.NewEncoder(c.OutOrStdout()).Encode(r))
		} else {
			v.say(r)
		}
	}
	switch {
	case errors.Is(err, context.Canceled) && r.Bytes == 0:
		return errors.New("interrupted: nothing was played")
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted behind what was recorded at %s: the rest was not played",
			ledger.Time(r.Last.UnixNano()))
	case errors.Is(err, replay.ErrNothing):
		return fmt.Errorf("log in %s: %w: it has no record of %s in that time", v.dir, err, v.cfg.Source)
	}
	return err
}

// idle is an error where a flag has nothing to do.
func (v *replayFlags) idle(c *cobra.Command) error {
	kind, _, _ := strings.Cut(v.to, ":")
	var err error
	switch kind {
	case "pty", "tcp", "tcp-listen", "udp":
		err = idle(c, "is of a serial port, and --to is "+kind, "baud", "mode", "flow")
		if kind == "udp" && err == nil {
			err = idle(c, "has nothing to wait for by UDP", "wait")
		}
	default:
		err = idle(c, "has nothing to wait for at a serial port", "wait")
	}
	if v.cfg.Speed == 0 && err == nil {
		err = idle(c, "has no pause to shorten at --speed max", "max-pause")
	}
	return err
}

// known is an error unless the log has records of this very source, and says what they cannot be.
func (v *replayFlags) known(streams *archive.Streams) error {
	if err := archive.KnownSource(v.cfg.Source, streams.Sources()); err != nil {
		return fmt.Errorf("log in %s: %w", v.dir, err)
	}
	if !streams.Has(v.cfg.Source) {
		all := slices.DeleteFunc(streams.Sources(),
			func(name string) bool { return !archive.Selects(v.cfg.Source, name) })
		if len(all) == 1 {
			return fmt.Errorf("%w: replay: --source %s: want the whole name, %s", errUsage, v.cfg.Source, all[0])
		}
		return fmt.Errorf("%w: replay: --source %s is several, each with a wire of its own: name one of %s",
			errUsage, v.cfg.Source, strings.Join(all, ", "))
	}
	if !streams.Quarantines(v.cfg.Source) {
		fmt.Fprintf(os.Stderr, "tallywheel: %s was recorded without `quarantine: true`: "+
			"bytes that were no frame are not in the log, and are not played\n", v.cfg.Source)
	}
	return nil
}

// wire opens what --to says.
func (v *replayFlags) wire(ctx context.Context) (replay.Closer, error) {
	kind, rest, _ := strings.Cut(v.to, ":")
	ready := func(at string) { fmt.Fprintln(os.Stderr, "waiting for a receiver at", at) }
	switch kind {
	case "pty":
		return replay.ToPTY(ctx, rest, v.bounds, ready)
	case "tcp", "udp":
		return replay.ToAddress(ctx, kind, rest, v.bounds, ready)
	case "tcp-listen":
		if _, err := strconv.Atoi(rest); err == nil { // a port alone: of this machine alone
			rest = "127.0.0.1:" + rest
		}
		return replay.ToCaller(ctx, rest, v.bounds, ready)
	}
	if !strings.HasPrefix(v.to, "/") && !strings.HasPrefix(v.to, ".") {
		return nil,
			fmt.Errorf("%w: replay: --to %q: want pty, pty:LINK, /dev/ttyX, tcp:HOST:PORT, tcp-listen:ADDRESS or udp:HOST:PORT", errUsage, v.to)
	}
	line, err := parseMode(v.mode)
	if err != nil {
		return nil, fmt.Errorf("%w: replay: %w", errUsage, err)
	}
	cfg, err := serial.Config{
		Baud: v.baud, DataBits: line.DataBits, Parity: serial.Parity(line.Parity), StopBits: line.StopBits,
		Flow: v.flow,
	}.Check()
	if err != nil {
		return nil, fmt.Errorf("%w: replay: %w", errUsage, err)
	}
	w, err := replay.ToPort(v.to, cfg, v.bounds)
	if err != nil {
		return nil, helpOpen(err)
	}
	return w, nil
}

// say prints what was played, for people.
func (v *replayFlags) say(r replay.Result) {
	var w io.Writer = os.Stderr
	fmt.Fprintf(w, "played %d frames and %d pieces that were no frame, %d bytes, of %s to %s, in %v\n",
		r.Frames, r.Quarantined, r.Bytes, ledger.Time(r.First.UnixNano()), ledger.Time(r.Last.UnixNano()),
		r.Took.Round(time.Millisecond))
	if v.cfg.Speed > 0 {
		fmt.Fprintf(w, "late by %v at the median, %v at 99 %%, %v at most\n", r.Late.P50, r.Late.P99, r.Late.Max)
	}
	if r.NotThere > 0 {
		fmt.Fprintf(w, "%d bytes that were on the wire are not in the log, and were not played\n", r.NotThere)
	}
}
