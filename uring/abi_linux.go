package uring

import "unsafe"

// The kernel's interface, from include/uapi/linux/io_uring.h; names follow it.

// sqe is struct io_uring_sqe. Fields that the kernel overlays bear the name of their commonest use.
type sqe struct {
	sqeHead
	userData uint64
	sqeTail
	_ uint64
}

// entry is what an operation has of a sqe: the rest is the ring's.
type entry struct {
	sqeHead
	sqeTail
}

type sqeHead struct {
	opcode  uint8
	flags   uint8
	ioprio  uint16
	fd      int32
	off     uint64 // or addr2
	addr    uint64
	len     uint32
	opFlags uint32
}

type sqeTail struct {
	bufIndex uint16 // or the buffer group
	persona  uint16
	fileIdx  uint32 // or splice_fd_in, or addr_len
	addr3    uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	_                                                                      [3]uint32

	sq struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

const (
	sqeBytes = unsafe.Sizeof(sqe{})
	cqeBytes = unsafe.Sizeof(cqe{})

	offSQRing = 0
	offSQEs   = 0x10000000
)

// Setup flags.
const (
	setupIOPoll       = 1 << 0
	setupSQPoll       = 1 << 1
	setupSQAff        = 1 << 2
	setupCQSize       = 1 << 3
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupNoSQArray    = 1 << 16
)

// Features that the kernel reports at set-up.
const (
	featExtArg     = 1 << 8
	featCQESkip    = 1 << 11
	featBundle     = 1 << 14
	featMinTimeout = 1 << 15
)

// Flags of the submission ring, written by the kernel.
const (
	sqNeedWakeup = 1 << 0
	sqCQOverflow = 1 << 1
)

// Flags of io_uring_enter.
const (
	enterGetEvents      = 1 << 0
	enterSQWakeup       = 1 << 1
	enterSQWait         = 1 << 2
	enterExtArg         = 1 << 3
	enterRegisteredRing = 1 << 4
)

// Operations of io_uring_register.
const (
	registerBuffers     = 0
	registerFilesUpdate = 6
	registerProbe       = 8
	registerFiles2      = 13
	registerRingFDs     = 20
	unregisterRingFDs   = 21
	registerPBufRing    = 22
	unregisterPBufRing  = 23
	registerSyncCancel  = 24
	registerResizeRings = 33

	registerSparse = 1 << 0 // flag of registerFiles2
	pbufRingInc    = 1 << 1 // flag of registerPBufRing
)

// Opcode is what an operation does, by the kernel's number.
type Opcode uint8

// The operations of this package.
const (
	OpNop           Opcode = 0
	OpReadv         Opcode = 1
	OpWritev        Opcode = 2
	OpFsync         Opcode = 3
	OpReadFixed     Opcode = 4
	OpWriteFixed    Opcode = 5
	OpPollAdd       Opcode = 6
	OpPollRemove    Opcode = 7
	OpSendMsg       Opcode = 9
	OpRecvMsg       Opcode = 10
	OpTimeout       Opcode = 11
	OpTimeoutRemove Opcode = 12
	OpAccept        Opcode = 13
	OpAsyncCancel   Opcode = 14
	OpLinkTimeout   Opcode = 15
	OpConnect       Opcode = 16
	OpFallocate     Opcode = 17
	OpOpenAt        Opcode = 18
	OpClose         Opcode = 19
	OpFilesUpdate   Opcode = 20
	OpStatx         Opcode = 21
	OpRead          Opcode = 22
	OpWrite         Opcode = 23
	OpFadvise       Opcode = 24
	OpMadvise       Opcode = 25
	OpSend          Opcode = 26
	OpRecv          Opcode = 27
	OpSplice        Opcode = 30
	OpShutdown      Opcode = 34
	OpRenameAt      Opcode = 35
	OpUnlinkAt      Opcode = 36
	OpMkdirAt       Opcode = 37
	OpMsgRing       Opcode = 40
	OpSocket        Opcode = 45
	OpSendZC        Opcode = 47
	OpSendMsgZC     Opcode = 48
	OpReadMultishot Opcode = 49
	OpWaitID        Opcode = 50
	OpFutexWait     Opcode = 51
	OpFutexWake     Opcode = 52
	OpFtruncate     Opcode = 55
	OpBind          Opcode = 56
	OpListen        Opcode = 57

	// opMailbox is ours: an operation that the kernel never sees, see [Op.Mailbox].
	opMailbox Opcode = 255
)

// opcodes names the operations and the first kernel that had each.
var opcodes = map[Opcode]struct{ name, since string }{
	OpNop: {"nop", "5.1"}, OpReadv: {"readv", "5.1"}, OpWritev: {"writev", "5.1"}, OpFsync: {"fsync", "5.1"},
	OpReadFixed: {"read_fixed", "5.1"}, OpWriteFixed: {"write_fixed", "5.1"}, OpPollAdd: {"poll_add", "5.1"},
	OpSendMsg: {"sendmsg", "5.3"}, OpRecvMsg: {"recvmsg", "5.3"}, OpTimeout: {"timeout", "5.4"},
	OpTimeoutRemove: {"timeout_remove", "5.5"}, OpAccept: {"accept", "5.5"}, OpAsyncCancel: {"async_cancel", "5.5"},
	OpLinkTimeout: {"link_timeout", "5.5"}, OpConnect: {"connect", "5.5"}, OpFallocate: {"fallocate", "5.6"},
	OpOpenAt: {"openat", "5.6"}, OpClose: {"close", "5.6"}, OpFilesUpdate: {"files_update", "5.6"},
	OpStatx: {"statx", "5.6"}, OpRead: {"read", "5.6"},
	OpWrite: {"write", "5.6"}, OpSend: {"send", "5.6"}, OpRecv: {"recv", "5.6"}, OpSplice: {"splice", "5.7"},
	OpPollRemove: {"poll_remove", "5.1"}, OpRenameAt: {"renameat", "5.11"}, OpUnlinkAt: {"unlinkat", "5.11"},
	OpMkdirAt:       {"mkdirat", "5.15"},
	OpReadMultishot: {"read_multishot", "6.7"}, OpBind: {"bind", "6.11"}, OpListen: {"listen", "6.11"},
	OpShutdown: {"shutdown", "5.11"}, OpMsgRing: {"msg_ring", "5.18"}, OpSocket: {"socket", "5.19"},
	OpSendZC: {"send_zc", "6.0"}, OpSendMsgZC: {"sendmsg_zc", "6.1"}, OpFutexWait: {"futex_wait", "6.7"},
	OpFadvise: {"fadvise", "5.6"}, OpMadvise: {"madvise", "5.6"}, OpWaitID: {"waitid", "6.7"},
	OpFutexWake: {"futex_wake", "6.7"}, OpFtruncate: {"ftruncate", "6.9"}, opMailbox: {"mailbox", "5.18"},
}

// String is the kernel's name of the operation.
func (o Opcode) String() string {
	if op, ok := opcodes[o]; ok {
		return op.name
	}
	return "opcode"
}

// Flags of an sqe.
const (
	sqeFixedFile    = 1 << 0
	sqeIODrain      = 1 << 1
	sqeIOLink       = 1 << 2
	sqeIOHardlink   = 1 << 3
	sqeAsync        = 1 << 4
	sqeBufferSelect = 1 << 5
	sqeCQESkip      = 1 << 6
)

// Flags of a cqe.
const (
	cqeBuffer   = 1 << 0
	cqeMore     = 1 << 1
	cqeNonEmpty = 1 << 2
	cqeNotif    = 1 << 3
	cqeBufMore  = 1 << 4

	cqeBufferShift = 16
)

// Flags of single operations.
const (
	fsyncDatasync     = 1 << 0
	timeoutAbs        = 1 << 0
	timeoutUpdate     = 1 << 1
	timeoutBootTime   = 1 << 2
	timeoutRealTime   = 1 << 3
	linkTimeoutUpdate = 1 << 4
	timeoutMultishot  = 1 << 6
	pollAddMulti      = 1 << 0
	pollUpdateEvents  = 1 << 1
	cancelAll         = 1 << 0
	cancelFD          = 1 << 1
	cancelAny         = 1 << 2
	cancelFDFixed     = 1 << 3
	recvMultishot     = 1 << 1
	recvSendFixedBuf  = 1 << 2
	recvSendBundle    = 1 << 4
	acceptMultishot   = 1 << 0
	spliceFDInFixed   = 1 << 31
	fileIndexAlloc    = ^uint32(0)
	futexSizeU32      = 2
	futexPrivate      = 128
	futexMatchAnyBits = 0xffffffff
)

// timespec is struct __kernel_timespec: 64 bits on every target.
type timespec struct{ sec, nsec int64 }

// geteventsArg is struct io_uring_getevents_arg.
type geteventsArg struct {
	sigmask     uint64
	sigmaskSize uint32
	minWaitUsec uint32
	ts          uint64
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	nr, flags uint32
	_         uint64
	data      uint64
	tags      uint64
}

// rsrcUpdate is struct io_uring_rsrc_update.
type rsrcUpdate struct {
	offset, _ uint32
	data      uint64
}

// syncCancel is struct io_uring_sync_cancel_reg.
type syncCancel struct {
	addr    uint64
	fd      int32
	flags   uint32
	timeout timespec // 0: it does not wait
	_       [4]uint64
}

// bufReg is struct io_uring_buf_reg.
type bufReg struct {
	ringAddr    uint64
	ringEntries uint32
	bgid, flags uint16
	_           [3]uint64
}

// bufEntry is struct io_uring_buf; the last two bytes of the first entry are the ring's tail.
type bufEntry struct {
	addr uint64
	len  uint32
	bid  uint16
	tail uint16
}
