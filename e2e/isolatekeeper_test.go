package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// TestIsolatedKeeperIsKilledInReload kills the keeper right behind a SIGHUP: reader and recorder
// end at once, and what a connection had sent is stored, or named.
func TestIsolatedKeeperIsKilledInReload(t *testing.T) {
	for _, peers := range []string{"newest", "all"} {
		t.Run(peers, func(t *testing.T) { killKeeperInReload(t, peers) })
	}
}

// endsWithin is how long reader and recorder may take to end behind their keeper: far less than
// they wait for what is to be read, which is five seconds.
const endsWithin = 4 * time.Second

// killKeeper kills the keeper, and waits for the others, which must not take long.
func (u *upgrading) killKeeper(t *testing.T, others ...isolate.Process) {
	t.Helper()
	began := time.Now()
	_ = u.Cmd.Process.Kill()
	testenv.Until(t, time.Minute, "reader and recorder have ended", func() bool {
		return !slices.ContainsFunc(others,
			func(p isolate.Process) bool { return syscall.Kill(p.PID, 0) != syscall.ESRCH })
	})
	if took := time.Since(began); took > endsWithin {
		t.Errorf("reader and recorder have outlived their keeper by %v", took)
	} else {
		t.Logf("reader and recorder have ended after %v", took)
	}
	_ = u.Cmd.Wait()
}

func killKeeperInReload(t *testing.T, peers string) {
	dir := t.TempDir()
	addrs := [2]string{fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	source := func(which int) string {
		return fmt.Sprintf("  - {id: a, tcp: {listen: %q, peers: %s}, frame: tally128}\n", addrs[which], peers)
	}
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	var all streams
	u := &upgrading{recorder: startIsolated(t, dir, source(0)), dir: dir}
	for round := range 4 {
		s := all.reach(t, addrs[round%2])
		s.say(100)
		testenv.Until(t, time.Minute, "frames are stored", func() bool {
			n := uint64(0)
			for _, p := range u.sheet(t).Ports {
				n += p.Frames.Stored
			}
			return n >= 100
		})
		reader, recorder := u.process(t, isolate.Reader, 0), u.process(t, isolate.Recorder, 0)
		u.change(t, source(round%2), source((round+1)%2))
		s.say(1000)
		_ = u.Cmd.Process.Signal(syscall.SIGHUP)
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // the moment of the kill
		u.killKeeper(t, reader, recorder)
		s.end(t)
		verifyLog(t, dir)
		u.recorder = startIsolated(t, dir, source((round+1)%2))
	}
	u.stop(t)
	all.hold(t, filepath.Join(dir, "data"), lines{})
}

// TestIsolatedKeeperTellsNoMore kills a keeper that stands still while a reload adds a source: the
// reader never hears of that, and the recorder does not wait for it to read it.
func TestIsolatedKeeperTellsNoMore(t *testing.T) {
	dir := t.TempDir()
	source := func(id string) string {
		return fmt.Sprintf("  - {id: %s, tcp: {listen: \"127.0.0.1:%d\"}, frame: tally128}\n", id, freePort(t))
	}
	a := source("a")
	u := &upgrading{recorder: startIsolated(t, dir, a), dir: dir}
	reader, recorder := u.process(t, isolate.Reader, 0), u.process(t, isolate.Recorder, 0)
	u.change(t, a, a+source("b"))
	freeze(t, u.Cmd.Process.Pid)
	if err := syscall.Kill(recorder.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the other source is there", func() bool { return len(u.sheet(t).Ports) == 2 })
	u.killKeeper(t, reader, recorder)
}

// TestIsolatedLogIsOfItsKeeper has another recorder begin while the recorder of a keeper was killed
// and the next one is not there yet: nobody has the lock, and memory has what the log has not.
func TestIsolatedLogIsOfItsKeeper(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	u := startUpgrading(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q}, frame: tally128}\n", addr))
	p := u.process(t, isolate.Recorder, 0)
	testenv.Until(t, time.Minute, "the keeper listens", func() bool {
		_, err := os.Lstat(filepath.Join(dir, "data", "keeper.socket"))
		return err == nil
	})
	keeper := u.Cmd.Process.Pid
	still(t, keeper)
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	testenv.Until(t, time.Minute, "the recorder has ended", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	for _, isolated := range []string{"none", "process"} {
		file := filepath.Join(t.TempDir(), "other.yaml")
		text := fmt.Sprintf("isolate: %s\nlog: {dir: %s/data}\napi: {listen: 127.0.0.1:0}\nsources: [{id: x, udp: {listen: %q}, frame: line}]\n",
			isolated, dir, fmt.Sprintf("127.0.0.1:%d", freePort(t)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		isRefused(t, "run", "-c", file)
	}
	_ = syscall.Kill(keeper, syscall.SIGCONT)
	u.process(t, isolate.Recorder, p.PID)
	u.stop(t)
}

// TestIsolatedLogIsRepairedBesideItsKeeper takes the newest segment's header away and kills the
// recorder: what begins then is refused by the damage, again and again. `log repair` has its turn
// in between, the recorder goes on, and each frame is stored once, or named.
func TestIsolatedLogIsRepairedBesideItsKeeper(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	l, sources := startLines(t, dir, 400_000, 115_200)
	r := startIsolated(t, dir, sources)
	first := r.process(t, isolate.Recorder, 0)
	r.awaitStored(t, 1500) // more than memory has
	still(t, r.Cmd.Process.Pid)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(data, "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%v, %v", segments, err)
	}
	newest, err := os.OpenFile(segments[len(segments)-1], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer newest.Close()
	if _, err := newest.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(r.Cmd.Process.Pid, syscall.SIGCONT)
	testenv.Until(t, time.Minute, "the recorder is refused", func() bool {
		return strings.Contains(r.Err.String(), "`log repair` keeps what is whole")
	})
	command(t, "log", "repair", "--dir", data)
	r.process(t, isolate.Recorder, first.PID)
	l.drain(t)
	s := r.stop(t)
	for i, p := range s.Ports {
		f, made := p.Frames, l.devices[i].Truth.Made
		if f.OK != made || f.Missing+f.Duplicate > 0 || f.Stored+f.Dropped["log_gone"] != made ||
			f.Dropped["log_gone"] == 0 {
			t.Errorf("%s: %d frames made, and the books have %+v", p.ID, made, f)
		}
	}
	seen := map[string]bool{}
	eachLeft(t, data, func(rec archive.Record) {
		name := fmt.Sprint(rec.Source, " ", *rec.Number)
		if seen[name] {
			t.Errorf("frame %s is there twice", name)
		}
		seen[name] = true
	}, func(*seglog.GapError) {})
}

// isRefused runs the program, which must say soon that another process has the log.
func isRefused(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, testenv.Binary(t), args...)
	said, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), "the log is in use") {
		t.Errorf("%v ends with %v, and says %s", args, c.ProcessState, said)
	}
}
