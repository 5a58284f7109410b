package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// TestIsolatedReloadAndKill changes a source of an isolated recorder, or its name, and kills that
// soon. What a connection has sent before it is closed, is stored once, under the name of that
// time.
func TestIsolatedReloadAndKill(t *testing.T) {
	dir := t.TempDir()
	addrs := [2]string{fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	source := func(id, addr string) string {
		return fmt.Sprintf("  - {id: %s, tcp: {listen: %q}, frame: tally128}\n", id, addr)
	}
	u := startUpgrading(t, dir, source("a", addrs[0]))
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	k := &talker{id: "a", device: 1}
	last := source("a", addrs[0])
	for round := range 6 {
		k.say(t, reach(t, addrs[round%2]), 2000)
		id := "a"
		if round == 3 { // the file alone has changed
			id = "b"
		}
		now := source(id, addrs[(round+1)%2])
		u.change(t, last, now)
		last = now
		if round != 3 {
			_ = u.Cmd.Process.Signal(syscall.SIGHUP)
			k.say(t, reach(t, addrs[(round+1)%2]), 2000)
		}
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // the moment of the kill
		p := u.process(t, isolate.Recorder, 0)
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
		u.process(t, isolate.Recorder, p.PID)
	}
	testenv.Until(t, time.Minute, "all is stored", func() bool {
		var s ledger.Sheet
		u.find()
		if !u.get("api/v1/sheet", &s) {
			return false
		}
		for _, p := range append(s.Ports, s.Leaving...) {
			if p.Frames.InFlight > 0 {
				return false
			}
		}
		return true
	})
	u.stop(t)
	if stored := storedOnce(t, filepath.Join(dir, "data")); stored != k.made.Load() {
		t.Errorf("%d frames are in the log, %d were sent", stored, k.made.Load())
	}
}

// TestIsolatedRename has the file give a source another name while its recorder is killed: what it
// had read is stored under the name of that time, and the other name has the port at once.
func TestIsolatedRename(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	source := func(id string) string {
		return fmt.Sprintf("  - {id: %s, tcp: {listen: %q}, frame: tally128}\n", id, addr)
	}
	u := startUpgrading(t, dir, source("a"))
	k := &talker{id: "a", device: 1}
	k.say(t, reach(t, addr), 5000)
	u.change(t, source("a"), source("b"))
	p := u.process(t, isolate.Recorder, 0)
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	u.process(t, isolate.Recorder, p.PID)
	testenv.Until(t, time.Minute, "the source has its other name", func() bool {
		var s ledger.Sheet
		u.find()
		return u.get("api/v1/sheet", &s) && len(s.Ports) == 1 && s.Ports[0].ID == "b" && len(s.Leaving) == 0
	})
	k.say(t, reach(t, addr), 100)
	u.stop(t)
	if stored := storedOnce(t, filepath.Join(dir, "data")); stored != k.made.Load() {
		t.Errorf("%d frames are in the log, %d were sent", stored, k.made.Load())
	}
}
