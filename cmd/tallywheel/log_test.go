package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/seglog"
)

// meterLog makes a log of a source meter, whose frames are lines.
func meterLog(t *testing.T) (dir string, log *seglog.Log, stream uint32) {
	t.Helper()
	dir = t.TempDir()
	files, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err = seglog.Open(seglog.Config{FS: files, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	stream, err = streams.Number(archive.Stream{Source: "meter", Frame: "line"})
	if err != nil {
		t.Fatal(err)
	}
	return dir, log, stream
}

// What is asked of records over HTTP can be asked of a log on disk, too.
func TestRecordsOfALogAreFound(t *testing.T) {
	dir, log, stream := meterLog(t)
	begin := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i := range 10 {
		at := begin.Add(time.Duration(i) * time.Second)
		if i == 7 { // the clock was set back
			at = begin.Add(2 * time.Second)
		}
		if _, err := log.Append(stream, at.UnixNano(), fmt.Appendf(nil, "value %d\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                             "0 1 2 3 4 5 6 7 8 9",
		"--since 2026-11-20T10:00:08Z": "8 9",
		"--until 2026-11-20T10:00:02Z": "0 1 2 7",
		"--since 2026-11-20T11:00:02+01:00 --until 2026-11-20T10:00:03Z": "2 3 7",
		"--since 1066-01-01T00:00:00Z --until 3000-01-01T00:00:00Z":      "0 1 2 3 4 5 6 7 8 9",
		"--contains 5":                               "5",
		"--contains hex:39\\x200a":                   "9",
		"--contains none":                            "",
		"--from 4 --until 2026-11-20T10:00:02Z":      "7",
		"--since 2026-11-20\\x2010:00:09\\x20+00:00": "9", // as the verdict shows it
	} {
		for _, verb := range []string{"export", "cat"} {
			words := []string{"log", verb, "--json", "--dir", dir}
			for _, w := range strings.Fields(args) {
				words = append(words, strings.ReplaceAll(w, `\x20`, " "))
			}
			got, err := logCommand(words)
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s %s: %s, %v; want %s", verb, args, got, err, want)
			}
		}
	}
	for _, args := range []string{
		"cat --since yesterday", "cat --contains hex:0", "cat --contains=", "tail --until 2026-11-20T10:00:02Z",
		"export --since 2026-11-20T10:00:02Z --until 2026-11-20T10:00:01Z",
	} {
		if _, err := logCommand(append(strings.Fields("log "+args), "--dir", dir)); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v, want it to be wrong use", args, err)
		}
	}
}

// logCommand runs a command that prints records as JSON, and returns the last letter but one of
// each.
func logCommand(args []string) (values []string, err error) {
	c := newRoot()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs(args)
	err = c.Execute()
	for d := json.NewDecoder(&out); ; {
		var r archive.Record
		if d.Decode(&r) != nil {
			return values, err
		}
		values = append(values, string(r.Data[len(r.Data)-2]))
	}
}

func TestBytesAsText(t *testing.T) {
	for _, c := range []struct{ data, auto, text string }{
		{"$GPGGA,1*47\r\n", `"$GPGGA,1*47\r\n"`, `"$GPGGA,1*47\r\n"`},
		{"Grüße, \"x\"\t", `"Grüße, \"x\"\t"`, `"Grüße, \"x\"\t"`},
		{"a\x00b", "610062", `"a\x00b"`},
		{"\xe9", "e9", `"\xe9"`},
		{"\x1b[31m", "1b5b33316d", `"\x1b[31m"`}, // a terminal must not obey what a device says
		{"", "", `""`},
	} {
		if got := asAuto.show([]byte(c.data)); got != c.auto {
			t.Errorf("%q is shown as %s, want %s", c.data, got, c.auto)
		}
		if got := asText.show([]byte(c.data)); got != c.text {
			t.Errorf("%q as text is %s, want %s", c.data, got, c.text)
		}
	}
}
