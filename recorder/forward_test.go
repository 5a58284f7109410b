package recorder

import (
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// finisher is a forwarder that notes what there was to bring away when it was to finish.
type finisher struct {
	g        *Recorder
	at       seglog.Position
	finished int
}

func (f *finisher) Books() []ledger.Forwarding { return nil }
func (f *finisher) Hold() uint64               { return 0 }

func (f *finisher) Finish() {
	f.finished++
	f.at = f.g.log.Position()
}

// A stop has the forwarder finish once every frame that came is durable, and the log is open still.
func TestAStopHasTheForwarderFinish(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	f := &finisher{g: g}
	g.Forwards(f)
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(1, 500))
	testenv.Until(t, 0, "the frames are read", func() bool { return portOf(g, "a").Frames.OK == 500 })
	s := stop(t, g)
	if f.finished != 1 || f.at.Durable < 500 || f.at.Durable != f.at.Next-1 || s.Ports[0].Frames.Durable != 500 {
		t.Errorf("it was called %d times, at %+v, and %d frames are durable", f.finished, f.at,
			s.Ports[0].Frames.Durable)
	}
}
