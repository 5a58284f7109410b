package recorder

import (
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// A sheet that is drawn up while commits come back knows of the log what its accounts do, of each
// source. Behind a kill the next start would else count what is there a second time, as bytes that
// were quarantined.
func TestSheetAmongLanesThatSettle(t *testing.T) {
	const sources, each = 8, 3000
	var all []config.Source
	for i := range sources {
		all = append(all, tcp(string(rune('a'+i))))
	}
	g := start(t, t.TempDir(), func(c *config.Config) { c.Log.Delay = time.Millisecond }, all...)
	defer stop(t, g)
	var sending sync.WaitGroup
	for _, s := range all {
		c := dial(t, address(g, s.ID))
		defer c.Close()
		sending.Go(func() {
			for n := range uint64(each) {
				if _, err := c.Write(frames(n, 1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for sheets, stored := 0, uint64(0); stored < sources*each && !t.Failed(); sheets++ {
		g.saving.Lock()
		s := g.startSheet("")
		g.saving.Unlock()
		stored = 0
		for _, p := range s.Sheet.Ports {
			stored += p.Frames.Stored
		}
		if s.LogStored != stored {
			t.Errorf("sheet %d: %d frames are stored, and of the log it knows record %d", sheets, stored, s.LogStored)
		}
	}
	sending.Wait()
}
