package recorder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where somebody puts the folder of another log in the place of a recorder's, its sheet is not
// written over the one there; that of a copy of its own log is.
func TestSheetStaysOutOfTheFolderOfAnotherLog(t *testing.T) {
	other, _ := recordedFor(t, t.TempDir(), 20)
	dir := filepath.Join(t.TempDir(), "log")
	g := start(t, dir, nil, tcp("a"))
	swap := func(to, from string) {
		t.Helper()
		if err := os.Rename(dir, to); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	sheet := func() string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	away := dir + ".away"
	swap(away, other)
	before := sheet()
	anew(g)
	if err := g.save(); err == nil || !strings.Contains(err.Error(), "folder of another log") {
		t.Errorf("saved: %v", err)
	}
	if sheet() != before {
		t.Error("the sheet of the other log is written over")
	}
	swap(dir+".other", away)
	anew(g)
	if err := g.save(); err != nil {
		t.Errorf("in a copy of its own: %v", err)
	}
	_, _ = g.Stop("test") // the log has failed: it is where it was
}

// anew has the next sheet be news.
func anew(g *Recorder) {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.saved = savedSheet{}
}
