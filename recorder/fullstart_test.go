package recorder

import (
	"log/slog"
	"os"
	"path/filepath"
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
		d.SetFree(-1)
		for _, file := range inTheWay {
			if err := os.Remove(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Until(t, 20*time.Second, "every source is there", func() bool { return len(g.Sheet().Ports) == 2 })
		c := dial(t, address(g, "a"))
		write(t, c, frames(200, 10))
		stored(t, g, "a", 10)
		c.Close()
		if s := stop(t, g); s.Log != nil || s.Recovered != nil || s.Ports[0].Frames.Missing != 0 {
			t.Errorf("%s: with room: %+v, %+v, %+v", name, s.Log, s.Recovered, s.Ports[0].Frames)
		}
		kept := keptSheets(t, dir)
		if last := kept[len(kept)-1]; last.End != "test" || name == "killed" != (len(kept) == 2 && kept[0].End == archive.CauseKilled) {
			t.Errorf("%s: %d sheets are kept, the last one ends %q", name, len(kept), last.End)
		}
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
