package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// goneSegments is how somebody takes segments away.
var goneSegments = map[string]struct {
	frames uint64 // that are recorded before
	take   func(t *testing.T, dir string)
}{
	"the only one": {100, func(t *testing.T, dir string) { removeAll(t, segments(t, dir)) }},
	"the newest": {14000, func(t *testing.T, dir string) {
		all := segments(t, dir)
		removeAll(t, all[len(all)-1:])
	}},
	"all of several": {14000, func(t *testing.T, dir string) { removeAll(t, segments(t, dir)) }},
	"all, with their indexes": {14000, func(t *testing.T, dir string) {
		removeAll(t, append(segments(t, dir), glob(t, dir, "*.idx")...))
	}},
}

func removeAll(t *testing.T, paths []string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Segments are taken away, under every policy, while the recorder runs, which sees that and ends,
// or behind its stop, or under one that is killed right behind that. No number that somebody can
// have read is given again; what is gone is named once, by the sheet and by verify.
func TestNumbersOfSegmentsThatAreGoneAreNotGivenAgain(t *testing.T) {
	for _, policy := range []string{"always", "batch", "interval", "never"} {
		for name, c := range goneSegments {
			for _, end := range []string{"running", "stopped", "killed"} {
				t.Run(fmt.Sprintf("%s, %s, %s", policy, name, end), func(t *testing.T) {
					t.Parallel() // with each other alone: most of it waits for the watch of the log
					dir := t.TempDir()
					edit := func(cfg *config.Config) { cfg.Log.Sync, cfg.Log.Interval = policy, time.Hour }
					g := start(t, dir, edit, tcp("a"))
					con := dial(t, address(g, "a"))
					for i := uint64(0); i < c.frames; i += 100 {
						write(t, con, frames(i, 100))
					}
					stored(t, g, "a", c.frames)
					con.Close()
					given := g.log.Position().Stored
					if c.frames > 100 && len(segments(t, dir)) < 2 {
						t.Fatalf("%d records are in one segment", given)
					}
					switch end {
					case "running":
						c.take(t, dir)
						testenv.Until(t, 20*time.Second, "the recorder sees it",
							func() bool { return g.log.Position().Err != nil })
						if _, err := g.Stop("test"); err == nil {
							t.Error("the recorder has not failed")
						}
					case "stopped":
						stop(t, g)
						c.take(t, dir)
					case "killed":
						killed := copyFolder(t, dir)
						stop(t, g)
						dir = killed
						c.take(t, dir)
					}
					if checked(t, dir).Clean() {
						t.Error("verify says nothing before the next start")
					}
					g = start(t, dir, edit, tcp("a"))
					if next := g.log.Position().Next; next <= given {
						t.Errorf("%d is given again; %d records were stored", next, given)
					}
					s := g.Sheet()
					stop(t, g)
					lost := uint64(0)
					if s.Recovered == nil || len(s.Recovered.Missing) == 0 || s.Recovered.Unsynced > 0 {
						t.Fatalf("named: %+v; want what is missing, and nothing twice", s.Recovered)
					}
					reach := uint64(0)
					for _, m := range s.Recovered.Missing {
						if m.From <= reach || m.To < m.From {
							t.Errorf("missing %+v, behind %d", m, reach)
						}
						if reach = m.To; m.AtMost && end == "stopped" {
							t.Errorf("missing %+v; the end is known", m)
						}
						lost += m.To - m.From + 1
					}
					if v := checked(t, dir); !v.Clean() || v.Lost != lost || reach < given {
						t.Errorf("verify: %d lost, up to %d of %d, %+v; the sheet has %+v", v.Lost, reach, given,
							v.Problems, s.Recovered.Missing)
					}
					g = start(t, dir, edit, tcp("a"))
					if s := stop(t, g); s.Recovered != nil {
						t.Errorf("the start after that says it again: %+v", s.Recovered)
					}
				})
			}
		}
	}
}

// checked is what `log verify` finds in a folder.
func checked(t *testing.T, dir string) seglog.Summary {
	t.Helper()
	fs, err := seglog.Dir(filepath.Clean(dir))
	if err != nil {
		t.Fatal(err)
	}
	s, err := seglog.VerifyKnown(fs, archive.Known(dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
