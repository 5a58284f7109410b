package e2e

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestKillOfAllNamesWhatWaited kills all three processes while the disk of the log is full, and
// what the line has sent waits in memory and in a file. Its frames have no numbers: the next start
// names the frames that were in flight, and the bytes that were in no frame yet.
func TestKillOfAllNamesWhatWaited(t *testing.T) {
	c := cram(t, 500_000, 16)
	c.source = strings.Replace(c.source, "tally128", "raw", 1)
	r := startIsolated(t, c.dir, c.source)
	c.runOver(t, r, 1<<20)
	sent := c.device.Truth.Bytes
	p := r.port()
	testenv.Until(t, time.Minute, "a sheet has all that was sent", func() bool {
		p = r.port()
		s, err := archive.LoadStart(c.data, slog.New(slog.DiscardHandler))
		return err == nil && len(s.Sheet.Ports) == 1 && s.Sheet.Ports[0].Frames.InFlight == p.Frames.InFlight &&
			s.Sheet.Ports[0].Bytes.Read+s.Waiting["line"] == sent
	})
	pids := []int{
		r.Cmd.Process.Pid, r.process(t, isolate.Recorder, 0).PID, r.process(t, isolate.Reader, 0).PID,
	}
	for _, pid := range pids { // the keeper first: it would start the others again
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = r.Cmd.Wait()
	testenv.Until(t, 20*time.Second, "all processes have ended", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && !strings.Contains(string(b), ") Z ")
		})
	})
	if err := os.Remove(c.others()); err != nil {
		t.Fatal(err)
	}
	r = startIsolated(t, c.dir, c.source)
	s := r.stop(t)
	if s.Past == nil || s.Past.LostHere.Frames != p.Frames.InFlight || s.Past.LostHere.Bytes != sent-p.Bytes.Read {
		t.Errorf("the past has %+v; %d bytes were sent, and the books had %+v", s.Past, sent, p)
	}
}
