package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SendMsg sends several buffers as one message, with control data (nil: none) and to an address
// (zero: the connected one).
func (o *Op) SendMsg(f *File, to netip.AddrPort, control []byte, bufs ...*Buffer) *Op {
	return o.message(OpSendMsg, f, to, control, bufs)
}

// SendMsgZeroCopy is SendMsg that completes twice, as SendZeroCopy does. Linux 6.1.
func (o *Op) SendMsgZeroCopy(f *File, to netip.AddrPort, control []byte, bufs ...*Buffer) *Op {
	return o.message(OpSendMsgZC, f, to, control, bufs).repeats()
}

// RecvMsg receives a message into several buffers and its control data into control (nil: none).
// From says who sent it, and Truncated what of it did not fit. Descriptors in the control data are
// closed on exec.
func (o *Op) RecvMsg(f *File, control []byte, bufs ...*Buffer) *Op {
	o.message(OpRecvMsg, f, netip.AddrPort{}, control, bufs)
	o.aux.msg.Name = &o.aux.name[0]
	return o
}

// makeRoom says how much room a RecvMsg has for the sender and for control data: the kernel puts
// there how much of it the message before took.
func (x *aux) makeRoom() {
	x.msg.Namelen = uint32(len(x.name))
	x.msg.SetControllen(len(x.control))
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

// From is the sender of the message that RecvMsg received; not valid for connected sockets, and
// after an error.
func (o *Op) From() netip.AddrPort {
	if o.Res < 0 {
		return netip.AddrPort{}
	}
	x := o.extra()
	return addrOf(x.name[:min(int(x.msg.Namelen), len(x.name))])
}

// Control is the control data that RecvMsg received; none after an error.
func (o *Op) Control() []byte {
	if o.Res < 0 {
		return nil
	}
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

// RecvMsgEach receives messages into buffers that the kernel takes from a BufferRing, and completes
// for each, with More, as RecvEach does. PickedMessage gives the message. control is how many bytes
// of control data are kept of each (0: none); they, the sender and a header of 16 bytes stand in
// the buffer before the message. The BufferRing must not be an incremental one. An empty message
// ends it, as the end of a stream does. Linux 6.0.
func (o *Op) RecvMsgEach(f *File, control int, g *BufferRing) *Op {
	o.setFile(OpRecvMsg, f).opFlags = unix.MSG_CMSG_CLOEXEC
	x := o.extra()
	x.msg, x.control = unix.Msghdr{}, nil
	x.nameLen = unix.SizeofSockaddrInet6
	x.msg.Namelen = x.nameLen
	x.msg.SetControllen(max(control, 0))
	o.fromStock(g)
	switch {
	case control < 0 || control > maxControl:
		o.fail(fmt.Errorf("%d bytes of control data: want 0 to %d", control, maxControl))
	case g != nil && g.incremental:
		o.fail(errors.New("ring of buffers: an incremental one leaves rests that hold no message"))
	case g != nil && g.size <= messageHead+unix.SizeofSockaddrInet6+control:
		o.fail(fmt.Errorf("ring of buffers: %d bytes hold no message: its head and %d bytes of control data take %d",
			g.size, control, messageHead+unix.SizeofSockaddrInet6+control))
	}
	o.e.ioprio = recvMultishot
	o.e.addr, o.e.len = uint64(uintptr(unsafe.Pointer(&x.msg))), 1
	return o.repeats()
}

const (
	messageHead = 16      // struct io_uring_recvmsg_out: lengths of name, control data and message, flags
	maxControl  = 1 << 16 // more than any protocol has
)

// Message is what one completion of a RecvMsgEach received. Its bytes are valid until Give.
type Message struct {
	Piece   // the whole of it; its Bytes are those of the message
	From    netip.AddrPort
	Control []byte

	Truncated        bool // the message was longer than the buffer: the rest of it is lost
	ControlTruncated bool // the control data was longer than asked for
}

// PickedMessage is Picked for a RecvMsgEach.
func (o *Op) PickedMessage() (Message, bool) {
	if o.Code() != OpRecvMsg {
		return Message{}, false
	}
	p, ok := o.Picked()
	if !ok {
		return Message{}, false
	}
	m := Message{Piece: p}
	room := messageHead + int(o.aux.msg.Namelen)
	at := room + int(o.aux.msg.Controllen)
	if len(p.Bytes) < at { // an error: nothing was received
		m.Bytes = nil
		return m, true
	}
	word := func(i int) int { return int(binary.NativeEndian.Uint32(p.Bytes[4*i:])) }
	name, control, flags := word(0), word(1), word(3)
	m.From = addrOf(p.Bytes[messageHead:room][:min(name, room-messageHead)])
	m.Control = p.Bytes[room:at][:min(control, at-room)]
	m.Truncated, m.ControlTruncated = flags&unix.MSG_TRUNC != 0, flags&unix.MSG_CTRUNC != 0
	m.Bytes = p.Bytes[at:]
	return m, true
}
