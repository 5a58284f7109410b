package recorder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// beforeItsSheet is what a kill leaves between the sheet of a source that leaves by a reload to
// sources, which the history gets, and the next sheet of the start: the one on disk is of before.
// then, if there is any, is done to the recorder before the kill.
func beforeItsSheet(t *testing.T, g *Recorder, dir string, then func(), sources ...config.Source) (killed string) {
	t.Helper()
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	sheets := map[string][]byte{}
	for _, name := range []string{"sheet.json", "sheet.json.before"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sheets[name] = b
	}
	reloaded(t, g, sources...)
	if then != nil {
		then()
	}
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	killed = copyFolder(t, dir)
	for name, b := range sheets {
		if err := os.WriteFile(filepath.Join(killed, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return killed
}

// A kill between the sheet of a source that leaves and the next sheet of its start counts what the
// source had lost once: in the verdict, in the list, and in the sheets.
func TestKillBeforeTheSheetGivesUpWhatLeft(t *testing.T) {
	first := tcp("a") // and it is newest otherwise
	first.TCP.Peers = config.PeersFirst
	for name, c := range map[string]struct {
		to   []config.Source
		then func(t *testing.T, g *Recorder, next *uint64)
		lost uint64
	}{
		"it is taken out": {to: []config.Source{tcp("b")}, lost: 3},
		"it is changed":   {to: []config.Source{first, tcp("b")}, lost: 3},
		"it is changed, and loses more": {
			to: []config.Source{first, tcp("b")}, lost: 5,
			then: func(t *testing.T, g *Recorder, next *uint64) { lose(t, g, next, 2) },
		},
		"it is changed, and frames come late": {
			to: []config.Source{first, tcp("b")}, lost: 2,
			then: func(t *testing.T, g *Recorder, next *uint64) { feed(t, g, *next-8) },
		},
		"it is changed, and changed back": {
			to: []config.Source{first, tcp("b")}, lost: 5,
			then: func(t *testing.T, g *Recorder, next *uint64) {
				lose(t, g, next, 2)
				reloaded(t, g, tcp("a"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, next := t.TempDir(), uint64(0)
			g := start(t, dir, nil, tcp("a"))
			lose(t, g, &next, 3)
			then := func() {
				if c.then != nil {
					c.then(t, g, &next)
				}
			}
			killed := beforeItsSheet(t, g, dir, then, c.to...)
			stop(t, g)
			for range 2 { // the second start has it from the history alone
				g = start(t, killed, nil, tcp("a"))
				if p := g.Sheet().Past; p == nil || p.LostWire.Frames != c.lost || p.Starts != 1 {
					t.Errorf("past %+v; want %d lost in one start", p, c.lost)
				}
				listed := uint64(0)
				all, _, err := g.Losses("")
				for _, l := range all {
					listed += l.N
				}
				if err != nil || listed != c.lost && name != "it is changed, and frames come late" {
					t.Errorf("the list has %d: %+v, %v", listed, all, err)
				}
				if p := portOf(g, "a"); p.OutageCount == 0 || !strings.HasPrefix(p.Outages[0].Cause, outageNotRunning) {
					t.Errorf("outages %+v", p.Outages)
				}
				stop(t, g)
			}
			g = start(t, killed, nil, tcp("a"))
			feed(t, g, next)
			if f := stop(t, g).Ports[0].Frames; f.Missing+f.Duplicate+f.Late > 0 {
				t.Errorf("what goes on behind it: %+v", f)
			}
		})
	}
}

// What is missing of a source that came after the last sheet of a start that was killed is named by
// the next one, once, also where its numbers go across 2^64.
func TestKillBeforeTheSheetHasTheSource(t *testing.T) {
	for _, peers := range []string{config.PeersNewest, config.PeersAll} {
		t.Run(peers, func(t *testing.T) {
			const first = 1<<64 - 12
			lives := func(g *Recorder, numbers ...uint64) {
				t.Helper()
				at := g.log.Position().Stored
				c := dial(t, address(g, "a"))
				defer c.Close()
				for _, n := range numbers {
					write(t, c, frames(first+n, 1))
				}
				testenv.Until(t, time.Minute, "they are in the log",
					func() bool { return g.log.Position().Stored == at+uint64(len(numbers)) })
			}
			dir, a := t.TempDir(), tcp("a")
			a.TCP.Peers = peers
			g := start(t, dir, nil, a)
			lives(g, consecutive(0, 10)...)
			stop(t, g)
			g = start(t, dir, nil, tcp("b"))
			killed := beforeItsSheet(t, g, dir, func() { lives(g, 13, 14, 15) }, a, tcp("b"))
			stop(t, g)
			g = start(t, killed, nil, a)
			if s := g.Sheet(); onWire(s) != 3 || s.Past == nil || s.Past.Starts != 1 {
				t.Errorf("%s; past %+v; want 3 lost in one start", s.Verdict.Text, s.Past)
			}
			lives(g, 16, 11) // which is late
			if s := g.Sheet(); onWire(s) != 2 {
				t.Errorf("%s; past %+v; want 2 lost", s.Verdict.Text, s.Past)
			}
			stop(t, g)
		})
	}
}

// What a source has lost that a reload takes out is of this start, in its words, and of an earlier
// one for the next; a kill changes neither. It said that nothing was lost since the start began.
func TestLossesBeforeAReloadAreOfThisStart(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 3)
	s := reloaded(t, g, tcp("b"))
	of := "lost since " + s.Since.String() + ": 3 frames on the wire (3 frames in books closed since, as by a reload)"
	if !strings.HasPrefix(s.Verdict.Text, of) || strings.Contains(s.Verdict.Text, "earlier") {
		t.Errorf("%q; want %q", s.Verdict.Text, of)
	}
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyOf(t, dir)
	stop(t, g)
	for _, dir := range []string{killed, dir} {
		g := start(t, dir, nil, tcp("b"))
		want := "earlier: 3 frames lost in 1 start since " + s.Since.String()
		text := g.Sheet().Verdict.Text
		if !strings.Contains(text, want) || !strings.Contains(text, "nothing known lost since") {
			t.Errorf("the next start: %q; want %q", text, want)
		}
		stop(t, g)
		history := past(t, dir)
		if v := history[1].Sheet.Verdict; !strings.HasPrefix(v.Text, of) {
			t.Errorf("the history: %q; want %q", v.Text, of)
		}
	}
}

// The sheet of a source that leaves and cannot be kept is kept as soon as it can be, once, whether
// or not its start was killed in between.
func TestSheetOfASourceThatLeavesIsNotLost(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	path := filepath.Join(dir, archive.HistoryFile)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 3)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if s := reloaded(t, g, tcp("b")); s.Past == nil || s.Past.LostWire.Frames != 3 {
		t.Errorf("past %+v", s.Past)
	}
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolderWithout(t, dir, archive.HistoryFile)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	stop(t, g)
	for name, dir := range map[string]string{"stopped": dir, "killed": killed} {
		g := start(t, dir, nil, tcp("b"))
		if p := g.Sheet().Past; p == nil || p.LostWire.Frames != 3 {
			t.Errorf("%s: past %+v; want 3 lost", name, p)
		}
		stop(t, g)
		n := uint64(0)
		for _, s := range keptSheets(t, dir) {
			var p ledger.Past
			p.Add(&s.Sheet)
			n += p.LostWire.Frames
		}
		if n != 3 {
			t.Errorf("%s: the history has %d lost, want 3", name, n)
		}
	}
}

// A stop that is killed once the history has its last sheet was a stop: what it had counted after
// the sheet on disk is in no other account.
func TestKillBetweenTheLastSheets(t *testing.T) {
	dir, next := t.TempDir(), uint64(0)
	source := tcp("a")
	g := start(t, dir, nil, source)
	lose(t, g, &next, 3)
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	early, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range g.snapshot() { // its last frames come, and are given up
		p.lane.mu.Lock()
		p.lane.out.log = fullLog{p.lane.out.log}
		p.lane.mu.Unlock()
	}
	feed(t, g, next, next+1)
	stop(t, g)
	if err := os.WriteFile(filepath.Join(dir, "sheet.json"), early, 0o600); err != nil {
		t.Fatal(err)
	}
	g, said := startWarned(t, dir, source)
	if strings.Contains(said, "left no end") {
		t.Error(said)
	}
	feed(t, g, next+2)
	if f := portOf(g, "a").Frames; f.Missing > 0 {
		t.Errorf("dropped, and missing: %+v", f)
	}
	if p := g.Sheet().Past; p == nil || p.LostWire.Frames != 3 || p.LostHere.Frames != 2 {
		t.Errorf("past %+v", p)
	}
	stop(t, g)
}

// fullLog is a log that takes nothing.
type fullLog struct{ appender }

func (fullLog) TryAppendAt(uint32, int64, uint64, []byte) (uint64, error) {
	return 0, seglog.ErrDiskFull
}

// While the sheet on disk cannot be renewed, the verdict says so.
func TestSheetThatCannotBeRenewed(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	path := filepath.Join(dir, "sheet.json")
	testenv.Until(t, time.Minute, "there is a sheet", func() bool { _, err := os.Lstat(path); return err == nil })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	has := func() bool {
		s := g.Sheet()
		return slices.ContainsFunc(s.Judge().Reasons, func(r ledger.Reason) bool { return r.Kind == "sheet_unsaved" })
	}
	next := uint64(0)
	lose(t, g, &next, 1) // it is renewed when something has changed
	testenv.Until(t, time.Minute, "the verdict says it", has)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "it is renewed again", func() bool { return !has() })
	stop(t, g)
}
