package lab_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// starts starts programs that compute, one after the other, as those do that time starts, and
// writes the CPU time in ns and the page faults that they took into the file that the environment
// names.
func starts(t *contestant.Turn) error {
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var used time.Duration
	var faults int64
	for ok := true; ok; ok = time.Now().Before(until) {
		c := exec.Command("sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
		if err := c.Run(); err != nil {
			return err
		}
		used += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		faults += int64(c.ProcessState.SysUsage().(*syscall.Rusage).Minflt) // not int64 everywhere
	}
	took, err := t.Done()
	text := fmt.Appendf(nil, "%d %d", used.Nanoseconds(), faults)
	return errors.Join(err, os.WriteFile(os.Getenv("TALLYWHEEL_TEST_USED"), text, 0o600), t.Result(took, 1))
}
