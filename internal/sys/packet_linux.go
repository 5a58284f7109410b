package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MostPassed is the most descriptors that the kernel passes in one message (SCM_MAX_FD).
const MostPassed = 253

// ControlRoom is the room for all that a message of a Unix socket can carry beside its bytes:
// MostPassed descriptors and the credentials of its sender.
var ControlRoom = unix.CmsgSpace(4*MostPassed) + unix.CmsgSpace(unix.SizeofUcred)

// Truncated are flags of a received message.
const (
	TruncatedData    = unix.MSG_TRUNC  // it is longer than the buffer
	TruncatedControl = unix.MSG_CTRUNC // not all that it carries was taken: no room, or no descriptors
)

// Credentials say who a process is, as the kernel knows it.
type Credentials = unix.Ucred

// Control is what a message of a Unix socket carries beside its bytes.
type Control struct {
	FDs  []int        // closed on exec; the caller's
	From *Credentials // nil: nobody asked for them
}

// ReadControl takes apart what came with a message. The descriptors are also valid with an error.
func ReadControl(oob []byte) (c Control, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		m := &messages[i]
		if m.Header.Level != unix.SOL_SOCKET {
			continue
		}
		switch m.Header.Type {
		case unix.SCM_RIGHTS:
			if passed, err := unix.ParseUnixRights(m); err == nil {
				c.FDs = append(c.FDs, passed...)
			}
		case unix.SCM_CREDENTIALS:
			if from, err := unix.ParseUnixCredentials(m); err == nil {
				c.From = from
			}
		}
	}
	for _, fd := range c.FDs {
		unix.CloseOnExec(fd)
	}
	return c, os.NewSyscallError("recvmsg", err)
}

// PeekPacket is the next message of a Unix socket, which stays there. Its descriptors are new ones,
// each time.
func PeekPacket(fd int, packet, oob []byte) (n, k, flags int, err error) {
	for {
		n, k, flags, _, err = unix.Recvmsg(fd, packet, oob, unix.MSG_PEEK|unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return n, k, flags, os.NewSyscallError("recvmsg", err)
		}
	}
}

// SkipPacket takes the next message of a Unix socket, and closes what it brings.
func SkipPacket(fd int) {
	for {
		if _, _, _, _, err := unix.Recvmsg(fd, nil, nil, unix.MSG_DONTWAIT); err != unix.EINTR {
			return
		}
	}
}

// AskCredentials makes a Unix socket receive each message with the credentials of its sender.
func AskCredentials(fd int) error {
	return os.NewSyscallError("setsockopt SO_PASSCRED", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
}

// PeerCredentials are those of the process that connected a Unix socket, listened at it, or made
// the pair, at that time.
func PeerCredentials(fd int) (Credentials, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Credentials{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return *c, nil
}

// PeerProcess is a pidfd of the process of PeerCredentials (Linux 6.5), which names no other
// process that has its number now.
func PeerProcess(fd int) (int, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return -1, os.NewSyscallError("getsockopt SO_PEERPIDFD", err)
	}
	unix.CloseOnExec(pidfd)
	return pidfd, nil
}

// OpenProcess makes a pidfd of a process (Linux 5.3), closed on exec.
func OpenProcess(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	return fd, os.NewSyscallError("pidfd_open", err)
}

// IsProcess returns an error if fd is no pidfd.
func IsProcess(fd int) error {
	switch err := unix.PidfdSendSignal(fd, 0, nil, 0); err {
	case nil, unix.ESRCH, unix.EPERM: // it has ended; it is not ours to signal
		return nil
	default:
		return os.NewSyscallError("pidfd_send_signal", err)
	}
}

// SetNonblock makes a descriptor, and all that share its open file, one that does not wait.
func SetNonblock(fd int) error {
	return os.NewSyscallError("fcntl O_NONBLOCK", unix.SetNonblock(fd, true))
}

// HasInput reports whether fd has input, or what counts as that for its kind, now.
func HasInput(fd int) (bool, error) {
	in, _, err := PollIn(fd, -1, time.Duration(0))
	return in, err
}
