package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// TestIsolatedFolderIsTakenAway kills a recorder whose log somebody has taken away with all that is
// beside it, or has put another log without sheets in its place. What the start had stored is known
// to memory alone, and is in the history behind that: each frame as one that is lost.
func TestIsolatedFolderIsTakenAway(t *testing.T) {
	for _, name := range []string{"gone", "another log"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := t.TempDir()
			addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			sources := fmt.Sprintf("  - {id: net, tcp: {listen: %q}, frame: tally128}\n", addr)
			if name == "another log" {
				r := startIsolated(t, other, sources)
				(&talker{id: "net", device: 3}).say(t, reach(t, addr), 20)
				r.awaitStored(t, 20)
				r.stop(t)
				for _, sheet := range matches(t, filepath.Join(other, "data", "sheet*")) {
					if err := os.Remove(sheet); err != nil {
						t.Fatal(err)
					}
				}
			}
			dir := t.TempDir()
			r := startIsolated(t, dir, sources)
			first := r.process(t, isolate.Recorder, 0)
			c := reach(t, addr)
			(&talker{id: "net", device: 9}).say(t, c, 30)
			r.awaitStored(t, 30)
			freeze(t, first.PID) // it does not see what follows
			data := filepath.Join(dir, "data")
			if err := os.Rename(data, filepath.Join(dir, "away")); err != nil {
				t.Fatal(err)
			}
			if name == "another log" {
				if err := os.Rename(filepath.Join(other, "data"), data); err != nil {
					t.Fatal(err)
				}
			}
			if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.process(t, isolate.Recorder, first.PID)
			var s ledger.Sheet
			testenv.Until(t, time.Minute, "the history has what the start before lost", func() bool {
				return r.get("api/v1/sheet", &s) && s.Past != nil && s.Past.LostHere.Frames > 0
			})
			if n := s.Past.LostHere.Frames; n != 30 || s.Past.OtherLog != 1 {
				t.Errorf("%d frames are lost, of %d starts on another log; want 30, and 1: %+v", n, s.Past.OtherLog, s.Past)
			}
			r.stop(t)
		})
	}
}

func matches(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) == 0 {
		t.Fatalf("nothing is %s: %v", pattern, err)
	}
	return all
}
