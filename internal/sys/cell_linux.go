package sys

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WakeAt sleeps until CLOCK_MONOTONIC is at, as SleepUntilRaw does, and returns what that clock
// says right behind it. Between the two there is no call at which Go's scheduler could stop the
// goroutine, so the time is that of the wake-up.
//
//go:noinline
func WakeAt(at time.Duration) (woke time.Duration, err error) {
	ts := unix.NsecToTimespec(int64(max(at, 0)))
	var now unix.Timespec
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
		if e == 0 {
			return time.Duration(now.Nano()), nil
		}
		if e != unix.EINTR {
			return time.Duration(now.Nano()), os.NewSyscallError("clock_nanosleep", e)
		}
	}
}

// ThreadID is the number of the calling thread.
func ThreadID() int { return unix.Gettid() }

// DieWithParent has the kernel kill this process when the thread ends that has started it. The
// calling thread has to live as long as the process. It does not survive a change of rights.
func DieWithParent() error {
	return os.NewSyscallError("prctl PR_SET_PDEATHSIG",
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

// ThreadUsage is what getrusage(2) counts of the calling thread.
type ThreadUsage struct{ MinorFaults, MajorFaults, Involuntary uint64 }

// UsageOfThread asks for the calling thread's, by a raw call.
func UsageOfThread() ThreadUsage {
	var r unix.Rusage
	if _, _, e := unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&r)), 0); e != 0 {
		return ThreadUsage{} // cannot be: the arguments are right
	}
	return ThreadUsage{uint64(r.Minflt), uint64(r.Majflt), uint64(r.Nivcsw)}
}

// BlockSignals keeps signals from the calling thread, so that other threads get them. Those of
// errors of the thread's own, as SIGSEGV, still come.
func BlockSignals() error {
	var set unix.Sigset_t
	for i := range set.Val {
		set.Val[i] = ^set.Val[i]
	}
	for i, own := range signalSet(unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS).Val {
		set.Val[i] &^= own
	}
	return os.NewSyscallError("rt_sigprocmask", unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil))
}

func signalSet(signals ...syscall.Signal) (set unix.Sigset_t) {
	bits := int(8 * unsafe.Sizeof(set.Val[0]))
	for _, s := range signals {
		n := int(s) - 1
		set.Val[n/bits] |= 1 << (n % bits)
	}
	return set
}

// HoldSignals has signals that come to the calling thread wait, also while that executes another
// program. One of Go unblocks those that end a program as it begins, before it catches any: such a
// one ends it then. Others wait until somebody wants to hear of them. The thread must be locked to
// its goroutine until release.
func HoldSignals(signals ...syscall.Signal) (release func(), err error) {
	var before unix.Sigset_t
	set := signalSet(signals...)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before); err != nil {
		return nil, os.NewSyscallError("rt_sigprocmask", err)
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }, nil
}

// populateLimit is the largest mapping that PopulateMemory takes: what is larger may be reserved,
// and never needed.
const populateLimit = 64 << 20

// PopulateMemory has the kernel map all pages of this process that it would map at the first touch
// of each: of the program's file, of its variables and its heap, and of memory that it shares with
// others (madvise MADV_POPULATE_READ and _WRITE, Linux 5.14). Mappings above 64 MiB are left out.
func PopulateMemory() error {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	populated := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		var perms string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &perms); n != 3 || to-from > populateLimit {
			continue
		}
		advice := unix.MADV_POPULATE_READ
		switch {
		case strings.HasPrefix(perms, "rw"):
			advice = unix.MADV_POPULATE_WRITE
		case perms[0] != 'r' || strings.HasSuffix(lines.Text(), "]"): // reserved, or the kernel's own: [vdso]
			continue
		}
		_, _, e := unix.Syscall(unix.SYS_MADVISE, from, to-from, uintptr(advice))
		if e == 0 {
			populated = true
		} else {
			err = os.NewSyscallError("madvise MADV_POPULATE", e)
		}
	}
	if populated { // some mappings have no pages of their own
		return nil
	}
	return err
}

// Timerfd makes a timer that expires at a moment of CLOCK_MONOTONIC, and every so often behind it.
// Its descriptor can be waited for, and each read says how often it has expired.
func Timerfd(first, every time.Duration) (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1, os.NewSyscallError("timerfd_create", err)
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(first)), Interval: unix.NsecToTimespec(int64(every))}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("timerfd_settime", err)
	}
	return fd, nil
}
