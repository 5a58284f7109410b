package recorder

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// finisher is a forwarder that notes what there was to bring away when it was to finish.
type finisher struct {
	g        *Recorder
	at       seglog.Position
	finished int
	books    []ledger.Forwarding
	hold     atomic.Uint64 // of Hold
}

func (f *finisher) Books() []ledger.Forwarding { return slices.Clone(f.books) }
func (f *finisher) Hold() uint64               { return f.hold.Load() }

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

// Retention leaves what is not forwarded, and the sheet says so, unless keep.unforwarded is false.
func TestRetentionWaitsForForwarding(t *testing.T) {
	yes, no := true, false
	for name, keeps := range map[string]*bool{"as a rule": nil, "true": &yes, "false": &no} {
		t.Run(name, func(t *testing.T) {
			g := start(t, t.TempDir(), func(c *config.Config) {
				c.Log.Keep = config.Keep{Size: 3 << 20, Unforwarded: keeps}
				c.Forward = []config.Forward{{To: "nats", URLs: []string{"nats://127.0.0.1:1"}}}
			}, tcp("a"))
			f := &finisher{g: g, books: []ledger.Forwarding{{Name: "nats", State: ledger.ForwardDown}}}
			f.hold.Store(1)
			g.Forwards(f)
			c := dial(t, address(g, "a"))
			defer c.Close()
			const n = 40_000 // 5 MiB of frames
			write(t, c, frames(1, n))
			testenv.Until(t, 0, "the frames are durable", func() bool { return portOf(g, "a").Frames.Durable == n })
			if keeps != &no {
				testenv.Until(t, 0, "it says that it holds", func() bool { return g.Sheet().Forward[0].Holding })
				if first := g.log.Position().First; first != 1 {
					t.Errorf("record 1 is not forwarded, and the log begins with %d", first)
				}
				f.hold.Store(math.MaxUint64)
				write(t, c, frames(n+1, n))
			}
			testenv.Until(t, 0, "the oldest go", func() bool { return g.log.Position().First > 1 })
			stop(t, g)
		})
	}
}

// What a server within has in the folder of the log counts as the log's, and nothing where the
// destination is elsewhere.
func TestBesideIsTheFolderOfTheServer(t *testing.T) {
	c := config.Config{Log: config.Log{Dir: t.TempDir()}, Forward: []config.Forward{{To: "nats"}}}
	size := beside(c)
	if n := size(); n != 0 {
		t.Errorf("%d bytes lie beside the log before there is a server", n)
	}
	below := filepath.Join(archive.ForwardStore(c.Log.Dir), "jetstream", "stream")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(below, "1.blk"), filepath.Join(below, "..", "meta")} {
		if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := size(); n != 2000 {
		t.Errorf("%d bytes lie beside the log, want 2000", n)
	}
	c.Forward[0].URLs = []string{"nats://127.0.0.1:1"}
	if beside(c) != nil {
		t.Error("a server elsewhere counts, too")
	}
}
