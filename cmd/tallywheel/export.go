package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/export"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/seglog"
)

// exportFlags is what the command line of export says.
type exportFlags struct {
	cfg     export.Config
	path    string
	columns []string
	cells   string // guard or keep
}

func (v *logView) export() *cobra.Command {
	e := &exportFlags{}
	c := v.verb("export", "write records out: CSV, Parquet, JSON lines, or the raw bytes of one source",
		func(c *cobra.Command, _ seglog.FS, log *archive.Archive) error { return e.run(c, v, log) })
	c.Long = "export writes the records that the log has when it begins, and ends; docs/guide/export.md shows pandas, DuckDB\n" +
		"and Excel. The columns of CSV and Parquet are " + columnNames(export.Usual()) +
		";\nnumber and offset can be had by --columns.\n\n" +
		"Exit code: 0 if all that the log has was written; 1 if the log is damaged, as where records are missing that it has not\n" +
		"removed, the disk is full, or it was interrupted; 2 for wrong use."
	c.Example = "  tallywheel log export --dir ./data --since 10m -o last.csv\n" +
		"  tallywheel log export --dir ./data --source 'line-*' --since 2026-11-20T10:00 --tz Europe/Berlin -o day.parquet\n" +
		"  tallywheel log export --dir ./data --source line-1 --format raw > frames.bin"
	f := c.Flags()
	addWord(c, &e.cfg.Format, "format", export.NDJSON, export.Formats(),
		"what is written; by the ending of -o where that is one of these")
	f.StringVarP(&e.path, "output", "o", "", "a file, which is there only once it is whole; else it goes to stdout")
	f.StringSliceVar(&e.columns, "columns", nil,
		"columns of csv and parquet, in their order, of "+columnNames(export.Columns()))
	addSwitch(c, "text", "csv and parquet: all data that can be is text", func() { e.cfg.Text = export.AsText })
	addSwitch(c, "hex", "csv and parquet: no data is text", func() { e.cfg.Text = export.AsHex })
	c.MarkFlagsMutuallyExclusive("text", "hex")
	addWord(c, &e.cells, "formulas", "guard", []string{"guard", "keep"},
		"csv: cells that a spreadsheet would compute get an apostrophe in front, or stay")
	f.BoolVar(&e.cfg.BOM, "bom", false, "csv: begin with a byte order mark, by which Excel knows UTF-8")
	return v.queryFlags(c, false)
}

func columnNames(all []export.Column) string { return strings.Join(texts(all), ", ") }

func (e *exportFlags) run(c *cobra.Command, v *logView, log *archive.Archive) error {
	if ending := export.Format(strings.TrimPrefix(filepath.Ext(e.path), ".")); !c.Flags().Changed("format") {
		switch ending {
		case export.CSV, export.Parquet, export.NDJSON:
			e.cfg.Format = ending
		}
	}
	if e.cfg.Format != export.NDJSON {
		if err := idle(c, "is what --format ndjson writes, and this is "+string(e.cfg.Format), "json"); err != nil {
			return err
		}
	}
	if err := e.settings(v, log); err != nil {
		return err
	}
	show := e.progress()
	write := func(w io.Writer) error {
		n, err := export.Run(c.Context(), log, e.cfg, w)
		show.clear()
		if err == nil && e.path != "" {
			show.say("%s: %d records\n", e.path, n)
		}
		return err
	}
	if e.path == "" {
		return write(c.OutOrStdout())
	}
	return export.ToFile(e.path, write)
}

// settings makes the configuration of what the command line says.
func (e *exportFlags) settings(v *logView, log *archive.Archive) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: export: "+format, append([]any{errUsage}, args...)...)
	}
	e.cfg.Query, e.cfg.Zone, e.cfg.Exact = v.query, v.window.location(), e.cells == "keep"
	for _, name := range e.columns {
		e.cfg.Columns = append(e.cfg.Columns, export.Column(name))
	}
	if err := e.cfg.Check(); err != nil {
		return wrong("%w", err)
	}
	switch e.cfg.Format {
	case export.Raw:
		if v.query.Source == "" {
			return wrong("--format raw: of which source? use --source ID")
		}
		var of []string
		for _, name := range log.Streams.Sources() {
			if archive.Selects(v.query.Source, name) {
				of = append(of, name)
			}
		}
		if len(of) > 1 && strings.ContainsAny(v.query.Source, "*?") {
			return wrong("--format raw: --source %s is %s; name one of them", v.query.Source, strings.Join(of, ", "))
		}
	case export.Parquet:
		if e.path == "" && isTerminal(os.Stdout) {
			return wrong("--format parquet is nothing for a terminal; use -o FILE")
		}
	}
	return nil
}

func isTerminal(f *os.File) bool {
	_, err := sys.GetTermios(int(f.Fd()))
	return err == nil
}

// progress says on a terminal how far the export is, and is silent where there is none, or where
// the records go to it.
func (e *exportFlags) progress() *progressLine {
	p := &progressLine{on: isTerminal(os.Stderr) && (e.path != "" || !isTerminal(os.Stdout))}
	e.cfg.OnGap = func(gap *seglog.GapError) {
		p.clear()
		fmt.Fprintln(os.Stderr, "tallywheel:", gap)
	}
	if p.on {
		e.cfg.OnProgress = p.show
	}
	return p
}

// progressLine is a line on a terminal that is written again and again.
type progressLine struct{ on, there bool }

func (p *progressLine) show(at export.Progress) {
	text := fmt.Sprintf("%d records", at.Records)
	if at.All > 0 {
		text = fmt.Sprintf("%d %%, %s", at.Done*100/at.All, text)
	}
	if left := at.Left(); left > 0 {
		text += fmt.Sprintf(", about %s left", max(left, time.Second).Round(time.Second))
	}
	p.write(text)
}

func (p *progressLine) write(text string) {
	p.there = true
	fmt.Fprintf(os.Stderr, "\r%s\x1b[K", text)
}

func (p *progressLine) clear() {
	if p.there {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	p.there = false
}

func (p *progressLine) say(format string, args ...any) {
	if p.on {
		fmt.Fprintf(os.Stderr, format, args...)
	}
}
