package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// TestIsolatedReloadAndKill changes a source of an isolated recorder, or its name, and kills that
// soon. What a connection has sent before it is closed, is stored once, under the name of that
// time.
func TestIsolatedReloadAndKill(t *testing.T) {
	for name, of := range map[string][2]string{
		"newest": {"newest", "newest"}, "all": {"all", "all"},
		"first or all": {"first", "all"},
	} {
		t.Run(name, func(t *testing.T) { reloadAndKill(t, of) })
	}
}

func reloadAndKill(t *testing.T, peers [2]string) {
	dir := t.TempDir()
	addrs := [2]string{fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	source := func(id string, which int) string {
		return fmt.Sprintf("  - {id: %s, tcp: {listen: %q, peers: %s}, frame: tally128}\n", id, addrs[which],
			peers[which])
	}
	last := source("a", 0)
	u := startUpgrading(t, dir, last)
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	var all streams
	for round := range 6 {
		all.reach(t, addrs[round%2]).say(2000)
		id := "a"
		if round == 3 { // the file alone has changed
			id = "b"
		}
		now := source(id, (round+1)%2)
		u.change(t, last, now)
		last = now
		if round != 3 {
			_ = u.Cmd.Process.Signal(syscall.SIGHUP)
			all.reach(t, addrs[(round+1)%2]).say(2000)
		}
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // the moment of the kill
		u.killRecorder(t)
	}
	all.end(t)
	u.find()
	u.stop(t)
	all.hold(t, filepath.Join(dir, "data"), lines{})
}

// killRecorder kills the recorder, and waits for the next one.
func (u *upgrading) killRecorder(t *testing.T) {
	t.Helper()
	p := u.process(t, isolate.Recorder, 0)
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	u.process(t, isolate.Recorder, p.PID)
}

// changeWhileDown changes a text of the configuration while the recorder is killed, and waits until
// the next one has taken that up, and has nothing left of before.
func (u *upgrading) changeWhileDown(t *testing.T, from, to string) {
	t.Helper()
	u.change(t, from, to)
	u.killRecorder(t)
	testenv.Until(t, time.Minute, "the configuration is taken up", func() bool {
		var s ledger.Sheet
		u.find()
		return u.get("api/v1/sheet", &s) && len(s.Leaving) == 0
	})
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
	var all streams
	all.reach(t, addr).say(5000)
	u.changeWhileDown(t, source("a"), source("b"))
	u.find()
	if s := u.sheet(t); len(s.Ports) != 1 || s.Ports[0].ID != "b" {
		t.Errorf("the sources are %+v, want b alone", s.Ports)
	}
	all.reach(t, addr).say(100)
	all.end(t)
	u.stop(t)
	all.hold(t, filepath.Join(dir, "data"), lines{})
}

// TestIsolatedPeersWhileDown has the file say anew how many senders of a source are read, while its
// recorder is killed. Whoever connects behind that is recorded.
func TestIsolatedPeersWhileDown(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	source := func(peers string) string {
		return fmt.Sprintf("  - {id: a, tcp: {listen: %q, peers: %s}, frame: tally128}\n", addr, peers)
	}
	dir := t.TempDir()
	u := startUpgrading(t, dir, source("newest"))
	was := "newest"
	var all streams
	for _, peers := range []string{"all", "first", "all", "newest"} {
		all.reach(t, addr).say(500)
		u.changeWhileDown(t, source(was), source(peers))
		was = peers
	}
	all.reach(t, addr).say(500)
	all.end(t)
	u.stop(t)
	all.hold(t, filepath.Join(dir, "data"), lines{})
}

// TestIsolatedReaderStandsStill has a source leave while its reader stands still, for longer than
// it may take to read what has arrived: that is read or counted once the reader goes on.
func TestIsolatedReaderStandsStill(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	source := func(id string) string {
		return fmt.Sprintf("  - {id: %s, tcp: {listen: %q}, frame: tally128}\n", id, addr)
	}
	u := startUpgrading(t, dir, source("a"))
	k := &talker{id: "a", device: 1}
	c := from(t, "127.0.0.1", addr)
	k.say(t, c, 100)
	testenv.Until(t, time.Minute, "all that was sent is stored", func() bool {
		var s ledger.Sheet
		return u.get("api/v1/sheet", &s) && peer(s, "a").Frames.Stored == 100
	})
	p := u.process(t, isolate.Reader, 0)
	freeze(t, p.PID)
	goesOn := func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) }
	t.Cleanup(goesOn)
	k.say(t, c, 50)
	u.change(t, source("a"), source("b"))
	_ = u.Cmd.Process.Signal(syscall.SIGHUP)
	testenv.Until(t, time.Minute, "the source waits for the reader", func() bool {
		return strings.Contains(u.Err.String(), "the reader has not come to its end")
	})
	goesOn()
	testenv.Until(t, time.Minute, "the other has its place", func() bool {
		return strings.Contains(u.Err.String(), "msg=stopped source=a")
	})
	u.stop(t)
	var unread, stored uint64
	f, err := os.Open(filepath.Join(dir, "data", archive.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = archive.EachStart(f, func(s archive.StartSheet) error {
		a := peer(s.Sheet, "a")
		unread, stored = unread+a.Unread["stopped"], stored+a.Frames.Stored
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if stored*128+unread != 150*128 {
		t.Errorf("%d frames are stored, and %d bytes unread, of 150 frames", stored, unread)
	}
}

// TestIsolatedReaderStandsStillInAStop stops the recorder while its reader stands still, and does
// not go on: what the kernel had taken is in the last sheet, and the exit code is 1.
func TestIsolatedReaderStandsStillInAStop(t *testing.T) {
	dir := t.TempDir()
	sources := ""
	addrs := map[string]string{}
	for _, id := range []string{"one", "all", "udp"} {
		addrs[id] = fmt.Sprintf("127.0.0.1:%d", freePort(t))
		wire := map[string]string{
			"one": "tcp: {listen: %q}", "all": "tcp: {listen: %q, peers: all}", "udp": "udp: {listen: %q}",
		}[id]
		sources += fmt.Sprintf("  - {id: %s, %s, frame: tally128}\n", id, fmt.Sprintf(wire, addrs[id]))
	}
	r := startIsolated(t, dir, sources)
	talkers, conns := map[string]*talker{}, map[string]net.Conn{}
	for i, id := range []string{"one", "all", "udp"} {
		talkers[id] = &talker{id: id, device: uint32(i + 1)}
		if id == "udp" {
			testenv.Until(t, time.Minute, "the port is open",
				func() bool { return peer(r.sheet(t), id).State == ledger.StateOpen })
			c, err := net.Dial("udp", addrs[id])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			conns[id] = c
		} else {
			conns[id] = from(t, "127.0.0.1", addrs[id])
		}
		talkers[id].say(t, conns[id], 10)
	}
	account := map[string]string{"one": "one", "all": "all/127.0.0.1", "udp": "udp"}
	testenv.Until(t, time.Minute, "all that was sent is stored", func() bool {
		s := r.sheet(t)
		for _, id := range account {
			if peer(s, id).Frames.Stored != 10 {
				return false
			}
		}
		return true
	})
	still(t, r.process(t, isolate.Reader, 0).PID)
	for id, k := range talkers {
		k.say(t, conns[id], 5)
	}
	if err := r.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = r.Cmd.Wait()
	code, says := r.Cmd.ProcessState.ExitCode(), "the reader did not come to its end: what was not read of 3 sources"
	if code != 1 || !strings.Contains(r.Err.String(), says) {
		t.Errorf("the exit code is %d; stderr: %s", code, r.Err)
	}
	var s ledger.Sheet
	if err := json.Unmarshal([]byte(r.Out.String()), &s); err != nil {
		t.Fatalf("run --json printed no sheet: %v: %s", err, r.Out)
	}
	for _, id := range account {
		if p := peer(s, id); p.Frames.Stored != 10 || p.Unread["stopped"] != 5*128 || len(p.Outages) == 0 {
			t.Errorf("%s: %d frames are stored, and unread are %v, of 15 frames; outages %+v", id, p.Frames.Stored,
				p.Unread, p.Outages)
		}
	}
}
