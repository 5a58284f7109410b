package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/proof"
	"github.com/tallywheel/tallywheel/seglog"
)

var update = flag.Bool("update", false, "write the expected output of the scripts anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tallywheel": func() { os.Exit(run(os.Args[1:])) }})
}

// TestScripts runs the command line as people type it; see testdata.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"makelog": makeLog, "steplog": stepLog, "keptlog": keptLog, "provelog": proveLog, "flip": flip, "cut": cut,
			"harm": harm,
		},
		Condition: func(name string) (bool, error) {
			if name != "tmpfs" { // whether the scripts' own folders are in memory: a log there is warned of
				return false, fmt.Errorf("no condition %q", name)
			}
			_, memory := sys.FileSystem(t.TempDir())
			return memory != "", nil
		},
	})
}

// makeLog writes a log of two sources, 50 records each, one a second from 2026-01-01T00:00:00Z on,
// in two segments: makelog DIR.
func makeLog(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	for range 50 { // where a segment ends depends on when the next one is ready: on a busy machine it may end later
		fillLog(ts, path)
		segments, err := filepath.Glob(filepath.Join(path, "*.seg"))
		ts.Check(err)
		if len(segments) == 2 && filepath.Base(segments[1]) == "00000000000000000051.seg" {
			return
		}
		ts.Check(os.RemoveAll(path))
	}
	ts.Fatalf("no log has two segments, of which the second begins with record 51")
}

// stepLog writes a log as makeLog does, in more segments, whose clock is set: 60 records begin at
// 2026-01-01T00:00:00Z, 240 a day earlier, 30 at 2026-01-01T00:00:30Z, and 70 a day before that:
// steplog DIR.
func stepLog(ts *testscript.TestScript, _ bool, args []string) {
	appendRecords(ts, ts.MkAbs(args[0]), 400, func(n int) int {
		const day = 24 * 60 * 60
		switch {
		case n < 60:
			return n
		case n < 300:
			return n - 60 - day
		case n < 330:
			return n - 300 + 30
		}
		return n - 330 - day
	})
}

func fillLog(ts *testscript.TestScript, path string) {
	appendRecords(ts, path, 100, func(n int) int { return n })
}

// keptLog writes a log as makeLog does, whose oldest segments are removed as log.keep says:
// keptlog DIR.
func keptLog(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	fillLog(ts, path)
	dir, err := seglog.Dir(path)
	ts.Check(err)
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1, KeepBytes: 32 << 10})
	ts.Check(err)
	for n := 100; l.Position().First == 1; n++ {
		if n > 100_000 {
			ts.Fatalf("nothing is removed")
		}
		_, err := l.Append(1, int64(1767225600+n)*1e9, make([]byte, 200))
		ts.Check(err)
	}
	ts.Check(l.Close())
}

// harm removes a segment, or cuts it to a size: harm DIR NUMBER [BYTES].
func harm(ts *testscript.TestScript, _ bool, args []string) {
	segments, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*.seg"))
	ts.Check(err)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	if len(segments) < 3 || n > len(segments) {
		ts.Fatalf("%d segments", len(segments))
	}
	if len(args) == 2 {
		ts.Check(os.Remove(segments[n-1]))
		return
	}
	bytes, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(segments[n-1], bytes))
}

// appendRecords makes a log of so many records. second gives the time of each, from
// 2026-01-01T00:00:00Z on.
func appendRecords(ts *testscript.TestScript, path string, records int, second func(n int) int) {
	dir, err := seglog.Dir(path)
	ts.Check(err)
	table := `[{"stream":1,"source":"a","frame":"line"},{"stream":2,"source":"b","frame":"line"}]`
	ts.Check(os.WriteFile(filepath.Join(path, "streams.json"), []byte(table), 0o600))
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1, BatchDelay: time.Minute})
	ts.Check(err)
	for n := range records {
		at := int64(1767225600+second(n)) * 1e9
		_, err := l.Append(uint32(1+n%2), at, []byte(recordOf(n)))
		ts.Check(err)
		if n%10 == 9 { // so that a batch is lost, not all
			ts.Check(l.Sync())
		}
	}
	ts.Check(l.Close())
}

// recordOf is the data of a record, counted from 0.
func recordOf(n int) string { return strings.Repeat(strconv.Itoa(n), 100) }

// proveLog opens a log, has it prove what it holds, signed by a key, and closes it: provelog DIR
// KEY.
func proveLog(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	dir, err := seglog.Dir(path)
	ts.Check(err)
	streams, err := archive.LoadStreams(path)
	ts.Check(err)
	key, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	sign, err := proof.ParseSigner(key)
	ts.Check(err)
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1})
	ts.Check(err)
	made := make(chan struct{}, 1)
	l.Prove(seglog.Proving{
		Named: streams.Named, Sign: sign,
		OnCheckpoint: func([]byte) { made <- struct{}{} }, OnTrouble: func(err error) { ts.Logf("%v", err) },
	})
	<-made
	ts.Check(l.Close())
}

// flip inverts a bit, at an offset, below 0 from the end, or in the data of a record that makelog
// has written: flip FILE OFFSET, or flip FILE record NUMBER. Where a record lies depends on which
// batch it came in.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	n, err := strconv.Atoi(args[len(args)-1])
	ts.Check(err)
	off := n
	if args[1] == "record" {
		off = strings.Index(string(b), recordOf(n-1))
	}
	if off < 0 && args[1] != "record" {
		off += len(b)
	}
	if off < 0 || off >= len(b) {
		ts.Fatalf("%s has no %s", args[0], strings.Join(args[1:], " "))
	}
	b[off] ^= 4
	ts.Check(os.WriteFile(path, b, 0o600))
}

// cut ends a file early: cut FILE BYTES.
func cut(ts *testscript.TestScript, _ bool, args []string) {
	bytes, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), bytes))
}
