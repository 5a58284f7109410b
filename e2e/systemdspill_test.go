package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
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

// TestSystemdStopWithAFile stops a service while its file holds what has run over. Its reader ends
// first, so nobody brings that back: the next start's history has how much it was.
func TestSystemdStopWithAFile(t *testing.T) {
	c := cram(t, 4_000_000, 64)
	s := startService(t, c.dir, c.source, "")
	c.fill(t, s.recorder)
	testenv.Until(t, time.Minute, "bytes have run over", func() bool { return s.port().Spilled > 24<<20 })
	c.end()
	if !c.port.Drain(time.Minute) {
		t.Fatal("the port is not read to the end")
	}
	keeper := s.listens(t, 0)
	s.freeze(t, s.process(t, isolate.Recorder, 0).PID) // until systemd wakes what it ends
	if err := os.Remove(c.others()); err != nil {
		t.Fatal(err)
	}
	s.systemctl(t, "stop", s.unit)
	s.systemctl(t, "start", s.unit)
	s.listens(t, keeper)
	starts, _, err := archive.LastStarts(filepath.Join(c.dir, "data"), 4)
	if err != nil {
		t.Fatal(err)
	}
	var read, unread uint64
	for _, start := range starts {
		for _, p := range start.Sheet.Ports {
			read, unread = read+p.Bytes.Read, unread+p.Unread["stopped"]
		}
	}
	if sent := c.device.Truth.Bytes; read+unread != sent || unread == 0 {
		t.Errorf("%d bytes were sent, %d were read, and %d are named as unread; the journal:\n%s", sent, read, unread,
			s.journal())
	}
	t.Logf("%d bytes read, %d unread", read, unread)
}
