package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

func newLog() *cobra.Command {
	c := &cobra.Command{
		Use: "log", Short: "look into a log on disk",
		Args: func(c *cobra.Command, args []string) error {
			return fmt.Errorf("%w: log: want ls, cat, tail, verify, repair, export, sheets, prove or keygen", errUsage)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	v := &logView{}
	c.PersistentFlags().StringVar(&v.dir, "dir", "./data", "folder of the log")
	c.PersistentFlags().BoolVar(&v.asJSON, "json", false, "answer as JSON")
	c.AddCommand(v.ls(), v.cat(), v.tail(), v.verify(), v.repair(), v.export(), v.sheets(), v.prove(), newKeygen())
	return c
}

// logView is what the log verbs share.
type logView struct {
	dir    string
	asJSON bool
	query  archive.Query
	window window
	as     bytesAs // of cat and tail
}

// verb is a verb that shows records.
func (v *logView) verb(use, short string,
	run func(c *cobra.Command, dir seglog.FS, log *archive.Archive) error,
) *cobra.Command {
	return v.bare(use, short, func(c *cobra.Command, dir seglog.FS) error {
		log, err := archive.Open(v.dir)
		if err != nil {
			return err
		}
		if err := archive.KnownSource(v.query.Source, log.Streams.Sources()); err != nil {
			return fmt.Errorf("log in %s: %w", v.dir, err)
		}
		if v.query.Since, v.query.Until, err = v.window.moments(time.Now()); err != nil {
			return err
		}
		return run(c, dir, log)
	})
}

// bare is a verb that needs no names, so a damaged table of streams is not in its way.
func (v *logView) bare(use, short string, run func(c *cobra.Command, dir seglog.FS) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := archive.Folder(v.dir)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, archive.ErrNone) {
				err = fmt.Errorf("%w; name the folder of the log with --dir", err)
			}
			if err != nil {
				return err
			}
			return run(c, dir)
		},
	}
}

func (v *logView) queryFlags(c *cobra.Command, follows bool) *cobra.Command {
	c.Flags().StringVar(&v.query.Source, "source", "", "only this source, or those of a pattern, as 'line-*'")
	c.Flags().Uint64Var(&v.query.From, "from", 0, "begin with this sequence of the log")
	v.window.flags(c, !follows)
	addContains(c, &v.query.Contains, "contains", "only records that have this text, or these bytes: hex:0d0a")
	c.Flags().BoolVar(&v.query.Quarantine, "quarantine", false, "bytes that were no frame, instead of frames")
	return c
}

// lineFlags are those of verbs that print a line for each record.
func (v *logView) lineFlags(c *cobra.Command, follows bool) *cobra.Command {
	v.showFlags(c)
	return v.queryFlags(c, follows)
}

// showFlags are those that say how bytes are shown.
func (v *logView) showFlags(c *cobra.Command) {
	addWord(c, &v.as, "as", asAuto, []bytesAs{asAuto, asText, asHex},
		"how bytes are shown, auto as text where all of it is printable")
	addSwitch(c, "text", "as --as text", func() { v.as = asText })
	addSwitch(c, "hex", "as --as hex", func() { v.as = asHex })
	c.MarkFlagsMutuallyExclusive("as", "text", "hex")
}

func (v *logView) ls() *cobra.Command {
	return v.bare("ls", "list the segments", func(c *cobra.Command, dir seglog.FS) error {
		segments, err := seglog.Segments(dir)
		if err != nil {
			return err
		}
		if v.asJSON {
			type listed struct {
				seglog.Segment
				Created ledger.Time `json:"created"` // in place of the segment's nanoseconds
			}
			all := make([]listed, len(segments))
			for i, s := range segments {
				all[i] = listed{s, ledger.Time(s.Created)}
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{"segments": all})
		}
		for _, s := range segments {
			fmt.Fprintf(c.OutOrStdout(), "%s  %12d bytes  from record %d  begun %s\n", s.Name, s.Bytes, s.First,
				ledger.Time(s.Created))
		}
		return nil
	})
}

// each calls f with every record that answers the query, and reports gaps on stderr, of which
// damage is a failure in the end. With follow it waits for more.
func (v *logView) each(ctx context.Context, log *archive.Archive, follow bool,
	f func(archive.Record) error,
) (failure error) {
	tell := func(gap *seglog.GapError) error {
		if fmt.Fprintln(os.Stderr, "tallywheel:", gap); gap.Cause == seglog.GapDamage {
			failure = errQuiet
		}
		return nil
	}
	before, err := log.Before(v.query)
	if err != nil {
		return err
	}
	for i := range before {
		_ = tell(&before[i])
	}
	records := log.Records(archive.Cursor{Query: v.query, OnGap: tell})
	defer records.Close()
	for ctx.Err() == nil {
		switch r, ok, err := records.Look(); { // one at a time, so that Ctrl-C ends a search that finds nothing
		case err == io.EOF && follow:
			select {
			case <-ctx.Done():
			case <-time.After(followDelay):
			}
		case err == io.EOF:
			return failure
		case err != nil:
			return err
		case ok:
			r.Time = r.Time.In(v.window.location())
			if err := f(r); err != nil {
				return err
			}
		}
	}
	return failure
}

// followDelay is between two looks for more records.
const followDelay = 100 * time.Millisecond

// bytesAs is the flag --as: how bytes are shown.
type bytesAs string

// Ways to show bytes.
const (
	asAuto bytesAs = "auto" // text where it is text, else hex
	asText bytesAs = "text" // in quotes, with what is not printable as \xNN
	asHex  bytesAs = "hex"
)

func (a bytesAs) show(b []byte) string {
	if a == asText || a == asAuto && isText(b) {
		return strconv.Quote(string(b))
	}
	return hex.EncodeToString(b)
}

// isText reports whether bytes are UTF-8 of which everything can be seen, but for white space.
func isText(b []byte) bool {
	return len(b) > 0 && utf8.Valid(b) &&
		!bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune("\r\n\t", r) })
}

// asked is an error where a flag says how bytes are shown, and JSON has them in base64.
func (v *logView) asked(c *cobra.Command) error {
	if !v.asJSON {
		return nil
	}
	return idle(c, "is nothing for JSON, which has data in base64", "as", "text", "hex")
}

// line prints a record for people: where and when, then its bytes.
func (v *logView) line(w io.Writer) func(archive.Record) error {
	if v.asJSON {
		e := json.NewEncoder(w)
		return func(r archive.Record) error { return e.Encode(r) }
	}
	return func(r archive.Record) error {
		number := ""
		if r.Number != nil {
			number = fmt.Sprintf(" device %d frame %d", *r.Device, *r.Number)
		}
		_, err := fmt.Fprintf(w, "%d %s %s%s %d bytes %s\n", r.Seq, r.Time.Format(time.RFC3339Nano), r.Source, number,
			r.Len, v.as.show(r.Data))
		return err
	}
}

func (v *logView) cat() *cobra.Command {
	return v.lineFlags(v.verb("cat", "print the records",
		func(c *cobra.Command, dir seglog.FS, log *archive.Archive) error {
			if err := v.asked(c); err != nil {
				return err
			}
			w := bufio.NewWriter(c.OutOrStdout())
			err := v.each(c.Context(), log, false, v.line(w))
			return errors.Join(err, w.Flush())
		}), false)
}

func (v *logView) tail() *cobra.Command {
	c := v.lineFlags(v.verb("tail", "print records as they come, until Ctrl-C",
		func(c *cobra.Command, dir seglog.FS, log *archive.Archive) error {
			if err := v.asked(c); err != nil {
				return err
			}
			if v.query.From == 0 && v.query.Since == 0 {
				last, err := seglog.LastSequence(dir)
				if err != nil {
					return err
				}
				v.query.From = last + 1
			}
			return v.each(c.Context(), log, true, v.line(c.OutOrStdout()))
		}), true)
	c.Flags().BoolP("follow", "f", true, "it follows in any case")
	return c
}

func (v *logView) verify() *cobra.Command {
	var by heldTo
	c := v.bare("verify", "read everything and report all damage, and all that is not what its proofs say",
		func(c *cobra.Command, dir seglog.FS) error {
			held, err := by.read(v.dir)
			if err != nil {
				return err
			}
			known := archive.Known(v.dir) // first: the recorder may be running
			s, proven, err := seglog.VerifyProven(dir, known, held)
			// a start goes on: retention may have been at work
			if now := archive.Known(v.dir); err == nil && (now.First != known.First || now.End != known.End) {
				s, proven, err = seglog.VerifyProven(dir, seglog.Extent{Last: known.Last, Given: known.Given}, held)
			}
			if err != nil {
				return err
			}
			return v.summary(c.OutOrStdout(), s, &proven)
		})
	return by.flags(c)
}

// summary prints what was found; damage is a failure, and so is a table of streams that cannot be
// read, or has no name for what is in the log. proven is what was held to proofs; nil: nothing was.
func (v *logView) summary(w io.Writer, s seglog.Summary, proven *seglog.Proven) error {
	streams, tableErr := archive.LoadStreams(v.dir)
	if tableErr == nil {
		s.Problems = append(s.Problems, withoutName(streams, s.Streams)...)
	}
	if v.asJSON {
		if err := json.NewEncoder(w).Encode(struct {
			seglog.Summary
			Proof *seglog.Proven `json:"proof,omitempty"`
		}{s, proven}); err != nil {
			return err
		}
	} else {
		for _, p := range s.Problems {
			fmt.Fprintf(w, "%s at %d: %s", p.Segment, p.Offset, p.What)
			if p.From > 0 && p.To >= p.From {
				fmt.Fprintf(w, " (records %d to %d)", p.From, p.To)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s in %s, %d to %d; %d known to be lost\n", several(s.Records, "record"),
			several(s.Segments, "segment"), s.First, s.Last, s.Lost)
		if proven != nil && (proven.Heads > 0 || proven.Size > 0) {
			fmt.Fprintln(w, provenLine(*proven))
		}
	}
	if tableErr == nil && !s.Clean() {
		return errQuiet
	}
	return tableErr
}

// withoutName says what is wrong where the table of streams does not name all that the log has;
// nil: it does. The table was read behind the log, so that it has what came meanwhile.
func withoutName(streams *archive.Streams, found map[uint32]uint64) []seglog.Problem {
	numbers := streams.Unnamed(maps.Keys(found))
	if len(numbers) == 0 {
		return nil
	}
	var records uint64
	for _, number := range numbers {
		records += found[number]
	}
	more := ""
	if len(numbers) > 1 {
		more = fmt.Sprintf(" and %d more", len(numbers)-1)
	}
	return []seglog.Problem{{Segment: archive.StreamsFile, What: fmt.Sprintf(
		"it does not name the source of %d records, in stream-%d%s: bring it back from a copy, with the recorder stopped",
		records, numbers[0], more)}}
}

func (v *logView) repair() *cobra.Command {
	return v.bare("repair", "keep what is whole of a damaged log; no recorder may have it open",
		func(c *cobra.Command, dir seglog.FS) error {
			if err := v.repairIn(dir, time.Now().Add(turnWithin)); err != nil {
				return err
			}
			s, err := seglog.Verify(dir)
			if err != nil {
				return err
			}
			return v.summary(c.OutOrStdout(), s, nil)
		})
}

// turnWithin is how long a repair waits for its turn beside a keeper whose recorder begins again
// and again, and is refused by what is to be repaired.
const turnWithin = 5 * time.Second

// repairIn repairs the log of a folder. Beside a keeper that is done once its recorder lets go of
// the lock: what waits in memory is stored behind it.
func (v *logView) repairIn(dir seglog.FS, until time.Time) error {
	for {
		_, err := seglog.RepairKnown(dir, archive.Known(v.dir))
		if !errors.Is(err, seglog.ErrLocked) || !isKept(v.dir) || time.Now().After(until) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// folded says what is left of older starts.
func folded(s *archive.StartSheet) string {
	f := s.Folded
	text := fmt.Sprintf("%d older starts, %s to %s, folded into one line", f.Starts, s.Sheet.Since, s.Sheet.At)
	for _, lost := range []struct{ what, n string }{
		{"lost on the wire", f.All.LostWire.String()},
		{"lost here", f.All.LostHere.String()},
		{"damaged", f.All.Damaged.String()},
	} {
		if lost.n != "" {
			text += fmt.Sprintf("; %s: %s", lost.what, lost.n)
		}
	}
	return text
}

func (v *logView) sheets() *cobra.Command {
	return v.bare("sheets", "print the sheets of earlier starts", func(c *cobra.Command, _ seglog.FS) error {
		gone := v.historyGone()
		f, err := archive.OpenHistory(v.dir)
		if errors.Is(err, os.ErrNotExist) {
			if gone == nil {
				fmt.Fprintln(os.Stderr, "no start has ended yet")
			}
			return gone
		}
		if err != nil {
			return err
		}
		defer f.Close()
		if v.asJSON { // each line as it is, also one that cannot be read, which is told behind them
			err = archive.EachStart(io.TeeReader(f, c.OutOrStdout()), func(archive.StartSheet) error { return nil })
		} else {
			err = v.printSheets(c.OutOrStdout(), f)
		}
		return errors.Join(err, gone)
	})
}

// historyGone is an error where the history is not what it was when the newest sheet was saved:
// what `log sheets` shows is then not all, or somebody else's.
func (v *logView) historyGone() error {
	last, err := archive.LoadStart(v.dir, slog.New(slog.DiscardHandler))
	if err != nil || last.HistoryGone(v.dir) == nil { // without a sheet nobody knows how the history was
		return nil
	}
	return fmt.Errorf("%s is not what it was: somebody changed, cut, removed or replaced it; what earlier starts lost is not known",
		archive.HistoryFile)
}

// printSheets prints a line for each start of a history.
func (v *logView) printSheets(out io.Writer, history io.Reader) error {
	log := archive.LogOf(v.dir)
	return archive.EachWhole(history, func(s archive.StartSheet) error {
		if s.Folded != nil {
			_, err := fmt.Fprintln(out, folded(&s))
			return err
		}
		v := s.Sheet.Whole().Judge()
		balanced := "balanced"
		if !s.Sheet.Balanced {
			balanced = "NOT BALANCED"
		}
		ended := s.Sheet.At.String()
		if s.OnOtherLog(log) {
			ended += ", on another log"
		}
		_, err := fmt.Fprintf(out, "ended %s: %s; %s: %s; %s\n", ended, s.End, v.Level, v.Text, balanced)
		return err
	})
}

// several is a number of things: "1 segment", "3 segments".
func several[N ~int | ~uint64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
