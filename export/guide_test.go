package export_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/export"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// What must hold behind each example of the guide, in its order.
var guideHolds = []string{`
assert len(df) == 300 and str(df.time.dtype).startswith("datetime64[ns, "), df.dtypes
assert df.time[0] == pd.Timestamp("2026-11-20T10:00:00.000000005Z"), df.time[0]
assert len(frames) == 100 and all(len(f) == 128 for f in frames) and frames.iloc[0][:2] == b"\xa5\x5a"
assert df[df.source == "line-1"].epoch.eq(3).all() and df[df.source == "gps"].device.isna().all()
assert df[df.source == "gps"].data.iloc[0] == '$GPTXT,0,"Grüße"', df.data
`, `
assert len(df) == 300 and str(df.time.dtype) == "datetime64[ns, UTC]", df.dtypes
assert df.time[0] == pd.Timestamp("2026-11-20T10:00:00.000000005Z"), df.time[0]
assert str(df.local[0]) == "2026-11-20 11:00:00.000000005+01:00", df.local[0]
assert [str(df[c].dtype) for c in ("seq", "len", "device", "device_time")] == ["UInt64", "UInt32", "UInt32", "Int64"], df.dtypes
assert df[df.source == "gps"].device_time.isna().all()
assert len(frames) == 100 and all(len(f) == 128 for f in frames) and frames.iloc[0][:2] == b"\xa5\x5a"
assert text.iloc[0] == '$GPTXT,0,"Grüße"\r\n', text
assert df[df.source == "line-1"].device_time.tolist() == [2**60 + n for n in range(100)]
`, `
assert [(s, n, b) for s, n, b, _ in counts] == [("bus", 100, 300), ("gps", 100, 2050), ("line-1", 100, 12800)], counts
assert counts[0][3].total_seconds() == 297, counts
assert len(frames) == 200 and frames[0][0] == bytes([0, 1, 255]), frames[:2]
types = duckdb.sql("DESCRIBE FROM 'day.parquet'").fetchall()
assert dict((t[0], t[1]) for t in types)["seq"] == "UBIGINT", types
assert dict((t[0], t[1]) for t in types)["time"].startswith("TIMESTAMP"), types
assert dict((t[0], t[1]) for t in types)["data"] == "BLOB", types
`, `
assert len(text) == 300 and '$GPTXT,0,"Grüße"' in set(text), text
`}

// The examples of the guide run, and give what the log has.
func TestGuide(t *testing.T) {
	python := testenv.LargePython(t, "pandas, pyarrow, duckdb", "pip install pandas pyarrow duckdb")
	guide, err := os.ReadFile("../docs/guide/export.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllSubmatch(guide, -1)
	if len(examples) != len(guideHolds) {
		t.Fatalf("%d examples, and %d things to hold", len(examples), len(guideHolds))
	}
	m, dir := newLog(t, t.TempDir()), t.TempDir()
	for n := range 100 {
		frame, at := make([]byte, tally128.Size), begin.Add(time.Duration(n)*3*time.Second)
		tally128.Encode(frame, tally128.Header{Device: 7, Epoch: 3, Seq: uint64(n), DeviceTime: 1<<60 + int64(n)},
			make([]byte, tally128.PayloadSize))
		m.add(t, archive.Stream{Source: "gps", Frame: "line"}, at,
			[]byte("$GPTXT,"+string(rune('0'+n%10))+strings.Repeat("0", n/10%2)+",\"Grüße\"\r\n"))
		m.add(t, archive.Stream{Source: "bus", Frame: "raw"}, at.Add(time.Second), []byte{0, 1, 0xFF})
		m.add(t, archive.Stream{Source: "line-1", Frame: "tally128"}, at.Add(2*time.Second), frame)
	}
	for _, format := range []export.Format{export.CSV, export.Parquet} {
		if err := export.ToFile(filepath.Join(dir, "day."+string(format)), func(w io.Writer) error {
			_, err := export.Run(context.Background(), m.live(t), export.Config{Format: format}, w)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, example := range examples {
		c := exec.Command(python, "-c", string(example[1])+guideHolds[i])
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("example %d: %v: %s\n%s", i+1, err, example[1], out)
		}
	}
}
