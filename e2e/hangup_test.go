package e2e

import (
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestHangupsOverAnUpgrade: SIGHUP comes all the time while a keeper becomes the new program. It
// ends none of the three.
func TestHangupsOverAnUpgrade(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	u := startUpgrading(t, dir, sources)
	for range 5 {
		over := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
					_ = u.Cmd.Process.Signal(syscall.SIGHUP)
				}
			}
		})
		u.upgrade(t) // where a signal comes right before the last step, the keeper stays the old one
		close(over)
		all.Wait()
	}
	l.drain(t)
	if s := u.stop(t); s.Ports[0].Frames.Stored != l.devices[0].Truth.Made {
		t.Errorf("%d frames made: %+v", l.devices[0].Truth.Made, s.Ports[0].Frames)
	}
}
