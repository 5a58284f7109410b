package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// TestIsolatedLogLosesItsEnd removes the newest segment while records of the last second are in it,
// and some of the start before.
// The recorder is killed right behind it, or sees it and ends by itself. The next one goes on with
// the books, and is killed, too. Each frame that was sent is stored once, or is named as one that
// the log has lost, and no number of the log is given again.
func TestIsolatedLogLosesItsEnd(t *testing.T) {
	for _, isKilled := range []bool{true, false} {
		t.Run(fmt.Sprintf("killed=%v", isKilled), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			r := startIsolated(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q}, frame: tally128}\n", addr))
			c := reach(t, addr)
			(&talker{id: "net", device: 9}).say(t, c, 10)
			r.awaitStored(t, 10)
			r.stop(t)
			_ = c.Close()
			l, sources := startLines(t, dir, 400_000, 115_200)
			r = startIsolated(t, dir, sources)
			first := r.process(t, isolate.Recorder, 0)
			r.awaitStored(t, 1500) // more than memory has
			was := takeNewest(t, filepath.Join(dir, "data"))
			if isKilled {
				if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			second := r.process(t, isolate.Recorder, first.PID)
			r.awaitStored(t, 1600)
			if err := syscall.Kill(second.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.process(t, isolate.Recorder, second.PID)
			l.drain(t)
			s := r.stop(t)
			var stored, gone uint64
			for i, p := range s.Ports {
				f, made := p.Frames, l.devices[i].Truth.Made
				if f.OK != made || f.Missing+f.Duplicate > 0 || f.Stored+f.Dropped["log_gone"] != made {
					t.Errorf("%s: %d frames made, and the books have %+v", p.ID, made, f)
				}
				stored, gone = stored+f.Stored, gone+f.Dropped["log_gone"]
			}
			if lost := s.Recovered; gone == 0 || lost == nil || len(lost.Missing) != 1 ||
				lost.Missing[0].From != 1 || lost.Missing[0].To != 10 || lost.Missing[0].AtMost {
				t.Errorf("%d frames are gone, want some, and the 10 records of the start before: %+v", gone, lost)
			}
			given, seen := map[uint64]bool{}, map[string]bool{}
			eachRecord(t, was(), func(rec archive.Record) { given[rec.Seq] = true })
			eachLeft(t, filepath.Join(dir, "data"), func(rec archive.Record) {
				name := fmt.Sprint(rec.Source, " ", *rec.Number)
				if given[rec.Seq] || seen[name] {
					t.Fatalf("record %d is frame %s, given before: %v, stored before: %v", rec.Seq, name,
						given[rec.Seq], seen[name])
				}
				seen[name] = true
			}, func(*seglog.GapError) {})
			if n := uint64(len(seen)); n != stored {
				t.Errorf("%d frames are in the log, and the books have %d", n, stored)
			}
			t.Logf("%d frames stored, %d gone, of %d numbers that were given before", stored, gone, len(given))
		})
	}
}

// TestLogLosesItsOnlySegment has all in one process, and the log's only segment removed while
// records of the last second are in it: then it is killed, or stopped, or it was killed before. The
// next start gives no number again, and names each record that is gone.
func TestLogLosesItsOnlySegment(t *testing.T) {
	for how, steps := range map[string][]syscall.Signal{
		"killed":      {0, syscall.SIGKILL}, // 0: the segment goes
		"stopped":     {0, syscall.SIGTERM},
		"killed then": {syscall.SIGKILL, 0},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, sources := startLines(t, dir, 115_200, 57_600)
			r := startRecorder(t, dir, sources)
			r.awaitStored(t, 500)
			var was func() string
			for _, signal := range steps {
				if signal == 0 {
					was = takeNewest(t, filepath.Join(dir, "data"))
					continue
				}
				if err := r.Cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if err := r.Cmd.Wait(); err == nil {
					t.Fatal("it ends as if all was well")
				}
			}
			given := map[uint64]bool{}
			eachRecord(t, was(), func(rec archive.Record) { given[rec.Seq] = true })
			r = startRecorder(t, dir, sources)
			r.awaitStored(t, 50)
			s := r.stop(t)
			if s.Recovered == nil || len(s.Recovered.Missing) != 1 || s.Recovered.Missing[0].From != 1 {
				t.Fatalf("of %d records that are gone the sheet says %+v", len(given), s.Recovered)
			}
			last := s.Recovered.Missing[0].To
			for n := range given {
				if n > last {
					t.Fatalf("record %d is gone, and named are those up to %d", n, last)
				}
			}
			after := 0
			eachLeft(t, filepath.Join(dir, "data"), func(rec archive.Record) {
				if after++; rec.Seq <= last {
					t.Fatalf("record %d, and %d are gone", rec.Seq, last)
				}
			}, func(*seglog.GapError) {})
			if len(given) < 1000 || after < 100 {
				t.Errorf("%d records before, %d after", len(given), after)
			}
		})
	}
}

// awaitStored waits until so many frames of each source are stored.
func (r *recorder) awaitStored(t *testing.T, frames uint64) {
	t.Helper()
	testenv.Until(t, time.Minute, "frames are stored", func() bool {
		r.find()
		var s ledger.Sheet
		return r.get("api/v1/sheet", &s) && !slices.ContainsFunc(s.Ports, func(p ledger.Port) bool {
			return p.Frames.Stored < frames
		})
	})
}

// takeNewest removes the newest segment of a log. was brings it into a folder of its own, as it is
// by then: who had it open may have written to it.
func takeNewest(t *testing.T, dir string) (was func() string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no segment in %s: %v", dir, err)
	}
	name := slices.Max(all)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		to := t.TempDir()
		segment, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		streams, err := os.ReadFile(filepath.Join(dir, "streams.json"))
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{filepath.Base(name): segment, "streams.json": streams} {
			if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
}
