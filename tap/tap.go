// Package tap shows what comes on a line while it comes, a frame a line, and keeps it if asked.
//
// # Concepts
//
// A tap is a recorder with one source and a watcher. The recorder reads, opens the port again when
// it is gone, keeps the books and writes the log; without a folder to keep it in, the log is a
// small one in memory, which forgets what is old. The watcher puts what the recorder sees into a
// bounded queue. A printer takes it from there, looks for the framing where none is given, and
// writes lines.
//
// # Guarantees
//
// Recording never waits for the output: frames for which the queue has no place are in the log and
// in the counts, and the line in their place says how many they are. Each write to the output is
// whole lines. What comes from a device is never obeyed by the terminal.
package tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/detect"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
)

// Config is what is tapped, and how it is shown.
type Config struct {
	Source config.Source  // with Auto, its framing is not looked at
	Auto   bool           // look for the framing
	Dir    string         // folder of the log; "": nothing is kept
	For    time.Duration  // end after so long; 0: do not
	Count  uint64         // end with so many frames; 0: do not
	JSON   bool           // lines for programs
	Color  bool           // of lines for people
	Zone   *time.Location // of times for people; nil: that of the machine
}

// Result is what came.
type Result struct {
	Sheet  ledger.Sheet // the last one; chunks from before the framing was found count as frames
	Counts Counts
	Bad    bool // something was lost or damaged
	Lost   bool // … by the driver, the kernel or the recorder
	Closed bool // nobody reads the output any more
}

// String sums it up for people.
func (r Result) String() string {
	c := r.Counts
	text := plural(int(c.Frames), "frame") + ", " + plural(int(c.Bytes), "byte")
	for _, part := range []struct {
		n    uint64
		what string
	}{
		{c.Damaged, "damaged"},
		{c.Stray, "bytes in no frame"},
		{c.Unanswered, "requests without an answer"},
		{c.Missing - c.Late, "missing"},
		{c.Late, "late"},
		{c.Repeated, "repeated"},
		{c.NotShown, "not shown"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	if c.Outages > 0 {
		text += "; the port was gone " + plural(int(c.Outages), "time")
	}
	if c.CutBytes > 0 {
		text += "; " + plural(int(c.CutBytes), "byte") +
			" of frames that were under way as the tap began or ended, which count as no damage"
	}
	if c.Frames == 0 {
		text += "; nothing came in a frame"
	}
	switch {
	case r.Bad && !r.Lost && c.onlyGone():
		return text + "; what came meanwhile is lost"
	case r.Bad:
		return text + "; something was lost or damaged"
	}
	return text + "; nothing was lost or damaged that can be seen"
}

// rawConfig is the framing of bytes of which no framing is known.
var rawConfig = framings.Config{Kind: rawFrame}

// session is a tap that runs.
type session struct {
	cfg     config.Config
	tap     Config
	q       *queue
	rec     *recorder.Recorder
	printer *printer
	found   chan detect.Fit
	written chan error // has the printer's end
	before  ledger.Port
	lost    bool // something that the counts of the queue do not have
}

// Run taps until the context ends, or as the configuration says. An error is what kept it from
// beginning or going on; damage is none.
func Run(ctx context.Context, c Config, out io.Writer) (Result, error) {
	dir := c.Dir
	if dir == "" {
		tmp, err := memoryDir()
		if err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	s, err := newSession(c, dir, out)
	if err != nil {
		return Result{}, err
	}
	if c.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	go func() { s.written <- s.printer.run() }()
	end, err := s.watch(ctx)
	return s.stop(end, err)
}

func newSession(c Config, dir string, out io.Writer) (*session, error) {
	if c.Auto {
		c.Source.Frame = config.Frame{Kind: rawFrame}
	}
	c.Source.Quarantine = true // what is in no frame is kept, too
	s := &session{tap: c, q: newQueue(c.Count), found: make(chan detect.Fit, 1), written: make(chan error, 1)}
	s.cfg = config.Config{
		Log: config.Log{Dir: dir}, API: config.API{Listen: "off"}, Sources: []config.Source{c.Source},
	}
	if c.Dir == "" {
		s.cfg.Log.Sync, s.cfg.Log.Segment, s.cfg.Log.OnFull = "never", memorySegment, "drop-oldest"
		s.cfg.Log.Keep.Size = memorySegments * memorySegment
	}
	s.cfg = s.cfg.WithDefaults()
	if err := s.cfg.Validate(); err != nil {
		return nil, err
	}
	framing, err := s.cfg.Sources[0].Framing()
	if err != nil {
		return nil, err
	}
	dec, err := framings.New(framing)
	if err != nil {
		return nil, err
	}
	s.q.framing(dec.Max())
	s.q.line = c.Source.Serial != nil
	s.q.waits = c.Source.TCP != nil && c.Source.TCP.Dial != "" // it may come, and that it is not there is said
	s.printer = &printer{q: s.q, out: out, turns: make(chan facts, 1), facts: factsOf(framing.String(), dec)}
	if c.Zone == nil {
		c.Zone = time.Local
	}
	if s.printer.format = (text{c.Zone, c.Color}); c.JSON {
		s.printer.format = ndjson{c.Source.ID}
	}
	s.printer.intro = []string{s.headline()}
	if c.Auto {
		baud, bits := 0, 0
		if l := s.cfg.Sources[0].Serial; l != nil {
			baud, bits = l.Baud, l.Line().CharBits()
		}
		s.printer.search = newSearch(s.found, baud, bits, dec.Silence())
		s.printer.intro = append(s.printer.intro,
			fmt.Sprintf("undecided so far: raw chunks, split by silences of %v", dec.Silence()))
	}
	s.rec, err = recorder.StartWatched(s.cfg, newJournal(s.q), s.q)
	return s, err
}

// headline says what is tapped.
func (s *session) headline() string {
	c := s.cfg.Sources[0]
	what := ""
	switch {
	case c.Serial != nil:
		l := c.Serial
		what = fmt.Sprintf("%s, %d baud, %d%c%d", l.Port, l.Baud, l.DataBits, l.Parity[0]-'a'+'A', l.StopBits)
	case c.UDP != nil:
		what = "udp " + c.UDP.Listen
	case c.TCP.Listen != "":
		what = "tcp, listening at " + c.TCP.Listen
	default:
		what = "tcp " + c.TCP.Dial
	}
	framing, kept := "framing "+s.printer.facts.name, "nothing is kept (--log DIR keeps all)"
	if s.tap.Auto {
		framing = "looking for the framing"
	}
	if s.tap.Dir != "" {
		kept = "kept in " + s.tap.Dir
	}
	return fmt.Sprintf("%s; %s; %s", what, framing, kept)
}

// watch goes on until something ends the tap, and says what.
func (s *session) watch(ctx context.Context) (end string, err error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return "the tap ended", nil
		case <-s.q.reached:
			return "the tap had what it was to count", nil
		case err := <-s.written:
			s.written <- err // for stop
			return "the output was closed", nil
		case err := <-s.q.failed:
			return "the port could not be opened", err
		case err := <-s.rec.Failed():
			return "the log has failed", fmt.Errorf("nothing more can be recorded: %w", err)
		case fit := <-s.found:
			s.turn(fit)
		case <-look.C:
			s.look(s.rec.Sheet())
		}
	}
}

// turn has the source framed as it fits from the next frame on.
func (s *session) turn(fit detect.Fit) {
	f := fit.Framing
	to := config.Frame{Kind: f.Kind, Prefix: f.Prefix, Inclusive: f.Inclusive, Check: f.Check.String()}
	if f.Little {
		to.Endian = "little"
	}
	dec, err := framings.New(f)
	if err == nil {
		if f.Kind != rawFrame {
			s.q.note(time.Now().UnixNano(), false, fit.String()+"; shown and recorded so from the next frame on")
		}
		s.q.framing(dec.Max())
		s.printer.turns <- factsOf(f.String(), dec) // it has room: the last turn has been printed
		err = s.rec.Reframe(s.tap.Source.ID, to)
	}
	if err != nil {
		s.q.note(time.Now().UnixNano(), true, "the framing could not be changed: "+err.Error())
	}
}

// outputPatience is how long a tap that ends waits for its output.
const outputPatience = 2 * time.Second

// stop ends the recording and the output.
func (s *session) stop(end string, err error) (Result, error) {
	sheet, stopErr := s.rec.Stop(end)
	s.look(sheet)
	s.q.end()
	if wrote, ended := s.finish(); ended && wrote != nil && !errors.Is(wrote, syscall.EPIPE) {
		err = errors.Join(err, fmt.Errorf("output: %w", wrote))
	} else if !ended || wrote != nil {
		return s.result(sheet, true), errors.Join(err, stopErr)
	}
	return s.result(sheet, false), errors.Join(err, stopErr)
}

func (s *session) result(sheet ledger.Sheet, closed bool) Result {
	c := s.q.total()
	return Result{Sheet: sheet, Counts: c, Bad: c.Bad() || s.lost || !sheet.Balanced, Lost: s.lost, Closed: closed}
}

// finish waits for the printer: first until it has shown all, then until it has done with what it
// writes. A reader that does not read is left.
func (s *session) finish() (err error, ended bool) {
	for range 2 {
		select {
		case err := <-s.written:
			return err, true
		case <-time.After(outputPatience):
			s.printer.late.Store(true)
		}
	}
	return nil, false
}
