package recorder

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A start on a full disk runs, says what it waits for, and records as soon as there is room, also
// where the log is new; a sheet of the start before that could not be kept is kept then.
func TestStartOnAFullDisk(t *testing.T) {
	killed, _ := recordedFor(t, t.TempDir(), 200)
	for name, dir := range map[string]string{"new": t.TempDir(), "killed": killed} {
		d := fault.New()
		for _, seg := range glob(t, dir, "*.seg") {
			b, err := os.ReadFile(seg)
			if err != nil {
				t.Fatal(err)
			}
			f, err := d.Create(filepath.Base(seg))
			if err == nil {
				_, err = f.WriteAt(b, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		d.SetFree(0)
		openFiles = func(config.Log, *asyncfile.ChainStats, *slog.Logger) (seglog.FS, error) {
			return simDisk{d, &diskTrouble{}}, nil
		}
		t.Cleanup(func() { openFiles = logFiles })
		inTheWay := []string{"streams.json.part", "sheet.json.part", archive.HistoryFile}
		for _, file := range inTheWay {
			if err := os.Symlink("/dev/full", filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		g := start(t, dir, func(c *config.Config) { c.Log.Delay = time.Millisecond }, tcp("a"), lines("new", ""))
		s := g.Sheet()
		if s.Log == nil || !s.Log.Full || s.Log.Stalled == "" || s.Verdict.Level != ledger.Bad {
			t.Errorf("%s: %+v, %+v", name, s.Log, s.Verdict)
		}
		infos := g.Ports()
		if p := s.Ports[1]; len(s.Ports) != 2 || len(infos) != 2 || p.State != ledger.StateWaiting ||
			p.Why != outageNoRoom || infos[1].Why != p.Why ||
			len(p.Outages) != 1 || p.Outages[0].To != 0 || !hasReason(s.Verdict, "not_there") {
			t.Errorf("%s: what waits for room: %+v, %+v, %q", name, p, infos, s.Verdict.Text)
		}
		began := s.Ports[1].Outages[0].From
		d.SetFree(-1)
		for _, file := range inTheWay {
			if err := os.Remove(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Until(t, 20*time.Second, "every source is there", func() bool { return len(g.sources()) == 2 })
		c := dial(t, address(g, "a"))
		write(t, c, frames(200, 10))
		stored(t, g, "a", 10)
		c.Close()
		if p := portOf(g, "new"); p.OutageCount != 1 || p.Outages[0].From != began ||
			!strings.HasPrefix(p.Outages[0].Cause, outageNoRoom) {
			t.Errorf("%s: what has waited for room: %+v; want an outage since %v", name, p, began)
		}
		if s := stop(t, g); s.Log != nil || s.Recovered != nil || s.Ports[0].Frames.Missing != 0 {
			t.Errorf("%s: with room: %+v, %+v, %+v", name, s.Log, s.Recovered, s.Ports[0].Frames)
		}
		kept := keptSheets(t, dir)
		if last := kept[len(kept)-1]; last.End != "test" ||
			name == "killed" != (len(kept) == 2 && kept[0].End == archive.CauseKilled) {
			t.Errorf("%s: %d sheets are kept, the last one ends %q", name, len(kept), last.End)
		}
	}
}

// A start on a full disk that can write no sheet, not even at its stop, or as it is killed, is not
// taken for one that has lost nothing: the next one does not know, and says so.
func TestStopWithoutASheetIsNotForgotten(t *testing.T) {
	killed, stopped := recordedFor(t, t.TempDir(), 10)
	for name, dir := range map[string]string{"killed": killed, "stopped": stopped, "new": t.TempDir()} {
		whole := copyFolder(t, dir)
		if v := stop(t, start(t, whole, nil, tcp("a"))).Verdict; hasReason(v, "history_unreadable") {
			t.Errorf("%s: without a start on a full disk: %q", name, v.Text)
		}
		inTheWay := []string{filepath.Join(dir, "sheet.json.part"), filepath.Join(dir, archive.HistoryFile)}
		if name == "stopped" {
			inTheWay = inTheWay[:1]
		}
		for _, path := range inTheWay {
			if err := os.Symlink("/dev/full", path); err != nil {
				t.Fatal(err)
			}
		}
		g := start(t, dir, nil, tcp("a"))
		left := t.TempDir()
		for _, path := range glob(t, dir, "*") {
			if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
				b, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(filepath.Join(left, filepath.Base(path)), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := g.Stop("test"); err == nil {
			t.Errorf("%s: the stop has written its sheet", name)
		}
		for i, dir := range []string{left, dir} {
			inHistory := name == "stopped" && i == 1 // which has the last sheet: all is known
			for _, path := range inTheWay {
				_ = os.Remove(filepath.Join(dir, filepath.Base(path)))
			}
			for range 2 { // also by the start after that
				g := start(t, dir, nil, tcp("a"))
				if v := stop(t, g).Verdict; hasReason(v, "history_unreadable") == inHistory {
					t.Errorf("%s, %d: %q", name, i, v.Text)
				}
			}
			if archive.Unsaved(dir) != 0 {
				t.Errorf("%s: the mark stays", name)
			}
		}
	}
}

// The sheet of a running start says that its log has begun, once there is a segment: without one,
// on a full disk, no record can be gone.
func TestSheetSaysThatTheLogHasBegun(t *testing.T) {
	d, dir := onDisk(t), t.TempDir()
	d.SetFree(0)
	g := start(t, dir, func(c *config.Config) { c.Log.Delay = time.Millisecond }, tcp("a"))
	if known := archive.Known(dir); known.Begun {
		t.Errorf("without a segment: %+v", known)
	}
	d.SetFree(-1)
	testenv.Until(t, 20*time.Second, "the source is there", func() bool { return len(g.sources()) == 1 })
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 10))
	c.Close()
	testenv.Until(t, 20*time.Second, "the sheet says so", func() bool {
		known := archive.Known(dir)
		return known.Begun
	})
	stop(t, g)
	if known := archive.Known(dir); known.Begun || known.End != 10 {
		t.Errorf("closed: %+v", known)
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A source that has waited for room in vain is not there in the last sheet either, and the next
// start says that nobody read it in between.
func TestStopBeforeThereIsRoom(t *testing.T) {
	d, dir := onDisk(t), t.TempDir()
	d.SetFree(0)
	name := filepath.Join(dir, "streams.json.part")
	if err := os.Symlink("/dev/full", name); err != nil {
		t.Fatal(err)
	}
	g := start(t, dir, nil, lines("new", ""))
	s, _ := g.Stop("test") // its error is that of the disk
	if len(s.Ports) != 1 || s.Ports[0].State != ledger.StateWaiting || s.Ports[0].OutageCount != 1 {
		t.Errorf("the last sheet: %+v", s.Ports)
	}
	d.SetFree(-1)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, nil, lines("new", ""))
	defer stop(t, g)
	if p := portOf(g, "new"); p.OutageCount != 1 || !strings.HasPrefix(p.Outages[0].Cause, outageNotRunning) {
		t.Errorf("the next start: %+v", p.Outages)
	}
}
