package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
		Log: config.Log{Dir: dir, Segment: 1 << 20}, API: config.API{Listen: "127.0.0.1:0"},
		Sources: []config.Source{tcp("a")},
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
		"the table is empty": func() error { return os.WriteFile(path, nil, 0o600) },
		"the table is torn":  func() error { return os.WriteFile(path, whole[:len(whole)/2], 0o600) },
		"the table is gone":  func() error { return os.Remove(path) },
		// as of a log from before there was one
		"the copy is gone":      func() error { return os.Remove(path + ".copy") },
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

// A table that is older than the log names some of its records. No source gets a number of those
// that it lacks: its records would carry the name of another one.
func TestTableOfStreamsThatIsOlder(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	put := func(table []byte) {
		t.Helper()
		for _, name := range []string{"streams.json", "streams.json.copy"} {
			if err := os.WriteFile(filepath.Join(dir, name), table, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	table := func() []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "streams.json"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 0)
	stop(t, g)
	older := table()
	g = start(t, dir, nil, tcp("a"), tcp("b")) // the newest records are a's, whom both tables name
	sendTo(t, g, next, 5)
	stop(t, g)
	newest := table()
	if err := os.WriteFile(filepath.Join(dir, "streams.json"), older, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := archive.LoadStreams(dir); err != nil || !s.Has("b") || s.Harm() == nil {
		t.Errorf("the copy, which is newer, does not serve: %v", err)
	}
	put(older)
	for start, isFirst := range []bool{true, false} {
		g, said := startWarned(t, dir, tcp("a"), tcp("c"))
		if told := strings.Contains(said, "the table of streams is older than the log"); told != isFirst {
			t.Errorf("start %d: told %v: %s", start, told, said)
		}
		s := g.Sheet()
		if !hasReason(s.Verdict, "streams_unknown") || !slices.Equal(s.StreamsUnknown, []uint32{2}) {
			t.Errorf("start %d: %s; %v", start, s.Verdict.Text, s.StreamsUnknown)
		}
		streams, err := archive.LoadStreams(dir)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := streams.By(2); ok {
			t.Errorf("start %d: the records of b carry the name of %s", start, e.Source)
		}
		stop(t, g)
	}
	put(newest)
	g, said := startWarned(t, dir, tcp("a"), tcp("b"))
	if s := g.Sheet(); !strings.Contains(said, "older than the log") || !slices.Equal(s.StreamsUnknown, []uint32{3}) {
		t.Errorf("b has its name again, and c has not: %v; %s", s.StreamsUnknown, said)
	}
	stop(t, g)
}

// What is no file in the place of the table, or of its copy, keeps nobody from recording or
// reading: the other one serves, and what stood there is kept under a free name. Readers leave it.
func TestTableOfStreamsThatIsNoFile(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 0)
	stop(t, g)
	whole, err := os.ReadFile(filepath.Join(dir, "streams.json"))
	if err != nil {
		t.Fatal(err)
	}
	for kind, put := range map[string]func(path string) error{
		"folder":             func(path string) error { return os.MkdirAll(filepath.Join(path, "somebody's"), 0o700) },
		"pipe":               func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"loop":               func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"link to nowhere":    func(path string) error { return os.Symlink("nowhere", path) },
		"link to a device":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"link to its folder": func(path string) error { return os.Symlink(".", path) },
	} {
		for _, name := range []string{"streams.json", "streams.json.copy"} {
			path := filepath.Join(dir, name)
			kept := []byte("an earlier one")
			if err := errors.Join(os.Remove(path), os.WriteFile(path+".damaged", kept, 0o600), put(path)); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if log, err := archive.Open(dir); err != nil || len(log.Streams.Sources()) == 0 {
				t.Errorf("%s in the place of %s: the log is opened with %v", kind, name, err)
			}
			if now, err := os.Lstat(path); err != nil || !os.SameFile(before, now) {
				t.Errorf("%s in the place of %s: a reader has changed it; %v", kind, name, err)
			}
			g, said := startWarned(t, dir, tcp("a"), tcp("b"))
			if !strings.Contains(said, "was set aside") {
				t.Errorf("%s in the place of %s: %s", kind, name, said)
			}
			stop(t, g)
			aside := path + ".damaged.2"
			if now, err := os.Lstat(aside); err != nil || !os.SameFile(before, now) {
				t.Errorf("%s in the place of %s was not set aside: %v", kind, name, err)
			}
			if b, err := os.ReadFile(path + ".damaged"); !bytes.Equal(b, kept) {
				t.Errorf("%s in the place of %s: what was set aside before is %q, %v", kind, name, b, err)
			}
			if streams, err := archive.LoadStreams(dir); err != nil || streams.Harm() != nil ||
				len(streams.Sources()) != 2 {
				t.Errorf("%s in the place of %s: %v", kind, name, err)
			}
			if err := errors.Join(os.RemoveAll(aside), os.Remove(path+".damaged")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "streams.json")); err != nil || len(b) <= len(whole) {
		t.Errorf("%q, %v", b, err)
	}
}

// Where neither the table nor its copy is a file, the start says what to move away, and changes
// nothing. A folder that comes into their place while the recorder runs is set aside.
func TestBothTablesOfStreamsAreNoFile(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	paths := []string{filepath.Join(dir, "streams.json"), filepath.Join(dir, "streams.json.copy")}
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 0)
	for _, path := range paths {
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, 20*time.Second, "both are written again", func() bool {
		streams, err := archive.LoadStreams(dir)
		copied, copyErr := os.ReadFile(paths[1])
		return err == nil && streams.Harm() == nil && copyErr == nil && len(copied) > 0
	})
	stop(t, g)
	for _, path := range paths {
		if _, err := os.Stat(path + ".damaged"); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(config.Config{
		Log: config.Log{Dir: dir, Segment: 1 << 20}, API: config.API{Listen: "127.0.0.1:0"},
		Sources: []config.Source{tcp("a")},
	}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "streams.json is no ordinary file: move it away") {
		t.Error(err)
	}
	for _, path := range paths {
		if st, err := os.Stat(path); err != nil || !st.IsDir() {
			t.Errorf("%s was changed: %v", path, err)
		}
	}
}
