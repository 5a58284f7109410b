package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC
	callStop = syscall.SIGTRAP | 0x80 // a stop at a system call, by PTRACE_O_TRACESYSGOOD

	cldExited, cldKilled, cldDumped = 1, 2, 3 // si_code of SIGCHLD, see sigaction(2)
)

func ptrace(request, pid int, data uintptr) error {
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, data, 0, 0); e != 0 {
		return os.NewSyscallError("ptrace", e)
	}
	return nil
}

// CountCalls counts the system calls by name of all threads of a running process, and of what it
// starts, until the process has ended; result waits for that. The process runs at a fraction of its
// speed meanwhile. What it is in when the counting starts is not counted.
func CountCalls(pid int) (result func() (map[string]uint64, error), err error) {
	type outcome struct {
		n   map[string]uint64
		err error
	}
	started, ended := make(chan error, 1), make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // ptrace knows threads, not processes
		defer runtime.UnlockOSThread()
		if err := seizeAll(pid); err != nil {
			started <- err
			return
		}
		started <- nil
		n, err := countStops(pid)
		ended <- outcome{n, err}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func() (map[string]uint64, error) { o := <-ended; return o.n, o.err }, nil
}

// seizeAll makes this thread the tracer of all threads of a process, those that come meanwhile too,
// and asks each to stop once.
func seizeAll(pid int) error {
	seized := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(tasks) == 0 {
			return fmt.Errorf("process %d: no threads", pid)
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(filepath.Base(t))
			if err != nil || seized[tid] {
				continue
			}
			if err := ptrace(unix.PTRACE_SEIZE, tid, traceOptions); errors.Is(err, unix.ESRCH) {
				continue
			} else if errors.Is(err, unix.EPERM) && len(seized) > 0 { // traced already: a clone of one that is
				seized[tid] = true
				continue
			} else if err != nil {
				return err
			}
			if err := ptrace(unix.PTRACE_INTERRUPT, tid, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			seized[tid], fresh = true, true
		}
	}
	return nil
}

// countStops lets the tracees of this thread run from call to call until the process has ended. The
// end itself is left to its parent: this thread is one of that, so to wait for it here would take
// it away.
func countStops(pid int) (n map[string]uint64, err error) {
	n = map[string]uint64{}
	inside := map[int]bool{}
	for {
		var info unix.Siginfo
		switch err := unix.Waitid(unix.P_ALL, 0, &info,
			unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD, nil); {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return n, nil
		case err != nil:
			return n, os.NewSyscallError("waitid", err)
		}
		// si_pid, behind three ints, aligned as a pointer
		tid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 8+unsafe.Sizeof(uintptr(0)))))
		if tid == pid && (info.Code == cldExited || info.Code == cldKilled || info.Code == cldDumped) {
			return n, nil
		}
		var status unix.WaitStatus
		got, err := unix.Wait4(tid, &status, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
		// it stopped, and has been killed since: its end comes when those of its threads are taken
		if got == 0 || errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return n, os.NewSyscallError("wait4", err)
		}
		if !status.Stopped() {
			delete(inside, tid)
			continue
		}
		if status.StopSignal() == callStop {
			if inside[tid] = !inside[tid]; inside[tid] {
				n[callName(tid)]++
			}
		}
		if err := goOn(tid, status); err != nil {
			return n, err
		}
	}
}

// callName names the call that a stopped tracee has begun.
func callName(tid int) string {
	const getCallInfo, entry = 0x420e, 1 // PTRACE_GET_SYSCALL_INFO, PTRACE_SYSCALL_INFO_ENTRY; Linux 5.3
	var info struct {
		op   uint8
		_    [3]uint8
		arch uint32
		_    [2]uint64 // instruction and stack pointer
		nr   uint64
		_    [6]uint64
	}
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, getCallInfo, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	if e != 0 || info.op != entry {
		return "unknown"
	}
	return CallName(info.nr)
}

// goOn lets a stopped tracee run to its next call.
func goOn(tid int, status unix.WaitStatus) error {
	request, signal := unix.PTRACE_SYSCALL, uintptr(0)
	switch sig := status.StopSignal(); {
	// a call; or an event: a new thread, an exec, the stop that was asked for
	case sig == callStop, sig == syscall.SIGTRAP:
	case uint32(status)>>16 == unix.PTRACE_EVENT_STOP:
		request = unix.PTRACE_LISTEN // stopped like all of its process: it stays so
	default:
		signal = uintptr(sig) // it is on its way to the tracee
	}
	if err := ptrace(request, tid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
