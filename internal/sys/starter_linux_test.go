package sys_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestChildOutlivesTheThreadThatAsked: a child with a Pdeathsig lives on when the thread ends that
// its start was asked for on.
func TestChildOutlivesTheThreadThatAsked(t *testing.T) {
	cat := exec.Command("cat")
	cat.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err1 := cat.StdinPipe()
	out, err2 := cat.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	started := make(chan error)
	thread := 0
	var ask func()
	ask = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if thread = syscall.Gettid(); thread == os.Getpid() {
			go ask() // the first thread of a process never ends
			select {}
		}
		started <- sys.Start(cat.Start)
	}
	go ask()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the thread has ended", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		return os.IsNotExist(err)
	})
	if _, err := io.WriteString(in, "still here"); err != nil {
		t.Error(err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	said, err := io.ReadAll(out)
	if err := cat.Wait(); err != nil || string(said) != "still here" {
		t.Errorf("it said %q and ended by %v", said, err)
	}
	if err != nil {
		t.Error(err)
	}
}
