package recorder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
)

// lastKept is the newest sheet of the history with that end.
func lastKept(t *testing.T, dir, end string) (last archive.StartSheet) {
	t.Helper()
	for _, s := range keptSheets(t, dir) {
		if s.End == end {
			last = s
		}
	}
	return last
}

// A start that is killed between the opening of the log and its first sheet, wherever that may be,
// keeps nothing from the next ones: the loss is named once, in all sheets together, and every start
// is kept once.
func TestKilledBeforeItsFirstSheet(t *testing.T) {
	killed, stopped := recordedFor(t, t.TempDir(), 15_000)
	for name, from := range map[string]string{"killed": killed, "stopped": stopped} {
		for harm, do := range map[string]func(segs []string) error{
			"cut":    func(segs []string) error { return os.Truncate(segs[len(segs)-1], 10_000) },
			"header": func(segs []string) error { return os.Truncate(segs[len(segs)-1], 1000) },
			"gone":   func(segs []string) error { return os.Remove(segs[len(segs)-1]) },
			"first":  func(segs []string) error { return os.Remove(segs[0]) },
			"middle": func(segs []string) error { return os.Remove(segs[1]) },
			"repair": func(segs []string) error { return zeroAndRepair(segs[1]) },
		} {
			dir := copyFolder(t, from)
			if err := do(segments(t, dir)); err != nil {
				t.Fatal(err)
			}
			want := uint64(0)
			for i, dir := range momentsOfAStart(t, dir) {
				for range 2 {
					g, _ := startLogged(t, dir, tcp("a"))
					stop(t, g)
				}
				lost := uint64(0)
				seen := map[ledger.Time]bool{}
				for _, s := range keptSheets(t, dir) {
					gone, _ := s.Sheet.Recovered.Gone()
					lost += gone
					if seen[s.Sheet.Since] {
						t.Errorf("%s, %s, moment %d: the start of %d is kept twice", name, harm, i, s.Sheet.Since)
					}
					seen[s.Sheet.Since] = true
				}
				if i == 0 {
					want = lost
				}
				if lost != want || lost == 0 {
					t.Errorf("%s, %s, moment %d: %d records are named in all sheets, want %d", name, harm, i, lost,
						want)
				}
			}
		}
	}
}

// Starts that are killed one after the other, at whatever moment each, name a loss once: in all
// sheets together, and in the verdict of the start that is not killed.
func TestManyStartsKilledOneAfterTheOther(t *testing.T) {
	killed, stopped := recordedFor(t, t.TempDir(), 9_000)
	for name, from := range map[string]string{"killed": killed, "stopped": stopped} {
		dir := copyFolder(t, from)
		segs := segments(t, dir)
		if err := os.Truncate(segs[len(segs)-1], 10_000); err != nil {
			t.Fatal(err)
		}
		want, n := uint64(0), 0
		for i, dir := range killsOfAStart(t, dir) {
			for j, dir := range momentsOfAStart(t, dir) {
				g, _ := startLogged(t, dir)
				s := g.Sheet()
				stop(t, g)
				verdict := s.Verdict.LostHere.Records
				if s.Past != nil {
					verdict += s.Past.LostHere.Records
				}
				lost, starts := uint64(0), map[ledger.Time]int{}
				for _, s := range keptSheets(t, dir) {
					gone, _ := s.Sheet.Recovered.Gone()
					lost += gone
					if starts[s.Sheet.Since]++; starts[s.Sheet.Since] > 1 {
						t.Errorf("%s, killed at %d and %d: the start of %d is kept twice", name, i, j, s.Sheet.Since)
					}
				}
				if n++; n == 1 {
					want = lost
				}
				if verdict != want || lost != want || want == 0 {
					t.Errorf("%s, killed at %d and %d: the verdict has %d records, the sheets have %d, want %d", name,
						i, j, verdict, lost, want)
				}
			}
		}
	}
}

// killsOfAStart is momentsOfAStart, with those between the steps in which a sheet takes its name.
func killsOfAStart(t *testing.T, dir string) (moments []string) {
	t.Helper()
	for _, dir := range momentsOfAStart(t, dir) {
		renamed := copyFolder(t, dir)
		sheet := filepath.Join(renamed, "sheet.json")
		if err := os.Rename(sheet, sheet+".before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		moments = append(moments, dir, renamed)
	}
	return moments
}

// momentsOfAStart is what a kill leaves at each step of a start: before it, once the log is open,
// once the sheet of the start before is kept, and once it has one itself.
func momentsOfAStart(t *testing.T, dir string) (moments []string) {
	t.Helper()
	moments = []string{copyFolder(t, dir)}
	moment := func() { moments = append(moments, copyFolder(t, dir)) }
	g := &Recorder{
		cfg: config.Config{Log: config.Log{Dir: dir, Segment: 1 << 20}}.WithDefaults(), slog: quiet(),
		since: time.Now().UnixNano(),
		syncs: hist.New(), places: map[string]place{}, missed: missed{}, parted: map[string]archive.Span{},
		commits: commits{news: make(chan struct{}, 1)},
	}
	files, err := logFiles(g.cfg.Log, nil, g.slog)
	if err != nil {
		t.Fatal(err)
	}
	g.files = newReserve(files)
	left, err := archive.LoadStart(dir, g.slog)
	left = left.Ended(dir)
	if err == nil {
		left, err = g.openAs(left)
	}
	if err == nil {
		moment()
		g.streams, err = archive.LoadStreams(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.takeOver(left)
	if err := g.settleOwed(); err != nil {
		t.Fatal(err)
	}
	moment()
	g.saveFirst()
	moment()
	if err := g.closeLog(); err != nil {
		t.Fatal(err)
	}
	return moments
}

// keptSheets is the history in a folder.
func keptSheets(t *testing.T, dir string) (all []archive.StartSheet) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, archive.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := archive.EachStart(f, func(s archive.StartSheet) error { all = append(all, s); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// A start that is killed before its sheet has the peers that came leaves a log that tells: what was
// missing between their frames is in the account of their source.
func TestKillBeforeTheSheetHasPeers(t *testing.T) {
	dir := t.TempDir()
	send := func(g *Recorder, from uint64) {
		t.Helper()
		c := dialFrom(t, 1, address(g, "plant"))
		defer c.Close()
		write(t, c, of(1, from, 10))
		storedInAll(t, g, "plant", 10)
	}
	g := start(t, dir, nil, all("plant", 2))
	send(g, 0)
	stop(t, g)
	g = start(t, dir, nil, all("plant", 2))
	const sheet = "sheet.json"
	early, err := os.ReadFile(filepath.Join(dir, sheet))
	if err != nil {
		t.Fatal(err)
	}
	send(g, 12)
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	stop(t, g)
	if err := os.WriteFile(filepath.Join(killed, sheet), early, 0o600); err != nil {
		t.Fatal(err)
	}
	g = start(t, killed, nil, all("plant", 2))
	send(g, 25)
	if f, _, _ := total(t, stop(t, g), "plant"); f.Missing != 3 {
		t.Errorf("after the kill %d are missing, want 3", f.Missing)
	}
	sheets := past(t, killed)
	if f, _, _ := total(t, sheets[1].Sheet, "plant"); len(sheets) != 3 || f.Missing != 2 {
		t.Errorf("%d sheets; the one that was killed has %d missing, want 2", len(sheets), f.Missing)
	}
}

// A start that is killed as soon as its sources are opened has all of them in its sheet: the next
// one says that nobody has read them since, also those whose frames have no numbers.
func TestKillWhenTheSourcesAreOpened(t *testing.T) {
	dir := t.TempDir()
	line := config.Source{ID: "a", TCP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "line"}}
	stop(t, start(t, dir, nil, line))
	killed, kept := t.TempDir(), make(chan error, 1)
	openSource = func(config.Source) opener { return killedAtOpen{dir, killed, kept} }
	g := start(t, dir, nil, line)
	openSource = newOpener
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	stop(t, g)
	g = start(t, killed, nil, line)
	// … or "; then: not connected"
	if p := portOf(g, "a"); p.OutageCount == 0 || !strings.HasPrefix(p.Outages[0].Cause, outageNotRunning) {
		t.Errorf("outages %+v; want one since the kill", p.Outages)
	}
	stop(t, g)
	// Of the one that was killed its first sheet is kept. It may be the one before the last, where
	// the copy was made amid the writing of the next.
	if kept := keptSheets(t, killed); len(kept) != 3 || len(kept[1].Sheet.Ports) != 1 {
		t.Errorf("kept are %+v", kept)
	}
}

// killedAtOpen keeps what a kill leaves when its source is opened, which never comes.
type killedAtOpen struct {
	dir, killed string
	kept        chan<- error
}

func (o killedAtOpen) open(ctx context.Context) (device, error) {
	o.kept <- copyFiles(o.killed, o.dir)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (o killedAtOpen) replaced() <-chan struct{}          { return nil }
func (o killedAtOpen) close(bool) ([]device, bool, error) { return nil, false, nil }
