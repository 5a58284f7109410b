package recorder

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// later lets so much time pass for the rhythm of a source.
func later(g *Recorder, d time.Duration) {
	l := g.sources()[0].lane
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.clock = l.in.clock.Add(-d)
}

// A source whose frames have no numbers misses those that do not come in time; a silence is one,
// and no flood of missing frames; an opening begins anew.
func TestExpect(t *testing.T) {
	for _, strategy := range []string{"ring", config.Pipeline} {
		a := lines("a", "")
		a.Expect = &config.Expect{Interval: time.Hour}
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, a)
		c := dial(t, address(g, "a"))
		sent := uint64(0)
		send := func(n int) ledger.Port {
			for range n {
				write(t, c, []byte("a line\n"))
				sent++
				stored(t, g, "a", sent)
			}
			return portOf(g, "a")
		}
		send(1)
		later(g, 3*time.Hour)
		if p := send(1); p.Frames.MissingByTime != 2 {
			t.Errorf("%s: %+v; want 2 missing by time", strategy, p.Frames)
		}
		if v := g.Sheet().Verdict; v.Level != ledger.Bad || v.LostWire.Frames != 2 || v.LastLoss == 0 {
			t.Errorf("%s: %+v", strategy, v)
		}
		later(g, 70*time.Minute)
		if p := send(1); p.Frames.MissingByTime != 2 || p.SilentSince != 0 {
			t.Errorf("%s: %+v; want no more, for it was in time", strategy, p.Frames)
		}
		later(g, 1000*time.Hour)
		if p := portOf(g, "a"); p.SilentSince == 0 || p.Frames.MissingByTime != 2 {
			t.Errorf("%s: %+v; want it silent, and nothing more missing", strategy, p)
		}
		if p := send(1); p.SilentSince != 0 || p.Silences != 1 || p.Frames.MissingByTime != 2 {
			t.Errorf("%s: %+v; want one silence", strategy, p)
		}
		c.Close()
		testenv.Until(t, 10*time.Second, "the end is noticed", func() bool { return portOf(g, "a").State == ledger.StateWaiting })
		later(g, 5*time.Hour)
		c = dial(t, address(g, "a"))
		if p := send(1); p.Frames.MissingByTime != 2 || p.Silences != 1 {
			t.Errorf("%s: %+v after it was opened anew", strategy, p)
		}
		c.Close()
		stop(t, g)
	}
}
