package uring

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

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
		o.fail(fmt.Errorf("tick of %v: want at least %v", d, minTick))
	}
	return o.repeats()
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

// UpdateTimeout sets a Timeout or LinkTimeout of the same ring to d from now, a Tick to every d, at
// least 100 µs. It completes with ENOENT if that is not in flight.
func (o *Op) UpdateTimeout(target *Op, d time.Duration) *Op {
	e := o.set(OpTimeoutRemove)
	x := o.extra()
	x.ts = timespecOf(d)
	e.off = uint64(uintptr(unsafe.Pointer(&x.ts)))
	return o.aimAt(target)
}

// Cancel asks the kernel to end an operation in flight on the same ring. It completes with 0 if
// that will end with ECANCELED, with ENOENT if it was not in flight when this one was pushed or has
// ended since, and with EALREADY if it runs and cannot be stopped for certain. The target completes
// in any case, by itself: a cancelled operation is reaped like any other. A [Op.Tick] that has come
// due and was not reported yet is not found (ENOENT) and goes on: cancel it again while it is in
// flight.
func (o *Op) Cancel(target *Op) *Op {
	o.set(OpAsyncCancel)
	return o.aimAt(target)
}

// aimAt has the operation mean another one, as it is when this one is pushed.
func (o *Op) aimAt(target *Op) *Op {
	if target == nil {
		o.fail(errors.New("no operation"))
	}
	o.more().target = target
	return o.special()
}

// CancelFile cancels every operation on a file; Res is how many. Linux 5.19.
func (o *Op) CancelFile(f *File) *Op {
	e := o.setFile(OpAsyncCancel, f)
	e.opFlags = cancelFD | cancelAll
	if f != nil && f.ring != nil {
		e.opFlags |= cancelFDFixed
	}
	return o
}

// CancelAll cancels everything in flight on the ring; Res is how many. Behind a [Op.Drain] that
// still waits it waits, too, as every operation does; Close does not. Linux 5.19.
func (o *Op) CancelAll() *Op {
	o.set(OpAsyncCancel).opFlags = cancelAny | cancelAll
	return o
}

// cancelBeside is CancelAll beside the queue, in which a Drain holds up all that comes behind it,
// cancellations too. An error leaves things as they are: before Linux 6.0 there is no such call.
func (r *Ring) cancelBeside() {
	reg := syncCancel{fd: -1, flags: cancelAny | cancelAll}
	_, _ = r.register(registerSyncCancel, unsafe.Pointer(&reg), 1)
}
