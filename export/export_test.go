package export_test

import (
	"bytes"
	"context"
	stdcsv "encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/export"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

func TestMain(m *testing.M) { testenv.NoLeaks(m) }

// made is a log that is written to, and what it holds.
type made struct {
	dir     string
	log     *seglog.Log
	streams *archive.Streams
}

func newLog(t testing.TB, dir string) *made {
	t.Helper()
	files, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: files, MinFree: -1, Sync: seglog.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &made{dir, log, streams}
	t.Cleanup(func() { m.close(t) })
	return m
}

func (m *made) close(t testing.TB) {
	if m.log != nil {
		if err := m.log.Close(); err != nil {
			t.Error(err)
		}
	}
	m.log = nil
}

func (m *made) add(t testing.TB, s archive.Stream, at time.Time, data []byte) {
	t.Helper()
	number, err := m.streams.Number(s)
	if err == nil {
		_, err = m.log.Append(number, at.UnixNano(), data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// live is the archive of the log, with all that was added.
func (m *made) live(t testing.TB) *archive.Archive {
	t.Helper()
	if err := m.log.Sync(); err != nil {
		t.Fatal(err)
	}
	return archive.Live(m.log, m.streams)
}

var (
	meter = archive.Stream{Source: "meter", Frame: "line"}
	pump  = archive.Stream{Source: "pump", Frame: "tally128"}
	bus   = archive.Stream{Source: "bus", Frame: "raw"}
	waste = archive.Stream{Source: "meter", Frame: "line", Quarantine: true}
	begin = time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC)
)

func (m *made) fill(t testing.TB) {
	frame := make([]byte, tally128.Size)
	tally128.Encode(frame, tally128.Header{Device: 7, Epoch: 3, Seq: 41, DeviceTime: 99},
		make([]byte, tally128.PayloadSize))
	m.add(t, meter, begin, []byte("21.5,\"warm\"\r\n"))
	m.add(t, pump, begin.Add(time.Second), frame)
	m.add(t, bus, begin.Add(2*time.Second), []byte{0, 1, 0xFF})
	m.add(t, meter, begin.Add(3*time.Second), []byte("=HYPERLINK(1)\n"))
	m.add(t, waste, begin.Add(4*time.Second), archive.Quarantined(12, []byte("no frame")))
	m.add(t, meter, begin.Add(5*time.Second), []byte("-12.5\n"))
}

func run(t testing.TB, log *archive.Archive, cfg export.Config) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := export.Run(context.Background(), log, cfg, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestCSV(t *testing.T) {
	m := newLog(t, t.TempDir())
	m.fill(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  export.Config
		want string
	}{
		{export.Config{Query: archive.Query{Source: "m*"}}, `source,seq,time,device_time,device,epoch,len,data
meter,1,2026-11-20T10:00:00.000000005Z,,,,13,"21.5,""warm"""
meter,4,2026-11-20T10:00:03.000000005Z,,,,14,'=HYPERLINK(1)
meter,6,2026-11-20T10:00:05.000000005Z,,,,6,-12.5
`},
		{
			export.Config{
				Query:   archive.Query{Source: "pump"},
				Columns: []export.Column{export.Device, export.Epoch, export.Number, export.DeviceTime},
			},
			`device,epoch,number,device_time
7,3,41,99
`,
		},
		{export.Config{
			Query: archive.Query{Source: "bus"}, Zone: berlin,
			Columns: []export.Column{export.Time, export.Data},
		}, `time,data
2026-11-20T11:00:02.000000005+01:00,hex:0001ff
`},
		{export.Config{
			Query: archive.Query{Source: "meter"}, Text: export.AsHex,
			Columns: []export.Column{export.Data},
		}, `data
hex:32312e352c227761726d220d0a
hex:3d48595045524c494e4b2831290a
hex:2d31322e350a
`},
		{export.Config{
			Query: archive.Query{Source: "meter", From: 4}, Exact: true, BOM: true,
			Columns: []export.Column{export.Data},
		}, "\uFEFF" + `data
=HYPERLINK(1)
-12.5
`},
		{export.Config{
			Query: archive.Query{Quarantine: true}, Text: export.AsText,
			Columns: []export.Column{export.Offset, export.Len, export.Data},
		}, `offset,len,data
12,8,no frame
`},
	} {
		if got := run(t, m.live(t), c.cfg); got != c.want {
			t.Errorf("%+v:\n%swant\n%s", c.cfg, got, c.want)
		}
	}
}

// What stands in CSV can be turned back into the bytes of each record, whatever they are, by what
// the package says of cells.
func TestCSVLosesNothing(t *testing.T) {
	parts := rapid.SampledFrom(append(strings.Split("=+-@'\"ex,;\t\r\n 09.E\x00\x7fä", ""), "hex:", "\r\n", "\x80",
		"\xff"))
	m := newLog(t, t.TempDir())
	testenv.Check(t, func(rt *rapid.T) {
		before := m.log.Position().Stored
		want := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(parts, 1, 9),
			func(s []string) []byte { return []byte(strings.Join(s, "")) }), 1, 8).Draw(rt, "records")
		of := rapid.SampledFrom([]archive.Stream{meter, bus}).Draw(rt, "of")
		how := rapid.SampledFrom([]export.Text{export.AsFramed, export.AsText, export.AsHex}).Draw(rt, "how")
		for i, data := range want {
			m.add(t, of, begin.Add(time.Duration(i)), data)
		}
		out := run(t, m.live(t), export.Config{
			Query: archive.Query{From: before + 1}, Text: how, Columns: []export.Column{export.Len, export.Data},
		})
		// A reader of CSV gives \r\n within a cell as \n, by the letter of package csv: so lines
		// are cut here.
		rows := cells(rt, out)
		if len(rows) != len(want)+1 {
			rt.Fatalf("%d rows of %d records in %q", len(rows)-1, len(want), out)
		}
		for i, row := range rows[1:] {
			got := row[1]
			if rest, ok := strings.CutPrefix(got, "'"); ok {
				got = rest
			} else if got != "" && strings.ContainsAny(got[:1], "=@\t\r") {
				rt.Errorf("a spreadsheet would compute %q", got)
			}
			n, _ := strconv.Atoi(row[0])
			if digits, ok := strings.CutPrefix(got, "hex:"); ok {
				b, err := hex.DecodeString(digits)
				if err != nil {
					rt.Fatal(err)
				}
				got = string(b)
			} else {
				got += []string{"", "\n", "\r\n"}[n-len(got)]
			}
			if got != string(want[i]) {
				rt.Errorf("%q became %q", want[i], row[1])
			}
		}
	})
}

// cells reads CSV as RFC 4180 has it, but that lines end in LF.
func cells(t *rapid.T, text string) (rows [][]string) {
	row := []string{}
	for len(text) > 0 {
		cell := ""
		if rest, ok := strings.CutPrefix(text, `"`); ok {
			for {
				part, after, ok := strings.Cut(rest, `"`)
				if !ok {
					t.Fatalf("a quote does not end: %q", text)
				}
				cell, rest = cell+part, after
				if rest[0] != '"' {
					break
				}
				cell, rest = cell+`"`, rest[1:]
			}
			text = rest
		} else {
			at := strings.IndexAny(text, ",\n")
			if strings.ContainsAny(text[:at], "\"\r") {
				t.Fatalf("%q is not in quotes", text[:at])
			}
			cell, text = text[:at], text[at:]
		}
		if row = append(row, cell); text[0] == '\n' {
			rows, row = append(rows, row), []string{}
		}
		text = text[1:]
	}
	return rows
}

// Go's own reader of CSV agrees.
func TestCSVIsReadByOthers(t *testing.T) {
	m := newLog(t, t.TempDir())
	m.fill(t)
	rows, err := stdcsv.NewReader(strings.NewReader(run(t, m.live(t), export.Config{}))).ReadAll()
	if err != nil || len(rows) != 6 || rows[1][7] != `21.5,"warm"` {
		t.Errorf("%q, %v", rows, err)
	}
}

func TestRawAndLines(t *testing.T) {
	m := newLog(t, t.TempDir())
	m.fill(t)
	if got := run(t, m.live(t),
		export.Config{
			Format: export.Raw,
			Query:  archive.Query{Source: "meter"},
		}); got != "21.5,\"warm\"\r\n=HYPERLINK(1)\n-12.5\n" {
		t.Errorf("raw: %q", got)
	}
	if got := run(t, m.live(t),
		export.Config{Format: export.Raw, Query: archive.Query{Quarantine: true}}); got != "no frame" {
		t.Errorf("raw quarantine: %q", got)
	}
	var r archive.Record
	got := run(t, m.live(t), export.Config{Format: export.NDJSON, Query: archive.Query{Source: "pump"}})
	if err := json.Unmarshal([]byte(got), &r); err != nil || *r.Number != 41 || r.Len != tally128.Size {
		t.Errorf("%s: %+v, %v", got, r, err)
	}
}

// row is a row of Parquet as any reader sees it.
type row struct {
	Source     string  `parquet:"source"`
	Seq        uint64  `parquet:"seq"`
	Time       int64   `parquet:"time"`
	DeviceTime *int64  `parquet:"device_time,optional"`
	Device     *uint32 `parquet:"device,optional"`
	Epoch      *uint32 `parquet:"epoch,optional"`
	Len        uint32  `parquet:"len"`
	Data       []byte  `parquet:"data"`
}

// A table of several batches, and a record far larger than the others.
func TestParquet(t *testing.T) {
	m := newLog(t, t.TempDir())
	m.fill(t)
	want := [][]byte{}
	for i := range 9_000 {
		data := fmt.Appendf(nil, "%d\n", i)
		if want = append(want, data); i == 8500 {
			want[i] = bytes.Repeat([]byte{0xAA}, 400<<10)
		}
		m.add(t, bus, begin.Add(time.Minute), want[i])
	}
	out := []byte(run(t, m.live(t), export.Config{Format: export.Parquet}))
	rows, err := parquet.Read[row](bytes.NewReader(out), int64(len(out)))
	if err != nil || len(rows) != 5+len(want) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if r := rows[1]; r.Source != "pump" || *r.Device != 7 || *r.Epoch != 3 || *r.DeviceTime != 99 || r.Seq != 2 ||
		r.Len != tally128.Size {
		t.Errorf("%+v", r)
	}
	if r := rows[0]; r.Device != nil || r.Time != begin.UnixNano() || string(r.Data) != "21.5,\"warm\"\r\n" {
		t.Errorf("%+v", r)
	}
	for i, data := range want {
		if got := rows[5+i]; !bytes.Equal(got.Data, data) || got.Source != "bus" {
			t.Fatalf("row %d: %.50q, want %.50q", i, got.Data, data)
		}
	}
	out = []byte(run(t, m.live(t),
		export.Config{
			Format: export.Parquet, Text: export.AsText, Columns: []export.Column{export.Data, export.Seq},
			Query: archive.Query{Source: "meter"},
		}))
	f, err := parquet.OpenFile(bytes.NewReader(out), int64(len(out)))
	if err != nil {
		t.Fatal(err)
	}
	if fields := f.Schema().Fields(); fields[0].Name() != "data" || fields[0].Type().String() != "STRING" {
		t.Errorf("text is no text, or out of its place: %v", f.Schema())
	}
}

// An export of a log that is written to ends where the log ended when it began.
func TestAnExportEnds(t *testing.T) {
	m := newLog(t, t.TempDir())
	m.fill(t)
	var out bytes.Buffer
	n, err := export.Run(context.Background(), m.live(t), export.Config{OnProgress: func(export.Progress) {
		m.add(t, meter, begin, []byte("late\n"))
		m.live(t)
	}}, &out)
	if n != 5 || err != nil || strings.Contains(out.String(), "late") {
		t.Errorf("%d records, %v: %s", n, err, out.String())
	}
}

// Whatever ends an export early, it is an error, and nothing has the name of the file.
func TestAnExportThatIsCutShort(t *testing.T) {
	m := newLog(t, t.TempDir())
	m.fill(t)
	for range 300 {
		m.add(t, bus, begin, make([]byte, 10_000))
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	full := errors.New("no space left on device")
	for _, format := range export.Formats() {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, write := range map[string]func(io.Writer) error{
			"interrupted": func(w io.Writer) error {
				_, err := export.Run(ended, m.live(t), export.Config{Format: format}, w)
				return err
			},
			"full": func(w io.Writer) error {
				_, err := export.Run(context.Background(), m.live(t), export.Config{Format: format},
					&limited{w, 1000, full})
				return err
			},
		} {
			err := export.ToFile(path, write)
			if want := map[string]error{"interrupted": export.ErrInterrupted, "full": full}[name]; !errors.Is(err,
				want) {
				t.Errorf("%s, %s: %v, want %v", format, name, err, want)
			}
			if b, err := os.ReadFile(path); string(b) != "before" || err != nil {
				t.Errorf("%s, %s: the file is %q, %v", format, name, b, err)
			}
			if names, _ := filepath.Glob(filepath.Join(dir, "*")); !slices.Equal(names, []string{path}) {
				t.Errorf("%s, %s: left behind: %v", format, name, names)
			}
			if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
				t.Errorf("%s, %s: left behind: %v", format, name, names)
			}
		}
	}
}

// limited is a writer with room for n bytes.
type limited struct {
	io.Writer
	n   int
	err error
}

func (l *limited) Write(b []byte) (int, error) {
	if l.n -= len(b); l.n < 0 {
		return 0, l.err
	}
	return l.Writer.Write(b)
}

// Damage in the log is an error, and what is whole before it was written.
func TestDamageEndsAnExport(t *testing.T) {
	dir := t.TempDir()
	m := newLog(t, dir)
	m.fill(t)
	m.close(t)
	name := filepath.Join(dir, "00000000000000000001.seg")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("=HYPERLINK"))] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range export.Formats() {
		var out bytes.Buffer
		_, err := export.Run(context.Background(), log, export.Config{Format: format}, &out)
		if corrupt := (*seglog.CorruptError)(nil); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", format, err)
		}
		if whole := bytes.HasSuffix(out.Bytes(), []byte("PAR1")) && out.Len() > 4; format == export.Parquet && whole {
			t.Errorf("%s: it looks whole", format)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	for _, cfg := range []export.Config{
		{Columns: []export.Column{"colour"}},
		{Columns: []export.Column{export.Seq, export.Seq}},
		{Format: export.Raw, Text: export.AsText},
		{Format: export.NDJSON, Columns: export.Usual()},
	} {
		if cfg.Check() == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// ExampleRun writes what a log in a folder has of the last ten minutes.
func ExampleRun() {
	log, err := archive.Open("testdata/none")
	if err != nil {
		fmt.Println("there is none")
		return
	}
	_ = export.ToFile("last.csv", func(w io.Writer) error {
		since := time.Now().Add(-10 * time.Minute).UnixNano()
		_, err := export.Run(context.Background(), log, export.Config{Query: archive.Query{Since: since}}, w)
		return err
	})
	// Output: there is none
}
