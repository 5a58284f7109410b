package sys

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// FileID names the file behind a descriptor. Two descriptors with one ID may still be of two opens
// of it: see SameOpen.
type FileID struct{ Dev, Ino uint64 }

// FileOf is the ID of a descriptor's file.
func FileOf(fd int) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileID{}, os.NewSyscallError("fstat", err)
	}
	return FileID{uint64(st.Dev), st.Ino}, nil //nolint:unconvert // Dev has 32 bits on some machines
}

// SameOpen reports whether two descriptors of one file are of one open of it (kcmp, Linux 3.5).
// Where the kernel does not say, it takes them to be.
func SameOpen(a, b int) bool {
	const kcmpFile = 0
	pid := uintptr(os.Getpid())
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(a), uintptr(b), 0)
	return errno != 0 || r == 0
}

// HangsUp reports whether the other end of a pipe is closed, or is so soon.
func HangsUp(fd int, within time.Duration) bool {
	ask := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is told whatever is asked for
	for end := time.Now().Add(within); ; {
		n, err := unix.Poll(ask, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return err == nil && n > 0 && ask[0].Revents&unix.POLLHUP != 0
		}
	}
}

// DialDatagrams connects to a Unix socket of datagrams. A send that has to wait does so for a time
// at most.
func DialDatagrams(path string, within time.Duration) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	limit := unix.NsecToTimeval(within.Nanoseconds())
	err = os.NewSyscallError("setsockopt SO_SNDTIMEO",
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrUnix{Name: path}))
	}
	if err != nil {
		return -1, errors.Join(err, CloseFD(fd))
	}
	return fd, nil
}

// SendDatagram sends a datagram with descriptors.
func SendDatagram(fd int, b []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = Rights(fds...)
	}
	for {
		if err := unix.Sendmsg(fd, b, rights, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}
