package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

var stormTurns = flag.Int("storm", 12, "how many things happen in a storm")

// TestIsolatedStorm changes a source, renames it, kills the recorder and replaces it, while it is
// sent to.
func TestIsolatedStorm(t *testing.T) {
	dir := t.TempDir()
	addrs := [2]string{fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	l, _ := startLines(t, dir, 11_520)
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	any := func(of ...string) string { return of[rng.IntN(len(of))] }
	configured := func() string {
		return fmt.Sprintf("  - {id: line, serial: {port: %s, baud: %s}, frame: tally128}\n  - {id: %s, tcp: {listen: %q, peers: %s}, frame: tally128, quarantine: %s}\n",
			l.ports[0].Link, any("57600", "115200"), any("a", "b"), addrs[rng.IntN(2)], any("newest", "first", "all"),
			any("true", "false"))
	}
	last := configured()
	u := startUpgrading(t, dir, last)
	var all streams
	ctx, stop := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	for i := range 2 {
		rng := rand.New(rand.NewPCG(testenv.Seed(t), uint64(2+i)))
		sending.Go(func() {
			for ctx.Err() == nil {
				s := all.dial(addrs[rng.IntN(2)])
				if s == nil {
					time.Sleep(time.Millisecond) // its pace
					continue
				}
				for range 1 + rng.IntN(20) {
					if !s.say(1 + rng.IntN(20)) {
						break
					}
					time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond) // its pace
				}
				s.end(t)
			}
		})
	}
	quiet := sync.OnceFunc(func() { stop(); sending.Wait() })
	t.Cleanup(quiet)
	var did []string
	for range *stormTurns {
		p := u.process(t, isolate.Recorder, 0)
		what := any("reload", "reload and kill", "change and kill", "kill", "upgrade", "reload twice")
		did = append(did, what)
		for range 1 + strings.Count(what, "twice") {
			if what != "kill" && what != "upgrade" {
				now := configured()
				u.change(t, last, now)
				last = now
			}
			if strings.HasPrefix(what, "reload") {
				_ = u.Cmd.Process.Signal(syscall.SIGHUP)
				time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond) // the moment of the next
			}
		}
		switch {
		case strings.HasSuffix(what, "kill"):
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
			u.process(t, isolate.Recorder, p.PID)
		case what == "upgrade":
			if said, ok := u.upgrade(t); !ok {
				t.Errorf("the upgrade: %s", said)
			}
		}
	}
	quiet()
	l.drain(t)
	u.find()
	u.stop(t)
	t.Logf("the storm: %q", did)
	all.hold(t, filepath.Join(dir, "data"), l)
}
