package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/rt"
)

// kept is the reader, once the status says how it keeps time.
func (r *recorder) kept(t *testing.T, not int) (k isolate.Kept) {
	t.Helper()
	testenv.Until(t, time.Minute, "a reader that keeps time", func() bool {
		if cell := r.process(t, isolate.Reader, not).Cell; cell != nil {
			k = *cell
			return true
		}
		return false
	})
	return k
}

// inFIFO is that reader, held to what the kernel says of its thread. Go may have another thread
// keep time than the one that was told of.
func (r *recorder) inFIFO(t *testing.T, not, priority int) (k isolate.Kept) {
	t.Helper()
	want := rt.Scheduling{Policy: rt.FIFO, Priority: priority, ResetOnFork: true}
	if refused := rt.TryScheduling(want); refused != nil {
		k = r.kept(t, not)
		got, err := rt.GetScheduling(k.Thread)
		if got.Policy != rt.Other ||
			!strings.Contains(strings.Join(k.Lacking, "\n"), "scheduling "+want.String()+": ") {
			t.Errorf("it is in %v, %v, and lacks %q; a right to real time is not to be had here: %v", got, err,
				k.Lacking, refused)
		}
		return k
	}
	testenv.Until(t, time.Minute, "the thread that keeps time is in "+want.String(), func() bool {
		k = r.kept(t, not)
		got, err := rt.GetScheduling(k.Thread)
		return err == nil && got == want && len(k.Lacking) == 0
	})
	return k
}

// TestIsolatedCell records by a reader that keeps time: its thread is in SCHED_FIFO, it reads all,
// and so does the next one after a kill; a change of its priority has another one read.
func TestIsolatedCell(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 400_000, 11_520)
	r := startRecorder(t, dir, sources+"isolate: cell\ncell: {priority: 7}\n")
	k := r.inFIFO(t, 0, 7)
	testenv.Until(t, time.Minute, "frames are stored", func() bool { return r.sheet(t).Ports[1].Frames.Stored > 10 })
	for _, role := range []isolate.Role{isolate.Reader, isolate.Recorder} {
		p := r.process(t, role, 0)
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
		r.process(t, role, p.PID)
	}
	if next := r.inFIFO(t, k.PID, 7); next.Thread == k.Thread {
		t.Error("the next reader has the thread of the one before")
	}
	l.drain(t)
	s := r.stop(t)
	verifyLog(t, dir)
	made := uint64(0)
	for i, p := range s.Ports {
		made += l.devices[i].Truth.Made
		if p.Frames.Stored+p.Frames.Missing != l.devices[i].Truth.Made || p.Frames.Duplicate > 0 {
			t.Errorf("%s: %d frames made: %+v", p.ID, l.devices[i].Truth.Made, p.Frames)
		}
	}
	if stored := storedOnce(t, filepath.Join(dir, "data")); stored != made-missing(s) {
		t.Errorf("%d frames are in the log, %d were made, and %d are missing", stored, made, missing(s))
	}
}

// TestReloadToCell makes the reader of a recorder that runs one that keeps time.
func TestReloadToCell(t *testing.T) {
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	u := startUpgrading(t, dir, sources)
	if cell := u.process(t, isolate.Reader, 0).Cell; cell != nil {
		t.Errorf("a reader that is to keep no time: %+v", cell)
	}
	u.reload(t, "isolate: process", "isolate: cell", isolate.Reader)
	k := u.inFIFO(t, 0, 40)
	u.reload(t, "isolate: cell", "isolate: cell\ncell: {priority: 3}", isolate.Reader)
	u.inFIFO(t, k.PID, 3)
	l.drain(t)
	s := u.stop(t)
	if p := s.Ports[0]; p.Frames.Stored != l.devices[0].Truth.Made {
		t.Errorf("%d frames made: %+v", l.devices[0].Truth.Made, p.Frames)
	}
}

// TestCellWithoutRights reads all the same, and says what is missing and how to get it.
func TestCellWithoutRights(t *testing.T) {
	setpriv := testenv.Program(t, "setpriv", "apt install util-linux")
	dir := t.TempDir()
	l, sources := startLines(t, dir, 11_520)
	by := []string{setpriv, "--bounding-set", "-sys_nice,-ipc_lock", "--inh-caps", "-sys_nice,-ipc_lock"}
	r := startRecorderBy(t, by, dir, sources+"isolate: cell\n")
	k := r.kept(t, 0)
	if s, err := rt.GetScheduling(k.Thread); err != nil || s.Policy != rt.Other {
		t.Skipf("SKIPPED: the reader is in %v without CAP_SYS_NICE: %v; run it where RLIMIT_RTPRIO is 0", s, err)
	}
	lacking := strings.Join(k.Lacking, "\n")
	for _, want := range []string{"scheduling fifo 40: ", "CAP_SYS_NICE"} {
		if !strings.Contains(lacking, want) || !strings.Contains(r.Err.String(), want) {
			t.Errorf("lacking %q, and not a word of %q there or in the journal", lacking, want)
		}
	}
	testenv.Until(t, time.Minute, "frames are stored", func() bool { return r.sheet(t).Ports[0].Frames.Stored > 10 })
	l.drain(t)
	s := r.stop(t)
	if p := s.Ports[0]; p.Frames.Stored != l.devices[0].Truth.Made {
		t.Errorf("%d frames made: %+v", l.devices[0].Truth.Made, p.Frames)
	}
}
