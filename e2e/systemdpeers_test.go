package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// TestSystemdPeers restarts a service that reads all connections, kills its keeper, and all three
// processes, while one device stays connected and another connects again and again. Nothing that
// was sent is missing.
func TestSystemdPeers(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	s := startService(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n", addr), "")
	done := make(chan struct{})
	var sending sync.WaitGroup
	end := sync.OnceFunc(func() { close(done); sending.Wait() })
	t.Cleanup(end)
	stays, comes := &talker{id: "net/127.0.0.2", device: 1}, &talker{id: "net/127.0.0.3", device: 2}
	c := from(t, "127.0.0.2", addr)
	sending.Go(func() { stays.talk(t, c, 2, done) })
	sending.Go(func() {
		for {
			c := from(t, "127.0.0.3", addr)
			ok := comes.say(t, c, 50)
			_ = c.Close()
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond): // its pace
			}
			if !ok {
				return
			}
		}
	})
	stored := func(more uint64) func() bool {
		return func() bool {
			var now ledger.Sheet
			return s.get("api/v1/sheet", &now) && peer(now, stays.id).Frames.Stored >= more &&
				peer(now, comes.id).Frames.Stored > 0
		}
	}
	for i := range 6 {
		testenv.Until(t, time.Minute, "more is stored", stored(peer(s.sheet(t), stays.id).Frames.Stored+100))
		s.again(t, []string{"main", "restart", "all"}[i%3])
	}
	end()
	testenv.Until(t, time.Minute, "all that was sent is stored", func() bool {
		now := s.sheet(t)
		return peer(now, stays.id).Frames.Stored == stays.made.Load() &&
			peer(now, comes.id).Frames.Stored == comes.made.Load()
	})
	s.systemctl(t, "stop", s.unit)
	verifyLog(t, dir)
	sheet := s.lastSheet(t)
	for _, k := range []*talker{stays, comes} {
		p := peer(sheet, k.id)
		if f := p.Frames; f.Stored != k.made.Load() || f.Missing+f.Duplicate+f.Corrupt > 0 ||
			len(p.Unread)+len(p.Refused) > 0 {
			t.Errorf("%s: %d frames made, %+v, unread %v, refused %v", k.id, k.made.Load(), f, p.Unread, p.Refused)
		}
	}
	if n := storedOnce(t, filepath.Join(dir, "data")); n != stays.made.Load()+comes.made.Load() {
		t.Errorf("%d frames are in the log, %d were sent", n, stays.made.Load()+comes.made.Load())
	}
}

// TestSystemdStopWithConnections stops a service while connections wait that nobody has read. The
// next start's history has what they held.
func TestSystemdStopWithConnections(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	s := startService(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n", addr), "")
	k := &talker{id: "net/127.0.0.2", device: 1}
	k.say(t, from(t, "127.0.0.2", addr), 10)
	testenv.Until(t, time.Minute, "it is stored", func() bool { return peer(s.sheet(t), k.id).Frames.Stored == 10 })
	s.freeze(t, s.process(t, isolate.Reader, 0).PID)
	sent := uint64(0)
	for range 60 {
		c := from(t, "127.0.0.3", addr)
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		sent += 1000
	}
	keeper := s.listens(t, 0)
	s.systemctl(t, "stop", s.unit)
	s.systemctl(t, "start", s.unit)
	s.listens(t, keeper)
	starts, _, err := archive.LastStarts(filepath.Join(dir, "data"), 4)
	if err != nil {
		t.Fatal(err)
	}
	named := uint64(0)
	for _, start := range starts {
		for _, p := range start.Sheet.Ports {
			if named += p.Unread["stopped"]; p.ID != k.id {
				named += p.Bytes.Read // systemd wakes what it ends
			}
		}
	}
	if named != sent {
		t.Errorf("%d bytes were sent, %d are in the books of %d starts; the journal:\n%s", sent, named, len(starts),
			s.journal())
	}
}

// TestSystemdUpgrade executes the program anew, as at the end of an upgrade: the new one has the
// store. Then it restarts with another folder for the log: what is kept is given up, in order.
func TestSystemdUpgrade(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	s := startService(t, dir, sources, "")
	stored := func() bool {
		var now ledger.Sheet
		return s.get("api/v1/sheet", &now) && now.Ports[0].Frames.Stored > 10
	}
	testenv.Until(t, time.Minute, "frames are stored", stored)
	since := s.sheet(t).Since
	s.systemctl(t, "kill", "--signal=USR2", "--kill-who=main", s.unit)
	testenv.Until(t, time.Minute, "the keeper is upgraded",
		func() bool { return strings.Contains(s.journal(), "the keeper runs the new program") })
	s.again(t, "main")
	testenv.Until(t, time.Minute, "the store has five descriptors and their list",
		func() bool { return s.stored(t) == "6" })
	if now := s.sheet(t); now.Since != since || now.Ports[0].Frames.Missing+now.Ports[0].Frames.Duplicate > 0 {
		t.Errorf("behind the kill: %+v", now)
	}
	file := filepath.Join(dir, "tallywheel.yaml")
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(b), dir+"/data", dir+"/other", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.again(t, "restart")
	testenv.Until(t, time.Minute, "frames are stored", stored)
	l.drain(t)
	s.systemctl(t, "stop", s.unit)
	if !strings.Contains(s.journal(), "what systemd has kept open is closed") {
		t.Error("the journal does not say that the store is given up")
	}
	first, second := storedOnce(t, filepath.Join(dir, "data")), storedOnce(t, filepath.Join(dir, "other"))
	// one frame may be cut by the close
	if made := l.devices[0].Truth.Made; first == 0 || second == 0 || first+second+2 < made {
		t.Errorf("%d frames are in the first log, %d in the second, and %d were made", first, second, made)
	}
	verifyLog(t, dir)
}
