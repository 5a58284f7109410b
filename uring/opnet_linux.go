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
	return o.repeats()
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
// side (Res is 0), no buffer is free (ENOBUFS: give some back and push it again), the completion
// queue is full (Res is above 0: push it again), or it is cancelled. Linux 6.0.
func (o *Op) RecvEach(f *File, g *BufferRing) *Op {
	o.RecvFrom(f, g)
	o.e.ioprio = recvMultishot
	return o.repeats()
}

// UpTo bounds what the RecvFrom just filled receives: n bytes, 1 or more, and no more than a
// buffer. The rest stays in the socket.
func (o *Op) UpTo(n int) *Op {
	e := o.adjust()
	if o.Code() != OpRecv || o.from == nil || o.many || n < 1 || n > maxTransfer {
		if o.err != nil {
			return o
		}
		panic("uring: UpTo: is for RecvFrom, and 1 byte or more")
	}
	e.len = uint32(n)
	return o
}

// Bundle lets one completion of the RecvFrom or RecvEach just filled bring as many buffers as what
// has come fills: Picked gives one after the other. The BufferRing must not be an incremental one,
// which has no need of it. Linux 6.10: see ReceiveBundles.
func (o *Op) Bundle() *Op {
	e := o.adjust()
	if o.Code() != OpRecv || o.from == nil {
		if o.err != nil {
			return o
		}
		panic("uring: Bundle: is for RecvFrom and RecvEach")
	}
	if o.from.incremental {
		o.fail(errors.New("ring of buffers: an incremental one takes no bundles"))
	}
	e.ioprio |= recvSendBundle
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
	return o.memory(b, false).repeats()
}

// Followed makes the Send or SendMsg just filled one that the end of the sending, or another send,
// follows at once: the kernel may wait with the last of it and send both together.
func (o *Op) Followed() *Op { o.adjust().opFlags |= unix.MSG_MORE; return o }

// WaitAll makes the Send, Recv, SendMsg or RecvMsg just filled go on until the whole buffer is
// done, or the connection ends. Push refuses it with a Bundle and with an incremental BufferRing:
// the kernel loses count of the buffers there.
func (o *Op) WaitAll() *Op { o.adjust().opFlags |= unix.MSG_WAITALL; return o }

// Flags adds flags of send(2) or recv(2) to the operation just filled, such as unix.MSG_PEEK or
// MSG_DONTWAIT. With MSG_TRUNC a datagram that was longer than its buffer has its whole length in
// Res; Push refuses it with a Bundle and with an incremental BufferRing, where Res has to say how
// much came.
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

// addrOf reads them; an address that is none of these is not valid.
func addrOf(b []byte) netip.AddrPort {
	if len(b) < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port)
	}
	return netip.AddrPort{}
}
