package uring

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Op is one operation: what to ask of the kernel and, after its completion, what it answered. The
// zero value is a Nop. A method such as [Op.Read] fills it, [Ring.Push] queues it, [Ring.Next]
// gives it back; it can then be filled or pushed again. It must not be copied or touched while it
// is the ring's, except for Tag.
//
// The methods that fill an operation panic while it is in flight; what else is wrong with their
// arguments comes back from Push.
type Op struct {
	// Tag is the caller's own: an index, a connection number.
	Tag uint64
	// Res is the result of the newest completion as the kernel gave it: a count, a descriptor, or a
	// negative errno.
	Res int32

	// What every operation needs comes first, on as few cache lines as can be.
	flags uint32 // of the newest completion
	slot  uint32
	parts bool  // there is something below that the ring must hold
	held  bool  // … and it does
	write bool  // the kernel writes to the buffers
	ring  *Ring // whose it is; nil: the caller's
	err   error // what a filling method could not do
	e     sqe

	buf     *Buffer
	lo, hi  int // the part of buf; hi < 0: to its end
	vec     []*Buffer
	file    *File
	file2   *File
	closing *File
	from    *BufferRing
	aux     *aux
	pin     runtime.Pinner
}

// aux holds what some operations point to: too large for all to carry.
type aux struct {
	ts      timespec
	msg     unix.Msghdr
	name    [128]byte // struct sockaddr_storage
	nameLen uint32
	control []byte
	iov     []unix.Iovec
	path    []byte
	statx   unix.Statx_t
	word    *uint32
	fd      int32
}

// Reset empties an operation that is not in flight: until it is filled again it keeps no file and
// no memory alive. Who keeps operations for later calls it.
func (o *Op) Reset() {
	clear(o.vec)
	if o.aux != nil {
		clear(o.aux.iov)
		o.aux.control, o.aux.word = nil, nil
	}
	o.set(OpNop)
}

// set starts to fill the operation anew.
func (o *Op) set(code Opcode) *sqe {
	if o.ring != nil {
		panic("uring: the operation is in flight: it can be filled again after its last completion")
	}
	o.e = sqe{opcode: uint8(code), fd: -1}
	o.parts, o.err, o.buf, o.lo, o.hi, o.vec, o.write = false, nil, nil, 0, -1, o.vec[:0], false
	o.file, o.file2, o.closing, o.from = nil, nil, nil, nil
	return &o.e
}

func (o *Op) setFile(code Opcode, f *File) *sqe {
	e := o.set(code)
	o.file, o.parts = f, true
	return e
}

func (o *Op) extra() *aux {
	o.parts = true
	if o.aux == nil {
		o.aux = &aux{}
	}
	return o.aux
}

// acquire takes hold of all that the kernel will use until the last completion: the files cannot be
// closed, the buffers cannot be touched, and nothing that the entry points to can move or be
// collected.
func (o *Op) acquire(r *Ring) error {
	if err := o.check(r); err != nil {
		return fmt.Errorf("uring: %v: %w", o.Code(), err)
	}
	o.held = true
	if f := o.file; f != nil {
		f.uses++
		o.e.fd = f.fd
		o.e.flags &^= sqeFixedFile
		if f.ring != nil {
			o.e.flags |= sqeFixedFile
		}
	}
	if f := o.file2; f != nil {
		f.uses++
	}
	if o.closing != nil {
		o.closing.fd = -1
	}
	if o.buf != nil {
		o.aim(r)
	}
	for i, b := range o.vec {
		b.take(o.write)
		base := unsafe.SliceData(b.mem)
		if !b.mapped {
			o.pin.Pin(base)
		}
		o.aux.iov[i].Base = base
		o.aux.iov[i].SetLen(len(b.mem))
	}
	if x := o.aux; x != nil {
		o.pin.Pin(x)
		pinFirst(&o.pin, x.iov)
		pinFirst(&o.pin, x.path)
		pinFirst(&o.pin, x.control)
		if x.word != nil {
			o.pin.Pin(x.word)
		}
	}
	return nil
}

func pinFirst[T any](p *runtime.Pinner, s []T) {
	if len(s) > 0 {
		p.Pin(&s[0])
	}
}

// check says why a part of the operation cannot be had now. It changes nothing.
func (o *Op) check(r *Ring) error {
	for _, f := range [...]*File{o.file, o.file2} {
		if f != nil && f.fd < 0 {
			return fmt.Errorf("file: %w", ErrClosed)
		}
		if f != nil && f.ring != nil && f.ring != r {
			return errors.New("file: registered with another ring")
		}
	}
	if f := o.closing; f != nil && f.uses > 0 {
		return fmt.Errorf("file: %d operations: %w", f.uses, ErrBusy)
	}
	if o.buf != nil {
		if err := o.buf.check(o.write); err != nil {
			return err
		}
	}
	for _, b := range o.vec {
		if err := b.check(o.write); err != nil {
			return err
		}
	}
	return nil
}

// aim points the entry at its buffer, as a registered one where it is.
func (o *Op) aim(r *Ring) {
	b := o.buf
	b.take(o.write)
	base := unsafe.SliceData(b.mem)
	if !b.mapped {
		o.pin.Pin(base)
	}
	hi := o.hi
	if hi < 0 {
		hi = len(b.mem)
	}
	o.e.addr, o.e.len = uint64(uintptr(unsafe.Pointer(base)))+uint64(o.lo), uint32(hi-o.lo)
	registered := b.arena != nil && b.arena.ring == r
	switch Opcode(o.e.opcode) {
	case OpRead, OpReadFixed:
		o.e.opcode = uint8(OpRead)
		if registered {
			o.e.opcode, o.e.bufIndex = uint8(OpReadFixed), b.index
		}
	case OpWrite, OpWriteFixed:
		o.e.opcode = uint8(OpWrite)
		if registered {
			o.e.opcode, o.e.bufIndex = uint8(OpWriteFixed), b.index
		}
	case OpSendZC:
		o.e.ioprio &^= recvSendFixedBuf
		if registered {
			o.e.ioprio |= recvSendFixedBuf
			o.e.bufIndex = b.index
		}
	}
}

func (o *Op) release() {
	o.held = false
	if o.file != nil {
		o.file.uses--
	}
	if o.file2 != nil {
		o.file2.uses--
	}
	if o.buf != nil {
		o.buf.letGo(o.write)
	}
	for _, b := range o.vec {
		b.letGo(o.write)
	}
	o.pin.Unpin()
}

// reopen gives the file of a CloseFile that did not happen its descriptor back.
func (o *Op) reopen() {
	if f := o.closing; f != nil {
		f.fd = o.e.fd
		if f.ring != nil {
			f.fd = int32(o.e.fileIdx) - 1
		}
	}
}

// closeAnyway closes by an ordinary call the file of a CloseFile that was cancelled.
func (o *Op) closeAnyway() {
	if o.closing != nil {
		o.reopen()
		_ = o.closing.Close() // nobody uses it; what close reports is of writes long done
	}
}

// Code is what the operation does.
func (o *Op) Code() Opcode { return Opcode(o.e.opcode) }

// Result is the newest completion as Go has it: a count or descriptor, or the error with the
// operation's name.
func (o *Op) Result() (int, error) {
	if o.Res < 0 {
		return 0, fmt.Errorf("%v: %w", o.Code(), syscall.Errno(-o.Res))
	}
	return int(o.Res), nil
}

// Err is the error of Result without the operation's name, for comparing; nil after a success.
func (o *Op) Err() error {
	if o.Res < 0 {
		return syscall.Errno(-o.Res)
	}
	return nil
}

// InFlight reports whether the operation is the ring's.
func (o *Op) InFlight() bool { return o.ring != nil }

// More reports whether further completions will come: of a multishot operation that goes on, or of
// a zero-copy send whose memory the kernel still reads.
func (o *Op) More() bool { return o.ring != nil }

// Notification reports whether this completion only gives back the memory of a zero-copy send.
func (o *Op) Notification() bool { return o.flags&cqeNotif != 0 }

// NonEmpty reports whether the socket had more to read after this receive.
func (o *Op) NonEmpty() bool { return o.flags&cqeNonEmpty != 0 }

// Drain makes the operation wait until all that were submitted before have completed. It is for the
// operation just filled.
func (o *Op) Drain() *Op { o.e.flags |= sqeIODrain; return o }

// Async makes the kernel run the operation on a worker thread without trying it inline first.
func (o *Op) Async() *Op { o.e.flags |= sqeAsync; return o }

// userData is the name by which other operations can mean this one; 0 if it is not in flight.
func (o *Op) userData() uint64 {
	if o.ring == nil {
		return 0
	}
	return uint64(o.ring.slots[o.slot].gen)<<32 | uint64(o.slot)
}

// discard undoes what a completion that nobody wants has made: a descriptor would leak.
func (o *Op) discard() {
	if o.Res < 0 {
		return
	}
	switch o.Code() {
	case OpAccept, OpOpenAt, OpSocket:
		if o.e.fileIdx == 0 {
			unix.Close(int(o.Res))
		}
	}
}

// Nop does nothing and completes: to measure the ring, or to wake its owner.
func (o *Op) Nop() *Op { o.set(OpNop); return o }

// Timeout completes after d with ETIME, or with 0 once count further operations have completed
// (count 0: never so).
func (o *Op) Timeout(d time.Duration, count int) *Op {
	return o.timeout(timespecOf(d), uint64(count), 0)
}

// Clock is the clock of an absolute time-out.
type Clock uint32

// The clocks: time since boot without and with time asleep, and the wall clock.
const (
	Monotonic Clock = 0
	BootTime  Clock = timeoutBootTime
	RealTime  Clock = timeoutRealTime
)

// TimeoutAt is Timeout at a reading of a clock, in nanoseconds.
func (o *Op) TimeoutAt(c Clock, ns int64) *Op {
	return o.timeout(timespecOf(time.Duration(ns)), 0, timeoutAbs|uint32(c))
}

// minTick keeps the timer from firing faster than its owner can leave the kernel.
const minTick = 100 * time.Microsecond

// Tick completes every d, at least 100 µs, each time with ETIME and More, until it is cancelled.
// Linux 6.4.
func (o *Op) Tick(d time.Duration) *Op {
	o.timeout(timespecOf(d), 0, timeoutMultishot)
	if d < minTick {
		o.err = fmt.Errorf("uring: tick of %v: want at least %v", d, minTick)
	}
	return o
}

func (o *Op) timeout(ts timespec, count uint64, flags uint32) *Op {
	e := o.set(OpTimeout)
	x := o.extra()
	x.ts = ts
	e.addr, e.len, e.off, e.opFlags = uint64(uintptr(unsafe.Pointer(&x.ts))), 1, count, flags
	return o
}

// LinkTimeout bounds the operation before it in a Chain: if d passes first, that one is cancelled
// and completes with ECANCELED, this one with ETIME. Otherwise this one completes with ECANCELED.
func (o *Op) LinkTimeout(d time.Duration) *Op {
	e := o.set(OpLinkTimeout)
	x := o.extra()
	x.ts = timespecOf(d)
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(&x.ts))), 1
	return o
}

// UpdateTimeout sets a Timeout in flight to d from now. It completes with ENOENT if that has ended.
func (o *Op) UpdateTimeout(target *Op, d time.Duration) *Op {
	e := o.set(OpTimeoutRemove)
	x := o.extra()
	x.ts = timespecOf(d)
	e.addr, e.off, e.opFlags = target.userData(), uint64(uintptr(unsafe.Pointer(&x.ts))), timeoutUpdate
	return o
}

// Cancel asks the kernel to end an operation in flight. It completes with 0 if that will end with
// ECANCELED, with ENOENT if it has ended already, and with EALREADY if it runs and cannot be
// stopped for certain. The target completes in any case, by itself: a cancelled operation is reaped
// like any other. A [Op.Tick] that has come due and was not reported yet is not found (ENOENT) and
// goes on: cancel it again while it is in flight.
func (o *Op) Cancel(target *Op) *Op {
	o.set(OpAsyncCancel).addr = target.userData()
	return o
}

// CancelFile cancels every operation on a file; Res is how many. Linux 5.19.
func (o *Op) CancelFile(f *File) *Op {
	e := o.setFile(OpAsyncCancel, f)
	e.opFlags = cancelFD | cancelAll
	if f.ring != nil {
		e.opFlags |= cancelFDFixed
	}
	return o
}

// CancelAll cancels everything in flight on the ring; Res is how many. Linux 5.19.
func (o *Op) CancelAll() *Op {
	o.set(OpAsyncCancel).opFlags = cancelAny | cancelAll
	return o
}

// Mailbox lets other rings complete this operation, any number of times: see Message. Push it like
// an operation; the kernel never sees it, and it is in flight until the ring is shut down.
func (o *Op) Mailbox() *Op { o.set(opMailbox); return o }

// Address is where a mailbox can be reached, from any goroutine.
type Address struct {
	fd   int
	data uint64
}

// Address of a mailbox in flight.
func (o *Op) Address() Address {
	if o.Code() != opMailbox || o.ring == nil {
		panic("uring: Address is for a Mailbox that has been pushed")
	}
	return Address{o.ring.fd, o.userData()}
}

// Message completes a mailbox of another ring with Res = value, and wakes its owner. It completes
// with EOVERFLOW if that ring's completion queue is full, with EBADFD or ENXIO if it is gone. Linux
// 5.18.
func (o *Op) Message(to Address, value uint32) *Op {
	e := o.set(OpMsgRing)
	e.fd, e.off, e.len = int32(to.fd), to.data, value
	return o
}

// FutexWait completes with 0 when the word is woken, at once with EAGAIN if it is not equal to
// value. The word must be memory that others wake by futex(2) with FUTEX_PRIVATE_FLAG, or by
// FutexWake. Linux 6.7.
func (o *Op) FutexWait(word *uint32, value uint32) *Op {
	return o.futex(OpFutexWait, word, uint64(value))
}

// FutexWake wakes at most n waiters of the word; Res is how many. Linux 6.7.
func (o *Op) FutexWake(word *uint32, n int) *Op { return o.futex(OpFutexWake, word, uint64(n)) }

func (o *Op) futex(code Opcode, word *uint32, value uint64) *Op {
	e := o.set(code)
	o.extra().word = word
	e.fd, e.off, e.addr, e.addr3 = futexSizeU32|futexPrivate, value, uint64(uintptr(unsafe.Pointer(word))), futexMatchAnyBits
	return o
}
