package recorder

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// copyFolder makes what a power cut would leave: the files as they are at this moment.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := copyFiles(to, from); err != nil {
		t.Fatal(err)
	}
	return to
}

// copyFolderWithout is copyFolder but for one name.
func copyFolderWithout(t *testing.T, from, name string) string {
	t.Helper()
	to, bare := t.TempDir(), t.TempDir()
	all, err := os.ReadDir(from)
	for _, e := range all {
		if err == nil && e.Name() != name {
			err = os.Link(filepath.Join(from, e.Name()), filepath.Join(bare, e.Name()))
		}
	}
	if err == nil {
		err = copyFiles(to, bare)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// copyFiles copies what is in a folder. A file that is taken away meanwhile is not there. The sheet
// has no name for a moment while a recorder replaces it: then the copy is made again.
func copyFiles(to, from string) error {
	there := func(dir string) bool {
		_, err := os.Lstat(filepath.Join(dir, "sheet.json"))
		return err == nil
	}
	err := copyOnce(to, from)
	for err == nil && !there(to) && there(from) {
		if err = os.RemoveAll(to); err == nil {
			err = copyOnce(to, from)
		}
	}
	return err
}

func copyOnce(to, from string) error {
	all, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	for _, e := range all {
		b, readErr := os.ReadFile(filepath.Join(from, e.Name()))
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
		case readErr != nil:
			return readErr
		case err == nil:
			err = os.WriteFile(filepath.Join(to, e.Name()), b, 0o600)
		}
	}
	return err
}

// Whatever a power cut makes of the sheets on disk, the next start records, and its books go on
// where the log ends.
func TestDamagedSheetIsNoReasonNotToRecord(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 50))
	stored(t, g, "a", 50)
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(dir string) error{
		"empty": func(dir string) error { return os.Truncate(filepath.Join(dir, "sheet.json"), 0) },
		"torn":  func(dir string) error { return os.Truncate(filepath.Join(dir, "sheet.json"), 20) },
		"gone":  func(dir string) error { return os.Remove(filepath.Join(dir, "sheet.json")) },
		"both torn": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "sheet.json"), nil, 0o600),
				os.WriteFile(filepath.Join(dir, "sheet.json.before"), make([]byte, 100), 0o600))
		},
		"both gone": func(dir string) error {
			_ = os.Remove(filepath.Join(dir, "sheet.json.before")) // there may be none yet
			return os.Remove(filepath.Join(dir, "sheet.json"))
		},
	} {
		cut := copyFolder(t, dir)
		if err := harm(cut); err != nil {
			t.Fatal(name, err)
		}
		g := start(t, cut, nil, tcp("a"))
		c := dial(t, address(g, "a"))
		write(t, c, frames(53, 10))
		stored(t, g, "a", 10)
		c.Close()
		p := stop(t, g).Ports[0]
		if p.Frames.Missing != 3 || len(p.Outages) == 0 || !strings.HasPrefix(p.Outages[0].Cause, outageNotRunning) {
			t.Errorf("%s: %+v, %+v; want 3 missing, and an outage", name, p.Frames, p.Outages)
		}
		if n := len(past(t, cut)); n != 2 {
			t.Errorf("%s: the history has %d sheets, want 2", name, n)
		}
	}
	stop(t, g)
}

// A source whose framing has no numbers has an outage for the time in which nobody recorded, too,
// also where no sheet is left to name it.
func TestOutageWithoutNumbers(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, lines("a", ""))
	sendLines(t, address(g, "a"), 5)
	stored(t, g, "a", 5)
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	killed, noSheet := copyFolder(t, dir), copyFolder(t, dir)
	stop(t, g)
	for _, name := range []string{"sheet.json", "sheet.json.before"} { // as a power cut may leave them
		if err := os.WriteFile(filepath.Join(noSheet, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"stopped": dir, "killed": killed, "both sheets torn": noSheet} {
		g = start(t, dir, nil, lines("a", ""))
		p := portOf(g, "a")
		if p.OutageCount == 0 || !strings.HasPrefix(p.Outages[0].Cause, outageNotRunning) {
			t.Errorf("%s: outages %+v", name, p.Outages)
		}
		stop(t, g)
	}
}

// illAfterHundred starts a recorder in dir, has 100 frames of the source a stored, and makes its
// disk ill. c is the device.
func illAfterHundred(t *testing.T) (dir string, ill *atomic.Bool, g *Recorder, c net.Conn) {
	t.Helper()
	dir, ill = t.TempDir(), onIllDisk(t)
	source := tcp("a")
	source.Quarantine = true
	g = start(t, dir, nil, source)
	c = dial(t, address(g, "a"))
	t.Cleanup(func() { c.Close() })
	write(t, c, frames(0, 100))
	stored(t, g, "a", 100)
	ill.Store(true)
	return dir, ill, g, c
}

// Frames that were in the log's hands when a sync failed are in one place of the books: where the
// next start finds them. So are bytes that were in no frame.
func TestFramesAreNotBothStoredAndDropped(t *testing.T) {
	dir, ill, g, c := illAfterHundred(t)
	junk := bytes.Repeat([]byte("junk"), 10)
	write(t, c, slices.Concat(junk, frames(100, 100)))
	<-g.Failed()
	if _, err := g.Stop("test"); !errors.Is(err, errIll) {
		t.Fatal(err)
	}
	ill.Store(false)
	g = start(t, dir, nil, tcp("a"))
	inLog := g.log.Position().Stored - 1 // one record is junk
	all := past(t, dir)
	if len(all) != 1 {
		t.Fatalf("%d sheets in the history, want that of the start that failed", len(all))
	}
	f := all[0].Sheet.Ports[0].Frames
	if f.Stored != inLog || f.Stored+f.Dropped[causeFailed] != f.OK || f.Stored <= 100 {
		t.Errorf("%d records in the log; the sheet: %+v", inLog, f)
	}
	if y := all[0].Sheet.Ports[0].Bytes; y.Quarantined != uint64(len(junk)) || y.Resync != y.Quarantined {
		t.Errorf("%d bytes are quarantined; the sheet: %+v", len(junk), y)
	}
	c2 := dial(t, address(g, "a"))
	defer c2.Close()
	write(t, c2, frames(f.Stored, 1))
	stored(t, g, "a", 1)
	if f := portOf(g, "a").Frames; f.Missing != 0 {
		t.Errorf("%+v; want nothing missing", f)
	}
	stop(t, g)
}

// What a start has dropped, and counted, the next one does not call missing as well.
func TestDroppedFramesAreNotMissingToo(t *testing.T) {
	dir, ill, g, c := illAfterHundred(t)
	write(t, c, frames(100, 10))
	<-g.Failed()
	write(t, c, frames(110, 90))
	testenv.Until(t, 10*time.Second, "all are read", func() bool { return portOf(g, "a").Frames.OK == 200 })
	if s, err := g.Stop("test"); !errors.Is(err, errIll) || s.Ports[0].Frames.Dropped[causeFailed] < 90 {
		t.Fatalf("%v: %+v", err, s.Ports[0].Frames)
	}
	ill.Store(false)
	g = start(t, dir, nil, tcp("a"))
	c2 := dial(t, address(g, "a"))
	defer c2.Close()
	write(t, c2, frames(203, 10))
	stored(t, g, "a", 10)
	if f := stop(t, g).Ports[0].Frames; f.Missing != 3 || f.Duplicate != 0 {
		t.Errorf("%+v; want the 3 missing that nobody has counted", f)
	}
}

// A start that is killed before its next sheet has lost its account of what was missing since the
// last one. The log tells it.
func TestKilledStartNamesWhatWasMissing(t *testing.T) {
	dir := t.TempDir()
	next := uint64(0)
	for n, before := range []uint64{0, 7, 5} { // so many are lost before each start
		g := start(t, dir, nil, tcp("a"))
		c := dial(t, address(g, "a"))
		write(t, c, slices.Concat(frames(next+before, 10), frames(next+before+13, 10))) // 3 are lost on the way
		next += before + 23
		stored(t, g, "a", 20)
		if err := g.log.Sync(); err != nil {
			t.Fatal(err)
		}
		dir = copyFolder(t, dir)
		c.Close()
		stop(t, g)
		stop(t, start(t, dir, nil, tcp("a")))
		sheets := past(t, dir)
		if f := sheets[len(sheets)-2].Sheet.Ports[0].Frames; f.Missing != before+3 || f.MissingUnseen != f.Missing {
			t.Errorf("kill %d: %+v; want %d missing", n, f, before+3)
		}
		if f := sheets[len(sheets)-1].Sheet.Ports[0].Frames; f.Missing != 0 {
			t.Errorf("after kill %d: %+v; want nothing missing", n, f)
		}
	}
}

// A device whose numbers go on across 2^64 goes on so in the next start.
func TestNextStartAcrossTheEndOfNumbers(t *testing.T) {
	dir := t.TempDir()
	first := ^uint64(0) - 9
	for i := range uint64(3) {
		g := start(t, dir, nil, tcp("a"))
		c := dial(t, address(g, "a"))
		write(t, c, frames(first+i*25, 20)) // 5 are lost between the starts
		stored(t, g, "a", 20)
		c.Close()
		want := uint64(5)
		if i == 0 {
			want = 0
		}
		if f := stop(t, g).Ports[0].Frames; f.Missing != want || f.Duplicate != 0 {
			t.Errorf("start %d: %+v; want %d missing", i, f, want)
		}
	}
}

// A sheet that says what the one on disk says is not written again, but for one now and then.
func TestSheetIsWrittenWhenItHasNews(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	now := time.Now()
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 5))
	stored(t, g, "a", 5)
	c.Close()
	testenv.Until(t, 10*time.Second, "the connection has ended",
		func() bool { return portOf(g, "a").State == ledger.StateWaiting })
	stop(t, g)
	var last savedSheet
	sheet := func(end string) archive.StartSheet { return g.startSheet(end) }
	for i, want := range []struct {
		end   string
		after time.Duration
		news  bool
	}{
		{"", 0, true},
		{"", time.Second, false},
		{"", 2 * time.Second, false},
		{"other", 3 * time.Second, true},
		{"other", 4 * time.Second, false},
		{"other", 3*time.Second + idlePeriod, true},
		{"other", 4*time.Second + idlePeriod, false},
	} {
		if got := last.isNews(sheet(want.end), now.Add(want.after)); got != want.news {
			t.Errorf("sheet %d: news: %v", i, got)
		}
	}
	changed := sheet("other")
	changed.Sheet.Ports[0].Frames.OK++
	if !last.isNews(changed, now.Add(5*time.Second+idlePeriod)) {
		t.Error("a frame is no news")
	}
}

// A sheet that is torn takes the place of no good one: it is set aside by the next start.
func TestTornSheetIsSetAside(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	feed(t, g, 0, 1, 5, 6) // 2, 3, 4 are missing
	stop(t, g)
	torn := filepath.Join(dir, "sheet.json")
	if err := os.Truncate(torn, 20); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, nil, tcp("a"))
	if st, err := os.Stat(torn + ".damaged"); err != nil || st.Size() != 20 {
		t.Errorf("the torn sheet: %v, %v", st, err)
	}
	feed(t, g, 7, 2, 3, 4)
	if s := g.Sheet(); onWire(s) != 0 || s.Ports[0].Frames.Duplicate > 0 {
		t.Errorf("%s; %+v", s.Verdict.Text, s.Ports[0].Frames)
	}
	stop(t, g)
}

// Where the only sheet of a start cannot be read, nobody knows what it lost, and the verdict says
// so. Where no start has begun since the one before it, there is nothing to tell.
func TestAStartWithoutASheetIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(t *testing.T, g *Recorder, dir string) string // of the start whose sheet is kept
		follow bool
	}{
		"behind a stop": {func(t *testing.T, g *Recorder, dir string) string { stop(t, g); return dir }, true},
		"beside another log": {func(t *testing.T, g *Recorder, dir string) string {
			stop(t, g)
			other := t.TempDir()
			stop(t, start(t, other, nil, tcp("a")))
			swapLog(t, dir, other)
			return dir
		}, true},
		"behind a kill": {func(t *testing.T, g *Recorder, dir string) string {
			killed := copyFolder(t, dir)
			stop(t, g)
			return killed
		}, true},
		"a torn stop": {func(t *testing.T, g *Recorder, dir string) string { stop(t, g); return dir }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g := start(t, dir, nil, tcp("a"))
			feed(t, g, consecutive(0, 5)...)
			if err := g.save(); err != nil {
				t.Fatal(err)
			}
			dir = c.end(t, g, dir)
			kept, err := os.ReadFile(filepath.Join(dir, "sheet.json"))
			if err != nil {
				t.Fatal(err)
			}
			if c.follow {
				g = start(t, dir, nil, tcp("a"))
				feed(t, g, consecutive(5, 5)...)
				if err := g.log.Sync(); err != nil {
					t.Fatal(err)
				}
				killed := copyFolder(t, dir)
				stop(t, g)
				dir = killed
				if err := os.WriteFile(filepath.Join(dir, "sheet.json.before"), kept, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Truncate(filepath.Join(dir, "sheet.json"), 20); err != nil {
				t.Fatal(err)
			}
			g = start(t, dir, nil, tcp("a"))
			if s := g.Sheet(); hasReason(s.Verdict, "history_unreadable") != c.follow {
				t.Errorf("%s: %s", name, s.Verdict.Text)
			}
			stop(t, g)
		})
	}
}
