package sys

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ProcessUsage is the CPU time that a process has used so far, in steps of 10 ms, and its resident memory in bytes.
func ProcessUsage(pid int) (cpu time.Duration, rss int64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // behind the name, from field 3; see proc_pid_stat(5)
	const utime, stime, pages = 14 - 3, 15 - 3, 24 - 3
	if len(f) <= pages {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	var n [3]int64
	for i, at := range []int{utime, stime, pages} {
		if n[i], err = strconv.ParseInt(f[at], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	return time.Duration(n[0]+n[1]) * tick, n[2] * int64(os.Getpagesize()), nil
}
