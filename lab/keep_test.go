package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// compiles is a program that starts another one, as a compiler does, and waits for it. It writes
// the number of that into the file that it is called with.
const compiles = `sleep 1000 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`

// startedBy waits for the number in the file, and returns it.
func startedBy(t *testing.T, path string) (pid int) {
	t.Helper()
	testenv.Until(t, time.Minute, "the program has started another", func() bool {
		text, err := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && pid > 0
	})
	return pid
}

func hasEnded(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ") // nobody may have waited for it
}

// TestNothingOutlivesAStop: what a compiler has started ends when the run is stopped.
func TestNothingOutlivesAStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := kept(ctx, "", nil, "sh", "-c", compiles, path)
		ended <- err
	}()
	pid := startedBy(t, path)
	stop()
	if err := <-ended; err == nil {
		t.Error("stopped, and no error")
	}
	testenv.Until(t, time.Minute, "what it started ends", func() bool { return hasEnded(pid) })
}

// TestNothingOutlivesAKill: what a compiler has started ends when the laboratory is killed, which
// can do nothing about it any more.
func TestNothingOutlivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	lab := exec.Command(os.Args[0], "lab", "contestant", "test", "compiles")
	lab.Env = append(os.Environ(), OwnVariable+"=1", "TALLYWHEEL_TEST_PID="+path)
	lab.Stderr = os.Stderr
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	pid := startedBy(t, path)
	if err := lab.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := lab.Wait(); err == nil {
		t.Error("it ended in good order")
	}
	testenv.Until(t, time.Minute, "what it started ends", func() bool { return hasEnded(pid) })
}

// TestKept: a program's output and its status are what they are, and the keeper does not stay.
func TestKept(t *testing.T) {
	out, err := kept(t.Context(), t.TempDir(), []string{"A=b"}, "sh", "-c", "echo $A; echo $$ >&2; exit 3")
	var exit *exec.ExitError
	lines := strings.Fields(string(out))
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || len(lines) != 2 || lines[0] != "b" {
		t.Errorf("%q, %v", out, err)
	}
	group := exit.Pid() // of the keeper, which led it
	testenv.Until(t, time.Minute, "the group ends", func() bool {
		return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)
	})
	if _, err := kept(t.Context(), "", nil, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a program that is not there has run")
	}
}
