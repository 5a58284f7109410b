package rt

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Affinity is where a thread may run; tid 0 is the calling thread.
func Affinity(tid int) (CPUs, error) {
	cpus, err := sys.Affinity(tid)
	return cpus, err
}

// SetAffinity makes a thread run on these CPUs only; tid 0 is the calling thread. What it starts
// inherits that.
func SetAffinity(tid int, cpus CPUs) error {
	err := sys.SetAffinity(tid, cpus)
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("CPUs %q: %w; /sys/devices/system/cpu/online and the process's cpuset (Cpus_allowed_list in /proc/self/status) have the ones to choose from", cpus, err)
	}
	return err
}

// Pin makes the calling thread, and what it starts, run on these CPUs only, until undo.
func Pin(cpus CPUs) (undo func() error, err error) {
	before, err := Affinity(0)
	if err != nil {
		return nil, err
	}
	if err := SetAffinity(0, cpus); err != nil {
		return nil, err
	}
	return func() error { return SetAffinity(0, before) }, nil
}

// sweeps bounds how often SetProcessAffinity looks for threads that began meanwhile.
const sweeps = 16

// SetProcessAffinity makes all threads of a process run on these CPUs only; pid 0 is this process.
// Threads that begin meanwhile inherit it from those that have it.
func SetProcessAffinity(pid int, cpus CPUs) error {
	if pid == 0 {
		pid = os.Getpid()
	}
	done := map[int]bool{}
	for range sweeps {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		fresh := false
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := SetAffinity(tid, cpus); err != nil && !errors.Is(err, syscall.ESRCH) { // ESRCH: it has ended
				return err
			}
			done[tid], fresh = true, true
		}
		if !fresh {
			return nil
		}
	}
	return fmt.Errorf("process %d begins threads faster than they can be moved; set the affinity before it starts", pid)
}

var policies = map[Policy]uint32{
	Other: sys.SchedOther, Batch: sys.SchedBatch, Idle: sys.SchedIdle, FIFO: sys.SchedFIFO, RR: sys.SchedRR,
	Deadline: sys.SchedDeadline,
}

// SetScheduling changes how the calling thread is scheduled. What is refused for want of a right is
// a [*NotAllowedError].
func SetScheduling(s Scheduling) error {
	if err := s.check(); err != nil {
		return err
	}
	a := sys.SchedAttr{
		Policy: policies[s.Policy], Nice: int32(s.Nice), Priority: uint32(s.Priority),
		Runtime: uint64(s.Runtime), Deadline: uint64(s.Deadline), Period: uint64(s.Period),
	}
	if s.ResetOnFork {
		a.Flags |= sys.SchedResetOnFork
	}
	return s.refused(sys.Schedule(0, a))
}

// GetScheduling is how a thread is scheduled; tid 0 is the calling thread.
func GetScheduling(tid int) (Scheduling, error) {
	a, err := sys.ScheduleOf(tid)
	if err != nil {
		return Scheduling{}, err
	}
	s := Scheduling{
		Nice: int(a.Nice), Priority: int(a.Priority), ResetOnFork: a.Flags&sys.SchedResetOnFork != 0,
		Runtime: time.Duration(a.Runtime), Deadline: time.Duration(a.Deadline), Period: time.Duration(a.Period),
	}
	for p, number := range policies {
		if number == a.Policy {
			s.Policy = p
		}
	}
	if s.Policy != Deadline { // newer kernels tell the slice of an ordinary thread there
		s.Runtime, s.Deadline, s.Period = 0, 0, 0
	}
	return s, nil
}

// TryScheduling reports whether SetScheduling would be allowed, on a thread that ends after it.
func TryScheduling(s Scheduling) error {
	s.ResetOnFork = true // Go may start a thread from that one
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		before, err := GetScheduling(0)
		if err == nil {
			err = SetScheduling(s)
		}
		if err == nil { // it may be the program's first thread, which sleeps in place of ending
			before.ResetOnFork = true // only a privileged thread may take that back
			err = SetScheduling(before)
		}
		result <- err
	}()
	return <-result
}

// LockMemory keeps all memory of this process from being paged out, what it maps later too, each
// page from when it is first touched; before Linux 4.4 all pages at once. It counts against
// RLIMIT_MEMLOCK, where the process has no CAP_IPC_LOCK: Go reserves much more than it touches, so
// want that limit unlimited.
func LockMemory() error {
	err := sys.LockAll(true)
	if errors.Is(err, syscall.EINVAL) {
		err = sys.LockAll(false)
	}
	return lockRefused("locking all memory", err)
}

// UnlockMemory takes LockMemory back.
func UnlockMemory() error { return sys.UnlockAll() }

// TryLockMemory reports whether n more bytes could be locked; it locks them for a moment.
func TryLockMemory(n int) error {
	return lockRefused(fmt.Sprintf("locking %d bytes of memory", n), sys.TryLock(n))
}

// SetTimerSlack says by how much the kernel may prolong waits of the calling thread, to let some
// end together: 50 µs by default, at least 1 ns. Real-time threads have none.
func SetTimerSlack(d time.Duration) error {
	if d < 1 {
		return fmt.Errorf("rt: timer slack %v: want 1 ns or more", d)
	}
	return sys.SetTimerSlack(d)
}

// TimerSlack is by how much the kernel may prolong waits of the calling thread.
func TimerSlack() (time.Duration, error) { return sys.TimerSlack() }

// Now is CLOCK_MONOTONIC: no step of the wall clock changes it, and it stands while the machine
// sleeps.
func Now() time.Duration { return sys.Monotonic() }

// SleepUntil blocks the calling thread until the moment, as Now counts; other goroutines run
// meanwhile. It goes on through signals.
func SleepUntil(at time.Duration) error { return sys.SleepUntil(at) }

// SleepUntilHolding is SleepUntil that does not tell Go's scheduler, which saves it some
// microseconds at the end: the thread keeps its place among GOMAXPROCS while it sleeps. It is for a
// locked thread that sleeps for milliseconds, with one more in GOMAXPROCS for the others; a garbage
// collection waits for the end of the sleep.
func SleepUntilHolding(at time.Duration) error { return sys.SleepUntilRaw(at) }
