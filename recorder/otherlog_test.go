package recorder

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// folderWithLoss is a folder in which a start has lost so many frames, and ended.
func folderWithLoss(t *testing.T, lost uint64, acked bool) string {
	t.Helper()
	dir, next := t.TempDir(), uint64(0)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, lost)
	if acked {
		if _, err := g.Ack("of this folder"); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, g)
	return dir
}

// Sheets of another log count, and the verdict says whose they are; the word of another folder
// acknowledges nothing here.
func TestHistoryOfAnotherLog(t *testing.T) {
	ours := folderWithLoss(t, 3, false)
	other := folderWithLoss(t, 5, true) // later than ours
	foreign := t.TempDir()
	g := start(t, foreign, nil, tcp("a"))
	stop(t, g)
	put := func(name, from, to string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	anew := t.TempDir() // all but the history was removed
	put(archive.HistoryFile, ours, anew)
	put(archive.AckFile, other, ours)
	put(archive.HistoryFile, other, foreign)
	for name, c := range map[string]struct {
		dir                     string
		frames, starts, foreign uint64
		replaced                bool // what the folder's own starts lost is gone with its history
		said                    string
	}{
		"the word of another folder":    {ours, 3, 1, 0, false, "is of another log"},
		"the history of another folder": {foreign, 5, 1, 1, true, "has starts on another log"},
		"the log is begun anew":         {anew, 3, 1, 1, false, "has starts on another log"},
		"all is of this folder":         {other, 0, 0, 0, false, ""},
	} {
		for _, when := range []string{"at once", "and once more", "acknowledged", "and in the next start"} {
			g, said := startWarned(t, c.dir, tcp("a"))
			s := g.Sheet()
			if when == "acknowledged" {
				if _, err := g.Ack("known"); err != nil {
					t.Fatal(err)
				}
				c.frames, c.starts, c.foreign, c.replaced, c.said = 0, 0, 0, false, ""
				s = g.Sheet()
				said = ""
			}
			p := s.Past
			if p == nil {
				p = &ledger.Past{}
			}
			text := strings.Contains(s.Verdict.Text, ", 1 of them on another log")
			if p.LostWire.Frames != c.frames || p.Starts != c.starts || p.OtherLog != c.foreign ||
				p.Unreadable != c.replaced || text != (c.foreign > 0) {
				t.Errorf("%s, %s: %+v, %s", name, when, p, s.Verdict.Text)
			}
			if !strings.Contains(said, c.said) || c.said == "" && strings.Contains(said, "another log") {
				t.Errorf("%s, %s: the journal says %q", name, when, said)
			}
			stop(t, g)
		}
	}
}

// A log whose sheets are gone is beside the history of another one: the journal says so, where
// there is nothing but the history to know it by.
func TestHistoryAloneKnowsAnotherLog(t *testing.T) {
	ours, other := folderWithLoss(t, 3, false), folderWithLoss(t, 5, false)
	for name, is := range map[string]bool{"its own": false, "another's": true} {
		dir := copyFolder(t, ours)
		for _, sheet := range glob(t, dir, "sheet.json*") {
			if err := os.Remove(sheet); err != nil {
				t.Fatal(err)
			}
		}
		if is {
			b, err := os.ReadFile(filepath.Join(other, archive.HistoryFile))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, archive.HistoryFile), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var said strings.Builder
		cfg := config.Config{
			Log: config.Log{Dir: dir}, API: config.API{Listen: "127.0.0.1:0"}, Sources: []config.Source{tcp("a")},
		}
		g, err := Start(cfg, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Stop("test"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(said.String(), "not the one that the last line of sheets.ndjson is of"); got != is {
			t.Errorf("%s: the journal says that it is of another log: %v, want %v:\n%s", name, got, is, &said)
		}
	}
}
