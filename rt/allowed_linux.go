package rt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Bits of CapEff in /proc/self/status, see capability.h.
const (
	capIPCLock = 14
	capSysNice = 23
)

// capable reports whether the calling thread has a capability.
func capable(bit int) bool {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && set>>bit&1 == 1
}

// refused says what to do about an error of sched_setattr.
func (s Scheduling) refused(err error) error {
	e := &NotAllowedError{What: "scheduling " + s.String(), Err: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EBUSY):
		e.Missing = []string{"the CPUs have promised too much already: ask for less runtime, or a longer period"}
		return e
	case !errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%s: %w", e.What, err)
	}
	real := s.Policy == FIFO || s.Policy == RR
	if has := capable(capSysNice); !has {
		e.Missing = append(e.Missing,
			"run as root, or give the program CAP_SYS_NICE (setcap cap_sys_nice+ep FILE; AmbientCapabilities=CAP_SYS_NICE in a unit)")
		if l, lerr := sys.LimitOf(sys.LimitRealTimePriority); lerr == nil && real && l.Soft < uint64(s.Priority) {
			e.Missing = append(e.Missing,
				fmt.Sprintf("or raise RLIMIT_RTPRIO from %d to %d (ulimit -r; LimitRTPRIO=%d in a unit)", l.Soft,
					s.Priority, s.Priority))
		}
	} else if s.Policy == Deadline {
		e.Missing = append(e.Missing,
			"a thread of this class must be allowed on all CPUs of its root domain: take its affinity back first")
	}
	if path, ok := throttled("/"); real && ok {
		e.Missing = append(e.Missing,
			"and the CPU controller of cgroup v1 gives this group no real-time budget: write microseconds, such as 100000, to "+path+", and first to those of its parents")
	}
	if len(e.Missing) == 0 {
		e.Missing = []string{"something else forbids it: a seccomp filter of the container, or a security module"}
	}
	return e
}

// throttled finds the file of this process's cgroup of version 1 that says how much real-time a
// period may have, where that is nothing. root is / but for tests.
func throttled(root string) (path string, yes bool) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		for c := range strings.SplitSeq(controllers, ",") {
			if c != "cpu" {
				continue
			}
			for _, mount := range []string{"cpu", "cpu,cpuacct", "cpuacct,cpu"} {
				name := filepath.Join(root, "sys/fs/cgroup", mount, group, "cpu.rt_runtime_us")
				if b, err := os.ReadFile(name); err == nil {
					return name, strings.TrimSpace(string(b)) == "0"
				}
			}
		}
	}
	return "", false
}

// lockRefused says what to do about an error of mlock and mlockall.
func lockRefused(what string, err error) error {
	if err == nil || !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOMEM) &&
		!errors.Is(err, syscall.EAGAIN) {
		return err
	}
	e := &NotAllowedError{What: what, Err: err}
	if capable(capIPCLock) {
		e.Missing = []string{"there is not so much free memory"}
		return e
	}
	if l, lerr := sys.LimitOf(sys.LimitLockedMemory); lerr == nil {
		e.Missing = append(e.Missing,
			fmt.Sprintf("RLIMIT_MEMLOCK is %d bytes: raise it (ulimit -l unlimited; LimitMEMLOCK=infinity in a unit)",
				l.Soft))
	}
	e.Missing = append(e.Missing, "or run as root or with CAP_IPC_LOCK")
	return e
}
