package recorder

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/seglog"
)

// callsWithout is a want of descriptors: so many calls find none.
type callsWithout struct{ left atomic.Int64 }

func (c *callsWithout) open(name string) error {
	if c.left.Add(-1) >= 0 {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	return nil
}

// dirWithout is a directory that lacks them.
type dirWithout struct {
	seglog.FS
	calls *callsWithout
}

func (d dirWithout) Open(name string) (seglog.File, error) {
	if err := d.calls.open(name); err != nil {
		return nil, err
	}
	return d.FS.Open(name)
}

// A stop that falls into a time without descriptors tries again, for a while, to sync and end the
// log, and to write the last sheet. What lasts longer is an error, which names what could not be
// opened.
func TestStopOutlastsAWantOfDescriptors(t *testing.T) {
	const forever = 1 << 40
	for name, c := range map[string]struct {
		log, sheet int64 // how many calls find no descriptor
		fails      string
	}{
		"log": {log: 10}, "sheet": {sheet: 10},
		"log-longer":   {log: forever, fails: ".seg: too many open files"},
		"sheet-longer": {sheet: forever, fails: "sheet.json: too many open files"},
	} {
		t.Run(name, func(t *testing.T) {
			var log, sheet callsWithout
			openFiles = func(c config.Log, chains *asyncfile.ChainStats, l *slog.Logger) (seglog.FS, error) {
				fs, err := logFiles(c, chains, l)
				return dirWithout{fs, &log}, err
			}
			writeSheet = func(dir string, f func() error) error {
				if err := sheet.open(filepath.Join(dir, "sheet.json")); err != nil {
					return err
				}
				return f()
			}
			defer func() { openFiles, writeSheet = logFiles, inPlace }()
			dir := t.TempDir()
			g := start(t, dir, func(c *config.Config) { c.Log.Sync = "never" }, tcp("a")) // the end syncs each segment
			conn := dial(t, address(g, "a"))
			defer conn.Close()
			const n = 20_000
			write(t, conn, frames(0, n))
			stored(t, g, "a", n)
			log.left.Store(c.log)
			sheet.left.Store(c.sheet)
			_, err := g.Stop("test")
			switch {
			case c.fails == "" && err != nil:
				t.Errorf("the stop brings %v", err)
			case c.fails != "" && (!errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("the stop brings %v, want one of %q", err, c.fails)
			}
			if log.left.Load() >= 0 && c.log == 10 || sheet.left.Load() >= 0 && c.sheet == 10 {
				t.Error("the stop asked for too few descriptors to tell")
			}
		})
	}
}

// unreadable is a directory of a disk that reads nothing.
type unreadable struct {
	seglog.FS
	err error
}

func (d unreadable) List() ([]string, error) {
	return nil, &fs.PathError{Op: "open", Path: "data", Err: d.err}
}

// Where the disk fails a start says so, and what to do.
func TestStartOnAFailingDiskSaysWhatToDo(t *testing.T) {
	defer func() { openFiles = logFiles }()
	for _, why := range []error{syscall.EIO, syscall.ESTALE} {
		openFiles = func(c config.Log, chains *asyncfile.ChainStats, l *slog.Logger) (seglog.FS, error) {
			fs, err := logFiles(c, chains, l)
			return unreadable{fs, why}, err
		}
		_, err := Start(config.Config{Log: config.Log{Dir: t.TempDir()}, API: config.API{Listen: "off"}},
			slog.New(slog.DiscardHandler))
		if !errors.Is(err, why) || !strings.Contains(err.Error(), "copy what it still gives") {
			t.Errorf("the start says: %v", err)
		}
	}
}
