// Package export writes records of a log out, for other programs: as CSV, as Parquet, as JSON
// lines, or byte for byte as they were on the wire.
//
// [Run] reads a log once, in order, and holds no more of it in memory than a few megabytes,
// whatever its size. It ends with the last record that the log had when it began, so it ends also
// while the log is written to. [ToFile] gives a file its name only when all of it is on the disk.
//
// # What stands in a cell
//
// Text cells of CSV, and of Parquet with [AsText], are the text of a record without the end of its
// line. What is no text is hexadecimal digits behind "hex:": a cell of digits alone would be taken
// for a number by whoever reads it, with its leading zeros lost. A text that begins with "hex:"
// itself is written so, too: what begins with that is always bytes.
//
// A spreadsheet computes cells of CSV that begin with = + - @, a tab or a carriage return, whoever
// wrote them: a device could so have it call a program, or send what stands in other cells
// elsewhere. Such a cell gets an apostrophe in front, and so does one that begins with an
// apostrophe: without the first one each is what it was. Numbers, as -12.5, stay as they are.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/seglog"
)

// Format is what is written.
type Format string

// The formats.
const (
	CSV     Format = "csv"     // RFC 4180, with a line that names the columns, in UTF-8; lines end in LF
	Parquet Format = "parquet" // typed columns, zstd
	NDJSON  Format = "ndjson"  // a JSON object a line: archive.Record
	Raw     Format = "raw"     // the bytes of the records, and nothing between them
)

// Formats lists them.
func Formats() []Format { return []Format{CSV, Parquet, NDJSON, Raw} }

// Column is a column of CSV and Parquet.
type Column string

// The columns.
const (
	Source     Column = "source"
	Seq        Column = "seq"         // sequence in the log
	Time       Column = "time"        // when it was read
	DeviceTime Column = "device_time" // device's clock, ns; empty where the framing has none
	Device     Column = "device"
	Epoch      Column = "epoch"
	Number     Column = "number" // the frame's number, given by the device
	Offset     Column = "offset" // of quarantined bytes: where they were in what was read
	Len        Column = "len"    // bytes of the record, on the wire
	Data       Column = "data"
)

// Columns lists those that there are; Usual those that are written where none are named.
func Columns() []Column {
	return []Column{Source, Seq, Time, DeviceTime, Device, Epoch, Number, Offset, Len, Data}
}

// Usual lists the columns that are written where none are named.
func Usual() []Column {
	return []Column{Source, Seq, Time, DeviceTime, Device, Epoch, Len, Data}
}

// Text says which data is text.
type Text string

// Which data is text. Data that is no UTF-8, or has other control characters than tabs and ends of
// lines, never is.
const (
	AsFramed Text = ""     // in CSV that of the framing line, else none
	AsText   Text = "text" // all that can be
	AsHex    Text = "hex"  // none
)

// Config says what is written, and how. The zero value writes all frames as CSV.
type Config struct {
	Query   archive.Query  // Back is not for this
	Format  Format         // "" means CSV
	Columns []Column       // of CSV and Parquet; nil means Usual
	Zone    *time.Location // of the times in CSV and JSON lines; nil means UTC
	Text    Text           // of CSV and Parquet
	Exact   bool           // CSV: no cell gets an apostrophe
	BOM     bool           // CSV: begin with a byte order mark, by which a spreadsheet knows UTF-8

	// OnGap is told of records that were asked for and are not in the log any more, as the log has
	// removed them, or notes that they are lost. nil: nobody is.
	OnGap func(*seglog.GapError)
	// OnProgress is told a few times a second how far it is. nil: nobody is.
	OnProgress func(Progress)
}

// Progress is how far an export is.
type Progress struct {
	Done, All uint64        // records of the log that were looked at, and will be; All is 0 while that is not known
	Records   uint64        // of them, written
	Elapsed   time.Duration // since it began
}

// Left is about how long it will still take; 0 while that is not known.
func (p Progress) Left() time.Duration {
	if p.Done == 0 || p.All < p.Done {
		return 0
	}
	return time.Duration(float64(p.Elapsed) * float64(p.All-p.Done) / float64(p.Done))
}

// ErrInterrupted says that an export was ended before it was through.
var ErrInterrupted = errors.New("interrupted: the export is not whole")

// sink writes records in a format.
type sink interface {
	// put takes one record. Its data is a view, valid until put returns.
	put(rec seglog.Record, of *archive.Stream) error
	// close writes what is left. Where the export is not whole, nothing may say that it is.
	close(whole bool) error
}

// Check reports what is wrong.
func (cfg Config) Check() error {
	if cfg.Format == Raw || cfg.Format == NDJSON {
		if len(cfg.Columns) > 0 || cfg.Text != AsFramed || cfg.BOM || cfg.Exact {
			return fmt.Errorf("format %s: columns, and how data is written, are of csv and parquet", cfg.Format)
		}
		return nil
	}
	if cfg.Format == Parquet && (cfg.BOM || cfg.Exact) {
		return errors.New("format parquet: a byte order mark, and what a spreadsheet computes, are of csv")
	}
	for i, c := range cfg.Columns {
		if !slices.Contains(Columns(), c) {
			return fmt.Errorf("column %q: want some of %s", c, joined(Columns()))
		}
		if slices.Contains(cfg.Columns[:i], c) {
			return fmt.Errorf("column %q is there twice", c)
		}
	}
	return nil
}

func joined(columns []Column) string {
	var all []string
	for _, c := range columns {
		all = append(all, string(c))
	}
	return strings.Join(all, ", ")
}

// open begins the output.
func (cfg Config) open(w io.Writer) (sink, error) {
	cfg.Zone = cmp.Or(cfg.Zone, time.UTC)
	if cfg.Columns == nil {
		cfg.Columns = Usual()
	}
	switch cfg.Format {
	case CSV, "":
		return newCSV(cfg, w), nil
	case Parquet:
		return newParquet(cfg, w)
	case NDJSON:
		return newNDJSON(cfg, w), nil
	case Raw:
		return newRaw(w), nil
	}
	return nil, fmt.Errorf("format %q: want csv, parquet, ndjson or raw", cfg.Format)
}

// How many records of the log are looked at between two looks at the clock and the context.
const looks = 1 << 10

// progressEvery is between two words to OnProgress.
const progressEvery = 250 * time.Millisecond

// Run writes the records that answer the query to w, and returns how many. It ends with an error
// where the log is damaged, when the context ends, and where w takes no more; what was written by
// then is no whole export.
func Run(ctx context.Context, log *archive.Archive, cfg Config, w io.Writer) (records uint64, err error) {
	if err := cfg.Check(); err != nil {
		return 0, err
	}
	last, err := log.Last()
	if err != nil {
		last = 0 // reading says what is wrong, where it is
	}
	before, err := log.Before(cfg.Query)
	for i := range before {
		err = errors.Join(err, cfg.gap(&before[i]))
	}
	if err != nil {
		return 0, err
	}
	out, err := cfg.open(w)
	if err != nil {
		return 0, err
	}
	s := survey{cfg: cfg, log: log, began: time.Now(), last: last}
	c := log.Records(archive.Cursor{Query: cfg.Query, OnGap: cfg.gap})
	err = s.walk(ctx, c, out)
	// The sink is closed in any case: it may have a goroutine.
	if closed := out.close(err == nil); err == nil {
		err = closed
	}
	if closed := c.Close(); err == nil {
		err = closed
	}
	return s.records, err
}

// gap tells of records that are not in the log. Where nobody has noted why, it is damage.
func (cfg Config) gap(gap *seglog.GapError) error {
	if gap.Cause == seglog.GapDamage {
		return fmt.Errorf("%w; bring it back, or let log repair give them up", gap)
	}
	if cfg.OnGap != nil {
		cfg.OnGap(gap)
	}
	return nil
}

// survey is a walk through the log, and how far it is.
type survey struct {
	cfg         Config
	log         *archive.Archive
	began, told time.Time
	first, last uint64 // sequences that the walk goes through; last is 0 if it is not known
	records     uint64
}

// walk brings what answers the query into the sink. It looks at one record of the log at a time, so
// that it can be ended while it finds nothing.
func (s *survey) walk(ctx context.Context, c *archive.Cursor, out sink) error {
	for n := 0; ; n++ {
		if n%looks == 0 {
			if ctx.Err() != nil {
				return ErrInterrupted
			}
			s.tell(c.Mark().Seq)
		}
		rec, of, ok, err := c.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case s.last > 0 && rec.Seq > s.last:
			if now, err := s.log.Last(); err == nil && now >= rec.Seq { // it has come since
				return nil
			}
			s.last = 0 // it is what is whole of a batch that was cut off: the log ends behind it
		}
		if s.first == 0 {
			s.first = rec.Seq
		}
		if ok {
			s.records++
			if err := out.put(rec, of); err != nil {
				return err
			}
		}
	}
}

func (s *survey) tell(at uint64) {
	now := time.Now()
	if s.cfg.OnProgress == nil || now.Sub(s.told) < progressEvery {
		return
	}
	s.told = now
	p := Progress{Records: s.records, Elapsed: now.Sub(s.began)}
	if s.first > 0 && s.last > 0 && at >= s.first {
		p.Done, p.All = at-s.first+1, s.last-s.first+1
	}
	s.cfg.OnProgress(p)
}
