package e2e

import (
	"testing"
	"time"
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
