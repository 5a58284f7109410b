// Package sys is the one place for system calls that the standard library does not offer as we need
// them. Each function is one call, or one short idiom; what the numbers mean is said by the
// caller's package.
package sys

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadRaw reads without telling the scheduler; for descriptors that do not block. It is not
// inlined: a loop of raw calls needs one real call a turn, or the garbage collector can never stop
// it.
//
//go:noinline
func ReadRaw(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)))
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// ReadBlocking reads from a descriptor that may block, and gives the P back meanwhile.
func ReadBlocking(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// PollIn waits up to timeout (< 0: for ever) until fd, or fd2 where that is not negative, has input
// or is hung up, and gives the P back meanwhile. It returns which.
func PollIn(fd, fd2 int, timeout time.Duration) (first, second bool, err error) {
	p := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(fd2), Events: unix.POLLIN}}
	n := 2
	if fd2 < 0 {
		n = 1
	}
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	if _, err := unix.Poll(p[:n], ms); err != nil && err != unix.EINTR {
		return false, false, os.NewSyscallError("poll", err)
	}
	return p[0].Revents != 0, p[1].Revents != 0, nil
}

// Sleep blocks the thread and gives the P back: finer than time.Sleep, which waits for the
// runtime's timers.
func Sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal only shortens the tick
}

// SleepRaw is Sleep without telling the scheduler: the calling thread keeps its P.
func SleepRaw(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Eventfd opens an event counter that does not block.
func Eventfd() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return fd, os.NewSyscallError("eventfd", err)
}

// EventfdSignal adds one to the counter.
func EventfdSignal(fd int) {
	one := [8]byte{1} // the value only needs to be other than 0, so the byte order does not matter
	_, _ = unix.Write(fd, one[:])
}

// EventfdDrain sets the counter to 0.
func EventfdDrain(fd int) {
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
}

// Dup makes a second descriptor for the same open file.
func Dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return n, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
}

// CloseFD closes a descriptor.
func CloseFD(fd int) error { return os.NewSyscallError("close", unix.Close(fd)) }

// DoubleMap maps size bytes of memory twice, back to back, so that b[i] and b[i+size] are one byte.
// size must be a multiple of the page size. Unmap releases it.
func DoubleMap(name string, size int) (b []byte, err error) {
	fd, err := memory(name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	return MapTail(fd, 0, size)
}

// memory opens a file without a name: a memfd (Linux 3.17), or where that is forbidden a temporary
// file that is removed at once.
func memory(name string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err == nil {
		return fd, nil
	}
	f, tmpErr := os.CreateTemp("", name)
	if tmpErr != nil {
		return -1, errors.Join(os.NewSyscallError("memfd_create", err), tmpErr)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return -1, err
	}
	return Dup(int(f.Fd()))
}

// SocketDrops is the number of datagrams, modulo 2^32, that the kernel dropped because the socket's
// buffer was full (SO_MEMINFO, Linux 4.12 and later).
func SocketDrops(fd int) (uint32, error) {
	const skMeminfoDrops = 8
	var info [9]uint32
	n := uint32(unsafe.Sizeof(info))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", e)
	}
	if n < uint32(unsafe.Sizeof(info)) {
		return 0, fmt.Errorf("getsockopt SO_MEMINFO: %w", errors.ErrUnsupported)
	}
	return info[skMeminfoDrops], nil
}

// ClockSynchronised reports whether the kernel takes its clock for synchronised (adjtimex(2)): a
// time service keeps it.
func ClockSynchronised() (bool, error) {
	state, err := unix.Adjtimex(&unix.Timex{})
	return state != unix.TIME_ERROR, os.NewSyscallError("adjtimex", err)
}

// Uptime is the time since the machine started, sleep included, which no step of the clock changes
// (CLOCK_BOOTTIME).
func Uptime() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano()), os.NewSyscallError("clock_gettime", err)
}

// PollOut waits up to timeout until fd can be written to, and reports whether its other end is
// closed. It gives the P back meanwhile.
func PollOut(fd int, timeout time.Duration) (gone bool, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if _, err := unix.Poll(p, int((timeout+time.Millisecond-1)/time.Millisecond)); err != nil && err != unix.EINTR {
		return false, os.NewSyscallError("poll", err)
	}
	return p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0, nil
}
