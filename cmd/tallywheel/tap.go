package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial"
	"github.com/tallywheel/tallywheel/tap"
)

// tapFlags is what the command line of tap says.
type tapFlags struct {
	baud    int
	mode    string
	frame   string
	dir     string
	length  time.Duration
	count   uint64
	format  string
	noColor bool
}

func newTap() *cobra.Command {
	v := &tapFlags{}
	c := &cobra.Command{
		Use:   "tap PORT | tcp:HOST:PORT | tcp-listen:ADDRESS | udp:ADDRESS",
		Short: "show what comes on a line, a frame a line, and keep it if asked; no configuration",
		Long: "tap shows each frame on a line of its own: time of day, gap to what came before, hexadecimal and text.\n" +
			"Damage, and numbers that are missing, stand between the frames. A port that is unplugged is opened again.\n" +
			"It ends with Ctrl-C, after --for or with --count, and then prints the balance sheet.\n\n" +
			"--frame is auto, or a framing of the configuration with its settings: modbus, line,check=nmea, raw,gap=5ms,\n" +
			"length,prefix=2,check=ccitt. auto tries them side by side, shows raw chunks meanwhile, and says which fits.\n\n" +
			"Exit code: 0 if nothing was lost or damaged, 1 if something was, or after an error, 2 for wrong use.",
		Example: "  tallywheel tap /dev/ttyUSB0 -b 19200 --mode 8E1\n" +
			"  tallywheel tap tcp:10.0.0.7:4001 --frame modbus --log ./capture\n" +
			"  tallywheel tap udp:10110 --format json | jq .",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongTap(errors.New("want one port; `tallywheel ports` lists those of this machine"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return v.run(c, args[0]) },
	}
	f := c.Flags()
	f.IntVarP(&v.baud, "baud", "b", 9600, "bits a second")
	f.StringVar(&v.mode, "mode", "8N1", "data bits, parity (N, E, O, M, S) and stop bits")
	f.StringVar(&v.frame, "frame", "auto", "auto, or a framing with its settings")
	f.StringVar(&v.dir, "log", "", "keep everything in this folder, for tallywheel log")
	addSpan(c, &v.length, "for", 0, true, "end after so long; 0: do not")
	f.Uint64Var(&v.count, "count", 0, "end with so many frames; 0: do not")
	addWord(c, &v.format, "format", "text", []string{"text", "json"}, "what is printed, json as an object a line")
	f.BoolVar(&v.noColor, "no-color", false, "no color on a terminal, as with NO_COLOR set")
	return c
}

func (v *tapFlags) run(c *cobra.Command, port string) error {
	cfg, err := v.config(port)
	if err != nil {
		return wrongTap(err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP) // the terminal is closed
	defer stop()
	pipe := make(chan os.Signal, 1) // or a reader that goes would end us before the log is closed
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	out := c.OutOrStdout()
	r, err := tap.Run(ctx, cfg, out)
	if problems := config.Problems(nil); errors.As(err, &problems) {
		return wrongTap(inWords(problems))
	}
	if err != nil && r.Counts == (tap.Counts{}) { // nothing came: it could not begin
		return helpOpen(err)
	}
	if !r.Closed {
		err = errors.Join(err, tapEnd(out, r, cfg.JSON))
	}
	if err == nil && r.Bad {
		return errQuiet
	}
	return err
}

// config makes a configuration of what the command line says.
func (v *tapFlags) config(port string) (c tap.Config, err error) {
	c = tap.Config{Dir: v.dir, For: v.length, Count: v.count, Auto: v.frame == "auto", JSON: v.format == "json"}
	if c.Source, err = v.source(port); err != nil {
		return c, err
	}
	if !c.Auto {
		if c.Source.Frame, err = parseFrame(v.frame); err != nil {
			return c, fmt.Errorf("--frame: %w; or auto", err)
		}
	}
	_, notTTY := sys.GetTermios(int(os.Stdout.Fd()))
	c.Color = notTTY == nil && !v.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return c, nil
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// source reads the argument of tap.
func (v *tapFlags) source(port string) (config.Source, error) {
	const longest = 64
	id := strings.Trim(notInID.ReplaceAllString(strings.TrimPrefix(port, "/dev/"), "-"), "-._")
	s := config.Source{ID: id[max(0, len(id)-longest):]}
	s.ID = strings.TrimLeft(s.ID, "-._")
	address := func(a string) string {
		if _, err := strconv.Atoi(a); err == nil { // a port alone
			return ":" + a
		}
		return a
	}
	kind, rest, _ := strings.Cut(port, ":")
	switch kind {
	case "tcp":
		s.TCP = &config.Net{Dial: rest}
	case "tcp-listen":
		s.TCP = &config.Net{Listen: address(rest)}
	case "udp":
		s.UDP = &config.Net{Listen: address(rest)}
	default:
		line, err := parseMode(v.mode)
		if err != nil {
			return s, err
		}
		if v.baud == 0 { // a configuration would take that for its default
			return s, errors.New("-b: 0: want 50 to 20000000")
		}
		line.Port, line.Baud = port, v.baud
		s.Serial = line
	}
	if s.ID == "" {
		return s, fmt.Errorf("%q: want a port, tcp:HOST:PORT, tcp-listen:ADDRESS or udp:ADDRESS", port)
	}
	return s, nil
}

// parseMode reads a mode as 8N1.
func parseMode(s string) (*config.Serial, error) {
	parities := map[byte]serial.Parity{
		'N': serial.NoParity, 'E': serial.EvenParity, 'O': serial.OddParity, 'M': serial.MarkParity,
		'S': serial.SpaceParity,
	}
	if len(s) == 3 {
		data, parity, stop := int(s[0]-'0'), parities[s[1]&^0x20], int(s[2]-'0')
		if data >= 5 && data <= 8 && parity != "" && (stop == 1 || stop == 2) {
			return &config.Serial{DataBits: data, Parity: string(parity), StopBits: stop}, nil
		}
	}
	return nil, fmt.Errorf("--mode %q: want data bits 5 to 8, parity N, E, O, M or S, and stop bits 1 or 2, as 8N1", s)
}

// parseFrame reads a framing with its settings, as length,prefix=2,check=ccitt.
func parseFrame(s string) (f config.Frame, err error) {
	kind, settings, _ := strings.Cut(s, ",")
	if kind == "nmea" {
		return f, errors.New(`"nmea": want line,check=nmea, or ubx for a receiver that sends binary, too`)
	}
	f.Kind = kind
	for setting := range strings.SplitSeq(settings, ",") {
		key, value, _ := strings.Cut(setting, "=")
		switch key {
		case "":
		case "max":
			f.Max, err = strconv.Atoi(value)
		case "prefix":
			f.Prefix, err = strconv.Atoi(value)
		case "gap":
			f.Gap, err = time.ParseDuration(value)
		case "inclusive":
			f.Inclusive, err = strconv.ParseBool(value)
		case "endian":
			f.Endian = value
		case "check":
			f.Check = value
		default:
			err = errors.New("want max, gap, prefix, endian, inclusive or check")
		}
		if err != nil {
			return f, fmt.Errorf("%q: %w", setting, err)
		}
	}
	if f.Kind == "" {
		err = fmt.Errorf("want auto, %s", strings.Join(framings.Names(), ", "))
	}
	return f, err
}

// wrongTap is a wrong use of tap.
func wrongTap(err error) error {
	return fmt.Errorf("%w: tap: %w\nusage: tallywheel tap PORT | tcp:HOST:PORT | tcp-listen:ADDRESS | udp:ADDRESS"+
		" [-b 9600] [--mode 8N1] [--frame auto]; `tallywheel help tap` says more", errUsage, err)
}

// inWords says what is wrong by the names of the command line, not of a file that is not there.
func inWords(p config.Problems) error {
	names := map[string]string{"serial": "-b", "tcp": "address", "udp": "address", "frame": "--frame", "dir": "--log"}
	var all []string
	for _, one := range p {
		_, path, _ := strings.Cut(one.Path, ".")
		section, _, _ := strings.Cut(path, ".")
		name := names[section]
		if path == "serial.port" || name == "" {
			name = path
		}
		all = append(all, name+": "+one.Text)
	}
	return errors.New(strings.Join(all, "; "))
}

// helpOpen says what to do when a port is not there.
func helpOpen(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ports, listErr := serial.List()
	if listErr != nil || len(ports) == 0 {
		return fmt.Errorf("%w; there is no serial port here: is the adapter plugged in? `tallywheel sim` makes virtual ones", err)
	}
	var names []string
	for _, p := range ports {
		names = append(names, p.Path)
	}
	return fmt.Errorf("%w; there are: %s; `tallywheel ports` says what they are", err, strings.Join(names, ", "))
}

// tapEnd prints the counts and the sheet.
func tapEnd(out io.Writer, r tap.Result, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(struct {
			Type   string       `json:"type"`
			Counts tap.Counts   `json:"counts"`
			Bad    bool         `json:"bad"`
			Sheet  ledger.Sheet `json:"sheet"`
		}{"sheet", r.Counts, r.Bad, r.Sheet})
	}
	if _, err := fmt.Fprintf(out, "── %s\n", r); err != nil {
		return err
	}
	return printSheet(out, r.Sheet, false)
}
