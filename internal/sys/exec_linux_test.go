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
)

const execRole = "TALLYWHEEL_TEST_EXEC"

// init is what the test's own processes do: a parent starts a child that is to end with it, and the
// child becomes cat on another thread than its first.
func init() {
	switch os.Getenv(execRole) {
	case "parent":
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), execRole+"=child")
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := sys.Start(c.Start); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	case "child":
		go func() {
			runtime.LockOSThread() // init has the first one
			cat, err := exec.LookPath("cat")
			if err == nil {
				err = sys.Exec(cat, []string{"cat"}, nil)
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}()
		select {}
	}
}

// TestExecEndsWithItsParent: a process that was to end with its parent does so behind an Exec, too,
// whichever thread called it.
func TestExecEndsWithItsParent(t *testing.T) {
	parent := exec.Command("/proc/self/exe")
	parent.Env = append(os.Environ(), execRole+"=parent")
	parent.Stderr = os.Stderr
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	parent.Stdout = write
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	defer func() {
		_ = parent.Process.Kill() // it may have ended
		_ = parent.Wait()         // killed
		_ = in.Close()            // cat ends by that at the latest
	}()
	if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "word"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(out, b); err != nil || string(b) != "word" {
		t.Fatalf("%q, %v", b, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(b); err != io.EOF {
		t.Errorf("it goes on without its parent: %v", err)
	}
}
