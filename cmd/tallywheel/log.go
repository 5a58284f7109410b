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
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/gateway"
	"github.com/tallywheel/tallywheel/seglog"
)

func newLog() *cobra.Command {
	c := &cobra.Command{
		Use: "log", Short: "look into a log on disk",
		Args: func(c *cobra.Command, args []string) error {
			return fmt.Errorf("%w: log: want ls, cat, tail, verify, repair, export or sheets", errUsage)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	v := &logView{}
	c.PersistentFlags().StringVar(&v.dir, "dir", "./data", "folder of the log")
	c.PersistentFlags().BoolVar(&v.asJSON, "json", false, "answer as JSON")
	c.AddCommand(v.ls(), v.cat(), v.tail(), v.verify(), v.repair(), v.export(), v.sheets())
	return c
}

// logView is what the log verbs share.
type logView struct {
	dir    string
	asJSON bool
	query  gateway.Query
	since  string
}

// open opens the directory for reading; it must be there.
func (v *logView) open() (seglog.FS, *gateway.Streams, error) {
	if _, err := os.Stat(v.dir); err != nil {
		return nil, nil, fmt.Errorf("%w; name the folder of the log with --dir", err)
	}
	dir, err := seglog.Dir(v.dir)
	if err != nil {
		return nil, nil, err
	}
	streams, err := gateway.LoadStreams(v.dir)
	return dir, streams, err
}

func (v *logView) verb(use, short string, run func(c *cobra.Command, dir seglog.FS, s *gateway.Streams) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			dir, streams, err := v.open()
			if err != nil {
				return err
			}
			return run(c, dir, streams)
		},
	}
}

func (v *logView) queryFlags(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&v.query.Source, "source", "", "only this source")
	c.Flags().Uint64Var(&v.query.From, "from", 0, "begin with this sequence of the log")
	c.Flags().StringVar(&v.since, "since", "", "begin with this time, RFC 3339")
	c.Flags().BoolVar(&v.query.Quarantine, "quarantine", false, "bytes that were no frame, instead of frames")
	return c
}

func (v *logView) ls() *cobra.Command {
	return v.verb("ls", "list the segments", func(c *cobra.Command, dir seglog.FS, _ *gateway.Streams) error {
		segments, err := seglog.Segments(dir)
		if err != nil {
			return err
		}
		if v.asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{"segments": segments})
		}
		for _, s := range segments {
			fmt.Fprintf(c.OutOrStdout(), "%s  %12d bytes  from record %d  begun %s\n", s.Name, s.Bytes, s.First,
				time.Unix(0, s.Created).Format(time.RFC3339))
		}
		return nil
	})
}

// each calls f with every record that answers the query, and reports gaps on stderr. With follow it waits for more.
func (v *logView) each(ctx context.Context, dir seglog.FS, streams *gateway.Streams, follow bool, f func(gateway.Record) error) error {
	r := seglog.NewReader(dir, v.query.From)
	defer r.Close()
	if v.since != "" {
		at, err := time.Parse(time.RFC3339Nano, v.since)
		if err != nil {
			return fmt.Errorf("%w: --since %q: want RFC 3339, as 2026-01-02T15:04:05Z", errUsage, v.since)
		}
		v.query.Since = at.UnixNano()
		if err := r.SeekTime(v.query.Since); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		rec, err := r.Next()
		var gap *seglog.GapError
		switch {
		case errors.As(err, &gap):
			fmt.Fprintln(os.Stderr, "tallywheel:", gap)
		case err == io.EOF && follow:
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		default:
			if out, ok := v.query.Match(streams, rec); ok {
				if err := f(out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// line prints a record for people: where and when, then its bytes in hexadecimal.
func (v *logView) line(w io.Writer) func(gateway.Record) error {
	if v.asJSON {
		e := json.NewEncoder(w)
		return func(r gateway.Record) error { return e.Encode(r) }
	}
	return func(r gateway.Record) error {
		number := ""
		if r.Number != nil {
			number = fmt.Sprintf(" device %d frame %d", *r.Device, *r.Number)
		}
		_, err := fmt.Fprintf(w, "%d %s %s%s %d bytes %x\n", r.Seq, r.Time.Format(time.RFC3339Nano), r.Source, number, r.Len, r.Data)
		return err
	}
}

func (v *logView) cat() *cobra.Command {
	return v.queryFlags(v.verb("cat", "print the records", func(c *cobra.Command, dir seglog.FS, s *gateway.Streams) error {
		w := bufio.NewWriter(c.OutOrStdout())
		err := v.each(c.Context(), dir, s, false, v.line(w))
		return errors.Join(err, w.Flush())
	}))
}

func (v *logView) tail() *cobra.Command {
	return v.queryFlags(v.verb("tail", "print records as they come, until Ctrl-C", func(c *cobra.Command, dir seglog.FS, s *gateway.Streams) error {
		if v.query.From == 0 && v.since == "" {
			last, err := seglog.LastSequence(dir)
			if err != nil {
				return err
			}
			v.query.From = last + 1
		}
		return v.each(c.Context(), dir, s, true, v.line(c.OutOrStdout()))
	}))
}

func (v *logView) verify() *cobra.Command {
	return v.verb("verify", "read everything and report all damage", func(c *cobra.Command, dir seglog.FS, _ *gateway.Streams) error {
		s, err := seglog.Verify(dir)
		if err != nil {
			return err
		}
		return v.summary(c.OutOrStdout(), s)
	})
}

// summary prints what was found; damage is a failure.
func (v *logView) summary(w io.Writer, s seglog.Summary) error {
	if v.asJSON {
		if err := json.NewEncoder(w).Encode(s); err != nil {
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
		fmt.Fprintf(w, "%d records in %d segments, %d to %d; %d given up by earlier repairs\n", s.Records, s.Segments, s.First, s.Last, s.Lost)
	}
	if !s.Clean() {
		return errQuiet
	}
	return nil
}

func (v *logView) repair() *cobra.Command {
	return v.verb("repair", "keep what is whole of a damaged log; the recorder must not be running", func(c *cobra.Command, dir seglog.FS, _ *gateway.Streams) error {
		if _, err := seglog.Repair(dir); err != nil {
			return err
		}
		s, err := seglog.Verify(dir)
		if err != nil {
			return err
		}
		return v.summary(c.OutOrStdout(), s)
	})
}

func (v *logView) export() *cobra.Command {
	var format string
	c := v.queryFlags(v.verb("export", "write records out: raw bytes of one source, or JSON lines", func(c *cobra.Command, dir seglog.FS, s *gateway.Streams) error {
		w := bufio.NewWriterSize(c.OutOrStdout(), 256<<10)
		var write func(gateway.Record) error
		switch format {
		case "raw":
			if v.query.Source == "" {
				return fmt.Errorf("%w: export --format raw: of which source? use --source ID", errUsage)
			}
			write = func(r gateway.Record) error { _, err := w.Write(r.Data); return err }
		case "ndjson":
			e := json.NewEncoder(w)
			write = func(r gateway.Record) error { return e.Encode(r) }
		default:
			return fmt.Errorf("%w: export --format %q: want raw or ndjson", errUsage, format)
		}
		err := v.each(c.Context(), dir, s, false, write)
		return errors.Join(err, w.Flush())
	}))
	c.Flags().StringVar(&format, "format", "ndjson", "raw or ndjson")
	return c
}

func (v *logView) sheets() *cobra.Command {
	return v.verb("sheets", "print the sheets of earlier starts", func(c *cobra.Command, _ seglog.FS, _ *gateway.Streams) error {
		f, err := os.Open(filepath.Join(v.dir, gateway.HistoryFile))
		if errors.Is(err, os.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "no start has ended yet")
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		if v.asJSON {
			_, err := io.Copy(c.OutOrStdout(), f)
			return err
		}
		return gateway.EachStart(f, func(s gateway.StartSheet) error {
			text, _ := gateway.Verdict(s.Sheet)
			balanced := "balanced"
			if !s.Sheet.Balanced {
				balanced = "NOT BALANCED"
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "ended %s: %s; %s; %s\n",
				time.Unix(0, int64(s.Sheet.At)).Format(time.RFC3339), s.End, text, balanced)
			return err
		})
	})
}
