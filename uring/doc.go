// Package uring is io_uring for Go programs: no cgo, no linkname, nothing but system calls and
// shared memory. It needs Linux 5.11; what later kernels add is used where it is there.
//
// # What io_uring is
//
// A ring is a pair of queues in memory that a process shares with the kernel. The process writes
// operations (read this, accept there, wake me then) into the submission queue; one system call,
// io_uring_enter, hands over any number of them. The kernel writes a completion for each into the
// completion queue, in whatever order they end. So a batch costs one system call instead of one per
// operation, and one thread keeps as many operations in flight as the device can use.
//
// It helps where operations wait: disks beyond the page cache, many sockets, chains such as
// write-then-sync. It does not help data that is in the page cache, a serial port, or a program
// that asks for one thing at a time and waits: there a plain system call is quicker, because the
// ring only adds a hop.
//
// # How this package says it
//
// A [Ring] belongs to one goroutine at a time. An [Op] is one operation: a method fills it,
// [Ring.Push] queues it, [Ring.Submit] or [Ring.Wait] hands it over, and [Ring.Next] gives it back
// with the result in it:
//
//	ring, err := uring.New(uring.Config{Entries: 64})
//	…
//	var op uring.Op
//	op.Read(file, buffer, 0)
//	ring.Push(&op)
//	ring.Wait(1)
//	for op := ring.Next(); op != nil; op = ring.Next() {
//		n, err := op.Result()
//	}
//
// Nothing is allocated on the way: operations and buffers are the caller's, and are used again.
// [Ring.Chain] makes operations run one after the other. Operations whose name ends in Each
// complete many times (multishot): [Op.More] says whether they are still in flight. What is to be
// sent on a connection waits in a [SendQueue], in its order.
//
// # What can go wrong, and does not
//
// The kernel writes to memory while Go does other things. Some mistakes are then easy, and each is
// made hard:
//
//   - Memory that moves or is collected. Everything that an entry points to is kept alive and
//     pinned from Push to the last completion. Memory of an [Arena] and of a [BufferRing] is
//     outside the Go heap.
//   - Memory used while the kernel has it. A [Buffer] knows: its Bytes panics while it is in
//     flight, and a second operation that would write it is refused with [ErrBusy]. So is pushing
//     an [Op] twice. How much an operation reads or writes is checked at Push, by what the buffer
//     is then.
//   - A descriptor that is closed, and whose number then means another file. A [File] owns its
//     descriptor, and refuses to close while operations use it. An ordinary one that [FileOf] or an
//     operation has made is closed when nobody has it any more; a direct one keeps its slot until
//     its File or its ring is closed.
//   - A completion taken for another operation's. The number that the kernel carries names the ring
//     and a generation: [Op.Cancel] and [Op.Message] reach what they were meant for, or nothing. A
//     completion that fits no operation in flight is counted, and Wait and Close return [ErrStray].
//
// The kernel can skip the completions of what went well. Alone that is left out, since nobody would
// know when the memory is free; of a [Ring.QuietChain] the one completion that comes tells it.
//
// A ring holds at most Config.InFlight operations, and its completion queue is at least as large,
// so that single completions always find room. Multishot operations can fill it; the kernel then
// keeps the rest aside, and Next fetches them. It also ends such an operation: its last completion
// is an ordinary one, but without [Op.More]. Push it again; that is not the end of a stream. Waits
// that signals interrupt are continued. A read or write may do less than asked, like any read or
// write: check Res.
//
// # Threads
//
// The kernel completes an operation on the thread that submitted it, by interrupting that thread.
// With Config.Locked it waits instead until the thread asks for completions: the way for a loop
// that does nothing else and reaps many at a time. The goroutine must have called
// runtime.LockOSThread, and must stay: once a thread has ended, what it had submitted completes
// with ECANCELED instead of being done, at the time when it would have been done, and a Locked ring
// can only be closed. A plain ring moves between goroutines freely, as long as they take turns; it
// outlives its threads.
//
// # Where it is refused
//
// Containers forbid io_uring more often than not, and so may a sysctl. [New] then returns a
// [FeatureError] that says which, and [Probe] lists what works here, by trying; both answer for
// this kernel and this process, not for a version number.
//
// Three options are off because they cost more than they bring on most machines: SQPoll spends a
// CPU on polling, IOPoll needs a device with polled queues, and a batch of linked writes is slower
// than one larger write.
//
// The interface is described by io_uring(7), io_uring_enter(2) and their neighbours in liburing,
// and in the kernel's include/uapi/linux/io_uring.h.
package uring
