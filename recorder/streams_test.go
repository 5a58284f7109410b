package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// A damaged table of streams is set aside where it names no record, beside those that were before
// it. Where names would be lost, the start says what to do, and changes nothing.
func TestDamagedTableOfStreams(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	path := filepath.Join(dir, "streams.json")
	damage := func(b string) {
		t.Helper()
		for _, path := range []string{path, path + ".copy"} {
			if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, b := range []string{"", `[{"stream": 1, "sou`, strings.Repeat("\x00", 100)} {
		damage(b)
		g, said := startWarned(t, dir, tcp("a"))
		if !strings.Contains(said, "the table of streams is damaged and was set aside") {
			t.Errorf("%q: %s", b, said)
		}
		stop(t, g)
		aside, err := filepath.Glob(path + ".damaged*")
		if err != nil || len(aside) != i+1 {
			t.Errorf("%q: %v, %v", b, aside, err)
		}
	}
	g, _ := startWarned(t, dir, tcp("a"))
	lose(t, g, &next, 0)
	stop(t, g)
	damage("")
	_, err := Start(config.Config{
		Log: config.Log{Dir: dir, Segment: 1 << 20}, API: config.API{Listen: "127.0.0.1:0"}, Sources: []config.Source{tcp("a")},
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, archive.ErrStreams) || !strings.Contains(err.Error(), "bring it back from a copy") {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
}

// The table of streams is there twice: where one is damaged or gone, the other serves, says so, and
// both are whole again.
func TestCopyOfTheTableOfStreams(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	path := filepath.Join(dir, "streams.json")
	g, _ := startWarned(t, dir, tcp("a"))
	lose(t, g, &next, 0)
	stop(t, g)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func() error{
		"the table is empty":    func() error { return os.WriteFile(path, nil, 0o600) },
		"the table is torn":     func() error { return os.WriteFile(path, whole[:len(whole)/2], 0o600) },
		"the table is gone":     func() error { return os.Remove(path) },
		"the copy is gone":      func() error { return os.Remove(path + ".copy") }, // as of a log from before there was one
		"the copy is torn":      func() error { return os.WriteFile(path+".copy", whole[:9], 0o600) },
		"the copy is of before": func() error { return os.WriteFile(path+".copy", []byte("[]"), 0o600) },
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if log, err := archive.Open(dir); err != nil || len(log.Streams.Sources()) != 1 {
			t.Errorf("%s: the log is opened with %v", name, err)
		}
		g, said := startWarned(t, dir, tcp("a"))
		if told := strings.Contains(said, "its copy serves"); told != strings.HasPrefix(name, "the table") {
			t.Errorf("%s: %s", name, said)
		}
		stop(t, g)
		for _, path := range []string{path, path + ".copy"} {
			if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, whole) {
				t.Errorf("%s: %s is %q, %v", name, path, b, err)
			}
		}
	}
	eachRecord(t, dir, archive.Query{}, func(r archive.Record) {
		if r.Source != "a" {
			t.Errorf("record %d is of %q", r.Seq, r.Source)
		}
	})
}

// A table that somebody removes, with its copy, is written again while the recorder runs. Where it
// goes between two starts it is told, and no source gets the records of another.
func TestTableOfStreamsThatIsGone(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	remove := func() {
		t.Helper()
		for _, name := range []string{"streams.json", "streams.json.copy"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 0)
	remove()
	testenv.Until(t, 20*time.Second, "the table is written again", func() bool {
		streams, err := archive.LoadStreams(dir)
		return err == nil && len(streams.Sources()) == 1
	})
	stop(t, g)
	remove()
	for _, isFirst := range []bool{true, false} {
		g, said := startWarned(t, dir, tcp("b"))
		if told := strings.Contains(said, "the table of streams is gone"); told != isFirst {
			t.Errorf("told %v: %s", told, said)
		}
		if s := g.Sheet(); !hasReason(s.Verdict, "streams_unknown") || !slices.Equal(s.StreamsUnknown, []uint32{1}) {
			t.Errorf("%s; %v", s.Verdict.Text, s.StreamsUnknown)
		}
		streams, err := archive.LoadStreams(dir)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := streams.By(1); ok {
			t.Errorf("the records of a carry the name of %s", e.Source)
		}
		stop(t, g)
	}
}
