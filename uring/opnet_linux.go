package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Accept accepts one connection; NewFile gives it.
func (o *Op) Accept(f *File) *Op {
	o.setFile(OpAccept, f).opFlags = unix.SOCK_CLOEXEC
	return o
}

// AcceptEach accepts connections, one completion each, until it is cancelled or fails; More says
// whether it goes on. Linux 5.19.
func (o *Op) AcceptEach(f *File) *Op {
	e := o.setFile(OpAccept, f)
	e.opFlags, e.ioprio = unix.SOCK_CLOEXEC, acceptMultishot
	return o
}

// NonBlocking makes the sockets of the Accept or AcceptEach just filled ones that do not block, for
// those who use them by ordinary calls as well.
func (o *Op) NonBlocking() *Op { o.adjust().opFlags |= unix.SOCK_NONBLOCK; return o }

// Socket makes a socket; NewFile gives it. domain, kind and protocol are those of socket(2). Linux
// 5.19.
func (o *Op) Socket(domain, kind, protocol int) *Op {
	e := o.set(OpSocket)
	e.fd, e.off, e.len = int32(domain), uint64(kind|unix.SOCK_CLOEXEC), uint32(protocol)
	return o
}

// Connect connects a socket.
func (o *Op) Connect(f *File, to netip.AddrPort) *Op {
	e := o.setFile(OpConnect, f)
	x := o.extra()
	o.fail(x.setAddr(to))
	e.addr, e.off = uint64(uintptr(unsafe.Pointer(&x.name[0]))), uint64(x.nameLen)
	return o
}

// Bind gives a socket its own address. Linux 6.11.
func (o *Op) Bind(f *File, at netip.AddrPort) *Op {
	e := o.setFile(OpBind, f)
	x := o.extra()
	o.fail(x.setAddr(at))
	e.addr, e.off = uint64(uintptr(unsafe.Pointer(&x.name[0]))), uint64(x.nameLen)
	return o
}

// Listen lets a socket accept connections; so many may wait to be accepted. Linux 6.11.
func (o *Op) Listen(f *File, backlog int) *Op {
	o.setFile(OpListen, f).len = uint32(max(backlog, 0))
	return o
}

// Shutdown ends sending, receiving or both: unix.SHUT_WR, SHUT_RD, SHUT_RDWR.
func (o *Op) Shutdown(f *File, how int) *Op {
	o.setFile(OpShutdown, f).len = uint32(how)
	return o
}

// Recv receives into the buffer; 0 means that the peer has ended its side.
func (o *Op) Recv(f *File, b *Buffer) *Op {
	o.setFile(OpRecv, f)
	return o.memory(b, true)
}

// RecvFrom receives into a buffer that the kernel takes from a BufferRing at that moment, so that
// connections which are silent hold no memory. Picked gives the buffer. It completes with ENOBUFS
// if none was free.
func (o *Op) RecvFrom(f *File, g *BufferRing) *Op {
	o.setFile(OpRecv, f)
	return o.fromStock(g)
}

// fromStock has the kernel take the buffer from a stock.
func (o *Op) fromStock(g *BufferRing) *Op {
	if o.from = g; g == nil {
		o.fail(errors.New("no ring of buffers"))
		return o
	}
	o.e.flags, o.e.bufIndex = sqeBufferSelect, g.group
	return o.special()
}

// RecvEach is RecvFrom that completes for each arrival, with More, until the peer has ended its
// side, no buffer is free (ENOBUFS: give some back and push it again), or it is cancelled. Linux
// 6.0.
func (o *Op) RecvEach(f *File, g *BufferRing) *Op {
	o.RecvFrom(f, g)
	o.e.ioprio = recvMultishot
	return o
}

// Send sends the buffer. Less than all of it may be taken; with WaitAll the kernel goes on until
// all is.
func (o *Op) Send(f *File, b *Buffer) *Op {
	o.setFile(OpSend, f).opFlags = unix.MSG_NOSIGNAL
	return o.memory(b, false)
}

// SendZeroCopy sends without copying the buffer. It completes twice: first with the count and More,
// then, when the peer has acknowledged and the memory is the caller's again, with Notification. It
// pays for large buffers over real networks; on loopback the kernel copies all the same. Sockets
// without it complete with EOPNOTSUPP, multipath TCP among them, which Go's listeners are unless
// net.ListenConfig.SetMultipathTCP(false) was called. Linux 6.0.
func (o *Op) SendZeroCopy(f *File, b *Buffer) *Op {
	o.setFile(OpSendZC, f).opFlags = unix.MSG_NOSIGNAL
	return o.memory(b, false)
}

// Followed makes the Send or SendMsg just filled one that the end of the sending, or another send,
// follows at once: the kernel may wait with the last of it and send both together.
func (o *Op) Followed() *Op { o.adjust().opFlags |= unix.MSG_MORE; return o }

// WaitAll makes the Send, Recv, SendMsg or RecvMsg just filled go on until the whole buffer is
// done, or the connection ends.
func (o *Op) WaitAll() *Op { o.adjust().opFlags |= unix.MSG_WAITALL; return o }

// Flags adds flags of send(2) or recv(2) to the operation just filled, such as unix.MSG_PEEK or
// MSG_DONTWAIT. With MSG_TRUNC a datagram that was longer than its buffer has its whole length in
// Res.
func (o *Op) Flags(flags int) *Op {
	e := o.adjust()
	switch o.Code() {
	case OpSend, OpRecv, OpSendMsg, OpRecvMsg, OpSendZC, OpSendMsgZC:
	default:
		panic("uring: Flags: " + o.Code().String() + " has none")
	}
	e.opFlags |= uint32(flags)
	return o
}

// SendMsg sends several buffers as one message, with control data (nil: none) and to an address
// (zero: the connected one).
func (o *Op) SendMsg(f *File, to netip.AddrPort, control []byte, bufs ...*Buffer) *Op {
	return o.message(OpSendMsg, f, to, control, bufs)
}

// SendMsgZeroCopy is SendMsg that completes twice, as SendZeroCopy does. Linux 6.1.
func (o *Op) SendMsgZeroCopy(f *File, to netip.AddrPort, control []byte, bufs ...*Buffer) *Op {
	return o.message(OpSendMsgZC, f, to, control, bufs)
}

// RecvMsg receives a message into several buffers and its control data into control (nil: none).
// From says who sent it, and Truncated what of it did not fit. Descriptors in the control data are
// closed on exec.
func (o *Op) RecvMsg(f *File, control []byte, bufs ...*Buffer) *Op {
	o.message(OpRecvMsg, f, netip.AddrPort{}, control, bufs)
	x := o.aux
	x.nameLen = uint32(len(x.name))
	x.msg.Name, x.msg.Namelen = &x.name[0], x.nameLen
	return o
}

func (o *Op) message(code Opcode, f *File, to netip.AddrPort, control []byte, bufs []*Buffer) *Op {
	o.vector(code, f, 0, bufs)
	x := o.aux
	x.msg, x.control = unix.Msghdr{}, control
	if len(bufs) > 0 {
		x.msg.Iov = &x.iov[0]
		x.msg.SetIovlen(len(bufs))
	}
	if len(control) > 0 {
		x.msg.Control = &control[0]
		x.msg.SetControllen(len(control))
	}
	if to.IsValid() {
		o.fail(x.setAddr(to))
		x.msg.Name, x.msg.Namelen = &x.name[0], x.nameLen
	}
	e := &o.e
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(&x.msg))), 1
	e.opFlags = unix.MSG_NOSIGNAL
	if code == OpRecvMsg {
		e.opFlags = unix.MSG_CMSG_CLOEXEC
	}
	return o
}

// From is the sender of the message that RecvMsg received; not valid for connected sockets.
func (o *Op) From() netip.AddrPort { return o.extra().addr(int(o.aux.msg.Namelen)) }

// Control is the control data that RecvMsg received.
func (o *Op) Control() []byte {
	return o.extra().control[:min(int(o.aux.msg.Controllen), len(o.aux.control))]
}

// Truncated reports whether the message that RecvMsg received was longer than the buffers, and its
// control data longer than control: the rest of it is lost.
func (o *Op) Truncated() (data, control bool) {
	if o.Code() != OpRecvMsg || o.Res < 0 {
		return false, false
	}
	flags := o.aux.msg.Flags
	return flags&unix.MSG_TRUNC != 0, flags&unix.MSG_CTRUNC != 0
}

// setAddr writes struct sockaddr_in or sockaddr_in6.
func (x *aux) setAddr(a netip.AddrPort) error {
	clear(x.name[:])
	switch ip := a.Addr(); {
	case ip.Is4():
		binary.NativeEndian.PutUint16(x.name[0:], unix.AF_INET)
		binary.BigEndian.PutUint16(x.name[2:], a.Port())
		*(*[4]byte)(x.name[4:]) = ip.As4()
		x.nameLen = unix.SizeofSockaddrInet4
	case ip.Is6():
		binary.NativeEndian.PutUint16(x.name[0:], unix.AF_INET6)
		binary.BigEndian.PutUint16(x.name[2:], a.Port())
		*(*[16]byte)(x.name[8:]) = ip.As16()
		x.nameLen = unix.SizeofSockaddrInet6
	default:
		return fmt.Errorf("address %v: want IPv4 or IPv6", a)
	}
	return nil
}

func (x *aux) addr(n int) netip.AddrPort {
	port := binary.BigEndian.Uint16(x.name[2:])
	switch family := binary.NativeEndian.Uint16(x.name[0:]); {
	case family == unix.AF_INET && n >= unix.SizeofSockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(x.name[4:8])), port)
	case family == unix.AF_INET6 && n >= unix.SizeofSockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(x.name[8:24])), port)
	}
	return netip.AddrPort{}
}
