// Package ipc is for processes of one machine that work together, and of which any may be killed at
// any instruction, be of another version, or be hostile.
//
//   - [Conn] carries messages with descriptors, each whole or not at all, over a Unix socket that
//     keeps packets apart. The kernel says who sent each one, and who may send is checked.
//   - [Ring] is memory that two processes map: bytes ([Producer], [Consumer]) or messages
//     ([Sender], [Receiver]) go from one to the other without a system call while both are busy.
//     Who has to wait looks for about as long as it takes to wake somebody, and then sleeps
//     (futex(2)).
//   - [Process] is another process by a descriptor of it, and tells of its end.
//
// A ring's memory is a descriptor like others: its maker passes it on by a Conn, or as one of
// exec.Cmd's ExtraFiles. It lives as long as somebody has it: a keeper that holds it lets both ends
// be killed, and their successors go on.
//
// # A peer that dies
//
// What was published is there, whole and once, whoever is killed when: one atomic store publishes,
// and one releases. A successor takes the end and goes on where those stores stand. So a consumer
// that is killed between its work and its release sees the same again; the position is the same,
// too, by which it knows. Lasting work that is stored with the position is done exactly once.
//
// Who waits for a process that has been killed is told, if it watches it: [Process] for
// Producer.Watch and the like. The kernel's own way, robust futexes, is not used: those belong to
// threads, whose list the C library may have, and goroutines change threads. A pidfd tells of the
// whole process, at once, and costs no thread. Each end counts its generations in the shared
// memory, so the death of one process is not taken for that of its successor. A sleep is broken
// once a second to look again, should nobody have told.
//
// # A peer that is wrong
//
// Whatever the other side writes to the shared memory is an error here, [ErrCorrupt], or wrong
// contents; never a fault, and never a slice outside of the ring. The memory is sealed, so it
// cannot be cut off; an index is loaded once and checked against what is possible; a length is
// loaded once and checked against the slot. Views of a ring of bytes are lent: a hostile peer can
// change them while they are read. [Receiver.Receive] copies.
//
// A peer can always say nothing, or too much: bound waits by their time.
//
// # Order
//
// Package ring says why an index that is seen means that the bytes are. Beyond that a sleeper and
// its waker each store first and load then (the sleeper its bell, the waker its index), which needs
// the one order of all sequentially consistent operations, as Go's atomic ones have it: at least
// one sees the other.
//
// # When not to use it
//
// A ring has one process at each end. A few messages a second are as well off in a Conn, which has
// no memory to share and ends when the other does. Within a process channels do.
//
// Linux only; [Process] needs Linux 5.3, a ring on 32-bit ARM needs GOARM=7.
package ipc
