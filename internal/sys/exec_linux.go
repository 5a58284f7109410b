package sys

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deathSignal is the signal by which whoever started this process has it end with himself
// (PR_SET_PDEATHSIG of prctl(2)); 0: none.
var deathSignal = func() (signal int32) {
	// Packages are made ready on the first thread of the process, which is the one that has it.
	_ = unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0, 0, 0)
	return signal
}()

// Exec has another program take the place of this one, and returns only an error. The process ends
// with its parent as it did before: the kernel keeps that for a thread, and only the one that calls
// execve(2) goes on, whichever of Go's that is.
func Exec(program string, args, env []string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if deathSignal != 0 && ThreadID() != syscall.Getpid() {
		if err := setDeathSignal(deathSignal); err != nil {
			return err
		}
		defer func() { _ = setDeathSignal(0) }() // the first thread has it still
	}
	return syscall.Exec(program, args, env)
}

func setDeathSignal(signal int32) error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(signal), 0, 0, 0)
}
