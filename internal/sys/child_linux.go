package sys

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReusePort lets further sockets that ask for it as well listen at the same address; the kernel
// shares connections out among them.
func ReusePort(fd int) error {
	return os.NewSyscallError("setsockopt SO_REUSEPORT", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// PacketPair makes two connected sockets that keep packets apart and can pass descriptors.
func PacketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair"), nil
}

// Rights makes the message that passes descriptors, see unix(7).
func Rights(fds ...int) []byte { return unix.UnixRights(fds...) }

// Subreaper makes the orphans that this process's children leave behind its own children.
func Subreaper() error {
	return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// AwaitEnd waits until a child has ended, and leaves its end to be waited for: its number is its
// own until then.
func AwaitEnd(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// KillGroup kills a process group.
func KillGroup(group int) error {
	return os.NewSyscallError("kill", unix.Kill(-group, unix.SIGKILL))
}

// ReapGroup waits for all children of this process that are in a process group.
func ReapGroup(group int) {
	for {
		if _, err := unix.Wait4(-group, nil, 0, nil); err != nil && err != unix.EINTR { // ECHILD: there is none
			return
		}
	}
}

// SetLimit sets a limit of this process, the soft and the hard one.
func SetLimit(r Resource, n uint64) error {
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(int(r), &syscall.Rlimit{Cur: n, Max: n}))
}

// KeepOnExec has descriptors stay open when this process executes another program, or not.
func KeepOnExec(fds []int, keep bool) error {
	flags := unix.FD_CLOEXEC
	if keep {
		flags = 0
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags); err != nil {
			return os.NewSyscallError("fcntl F_SETFD", err)
		}
	}
	return nil
}

// ShareOut has the sockets that listen at an address with SO_REUSEPORT get connections by shares,
// whose sum is 1, in the order in which they began to listen; fd is any of them. nil: by the
// kernel's hash again. Linux 4.5; 4.20 for TCP sockets that already listen.
func ShareOut(fd int, shares []float64) error {
	if shares == nil {
		const detach = 68 // SO_DETACH_REUSEPORT_BPF, Linux 5.3
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, detach, 0)
		if err == unix.ENOENT { // there is none
			err = nil
		}
		return os.NewSyscallError("setsockopt SO_DETACH_REUSEPORT_BPF", err)
	}
	// A number of chance in the accumulator; then for each socket: from its bound on, go on, else
	// it is the one.
	const random = 0xFFFFF000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM, linux/filter.h
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random}}
	sum, last := 0.0, 0
	for i, share := range shares {
		if share > 0 {
			last = i
		}
		sum += share
		bound := uint32(min(sum*(1<<32), 1<<32-1))
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: 1, K: bound},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(i)})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(last)}) // rounding
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	runtime.KeepAlive(program)
	return os.NewSyscallError("setsockopt SO_ATTACH_REUSEPORT_CBPF", err)
}
