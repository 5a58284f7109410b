package sys

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Policies of the scheduler, as sched(7) numbers them.
const (
	SchedOther    = unix.SCHED_NORMAL
	SchedFIFO     = unix.SCHED_FIFO
	SchedRR       = unix.SCHED_RR
	SchedBatch    = unix.SCHED_BATCH
	SchedIdle     = unix.SCHED_IDLE
	SchedDeadline = unix.SCHED_DEADLINE
)

// SchedResetOnFork makes children begin as ordinary threads.
const SchedResetOnFork = unix.SCHED_FLAG_RESET_ON_FORK

// SchedAttr is struct sched_attr of sched_setattr(2); times are in ns.
type SchedAttr = unix.SchedAttr

// Schedule changes how a thread is scheduled; 0 is the calling one.
func Schedule(tid int, a SchedAttr) error {
	a.Size = unix.SizeofSchedAttr
	return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(tid, &a, 0))
}

// ScheduleOf is how a thread is scheduled.
func ScheduleOf(tid int) (SchedAttr, error) {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return SchedAttr{}, os.NewSyscallError("sched_getattr", err)
	}
	return *a, nil
}

// Yield lets threads that wait for this CPU run before the calling one goes on (sched_yield(2)). It
// keeps its P.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// maxCPUs is the most that a kernel can be built for (CONFIG_NR_CPUS is at most 8192).
const maxCPUs = 8192

// Affinity lists the CPUs that a thread may run on; 0 is the calling one.
func Affinity(tid int) (cpus []int, err error) {
	set := unix.NewCPUSet(maxCPUs)
	if err := unix.SchedGetaffinityDynamic(tid, set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for cpu := range maxCPUs {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// SetAffinity makes a thread, and what it starts, run on some CPUs only.
func SetAffinity(tid int, cpus []int) error {
	set := unix.NewCPUSet(maxCPUs)
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinityDynamic(tid, set))
}

// LockAll keeps all memory of the process, and what it maps later, from being paged out: at once,
// or page by page as it is first touched (onFault, Linux 4.4).
func LockAll(onFault bool) error {
	flags := unix.MCL_CURRENT | unix.MCL_FUTURE
	if onFault {
		flags |= unix.MCL_ONFAULT
	}
	return os.NewSyscallError("mlockall", unix.Mlockall(flags))
}

// UnlockAll takes LockAll back.
func UnlockAll() error { return os.NewSyscallError("munlockall", unix.Munlockall()) }

// SetTimerSlack is by how much the kernel may prolong waits of the calling thread.
func SetTimerSlack(d time.Duration) error {
	return os.NewSyscallError("prctl PR_SET_TIMERSLACK", unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0))
}

// TimerSlack is what SetTimerSlack has set, or the default.
func TimerSlack() (time.Duration, error) {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(n), os.NewSyscallError("prctl PR_GET_TIMERSLACK", err)
}

// Monotonic is CLOCK_MONOTONIC.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock is always there
	return time.Duration(ts.Nano())
}

// SleepUntil blocks the thread until CLOCK_MONOTONIC is at, and gives the P back meanwhile.
func SleepUntil(at time.Duration) error {
	ts := unix.NsecToTimespec(int64(max(at, 0)))
	for {
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err != unix.EINTR {
			return os.NewSyscallError("clock_nanosleep", err)
		}
	}
}

// SleepUntilRaw is SleepUntil without telling the scheduler: the calling thread keeps its P. It is
// not inlined: a loop of raw calls needs one real call a turn, or the garbage collector can never
// stop it.
//
//go:noinline
func SleepUntilRaw(at time.Duration) error {
	ts := unix.NsecToTimespec(int64(max(at, 0)))
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		switch e {
		case 0:
			return nil
		case unix.EINTR: // by the runtime, which wants this thread to look up
		default:
			return os.NewSyscallError("clock_nanosleep", e)
		}
	}
}

// Resource is a limit of a process, see getrlimit(2).
type Resource int

// Resources.
const (
	LimitFiles            Resource = unix.RLIMIT_NOFILE  // descriptors
	LimitLockedMemory     Resource = unix.RLIMIT_MEMLOCK // bytes
	LimitRealTimePriority Resource = unix.RLIMIT_RTPRIO
	LimitAddressSpace     Resource = unix.RLIMIT_AS     // bytes
	LimitCore             Resource = unix.RLIMIT_CORE   // bytes
	LimitProcesses        Resource = unix.RLIMIT_NPROC  // of the user, threads too
	LimitRealTimeRun      Resource = unix.RLIMIT_RTTIME // µs of a real-time thread without a wait
)

// NoLimit is the value of a limit that is none.
const NoLimit = unix.RLIM_INFINITY

// LimitOf is a limit of this process.
func LimitOf(r Resource) (Limit, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(int(r), &l); err != nil {
		return Limit{}, os.NewSyscallError("getrlimit", err)
	}
	return Limit{l.Cur, l.Max}, nil
}
