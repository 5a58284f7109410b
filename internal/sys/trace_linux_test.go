package sys

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCountCalls counts those of a shell that opens a file so many times, each open a few calls.
func TestCountCalls(t *testing.T) {
	count := func(times string) uint64 {
		cmd := exec.Command("sh", "-c",
			`echo ready; read go; i=0; while [ $i -lt `+times+` ]; do : </dev/null; i=$((i+1)); done`)
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err1 != nil || err2 != nil || cmd.Start() != nil {
			t.Fatal(err1, err2)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		result, err := CountCalls(cmd.Process.Pid)
		if err != nil {
			t.Skipf("SKIPPED: this process may not trace others: %v; run as root, or allow ptrace", err)
		}
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
		calls, err := result()
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for _, k := range calls {
			n += k
		}
		if calls["openat"] == 0 || calls["unknown"] > 0 {
			t.Errorf("a shell that opens files calls %v", calls)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		return n
	}
	few, many := count("10"), count("1010")
	if per := float64(many-few) / 1000; per < 3 || per > 12 {
		t.Errorf("%d calls for 10 opens, %d for 1010: %.1f for each", few, many, per)
	}
	// the read that waits for the start may be begun twice
	if again := count("10"); max(again, few)-min(again, few) > 2 {
		t.Errorf("%d calls, then %d for the same work", few, again)
	}
}

// busyVariable makes this test's own program a victim: threads that do nothing but call the kernel,
// until they are killed.
const busyVariable = "TALLYWHEEL_BUSY_THREADS"

// TestCountCallsOfAKilledProgram kills programs of many threads in the middle of their calls: the
// count must end with them.
func TestCountCallsOfAKilledProgram(t *testing.T) {
	if os.Getenv(busyVariable) != "" {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				runtime.LockOSThread()
				for parent := unix.Getppid(); unix.Getppid() == parent; { // it does not outlive a test that failed
				}
			})
		}
		all.Wait()
		return
	}
	for range 20 {
		c := exec.Command(os.Args[0], "-test.run=^TestCountCallsOfAKilledProgram$")
		c.Env = append(os.Environ(), busyVariable+"=1", "GOMAXPROCS=9")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		result, err := CountCalls(c.Process.Pid)
		if err != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
			t.Skipf("SKIPPED: this process may not trace others: %v; run as root, or allow ptrace", err)
		}
		for tries := 0; tries < 2000; tries++ { // until its threads are at it
			if tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.Process.Pid)); len(tasks) > 8 {
				break
			}
			Sleep(time.Millisecond)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // by the signal
		if _, err := result(); err != nil {
			t.Error(err)
		}
	}
}
