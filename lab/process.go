package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// usage is what the kernel has counted of a process.
type usage struct {
	cpu                   time.Duration
	voluntary, preempted  int64 // context switches
	minorFaults, majorFts int64
	threads               int
}

// largestFamily bounds the processes of a contestant that are looked at.
const largestFamily = 1024

// familyOf is a process and those that it has started, and so on; where the kernel does not tell
// (CONFIG_PROC_CHILDREN) it is alone.
func familyOf(pid int) []int {
	family := []int{pid}
	for i := 0; i < len(family) && i < largestFamily; i++ {
		family = append(family, childrenOf(family[i])...)
	}
	return family
}

// childrenOf is the processes that one has started, and has not waited for.
func childrenOf(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, path := range lists {
		list, _ := os.ReadFile(path) // none if the thread has ended
		for _, f := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// usageOf reads what a running process and those that it has started have used so far, with what
// those used that have ended and been waited for, but for their switches. What a process
// has of its children that have ended is read before those that run are listed, so one that ends
// meanwhile is missed, and never counted twice.
func usageOf(pid int) (sum usage, err error) {
	family := []int{pid}
	for i := 0; i < len(family) && i < largestFamily; i++ {
		u, err := usageOfOne(family[i])
		if err != nil && i == 0 {
			return sum, err
		}
		sum.add(u)
		family = append(family, childrenOf(family[i])...)
	}
	return sum, nil
}

func (u *usage) add(other usage) {
	u.cpu += other.cpu
	u.voluntary += other.voluntary
	u.preempted += other.preempted
	u.minorFaults += other.minorFaults
	u.majorFts += other.majorFts
	u.threads += other.threads
}

// tick is the step in which /proc/PID/stat tells times: USER_HZ is 100 everywhere.
const tick = 10 * time.Millisecond

// usageOfOne is what a process has used, and its children that have ended. The CPU time of the
// process is the scheduler's own count in ns, for a tick is more than a careful reader uses in a
// second; that of the children, of which there is none, has ticks. The switches of threads that
// have ended are missing.
func usageOfOne(pid int) (u usage, err error) {
	// minflt, cminflt, majflt, cmajflt, cutime, cstime
	stat, err := sys.ProcessStat(pid, 10, 11, 12, 13, 16, 17)
	if err != nil {
		return u, fmt.Errorf("process %d has ended: %w", pid, err)
	}
	u.minorFaults, u.majorFts = stat[0]+stat[1], stat[2]+stat[3]
	own, err := sys.ProcessCPU(pid)
	if err != nil {
		return u, fmt.Errorf("process %d has ended: %w", pid, err)
	}
	u.cpu = own + time.Duration(stat[4]+stat[5])*tick
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is good
	for _, t := range tasks {
		status, err := os.ReadFile(t + "/status")
		if err != nil {
			continue // the thread has ended meanwhile
		}
		u.threads++
		u.voluntary += statusField(status, "voluntary_ctxt_switches")
		u.preempted += statusField(status, "nonvoluntary_ctxt_switches")
	}
	return u, nil
}

func statusField(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			n, _ := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			return n
		}
	}
	return 0
}

// peakMemory is the most that a running process has had in memory, and those that it has started,
// in bytes: what they share counts for each. 0 if that cannot be read.
func peakMemory(pid int) (sum float64) {
	for _, one := range familyOf(pid) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one))
		if err == nil {
			sum += float64(statusField(status, "VmHWM")) * 1024
		}
	}
	return sum
}

// Resident is what a running process has in memory, in bytes, of its own: without the pages of
// files.
func Resident(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return statusField(status, "RssAnon") * 1024, nil
}

// usageAtEnd is what a process that has been waited for used in all.
func usageAtEnd(s *os.ProcessState) (u usage) {
	r := s.SysUsage().(*syscall.Rusage)
	u.cpu = s.UserTime() + s.SystemTime()
	u.voluntary, u.preempted = int64(r.Nvcsw), int64(r.Nivcsw)
	u.minorFaults, u.majorFts = int64(r.Minflt), int64(r.Majflt)
	return u
}

// noise is what the machine did besides, in ticks of all CPUs, and how often a limit stopped this
// group of processes.
type noise struct {
	busy, steal, all float64
	throttled        int64
}

// readNoise reads the machine's counters; where one is missing it stays 0.
func readNoise() (n noise) {
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		line, _, _ := bytes.Cut(stat, []byte{'\n'})
		for i, f := range strings.Fields(string(line))[1:] {
			v, _ := strconv.ParseFloat(f, 64)
			switch i { // user nice system idle iowait irq softirq steal guest guest_nice
			case 3, 4:
				n.all += v
			case 7:
				n.steal += v
				n.all += v
			case 8, 9: // in user and nice already
			default:
				n.busy += v
				n.all += v
			}
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"} {
		if f, err := os.Open(path); err == nil {
			for s := bufio.NewScanner(f); s.Scan(); {
				if v, ok := strings.CutPrefix(s.Text(), "nr_throttled "); ok {
					n.throttled, _ = strconv.ParseInt(v, 10, 64)
				}
			}
			_ = f.Close() // only read
			break
		}
	}
	return n
}

// since is what happened since an earlier reading.
func (n noise) since(before noise) noise {
	return noise{n.busy - before.busy, n.steal - before.steal, n.all - before.all, n.throttled - before.throttled}
}
