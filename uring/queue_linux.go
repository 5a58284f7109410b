package uring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Push queues an operation; Submit or Wait hands it to the kernel. From here until Next has
// returned the operation's last completion, the operation, its buffers and its files belong to the
// ring. A full submission queue is submitted first.
//
// It returns ErrFull or ErrBusy, wrapped, and then nothing was queued.
func (r *Ring) Push(op *Op) error { return r.enqueue(op, 0) }

// Chain queues operations that run one after the other: each starts when the one before has done
// all it was asked to. A failure, and a read or write that was shorter than its buffer, cancels the
// rest of the chain: those complete with ECANCELED. All are queued, or none. The kernel goes on
// behind a failed Fsync, Fallocate, Truncate, Shutdown, Statx or Advise, and behind one that
// changes names: let those be the last. ErrTooLong is for more operations than the ring has room
// for when it is empty.
func (r *Ring) Chain(ops ...*Op) error { return r.chain(sqeIOLink, ops) }

// HardChain is Chain whose operations run in order whatever the results of those before.
func (r *Ring) HardChain(ops ...*Op) error { return r.chain(sqeIOHardlink, ops) }

func (r *Ring) chain(link uint8, ops []*Op) error {
	if most := min(len(r.sqes), r.Depth()); !r.closed() && len(ops) > most {
		return fmt.Errorf("uring: chain of %d operations, where %d have room: %w", len(ops), most, ErrTooLong)
	}
	if err := r.reserve(len(ops), cancelSlots); err != nil {
		return err
	}
	for i, op := range ops {
		if op == nil || op.Code() == opMailbox {
			return fmt.Errorf("uring: operation %d of a chain: a mailbox, or none", i)
		}
	}
	drained := r.drained
	for i, op := range ops {
		flags := link
		if i == len(ops)-1 {
			flags = 0
		}
		if err := r.enqueue(op, flags); err != nil {
			for range i {
				r.unqueueLast()
			}
			r.drained = drained // the kernel has seen none of these
			return fmt.Errorf("operation %d of a chain: %w", i, err)
		}
	}
	return nil
}

// reserve makes room for n entries in one piece of submission: a chain must not be cut by a submit.
// It leaves so many slots as are kept.
func (r *Ring) reserve(n, kept int) error {
	if r.closed() {
		return errRingClosed
	}
	if r.nFree < n+kept {
		return fmt.Errorf("uring: %d operations in flight: %w", r.InFlight(), ErrFull)
	}
	if r.room() >= n {
		return nil
	}
	if err := r.Submit(); err != nil {
		return err
	}
	if r.setup&setupSQPoll != 0 { // the polling thread has not got so far
		for tries := 0; r.room() < n && tries < 1000; tries++ {
			if _, e := r.enter(0, 0, enterSQWait|enterSQWakeup, nil); e != 0 && e != unix.EINTR {
				return r.refused("io_uring_enter", e)
			}
		}
	}
	if r.room() < n {
		return fmt.Errorf("uring: submission queue of %d: %w", len(r.sqes), ErrFull)
	}
	return nil
}

func (r *Ring) room() int { return len(r.sqes) - int(r.tail-load(r.sqHead)) }

// enqueue queues one operation. Of a chain there is room already; else it is made here, which is
// one call less for Push.
func (r *Ring) enqueue(op *Op, link uint8) error {
	if op == nil {
		return errors.New("uring: push: no operation")
	}
	if r.nFree <= cancelSlots || r.tail-r.headSeen >= uint32(len(r.sqes)) {
		if err := r.makeRoom(op); err != nil {
			return err
		}
	}
	switch {
	case op.ring != nil:
		return fmt.Errorf("uring: %v: operation: %w", op.Code(), ErrBusy)
	case op.err != nil:
		return op.err
	case op.flags&cqeBuffer != 0:
		op.forget()
	}
	op.flags = nothing
	if op.parts {
		if err := op.acquire(r); err != nil {
			return err
		}
	}
	r.nFree--
	i := r.free[r.nFree]
	s := &r.slots[i]
	s.op = op
	op.ring, op.slot = r, i
	if op.Code() == opMailbox {
		r.boxes++
		return nil
	}
	e := &r.sqes[r.tail&r.sqMask]
	e.sqeHead, e.sqeTail = op.e.sqeHead, op.e.sqeTail
	e.flags |= link
	e.userData = s.name
	r.tail++
	return nil
}

// makeRoom makes room for one more operation; the last slots are kept for operations that cancel
// others. A closed ring has no room, and one that is being closed only for what cancels the rest:
// its headSeen stays behind, so that every operation comes here.
func (r *Ring) makeRoom(op *Op) error {
	if r.ending != nil {
		if op != r.ending {
			return errRingClosed
		}
		return r.reserve(1, 0)
	}
	kept := cancelSlots
	if op.Code() == OpAsyncCancel {
		kept = 0
	}
	if !r.closed() && r.nFree > kept && r.room() > 0 {
		r.headSeen = load(r.sqHead)
		return nil
	}
	err := r.reserve(1, kept)
	if err == nil {
		r.headSeen = load(r.sqHead)
	}
	return err
}

// unqueueLast takes back the newest entry, which the kernel has not been told of. What it was to
// close is open.
func (r *Ring) unqueueLast() *Op {
	r.tail--
	i := uint32(r.sqes[r.tail&r.sqMask].userData & nameIndex)
	s := &r.slots[i]
	op := s.op
	op.unmate() // each of a quiet chain is taken back by itself
	r.finish(s, i)
	op.flags = nothing // of what it was to bring
	op.reopen()
	return op
}

// finish ends the operation of a slot: the slot, its buffers and its files are free again.
func (r *Ring) finish(s *slot, i uint32) {
	op := s.op
	r.vacate(s, i)
	op.ring = nil
	if op.held {
		op.release(r)
	}
}

// vacate makes a slot free; what comes for it from now on is a stray.
func (r *Ring) vacate(s *slot, i uint32) {
	s.op = nil
	s.name += genStep
	r.free[r.nFree] = i
	r.nFree++
}

// Submit hands what is queued to the kernel and waits for nothing. On an error what was not taken
// stays queued, and Submit may be called again.
func (r *Ring) Submit() error {
	if r.closed() {
		return errRingClosed
	}
	atomic.StoreUint32(r.sqTail, r.tail)
	if r.setup&setupSQPoll != 0 {
		return r.wakePoller()
	}
	for r.tail != r.submitted {
		n, e := r.enter(r.tail-r.submitted, 0, 0, nil)
		if e != 0 && e != unix.EINTR {
			return r.refused("io_uring_enter", e)
		}
		r.took(uint32(n))
	}
	return nil
}

func (r *Ring) wakePoller() error {
	r.took(r.tail - r.submitted)
	if load(r.sqFlags)&sqNeedWakeup == 0 {
		return nil
	}
	if _, e := r.enter(0, 0, enterSQWakeup, nil); e != 0 && e != unix.EINTR {
		return r.refused("io_uring_enter", e)
	}
	return nil
}

func (r *Ring) took(n uint32) {
	r.submitted += n
	r.stats.Submitted += uint64(n)
}

// Wait submits what is queued and waits until at least n completions are there for Next, or all
// that can come; Wait(0) takes what has completed and does not wait. Wait(InFlight()) so waits for
// all, of which a QuietChain has one; but an operation in flight that completes many times may
// always bring more: ask for as many as must come then. On an error what was not taken stays
// queued.
func (r *Ring) Wait(n int) error { return r.wait(n, time.Time{}) }

// WaitFor is Wait that gives up with ErrTimeout after d.
func (r *Ring) WaitFor(n int, d time.Duration) error { return r.wait(n, time.Now().Add(d)) }

// WaitBriefly is WaitFor for waits that are mostly shorter than what it takes to give the CPU to
// another goroutine and to get it back: the Go scheduler is not told, and no other goroutine runs
// in this one's place meanwhile. The garbage collector ends such a wait by a signal where it has
// to, but not with GODEBUG=asyncpreemptoff=1: d should be a fraction of a millisecond.
func (r *Ring) WaitBriefly(n int, d time.Duration) error {
	r.brief = true
	err := r.WaitFor(n, d)
	r.brief = false
	return err
}

// WaitSome is for who takes many at a time, and does not let the first of them wait for long: it
// waits until n completions are there, or gather has passed and at least one is. It gives up with
// ErrTimeout after d, and gathers for no longer. Before Linux 6.12 it waits for the first alone:
// see MinTimeout.
func (r *Ring) WaitSome(n int, gather, d time.Duration) error {
	if gather < 0 || gather > time.Hour {
		return fmt.Errorf("uring: gather for %v: want 0 to %v", gather, time.Hour)
	}
	gather = min(gather, d) // the kernel looks at d only when it has gathered
	if gather < time.Microsecond || r.feats&featMinTimeout == 0 {
		return r.WaitFor(min(n, 1), d)
	}
	r.untilArg.minWaitUsec = uint32(gather / time.Microsecond)
	err := r.wait(n, time.Now().Add(d))
	r.untilArg.minWaitUsec = 0
	return err
}

// wait is await for whoever has the ring: while it is being closed, that is Shutdown alone.
func (r *Ring) wait(n int, deadline time.Time) error {
	if r.ending != nil {
		return errRingClosed
	}
	return r.await(n, deadline)
}

func (r *Ring) await(n int, deadline time.Time) error {
	n = max(n, 0)
	switch {
	case r.closed():
		return errRingClosed
	case n > 0 && r.InFlight() == 0:
		return fmt.Errorf("uring: wait for %d completions: %w", n, ErrIdle)
	case n > len(r.cqes):
		return fmt.Errorf("uring: wait for %d completions: the queue holds %d", n, len(r.cqes))
	}
	if coming := r.InFlight() - r.silent; n > coming && r.many+r.boxes == 0 {
		n = coming
	}
	r.calm()
	r.giveBack()
	atomic.StoreUint32(r.sqTail, r.tail)
	if r.setup&setupSQPoll != 0 {
		if err := r.wakePoller(); err != nil {
			return err
		}
	}
	for first := true; ; first = false {
		todo := r.tail - r.submitted
		late := r.lateThere()
		lacking := int(load(r.cqTail)-r.head)-late < n
		flags := uint32(0)
		if lacking || first && (r.setup&(setupDeferTaskrun|setupIOPoll) != 0 || load(r.sqFlags)&sqCQOverflow != 0) {
			flags = enterGetEvents
		}
		if todo == 0 && flags == 0 {
			return r.health()
		}
		var arg *geteventsArg
		if lacking && !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 && !first {
				return fmt.Errorf("uring: wait for %d completions: %w", n, ErrTimeout)
			}
			r.until = timespecOf(max(left, 0))
			arg = &r.untilArg
			arg.ts = uint64(uintptr(unsafe.Pointer(&r.until)))
		}
		taken, e := r.enter(todo, n+late, flags, arg)
		if e != 0 && e != unix.EINTR && e != unix.ETIME {
			return r.refused("io_uring_enter", e)
		}
		if r.setup&setupSQPoll == 0 { // there the polling thread takes them
			r.took(uint32(taken))
		}
		if arg != nil && arg.minWaitUsec > 0 { // what was to be gathered is, or a signal came
			arg.minWaitUsec, n = 0, min(n, 1)
		}
	}
}

// calm lets the scheduler run now and then. A goroutine that goes from system call to system call
// for 10 ms without being scheduled has its P taken from it at every look of the runtime's monitor,
// and each time costs two context switches.
func (r *Ring) calm() {
	if r.waits++; r.waits%calmLook != 0 {
		return
	}
	if now := time.Now(); now.Sub(r.calmed) > calmEvery {
		r.calmed = now
		runtime.Gosched()
	}
}

const (
	calmEvery = 5 * time.Millisecond
	calmLook  = 8 // waits between two looks at the clock
)

func timespecOf(d time.Duration) timespec {
	return timespec{int64(d / time.Second), int64(d % time.Second)}
}

func (t timespec) duration() time.Duration {
	return time.Duration(t.sec)*time.Second + time.Duration(t.nsec)
}

// enter calls io_uring_enter and gives the P back meanwhile. arg is part of the ring: what it
// points to does not move.
func (r *Ring) enter(todo uint32, n int, flags uint32, arg *geteventsArg) (int, unix.Errno) {
	r.stats.Enters++
	size := uintptr(0)
	if arg != nil {
		flags |= enterExtArg
		size = unsafe.Sizeof(*arg)
	}
	var res uintptr
	var e unix.Errno
	if r.brief {
		res, _, e = unix.RawSyscall6(unix.SYS_IO_URING_ENTER, r.enterFd, uintptr(todo), uintptr(n),
			uintptr(flags|r.regular), uintptr(unsafe.Pointer(arg)), size)
	} else {
		res, _, e = unix.Syscall6(unix.SYS_IO_URING_ENTER, r.enterFd, uintptr(todo), uintptr(n),
			uintptr(flags|r.regular), uintptr(unsafe.Pointer(arg)), size)
	}
	if e != 0 {
		return 0, e
	}
	return int(res), 0
}

// refused says why a call on the ring failed.
func (r *Ring) refused(call string, e unix.Errno) error {
	switch {
	case e == unix.EEXIST, r.owner != 0 && r.owner != unix.Gettid():
		return fmt.Errorf("uring: thread %d owns the ring: %w", r.owner, ErrOwner)
	case e == unix.EBUSY: // completions wait outside a full completion queue
		return fmt.Errorf("uring: completion queue of %d: %w", len(r.cqes), ErrFull)
	}
	return fmt.Errorf("uring: %w", os.NewSyscallError(call, e))
}

// health reports what must never happen.
func (r *Ring) health() error {
	if r.strays > 0 {
		return fmt.Errorf("uring: %d strays, the last for user_data %#x: %w", r.strays, r.lastBad, ErrStray)
	}
	if n := load(r.cqOverflow); n > 0 {
		return fmt.Errorf("uring: the kernel had no memory to keep %d completions: %w", n, ErrStray)
	}
	if n := load(r.sqDropped); n > 0 {
		return fmt.Errorf("uring: the kernel dropped %d submissions: %w", n, ErrStray)
	}
	return nil
}

// Next returns the operation of the next completion, or nil if none is there. Its results are in
// Res and the methods of Op, until it is pushed again; unless More says that more completions will
// come, it is the caller's again.
func (r *Ring) Next() *Op {
	for {
		if tail := r.cqTail; (tail == nil || r.head == load(tail)) && !r.refill() {
			return nil
		}
		c := &r.cqes[r.head&r.cqMask]
		data, res, flags := c.userData, c.res, c.flags
		r.head++
		i := uint32(data & nameIndex)
		if int(i) >= len(r.slots) || r.slots[i].name != data || r.slots[i].op == nil {
			if !r.wasLate(data) {
				r.strays++
				r.lastBad = data
			}
			continue
		}
		s := &r.slots[i]
		op := s.op
		if (op.flags|flags)&cqeBuffer != 0 {
			flags = op.arrive(res, flags)
		}
		op.Res, op.flags = res, flags
		if flags&cqeMore == 0 && op.Code() != opMailbox { // finish, without a call
			r.vacate(s, i)
			op.ring = nil
			if op.held {
				op.release(r)
				if res < 0 {
					r.failed(op, data)
				}
			}
		}
		return op
	}
}

// giveBack gives the kernel the room of what was read.
func (r *Ring) giveBack() {
	r.stats.Completed += uint64(r.head - r.given)
	r.given = r.head
	atomic.StoreUint32(r.cqHead, r.head)
}

// refill gives the kernel the room of what was read, and fetches completions that it kept aside
// meanwhile.
func (r *Ring) refill() bool {
	if r.closed() {
		return false
	}
	r.giveBack()
	if load(r.sqFlags)&sqCQOverflow != 0 {
		r.stats.Overflows++
		_, _ = r.enter(0, 0, enterGetEvents, nil) // an error shows again in the next Wait
	}
	return r.head != load(r.cqTail)
}
