// Package rt asks the kernel for what keeps time: where threads run (affinity), before whom
// (scheduling), with memory that does not fault (locking), and for how long they wait (timer slack,
// absolute sleeps).
//
// All but memory locking is a property of a thread. A goroutine that wants it calls
// [runtime.LockOSThread] first and, unless it takes everything back, never unlocks: the thread then
// ends with the goroutine and no other goroutine inherits what was set.
//
//	runtime.LockOSThread()
//	undo, err := rt.Pin(rt.CPUs{3})
//	err = rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 10})
//	for at := rt.Now(); ; {
//		at += time.Millisecond
//		err = rt.SleepUntil(at)
//		...
//	}
//
// What is refused comes back as a [*NotAllowedError], which says what is missing and how to get it.
// [TryScheduling] and [TryLockMemory] find that out without changing anything.
//
// What a priority does not do: a Go program in SCHED_FIFO still has a garbage collector, whose
// helpers are threads of the ordinary class. Keep a real-time goroutine free of allocation, and
// leave a CPU to the others.
//
// Linux only. Elsewhere every function that would change something returns an error that is
// [errors.ErrUnsupported]; CPU lists can be parsed and printed anywhere.
package rt
