package sys

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Readiness of a descriptor, as epoll has it.
const (
	Readable = unix.EPOLLIN | unix.EPOLLRDHUP
	Writable = unix.EPOLLOUT
	Gone     = unix.EPOLLHUP | unix.EPOLLERR
)

// Readiness for polls on a ring.
const (
	PollReadable = unix.POLLIN
	PollWritable = unix.POLLOUT
)

// Epoll watches descriptors. Add and Set take a number that Wait gives back.
type Epoll struct {
	fd     int
	events []unix.EpollEvent
	coarse bool // epoll_pwait2 is not to be had
}

// NewEpoll makes one that returns at most n events a time.
func NewEpoll(n int) (*Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &Epoll{fd: fd, events: make([]unix.EpollEvent, n)}, nil
}

// Add begins to watch fd for events, level-triggered.
func (e *Epoll) Add(fd int, events uint32, id uint64) error {
	return e.control(unix.EPOLL_CTL_ADD, fd, events, id)
}

// Set changes what fd is watched for.
func (e *Epoll) Set(fd int, events uint32, id uint64) error {
	return e.control(unix.EPOLL_CTL_MOD, fd, events, id)
}

// Remove ends the watching.
func (e *Epoll) Remove(fd int) error { return e.control(unix.EPOLL_CTL_DEL, fd, 0, 0) }

func (e *Epoll) control(op, fd int, events uint32, id uint64) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(e.fd, op, fd, &ev))
}

// Wait waits for at most ms milliseconds (negative: for ever) and returns the number of events. An interruption is no event.
func (e *Epoll) Wait(ms int) (int, error) {
	n, err := unix.EpollWait(e.fd, e.events, ms)
	if err == unix.EINTR {
		return 0, nil
	}
	return max(n, 0), os.NewSyscallError("epoll_wait", err)
}

// WaitFor is Wait with a finer time (Linux 5.11; before, milliseconds).
func (e *Epoll) WaitFor(d time.Duration) (int, error) {
	if !e.coarse {
		ts := unix.NsecToTimespec(int64(d))
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events[0])), uintptr(len(e.events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			return 0, nil
		case unix.ENOSYS, unix.EPERM:
			e.coarse = true
		default:
			return 0, os.NewSyscallError("epoll_pwait2", errno)
		}
	}
	return e.Wait(int((d + time.Millisecond - 1) / time.Millisecond))
}

// Event is event i of the last Wait.
func (e *Epoll) Event(i int) (events uint32, id uint64) {
	ev := &e.events[i]
	return ev.Events, uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

// Close ends it.
func (e *Epoll) Close() error { return os.NewSyscallError("close", unix.Close(e.fd)) }

// Receive reads from a socket that does not block. The error is a bare errno: EAGAIN where nothing is there.
func Receive(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Send writes to a socket and never waits. The error is a bare errno: EAGAIN where the socket takes no more.
func Send(fd int, b []byte) (int, error) {
	for {
		n, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// Accept takes a connection from a listening socket that does not block. The error is a bare errno.
func Accept(fd int) (int, error) {
	for {
		n, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != unix.EINTR && err != unix.ECONNABORTED {
			return n, err
		}
	}
}

// Connect makes a TCP connection whose socket does not block any more.
func Connect(to netip.AddrPort) (int, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(nil)
	if ip := to.Addr().Unmap(); ip.Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	} else {
		addr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.Connect(fd, addr)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	NoDelay(fd)
	return fd, nil
}

// FineTimers makes waits of this thread end when they should, and not up to 50 µs later.
func FineTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// Pending reports whether an error of Receive, Send or Accept only says that it would have to wait.
func Pending(err error) bool { return err == unix.EAGAIN }

// NoDescriptors reports whether an error says that a limit of descriptors or memory is reached.
func NoDescriptors(err error) bool {
	return err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM
}

// Hang ends a connection in both directions, so that what waits for it comes back.
func Hang(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }

// EndSending tells the peer that nothing more will come.
func EndSending(fd int) error {
	return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_WR))
}

// SocketOf duplicates the descriptor of a listener or connection, and makes it one that does not block.
func SocketOf(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(n uintptr) { fd, dupErr = Dup(int(n)) }); err != nil {
		return -1, err
	}
	if dupErr != nil {
		return -1, dupErr
	}
	return fd, os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
}

// NoDelay makes a socket, and those accepted from it, send at once what is written.
func NoDelay(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// Accepted gives a connection what its listener has now, if it came before that had it.
func Accepted(fd int) {
	if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); err == nil && on == 0 { // an error: no TCP
		NoDelay(fd)
		KeepAlive(fd)
	}
}

// KeepAlive makes the kernel find out that a silent peer is gone, as package net does: after 15 s, then each 15 s, nine times.
func KeepAlive(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 9)
}

// PeerOf is the address at the other end.
func PeerOf(fd int) (net.Addr, error) {
	a, err := unix.Getpeername(fd)
	return address(a), os.NewSyscallError("getpeername", err)
}

// LocalOf is the address at this end.
func LocalOf(fd int) (net.Addr, error) {
	a, err := unix.Getsockname(fd)
	return address(a), os.NewSyscallError("getsockname", err)
}

func address(a unix.Sockaddr) net.Addr {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 {
			ip = ip.WithZone(zone(int(a.ZoneId)))
		}
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(a.Port)))
	case *unix.SockaddrUnix:
		return &net.UnixAddr{Name: a.Name, Net: "unix"}
	}
	return &net.TCPAddr{}
}

func zone(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return fmt.Sprint(index)
}
