package recorder

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
)

// The mark of a device that cannot be opened may come before the words that say why, at the start
// and later: the outage has them, too, and the next one has its own.
func TestOutageHasTheWordsThatComeLate(t *testing.T) {
	shared, err := spool.Create(spool.Config{})
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	defer shared.Close()
	for _, described := range []bool{false, true} {
		log := killable{rng: rand.New(rand.NewPCG(1, 1))}
		l, err := newLane(config.Source{
			ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
			Overflow: config.OverflowBlock, Buffer: 2000,
		}, &log, frameStream, wasteStream)
		if err != nil {
			t.Fatal(err)
		}
		play, err := newSpooled(l, shared, &log, spool.Steady)
		if err != nil {
			t.Fatal(err)
		}
		words, now := "", int64(0)
		play.why = func() string { return words }
		tell := func(kind spool.Kind, a uint32) {
			t.Helper()
			now++
			if err := play.tell(spool.Mark{Time: now, Kind: kind, A: a}); err != nil {
				t.Fatal(err)
			}
		}
		says := func(want string) {
			t.Helper()
			all := l.account().Outages
			if got := all[len(all)-1].Cause; got != want {
				t.Errorf("described %v: the outage says %q, want %q", described, got, want)
			}
		}
		tell(spool.Absent, 0)
		says("it cannot be opened")
		tell(spool.Absent, 0) // the words are still under way
		words = "the port is in use"
		if described {
			l.describe(isolate.Port{Why: words})
		}
		tell(spool.Absent, 0)
		says("the port is in use")
		words = "there is another one"
		tell(spool.Absent, 0) // the outage began for the first
		says("the port is in use")
		words = ""
		tell(spool.Opened, 0)
		tell(spool.Absent, uint32(syscall.ENODEV))
		says(syscall.ENODEV.Error())
	}
}
