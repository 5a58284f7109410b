package sys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessUsage is the CPU time that a process has used so far, in steps of 10 ms, and its resident
// memory in bytes.
func ProcessUsage(pid int) (cpu time.Duration, rss int64, err error) {
	f, err := ProcessStat(pid, 14, 15, 24) // utime, stime, rss
	if err != nil {
		return 0, 0, err
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	return time.Duration(f[0]+f[1]) * tick, f[2] * int64(os.Getpagesize()), nil
}

// ProcessCPU is the CPU time that a process has used so far, to the nanosecond, with that of its
// threads that have ended: the clock that clock_getcpuclockid(3) names.
func ProcessCPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, of linux/posix-timers.h
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// CPUWait is for how long the threads of a process that there are now have waited for a CPU, all
// of them together. It is 0 where the kernel does not tell (CONFIG_SCHED_INFO), or the process is
// gone.
func CPUWait(pid int) (sum time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is good
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		if f := strings.Fields(string(b)); len(f) > 1 { // ran, waited, slices
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// ProcessStat reads fields of /proc/PID/stat, by their numbers in proc_pid_stat(5), from 3.
func ProcessStat(pid int, fields ...int) ([]int64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // behind the name, which may have spaces
	n := make([]int64, len(fields))
	for i, at := range fields {
		if at-3 >= len(f) {
			return nil, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
		}
		if n[i], err = strconv.ParseInt(f[at-3], 10, 64); err != nil {
			return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return n, nil
}
