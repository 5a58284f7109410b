package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// still stops a process, and has it go on once the test has ended.
func still(t *testing.T, pid int) {
	t.Helper()
	freeze(t, pid)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}

// freeze stops a process, and returns once none of its threads runs: the call itself does not wait
// for that.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	runs := func(path string) bool {
		b, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(b), ") ")
		return err == nil && !strings.HasPrefix(state, "T") // else the thread has ended
	}
	testenv.Until(t, time.Minute, "the process stands still", func() bool {
		all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return len(all) > 0 && !slices.ContainsFunc(all, runs)
	})
}

// TestIsolatedListenerOfAKilledRecorder kills the recorder while it closes the address of a source
// for a reload, which is taken back. Nobody can connect then, until the next one is there.
func TestIsolatedListenerOfAKilledRecorder(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	u := startUpgrading(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n", addr))
	k := &talker{id: "net/127.0.0.1", device: 1}
	c := reach(t, addr)
	k.say(t, c, 10)
	p := u.process(t, isolate.Recorder, 0)
	keeper := u.Cmd.Process.Pid
	still(t, keeper) // the recorder waits for it, and the address is closed so far that nobody connects
	u.change(t, "peers: all", "peers: all, max_peers: 7")
	if err := syscall.Kill(p.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "nobody can connect", func() bool {
		d, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err == nil {
			_ = d.Close()
		}
		return err != nil
	})
	u.change(t, "peers: all, max_peers: 7", "peers: all")
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	_ = syscall.Kill(keeper, syscall.SIGCONT)
	u.process(t, isolate.Recorder, p.PID)
	testenv.Until(t, time.Minute, "one can connect again", func() bool {
		d, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err == nil {
			_ = d.Close()
		}
		return err == nil
	})
	k.say(t, c, 10)
	testenv.Until(t, time.Minute, "all that was sent is stored", func() bool {
		var s ledger.Sheet
		u.find()
		return u.get("api/v1/sheet", &s) && peer(s, k.id).Frames.Stored == 20
	})
	_ = c.Close()
	u.stop(t)
}

// TestIsolatedReaderIsKilledInAStop kills the reader behind a stop, when it has been passed what
// waits from one address, and has read none of that.
func TestIsolatedReaderIsKilledInAStop(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startIsolated(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n", addr))
	made := uint64(0)
	say := func(device, frames int) {
		k := &talker{id: "net/127.0.0.2", device: uint32(device)}
		k.say(t, from(t, "127.0.0.2", addr), frames)
		made += k.made.Load()
	}
	say(1, 10)
	testenv.Until(t, time.Minute, "the first one is stored", func() bool {
		var s ledger.Sheet
		return r.get("api/v1/sheet", &s) && peer(s, "net/127.0.0.2").Frames.Stored == 10
	})
	reader := r.process(t, isolate.Reader, 0)
	still(t, reader.PID)
	for i := range 40 {
		say(2+i, 1+i)
	}
	if err := r.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "all that waited is taken, and nobody listens", func() bool {
		d, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err == nil {
			_ = d.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if err := syscall.Kill(reader.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.Cmd.Wait(); err != nil {
		t.Errorf("run ended with %v; stderr: %s", err, r.Err)
	}
	if n := storedOnce(t, filepath.Join(dir, "data")); n != made {
		t.Errorf("%d frames are in the log, %d were sent: %s", n, made, r.Out)
	}
}
