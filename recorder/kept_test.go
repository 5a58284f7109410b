package recorder

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// A history that is cut, removed or replaced while the recorder runs is told within a look, in the
// journal and by the verdict, until it is acknowledged: in this start, and in those behind it. One
// that is as the recorder has left it is not, however often it adds a line.
func TestHistoryThatIsCutWhileTheRecorderRuns(t *testing.T) {
	defer func(d time.Duration) { historyLook = d }(historyLook)
	historyLook = time.Millisecond
	const kind = "history_unreadable"
	for name, harm := range map[string]func(path string, b []byte) error{
		"nothing":         func(string, []byte) error { return nil },
		"removed":         func(path string, _ []byte) error { return os.Remove(path) },
		"emptied":         func(path string, _ []byte) error { return os.Truncate(path, 0) },
		"its end is gone": func(path string, b []byte) error { return os.Truncate(path, int64(len(b)-10)) },
		"its last line is gone": func(path string, b []byte) error {
			return os.Truncate(path, int64(bytes.LastIndexByte(b[:len(b)-1], '\n')+1))
		},
		"replaced": func(path string, b []byte) error {
			other := bytes.ReplaceAll(b, []byte("test"), []byte("tset"))
			return errors.Join(os.WriteFile(path+".new", other, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, next := t.TempDir(), uint64(0)
			path := filepath.Join(dir, archive.HistoryFile)
			for range 2 {
				g := start(t, dir, nil, tcp("a"))
				lose(t, g, &next, 2)
				stop(t, g)
			}
			g := start(t, dir, nil, tcp("a"))
			b, err := os.ReadFile(path)
			if err == nil {
				err = harm(path, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			isHarm := name != "nothing"
			if isHarm {
				testenv.Until(t, 20*time.Second, "it is told",
					func() bool { return hasReason(g.Sheet().Verdict, kind) })
			}
			// A source that leaves has a line of its own, which must not hide anything.
			reloaded(t, g, tcp("b"))
			stop(t, g)
			for range 2 {
				g = start(t, dir, nil, tcp("a"))
				if v := g.Sheet().Verdict; hasReason(v, kind) != isHarm {
					t.Errorf("the next start: %s", v.Text)
				}
				stop(t, g)
			}
			g = start(t, dir, nil, tcp("a"))
			if _, err := g.Ack("known"); err != nil {
				t.Fatal(err)
			}
			if v := g.Sheet().Verdict; hasReason(v, kind) {
				t.Errorf("acknowledged: %s", v.Text)
			}
			stop(t, g)
			g = start(t, dir, nil, tcp("a"))
			if v := g.Sheet().Verdict; hasReason(v, kind) {
				t.Errorf("acknowledged before: %s", v.Text)
			}
			stop(t, g)
		})
	}
}

// What was done to the history right before the recorder adds a line, or is acknowledged, is not
// hidden by that.
func TestHistoryThatIsCutBeforeALine(t *testing.T) {
	for name, then := range map[string]func(g *Recorder) error{
		"a stop":   func(*Recorder) error { return nil },
		"a reload": func(g *Recorder) error { reloaded(t, g, tcp("b")); return nil },
		"a sheet":  func(g *Recorder) error { return g.save() },
	} {
		dir, next := t.TempDir(), uint64(0)
		g := start(t, dir, nil, tcp("a"))
		lose(t, g, &next, 2)
		stop(t, g)
		g = start(t, dir, nil, tcp("a"))
		lose(t, g, &next, 2) // a sheet has news
		if err := errors.Join(os.Truncate(filepath.Join(dir, archive.HistoryFile), 0), then(g)); err != nil {
			t.Fatal(err)
		}
		stop(t, g)
		g = start(t, dir, nil, tcp("a"))
		if v := g.Sheet().Verdict; !hasReason(v, "history_unreadable") {
			t.Errorf("%s: %s", name, v.Text)
		}
		stop(t, g)
	}
}
