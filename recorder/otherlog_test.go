package recorder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
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
