package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestReaderHoldsNothingOfTheRecorder: a reader that is started again is sent what a recorder
// prepares itself with, too. Held open by it, the socket of the API would take connections that
// nobody serves, once the recorder listens elsewhere.
func TestReaderHoldsNothingOfTheRecorder(t *testing.T) {
	dir := t.TempDir()
	_, sources := startLines(t, dir, 11_520)
	r := startRecorder(t, dir, sources+"isolate: process\n")
	first := r.process(t, isolate.Reader, 0)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	next := r.process(t, isolate.Reader, first.PID)
	recorders := filesOf(t, r.process(t, isolate.Recorder, 0).PID)
	keepers := filesOf(t, r.process(t, isolate.Keeper, 0).PID)
	// It is sent the whole shelf, too, and closes what is of no use to it.
	testenv.Until(t, 20*time.Second, "it reads, and has nothing open that is the recorder's", func() bool {
		its := filesOf(t, next.PID)
		for file := range its {
			shared := recorders[file] && keepers[file]
			if strings.HasPrefix(file, "/memfd:tallywheel-config") || strings.HasPrefix(file, "socket:") && shared {
				return false
			}
		}
		return its["/memfd:tallywheel-spool (deleted)"]
	})
	r.stop(t)
}

// filesOf is what a process has open.
func filesOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	all, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, e := range all {
		if to, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil { // else it is closed by now
			files[to] = true
		}
	}
	return files
}
