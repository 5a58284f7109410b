package sys

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Readiness for polls on a ring.
const (
	PollReadable = unix.POLLIN
	PollWritable = unix.POLLOUT
	PollRoom     = unix.POLLOUT | unix.POLLERR | unix.POLLHUP // a send does not wait
)

// shortCall is the most bytes of a call that keeps its P. Such a call of a socket never waits, and
// its copy takes no longer than one of Go's own; to tell the scheduler of it costs more, and a P
// that is taken away meanwhile has to be found again. A longer one gives the P away: over loopback
// it does the receiver's work as well.
const shortCall = 64 << 10

// Receive reads from a socket and never waits. The error is a bare errno: EAGAIN where nothing is
// there.
func Receive(fd int, b []byte) (int, error) {
	for {
		var n uintptr
		var e unix.Errno
		if p := unsafe.Pointer(unsafe.SliceData(b)); len(b) <= shortCall {
			n, _, e = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(len(b)), unix.MSG_DONTWAIT,
				0, 0)
		} else {
			n, _, e = unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(len(b)), unix.MSG_DONTWAIT, 0,
				0)
		}
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// Send writes to a socket and never waits. The error is a bare errno: EAGAIN where the socket takes
// no more.
func Send(fd int, b []byte) (int, error) { return send(fd, b, 0) }

// SendMore is Send of what the end of the sending, or more, follows at once: the kernel may wait
// with the last of it.
func SendMore(fd int, b []byte) (int, error) { return send(fd, b, unix.MSG_MORE) }

func send(fd int, b []byte, flags uintptr) (int, error) {
	flags |= unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	for {
		var n uintptr
		var e unix.Errno
		if p := unsafe.Pointer(unsafe.SliceData(b)); len(b) <= shortCall {
			n, _, e = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(len(b)), flags, 0, 0)
		} else {
			n, _, e = unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(len(b)), flags, 0, 0)
		}
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// most is the most buffers of one SendVector.
const most = 64

// SendVector is Send of several buffers.
func SendVector(fd int, bufs [][]byte) (int, error) {
	var room [most]unix.Iovec
	n, size := 0, 0
	for _, b := range bufs {
		if len(b) > 0 && n < most {
			room[n].Base = unsafe.SliceData(b)
			room[n].SetLen(len(b))
			n++
			size += len(b)
		}
	}
	msg := unix.Msghdr{Iov: &room[0]}
	msg.SetIovlen(n)
	for {
		var n uintptr
		var e unix.Errno
		if size <= shortCall {
			n, _, e = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)),
				unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		} else {
			n, _, e = unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)),
				unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		}
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// SendFile sends n bytes of a file from off to a socket that does not block. The error is a bare
// errno; 0 without one is the end of the file.
func SendFile(fd, from int, off int64, n int) (int, error) {
	for {
		m, err := unix.Sendfile(fd, from, &off, n)
		if err != unix.EINTR {
			return max(m, 0), err
		}
	}
}

// SendFileKeepingP is SendFile of a part that is known to be in the page cache: the scheduler is
// not told. The collector waits for such a call to end, so the part should take the kernel less
// than a millisecond.
func SendFileKeepingP(fd, from int, off int64, n int) (int, error) {
	if unsafe.Sizeof(uintptr(0)) < 8 { // there the call for large files has other names
		return SendFile(fd, from, off, n)
	}
	for {
		m, _, e := unix.RawSyscall6(unix.SYS_SENDFILE, uintptr(fd), uintptr(from), uintptr(unsafe.Pointer(&off)),
			uintptr(n), 0, 0)
		switch e {
		case 0:
			return int(m), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// Peek returns nil if Receive would have something to say, and EAGAIN if it would have to wait.
func Peek(fd int) error {
	var one [1]byte
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&one[0])), 1,
			unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case unix.EINTR:
		case unix.EAGAIN:
			return e
		default:
			return nil
		}
	}
}

// Accept takes a connection from a listening socket that does not block. peer is the address at the
// other end, if that is known. The error is a bare errno.
func Accept(fd int) (conn int, peer netip.AddrPort, err error) {
	for {
		var raw unix.RawSockaddrAny
		size := uint32(unix.SizeofSockaddrAny)
		n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&raw)),
			uintptr(unsafe.Pointer(&size)),
			unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, 0)
		switch e {
		case 0:
			if p, scope := addrPort(&raw); scope == 0 { // else its zone has to be asked for
				peer = p
			}
			return int(n), peer, nil
		case unix.EINTR, unix.ECONNABORTED:
		default:
			return -1, peer, e
		}
	}
}

// Seal makes a listening TCP socket take nothing more: the kernel drops what would begin a
// connection or complete one, as if it had been lost on its way, so it acknowledges no byte behind
// those of the connections that Accept still gives. When Seal returns, those are all there. A
// client tries again for seconds, by when somebody else may listen.
//
// After an error (the filter may be forbidden) connections can go on being made until the socket is
// closed, which resets those that nobody has accepted.
func Seal(fd int) error {
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}} // keep 0 bytes of each packet
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]})
	runtime.KeepAlive(nothing)
	if err != nil {
		return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err)
	}
	// Another CPU may still be at a packet that came before the filter did. It works on packets
	// within an RCU read section, whose end membarrier waits for (Linux 4.3).
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); e != 0 {
		time.Sleep(10 * time.Millisecond) // far longer than a packet takes
	}
	return nil
}

// Unseal undoes Seal, of a listening socket, or of a connection that inherited the filter of its
// listener; to a socket without a filter it does nothing.
func Unseal(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

// Connect begins a TCP connection whose socket does not block. open: it is made; else the socket
// becomes writable when it is, and [SocketError] says what came of it. The zone of an address is
// the number of its interface.
func Connect(to netip.AddrPort) (fd int, open bool, err error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(nil)
	if ip := to.Addr().Unmap(); ip.Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	} else {
		six := &unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()}
		if zone := ip.Zone(); zone != "" {
			number, err := strconv.ParseUint(zone, 10, 32)
			if err != nil {
				return -1, false, err
			}
			six.ZoneId = uint32(number)
		}
		addr = six
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, false, os.NewSyscallError("socket", err)
	}
	NoDelay(fd)
	switch err = unix.Connect(fd, addr); err {
	case nil:
		return fd, true, nil
	case unix.EINPROGRESS:
		return fd, false, nil
	}
	unix.Close(fd)
	return -1, false, os.NewSyscallError("connect", err)
}

// SocketError takes the error that a socket has kept; nil: it has none.
func SocketError(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return os.NewSyscallError("connect", err)
}

// Pending reports whether an error of Receive, Send or Accept only says that it would have to wait.
func Pending(err error) bool { return err == unix.EAGAIN }

// PassingAccept reports whether an error of accepting is only that of one connection, which
// accept(2) hands on, and the next may be good.
func PassingAccept(err error) bool {
	switch err {
	case unix.ECONNABORTED, unix.ENETDOWN, unix.EPROTO, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.ENONET,
		unix.EHOSTUNREACH, unix.EOPNOTSUPP,
		unix.ENETUNREACH, unix.EPERM, unix.ETIMEDOUT, unix.ECONNRESET, unix.EINTR, unix.EAGAIN:
		return true
	}
	return false
}

// Backlog is the most connections that may wait at a listening socket here.
func Backlog() int {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if n, e := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && e == nil && n > 0 {
		return n
	}
	return 4096
}

// Backlogged is the number of connections that wait at a listening TCP socket now; 0 if it is
// another socket.
func Backlogged(fd int) int {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return int(info.Unacked) // tcp(7): of a listening socket, its queue
}

// NoDescriptors reports whether an error says that a limit of descriptors or memory is reached.
func NoDescriptors(err error) bool {
	return err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM
}

// Hang ends a connection in both directions, so that what waits for it comes back.
func Hang(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }

// Deafen makes a datagram socket take nothing more from the network; what it holds can still be
// read. It connects the socket to its own address, so that datagrams of others are not for it.
func Deafen(fd int) error {
	a, err := unix.Getsockname(fd)
	if err == nil {
		err = unix.Connect(fd, a)
	}
	return os.NewSyscallError("connect", err)
}

// InlineUrgent leaves the byte that a peer has sent as urgent (MSG_OOB) where it is in the stream
// (SO_OOBINLINE). Without it a read steps over that byte, which is lost although it was
// acknowledged. Connections inherit it from their listener. A read still ends before such a byte,
// once.
func InlineUrgent(fd int) error {
	return os.NewSyscallError("setsockopt SO_OOBINLINE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
}

// Waiting is the number of bytes that a stream socket or a tty holds and nobody has read (SIOCINQ,
// TIOCINQ); of a socket without [InlineUrgent] at most those before an urgent byte. It does not
// tell the scheduler.
//
//go:noinline
func Waiting(fd int) (int, error) {
	var n int32
	if _, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCINQ, uintptr(unsafe.Pointer(&n))); e != 0 {
		return 0, os.NewSyscallError("ioctl TIOCINQ", e)
	}
	return int(n), nil
}

// NextDatagram is the number of bytes of the datagram that the next receive takes. The errno is
// that of a receive: EAGAIN where there is none. It does not tell the scheduler.
//
//go:noinline
func NextDatagram(fd int) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0,
		0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// Taken is the number of bytes of a TCP connection that have been read from it, by whomever; ok is
// false where the kernel does not say so: before Linux 4.1, and of a connection that was reset.
func Taken(fd int) (n uint64, ok bool) {
	for range 100 { // a connection to which bytes come all the time
		before, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, false
		}
		waiting, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil {
			return 0, false
		}
		after, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, false
		}
		if before.Bytes_received != after.Bytes_received || before.State != after.State {
			continue
		}
		received := after.Bytes_received
		switch after.State {
		case unix.BPF_TCP_ESTABLISHED:
		case unix.BPF_TCP_CLOSE_WAIT, unix.BPF_TCP_LAST_ACK: // the peer's end counts as one
			received--
		default:
			return 0, false
		}
		return received - uint64(waiting), received >= uint64(waiting)
	}
	return 0, false
}

// IsConnected reports whether a TCP socket has a peer.
func IsConnected(fd int) bool {
	_, err := unix.Getpeername(fd)
	return err == nil
}

// SameFile reports whether two descriptors are of one open socket or file.
func SameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// PeerEnded reports whether the peer of a connection sends nothing more: what it sent may still
// wait to be read.
func PeerEnded(fd int) bool {
	ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(ask, 0)
	return err == nil && n > 0
}

// Acknowledged is the number of bytes of a TCP connection that the peer's kernel has said it has.
// Tests hold the books against it.
func Acknowledged(fd int) (uint64, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt TCP_INFO", err)
	}
	return info.Bytes_acked - 1, nil // the kernel counts the SYN as one
}

// EndSending tells the peer that nothing more will come.
func EndSending(fd int) error {
	return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_WR))
}

// EndReceiving throws away what still comes.
func EndReceiving(fd int) error {
	return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_RD))
}

// SocketOf duplicates the descriptor of a listener or connection, and makes it one that does not
// block.
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

// QuickAck has the kernel tell the peer of a TCP connection at once what has come, and not up to
// 40 ms later, with what is sent next. It is no lasting setting: the kernel takes it back once it
// sees that bytes go both ways (tcp(7), TCP_QUICKACK).
func QuickAck(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }

// Accepted gives a connection what its listener has now, if it came before that had it.
func Accepted(fd int) {
	// an error: no TCP
	if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); err == nil && on == 0 {
		NoDelay(fd)
		KeepAlive(fd)
	}
}

// KeepAlive makes the kernel find out that a silent peer is gone, as package net does: after 15 s,
// then each 15 s, nine times.
func KeepAlive(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 9)
}

// PeerOf is the address at the other end.
func PeerOf(fd int) (net.Addr, error) {
	return nameOf(fd, unix.SYS_GETPEERNAME, "getpeername", unix.Getpeername)
}

// PeerName is the address at the other end of a connection that Accept has taken, which said the
// peer; "": it is not known. Once the other end has reset the connection, nobody but Accept tells.
func PeerName(fd int, accepted netip.AddrPort) string {
	if accepted.IsValid() {
		return netip.AddrPortFrom(accepted.Addr().Unmap(), accepted.Port()).String()
	}
	peer, err := PeerOf(fd)
	if err != nil {
		return ""
	}
	return peer.String()
}

// LocalOf is the address at this end.
func LocalOf(fd int) (net.Addr, error) {
	return nameOf(fd, unix.SYS_GETSOCKNAME, "getsockname", unix.Getsockname)
}

// nameOf asks for an address. Package unix does so by two calls: it asks for the protocol as well,
// to tell SCTP. Only what is not IP takes that way here.
func nameOf(fd int, call uintptr, name string, other func(int) (unix.Sockaddr, error)) (net.Addr, error) {
	var raw unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	_, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)))
	if e != 0 {
		return nil, os.NewSyscallError(name, e)
	}
	if a, scope := addrPort(&raw); scope != 0 {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().WithZone(zone(int(scope))), a.Port())), nil
	} else if a.IsValid() {
		return net.TCPAddrFromAddrPort(a), nil
	}
	a, err := other(fd)
	if a, ok := a.(*unix.SockaddrUnix); ok {
		return &net.UnixAddr{Name: a.Name, Net: "unix"}, nil
	}
	return &net.TCPAddr{}, os.NewSyscallError(name, err)
}

// addrPort is an address of IP and the number of its zone, or 0; not valid if it is another.
func addrPort(raw *unix.RawSockaddrAny) (a netip.AddrPort, scope uint32) {
	switch raw.Addr.Family {
	case unix.AF_INET:
		r := (*unix.RawSockaddrInet4)(unsafe.Pointer(raw))
		a = netip.AddrPortFrom(netip.AddrFrom4(r.Addr), hostOrder(r.Port))
	case unix.AF_INET6:
		r := (*unix.RawSockaddrInet6)(unsafe.Pointer(raw))
		a, scope = netip.AddrPortFrom(netip.AddrFrom16(r.Addr), hostOrder(r.Port)), r.Scope_id
	}
	return a, scope
}

// hostOrder is a port that was in the order of the network.
func hostOrder(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

func zone(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return fmt.Sprint(index)
}
