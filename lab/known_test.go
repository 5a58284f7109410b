package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// spins is a shell that computes for a while, and ends by itself.
const spins = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"

// knownIn is what a turn of a contestant of the tests knows of the machine's CPU time.
func knownIn(t *testing.T, name string, scene Scene) outcome {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o := Quick()
	o.Dir = t.TempDir()
	b, err := NewBench(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	e := &Experiment{Name: "test", Scene: func(*Bench, *Contestant, Params) (*Scene, error) { return &scene, nil }}
	c := Ours(name, func(*contestant.Turn) error { return nil }) // the program that is started looks it up by its name
	did, err := turn{b, c, nil, 200 * time.Millisecond, false}.run(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return did
}

// TestLoadOfAnotherProgramIsKnown: what a load uses that is a program, as wrk is, did not go to
// others.
func TestLoadOfAnotherProgramIsKnown(t *testing.T) {
	var used time.Duration
	did := knownIn(t, "sleeps", Scene{Load: func(ctx context.Context, _ time.Duration) (func(Metrics), error) {
		c := exec.CommandContext(ctx, "sh", "-c", spins)
		err := c.Run()
		used = c.ProcessState.UserTime() + c.ProcessState.SystemTime() // of the last time, which counts
		return func(Metrics) {}, err
	}})
	if used == 0 || did.known < used {
		t.Errorf("%v of CPU time are known; the load alone used %v", did.known, used)
	}
}

// TestChildrenThatHaveEndedAreKnown: what a contestant's children used counts once they have ended,
// and counts once.
func TestChildrenThatHaveEndedAreKnown(t *testing.T) {
	out := filepath.Join(t.TempDir(), "used")
	t.Setenv("TALLYWHEEL_TEST_USED", out)
	did := knownIn(t, "starts", Scene{})
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var ns, faults int64
	if _, err := fmt.Sscan(string(text), &ns, &faults); err != nil {
		t.Fatal(err)
	}
	used := time.Duration(ns)
	cpu := time.Duration(did.metrics[CPUPerOp.name] * 1e3)
	// cutime and cstime have ticks; what the contestant and the laboratory do is some milliseconds
	if least, most := used-2*tick, used*5/4+4*tick; cpu < least || cpu > most || did.known < least || did.known > most {
		t.Errorf("%v of CPU time are the contestant's, %v are known; its children used %v", cpu, did.known, used)
	}
	if got := did.metrics[PageFaultsPerOp.name]; got < float64(faults) { // of its one operation
		t.Errorf("%v page faults; its children had %d", got, faults)
	}
}

// TestUsageOfAThreadThatHasEnded: what it used stays what its process has used.
func TestUsageOfAThreadThatHasEnded(t *testing.T) {
	before, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var used time.Duration
	var spun uint64
	thread := make(chan int)
	var spin func()
	spin = func() {
		runtime.LockOSThread()               // and never unlocks it: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() { // but for the main one, so it is another's turn
			go spin()
			<-t.Context().Done()
			runtime.UnlockOSThread()
			return
		}
		for began := threadCPU(); used < 100*time.Millisecond; used = threadCPU() - began {
			spun += contestant.Spin(1 << 16)
		}
		if spun == 0 {
			panic("it has not computed")
		}
		thread <- syscall.Gettid()
	}
	go spin()
	id := <-thread
	testenv.Until(t, time.Minute, "the thread ends", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id))
		return err != nil
	})
	if after, err := usageOf(os.Getpid()); err != nil || after.cpu-before.cpu < used {
		t.Errorf("%v, %v: a thread that has ended used %v", after.cpu-before.cpu, err, used)
	}
}

// threadCPU is the CPU time that this thread has used.
func threadCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(1, &r); err != nil { // RUSAGE_THREAD
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
