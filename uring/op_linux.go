package uring

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Op is one operation: what to ask of the kernel and, after its completion, what it answered. The
// zero value is a Nop. A method such as [Op.Read] fills it, [Ring.Push] queues it, [Ring.Next]
// gives it back; it can then be filled or pushed again. It must not be copied, moved or touched
// while it is the ring's, except for Tag. A copy that was made all the same, as append makes of a
// slice that grows, stands for no operation: it is in flight for ever, and nothing can aim at it.
// One that was made later has the result, and no more: the piece, or the descriptor, that the
// operation brought is the original's. And if an operation in flight is overwritten, the collector
// ends the process, since the memory that is pinned for it is lost.
//
// The methods that fill an operation panic while it is in flight; what else is wrong with their
// arguments comes back from Push. Those that change one which was just filled, as [Op.Part] and
// [Op.Flags], panic where it is none that they are for, or cannot be changed so, unless Push has
// something else to say of it.
type Op struct {
	// Tag is the caller's own: an index, a connection number.
	Tag uint64
	// Res is the result of the newest completion as the kernel gave it: a count, a descriptor, or a
	// negative errno.
	Res int32

	// What a receive from a stock touches comes first, on as few cache lines as can be: a server
	// has one for each connection.
	flags  uint32 // of the newest completion
	slot   uint32
	parts  bool  // there is something below that the ring must hold
	held   bool  // … and it does
	write  bool  // the kernel writes to the buffers
	rare   bool  // there is some of what few operations need: the next three, from and side
	many   bool  // it completes more than once
	silent bool  // it does not complete by itself: of a quiet chain
	direct bool  // it makes a direct descriptor, in the table of side.home
	ring   *Ring // whose it is; nil: the caller's
	file   *File
	from   *BufferRing // of a RecvFrom
	self   *Op         // where it was filled: a copy is another operation
	at     arrival     // of the newest completion in a buffer of from
	e      entry

	buf    *Buffer
	lo, hi int   // the part of buf; hi < 0: to its end
	err    error // what a filling method could not do
	aux    *aux
	side   *side
	pin    runtime.Pinner
}

// side is what few operations need. Once an operation has had some of it, it keeps the memory for
// the next time.
type side struct {
	home    *Ring      // of an operation that makes a direct descriptor: the ring that has it
	source  *File      // of a Splice or an Install
	closing *File      // of a CloseFile
	target  *Op        // of a Cancel or an UpdateTimeout
	to      *door      // of a Message
	queue   *SendQueue // of a SendEach
	mates   []*Op      // of a quiet chain: all of it
}

// more is where what few operations need is put.
func (o *Op) more() *side {
	if o.side == nil {
		o.side = new(side)
	}
	return o.side
}

// aux holds what some operations point to: too large for all to carry.
type aux struct {
	ts      timespec
	msg     unix.Msghdr
	name    [128]byte // struct sockaddr_storage
	nameLen uint32
	control []byte
	vec     []*Buffer
	iov     []unix.Iovec // of vec
	path    []byte
	path2   []byte
	statx   unix.Statx_t
	word    *uint32
	fd      int32
	child   siginfo
}

// Reset empties an operation that is not in flight: until it is filled again it keeps no file and
// no memory alive. Who keeps operations for later calls it.
func (o *Op) Reset() {
	o.mustBeIdle()
	o.beOneself()
	if o.aux != nil {
		clear(o.aux.vec)
		clear(o.aux.iov)
		o.aux.control, o.aux.word = nil, nil
	}
	o.set(OpNop)
}

func (o *Op) mustBeIdle() {
	if o.ring != nil {
		panic("uring: the operation is in flight: it can be filled again after its last completion")
	}
}

// beOneself lets go of what a copy has in common with the operation that it was copied from.
func (o *Op) beOneself() {
	if o.self != o {
		o.self, o.aux, o.side, o.pin = o, nil, nil, runtime.Pinner{}
		o.flags = nothing // a piece or a descriptor is the original's
	}
}

// set starts to fill the operation anew.
func (o *Op) set(code Opcode) *entry {
	o.mustBeIdle()
	o.beOneself()
	o.e = entry{}
	o.e.opcode, o.e.fd = uint8(code), -1
	o.parts, o.err, o.buf, o.lo, o.hi, o.write = false, nil, nil, 0, -1, false
	o.file = nil
	if o.aux != nil {
		o.aux.vec = o.aux.vec[:0]
	}
	o.forget()
	if o.rare {
		o.rare, o.many, o.silent, o.direct, o.from = false, false, false, false, nil
		if o.side != nil {
			*o.side = side{}
		}
	}
	return &o.e
}

// nothing is a flag of no completion: there is no descriptor to take.
const nothing = 1 << 31

// adjust is for the methods that change an operation which was just filled.
func (o *Op) adjust() *entry {
	o.mustBeIdle()
	return &o.e
}

// special says that the ring has to look at more than the file and the buffers.
func (o *Op) special() *Op {
	o.parts, o.rare = true, true
	return o
}

// repeats says that the operation completes more than once.
func (o *Op) repeats() *Op {
	o.many = true
	return o.special()
}

func (o *Op) setFile(code Opcode, f *File) *entry {
	e := o.set(code)
	o.file, o.parts = f, true
	if f == nil {
		o.fail(errors.New("no file"))
	}
	return e
}

// fail keeps the first error of a filling method for Push.
func (o *Op) fail(err error) {
	if o.err == nil && err != nil {
		o.err = fmt.Errorf("uring: %v: %w", o.Code(), err)
	}
}

// memory sets the buffer, which the kernel writes or reads.
func (o *Op) memory(b *Buffer, write bool) *Op {
	o.buf, o.write = b, write
	if b == nil {
		o.fail(errors.New("no buffer"))
	}
	return o
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
// collected. On an error nothing is held.
func (o *Op) acquire(r *Ring) error {
	err := o.check(r)
	if err == nil && o.rare {
		err = o.checkRare(r)
	}
	if err == nil && o.aux != nil {
		err = o.takeAll()
	}
	if err != nil {
		return fmt.Errorf("uring: %v: %w", o.Code(), err)
	}
	if o.held = true; o.rare {
		o.aimRare(r)
	}
	if f := o.file; f != nil {
		f.uses++
		o.e.fd = f.num()
		o.e.flags &^= sqeFixedFile
		if f.ring != nil {
			o.e.flags |= sqeFixedFile
		}
	}
	if o.buf != nil {
		o.aim(r)
	}
	if x := o.aux; x != nil {
		for i, b := range x.vec {
			base := unsafe.SliceData(b.mem)
			if !b.mapped {
				o.pin.Pin(base)
			}
			x.iov[i].Base = base
			x.iov[i].SetLen(len(b.mem))
		}
		if o.Code() == OpRecvMsg && o.from == nil {
			x.makeRoom()
		}
		o.pin.Pin(x)
		pinFirst(&o.pin, x.iov)
		pinFirst(&o.pin, x.path)
		pinFirst(&o.pin, x.path2)
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

// check says why the file or the buffer cannot be had now. It changes nothing.
func (o *Op) check(r *Ring) error {
	if o.self != o {
		return errors.New("operation: copied after it was filled")
	}
	if f := o.file; f != nil {
		if err := f.check(r); err != nil {
			return err
		}
	}
	if o.buf == nil {
		return nil
	}
	if err := o.buf.check(o.write); err != nil {
		return err
	}
	if o.hi > len(o.buf.mem) {
		return fmt.Errorf("buffer: bytes %d to %d of a buffer of %d", o.lo, o.hi, len(o.buf.mem))
	}
	return nil
}

// takeAll takes the buffers of a vector, all or none; one that is written cannot be in it twice.
func (o *Op) takeAll() error {
	for i, b := range o.aux.vec {
		if err := b.check(o.write); err != nil {
			for _, taken := range o.aux.vec[:i] {
				taken.letGo(o.write)
			}
			return fmt.Errorf("buffer %d of %d: %w", i, len(o.aux.vec), err)
		}
		b.take(o.write)
	}
	return nil
}

// checkRare says why the rare parts cannot be had now. Only of a Message it takes what it asks for,
// last: it has nothing else that could be refused behind it.
func (o *Op) checkRare(r *Ring) error {
	if o.from != nil {
		if err := o.from.check(r, &o.e); err != nil {
			return err
		}
	}
	if o.Code() == OpMadvise {
		if err := o.buf.advisable(); err != nil {
			return err
		}
	}
	if o.drains() && r.quiet {
		return errors.New("drain: not on a ring that has had a quiet chain")
	}
	if (r.drained || o.drains()) && o.Code().zeroCopy() {
		return errors.New("not on a ring that has had a drain, for which the kernel would wait with all that follows")
	}
	if o.side != nil {
		return o.checkSide(r)
	}
	return nil
}

func (o *Op) checkSide(r *Ring) error {
	m := o.side
	if f := m.source; f != nil {
		if err := f.check(r); err != nil {
			return err
		}
	}
	if f := m.closing; f != nil {
		if err := f.check(r); err != nil {
			return err
		}
		if f.uses > 0 {
			return fmt.Errorf("file: %d operations: %w", f.uses, ErrBusy)
		}
	}
	if t := m.target; t != nil && t.ring != nil {
		if t.ring != r {
			return errors.New("operation: in flight on another ring")
		}
		if t.strayCopy() {
			return errors.New("operation: a copy that was made in flight")
		}
	}
	if t := m.target; t != nil && t.many && o.Code() == OpTimeoutRemove && o.aux.ts.duration() < minTick {
		return fmt.Errorf("tick of %v: want at least %v", o.aux.ts.duration(), minTick)
	}
	if m.queue != nil {
		if err := m.queue.ready(r); err != nil {
			return err
		}
	}
	if m.to != nil {
		return m.to.enter(&o.e)
	}
	return nil
}

// aimRare puts the rare parts into the entry, and takes them: descriptors and names only now, since
// between filling and pushing they may have come to mean something else.
func (o *Op) aimRare(r *Ring) {
	r.count(o, 1)
	r.drained = r.drained || o.drains()
	if o.direct {
		o.more().home = r
	}
	if o.from != nil {
		o.from.uses++
	}
	if o.side != nil {
		o.aimSide()
	}
}

func (o *Op) aimSide() {
	m := o.side
	if f := m.source; f != nil {
		f.uses++
		if o.Code() == OpFilesUpdate {
			o.aux.fd = f.num()
		} else if o.e.fileIdx, o.e.opFlags = uint32(f.num()), 0; f.ring != nil {
			o.e.opFlags = spliceFDInFixed
		}
	}
	if f := m.closing; f != nil {
		if o.e.fd, o.e.fileIdx = f.num(), 0; f.ring != nil {
			o.e.fd, o.e.fileIdx = 0, uint32(f.n)
		}
		f.taken()
	}
	if t := m.target; t != nil {
		o.e.addr = t.userData()
		if o.Code() == OpTimeoutRemove {
			if o.e.opFlags = timeoutUpdate; t.Code() == OpLinkTimeout {
				o.e.opFlags |= linkTimeoutUpdate
			}
		}
	}
	if m.queue != nil {
		m.queue.begin(o)
	}
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
	o.e.addr, o.e.len = uint64(uintptr(unsafe.Pointer(base)))+uint64(o.lo), uint32(min(hi-o.lo, maxTransfer))
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

func (o *Op) release(r *Ring) {
	o.held = false
	if o.file != nil {
		o.file.uses--
	}
	if o.rare {
		o.releaseRare(r)
	}
	if o.buf != nil {
		o.buf.letGo(o.write)
	}
	if x := o.aux; x != nil {
		for _, b := range x.vec {
			b.letGo(o.write)
		}
	}
	o.pin.Unpin()
}

func (o *Op) releaseRare(r *Ring) {
	r.count(o, -1)
	if o.from != nil {
		o.from.uses--
	}
	m := o.side
	if m == nil {
		return
	}
	if m.source != nil {
		m.source.uses--
	}
	if m.queue != nil {
		m.queue.busy = false
	}
	if m.to != nil {
		m.to.leave()
	}
	if m.mates != nil {
		o.endMates()
	}
}

// reopen gives the file of a CloseFile that did not happen its descriptor back.
func (o *Op) reopen() {
	if o.side == nil {
		return
	}
	if f := o.side.closing; f != nil && f.n == 0 {
		f.n = o.e.fd + 1
		if f.ring != nil {
			f.n = int32(o.e.fileIdx)
		}
		if f.forgotten != nil {
			f.closeWhenForgotten()
		}
	}
}

// closeAnyway closes by an ordinary call the file of a CloseFile that was cancelled.
func (o *Op) closeAnyway() {
	if o.side != nil && o.side.closing != nil {
		o.reopen()
		_ = o.side.closing.Close() // nobody uses it; what close reports is of writes long done
	}
}

// Code is what the operation does.
func (o *Op) Code() Opcode { return Opcode(o.e.opcode) }

// zeroCopy reports whether it sends without copying.
func (o Opcode) zeroCopy() bool { return o == OpSendZC || o == OpSendMsgZC }

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
// a zero-copy send whose memory the kernel still reads. A multishot operation may end at any good
// completion, where the kernel had no room for it: push it again.
func (o *Op) More() bool { return o.ring != nil }

// Notification reports whether this completion only gives back the memory of a zero-copy send.
func (o *Op) Notification() bool { return o.flags&cqeNotif != 0 }

// NonEmpty reports whether the socket had more to read after this receive.
func (o *Op) NonEmpty() bool { return o.flags&cqeNonEmpty != 0 }

// Drain makes the operation wait until all that were submitted before have completed, and what is
// submitted later wait for it, cancellations too. It is for the operation just filled. A ring that
// has had one takes no SendZeroCopy any more: the kernel makes that wait for its own notification.
func (o *Op) Drain() *Op { o.adjust().flags |= sqeIODrain; return o.special() }

func (o *Op) drains() bool { return o.e.flags&sqeIODrain != 0 }

// Async makes the kernel run the operation on a worker thread without trying it inline first. Push
// refuses it with a Bundle and with an incremental BufferRing, except of a RecvEach: see WaitAll.
func (o *Op) Async() *Op { o.adjust().flags |= sqeAsync; return o }

// strayCopy reports that the operation was never pushed: it is a copy of one that was in flight,
// and its slot may be another's by now.
func (o *Op) strayCopy() bool {
	return int(o.slot) >= len(o.ring.slots) || o.ring.slots[o.slot].op != o
}

// userData is the name by which other operations can mean this one; 0 if it is not in flight.
func (o *Op) userData() uint64 {
	if o.ring == nil {
		return 0
	}
	return o.ring.slots[o.slot].name
}

// discard undoes what a completion that nobody wants has made: a descriptor would leak, and a
// buffer.
func (o *Op) discard() {
	o.forget()
	if o.Res < 0 {
		return
	}
	switch o.Code() {
	case OpAccept, OpOpenAt, OpSocket:
		if !o.direct {
			unix.Close(int(o.Res))
		}
	}
}

// Nop does nothing and completes: to measure the ring, or to wake its owner.
func (o *Op) Nop() *Op { o.set(OpNop); return o }

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
	if word == nil {
		o.fail(errors.New("no word"))
	}
	e.fd, e.off, e.addr, e.addr3 = futexSizeU32|futexPrivate, value, uint64(uintptr(unsafe.Pointer(word))),
		futexMatchAnyBits
	return o
}
