package recorder

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// A peer that is gone, which somebody has acknowledged, is not missed when its source is taken out
// of the configuration and brought back, whether the word came before that or meanwhile. It is
// missed when it was seen since, as is one that was there when its source was taken out.
func TestWhoIsLetGoIsNotMissedWhenItsSourceIsBack(t *testing.T) {
	for _, when := range []string{"before", "meanwhile"} {
		t.Run(when, func(t *testing.T) {
			g := start(t, t.TempDir(), nil, all("a", 8), tcp("b"))
			defer stop(t, g)
			b := dial(t, address(g, "b"))
			defer b.Close()
			write(t, b, of(9, 0, 1))
			stored(t, g, "b", 1)
			come := func(n int, from uint64) func() error {
				c := dialFrom(t, n, address(g, "a"))
				t.Cleanup(func() { c.Close() })
				before := uint64(0)
				if p := find(g.Sheet(), peer("a", n)); p != nil {
					before = p.Frames.Stored
				}
				write(t, c, of(uint32(n), from, 10))
				stored(t, g, peer("a", n), before+10)
				return c.Close
			}
			ack := func() {
				t.Helper()
				if _, err := g.Ack("2 is retired"); err != nil {
					t.Fatal(err)
				}
			}
			both := g.Config()
			out := both
			out.Sources = []config.Source{both.Sources[1]}
			reload := func(c config.Config) {
				t.Helper()
				if err := g.Reload(c); err != nil {
					t.Fatal(err)
				}
			}
			leave := come(2, 0)
			come(3, 0)
			if err := leave(); err != nil {
				t.Fatal(err)
			}
			waitsFor(t, g, peer("a", 2))
			isFree(t, g, peer("a", 2))
			if when == "before" {
				ack()
				waitsFor(t, g)
			}
			reload(out)
			if when == "meanwhile" {
				ack()
			}
			reload(both)
			waitsFor(t, g, peer("a", 3))
			leave = come(2, 10)
			if err := leave(); err != nil {
				t.Fatal(err)
			}
			waitsFor(t, g, peer("a", 3), peer("a", 2))
			reload(out)
			reload(both)
			waitsFor(t, g, peer("a", 2), peer("a", 3))
		})
	}
}

// isFree waits until a peer's seat is free: its port says that it is gone just before.
func isFree(t *testing.T, g *Recorder, id string) {
	t.Helper()
	testenv.Until(t, time.Minute, "the seat of "+id+" is free", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, p := range families(g.ports) {
			if p.lane.cfg.ID == id {
				guest, _ := p.opener.(*seat).taken()
				return guest == nil
			}
		}
		return false
	})
}
