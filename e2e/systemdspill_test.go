package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestSystemdRestartsWithAFullFile restarts a service whose disk and file are full, and kills its
// keeper, and all three processes. The file goes through the store of systemd: nothing is lost, and
// all is stored once there is room, each frame once and in order.
func TestSystemdRestartsWithAFullFile(t *testing.T) {
	c := cram(t, 500_000, 4)
	s := startService(t, c.dir, c.source, "")
	since := s.sheet(t).Since
	c.fill(t, s.recorder)
	c.isFull(t, s.recorder)
	for _, how := range []string{"restart", "main", "all"} {
		began := time.Now()
		s.again(t, how)
		t.Logf("%s: %v", how, time.Since(began))
		c.isFull(t, s.recorder)
	}
	c.empty(t, s.recorder)
	s.systemctl(t, "stop", s.unit)
	sheet := s.lastSheet(t)
	c.hold(t, sheet, "the reader was restarted", "Tallywheel was restarted")
	if sheet.Since != since {
		t.Errorf("the start of %v did not go on: it is one of %v", since, sheet.Since)
	}
}

// TestSystemdStopBringsBack stops a service while its file holds what has run over, and the disk
// has room again: all of it is recorded before the service ends.
func TestSystemdStopBringsBack(t *testing.T) {
	c := cram(t, 1_000_000, 64)
	s := startService(t, c.dir, c.source, "")
	c.runOver(t, s.recorder, 2<<20)
	s.freeze(t, s.process(t, isolate.Recorder, 0).PID) // until systemd wakes what it ends
	if err := os.Remove(c.others()); err != nil {
		t.Fatal(err)
	}
	s.systemctl(t, "stop", s.unit)
	c.hold(t, s.lastSheet(t))
}

// TestSystemdStopNamesWhatIsInTheFile ends a service whose recorder stands still for longer than
// what has run over may take to come back: the next start's history has how much that was.
func TestSystemdStopNamesWhatIsInTheFile(t *testing.T) {
	c := cram(t, 1_000_000, 64)
	s := startService(t, c.dir, c.source, "")
	c.runOver(t, s.recorder, 2<<20)
	keeper := s.listens(t, 0)
	reader, recorder := s.process(t, isolate.Reader, 0).PID, s.process(t, isolate.Recorder, 0).PID
	s.freeze(t, recorder)
	if err := os.Remove(c.others()); err != nil {
		t.Fatal(err)
	}
	s.systemctl(t, "kill", "--signal=TERM", "--kill-who=main", s.unit) // to stop would wake the recorder
	s.shell(t, fmt.Sprintf("while kill -0 %d 2>/dev/null; do sleep 0.05; done; kill -CONT %d", reader, recorder))
	testenv.Until(t, 2*time.Minute, "the service has ended",
		func() bool { return s.systemctl(t, "show", "--value", "-p", "ActiveState", s.unit) == "inactive" })
	s.systemctl(t, "start", s.unit)
	s.listens(t, keeper)
	if b, sent := allBooks(t, c.data), c.device.Truth.Bytes; b.read+b.unread != sent || b.unread == 0 {
		t.Errorf("%d bytes were sent, %d were read, and %d are named as unread; the journal:\n%s", sent, b.read, b.unread,
			s.journal())
	}
}
