// Package spool is what one process reads from a port and another records, in memory that outlives
// both.
//
// # Concepts
//
// A [Spool] is sealed memory that a keeper holds, for one wire: a port, or the connection of a
// peer. The [Producer] reads from a descriptor straight into it, and the [Consumer] classifies the
// bytes in place. Either may be killed at any instruction, and its successor goes on.
//
//	data         a ring of the bytes, each at its offset on the wire, which never goes back
//	marks        a ring of what the bytes do not say: when they were read, where a message ended,
//	             that the line was silent, that the device went and came, what was lost
//	intent       that a read(2) is under way, and where to
//	checkpoints  two of the consumer: how far it is, and all that it needs to go on from there
//
// Who cuts bytes into frames by the clock cannot do it again later. So the producer alone looks at
// the clock, and writes down what it saw: what the consumer makes of a spool depends on bytes,
// marks and checkpoint, and on nothing else.
//
// # The memory
//
// It is that of a [ring.Shared], in the byte order of the machine. The owner's part of its header:
//
//	  0  version u64 │ id 16 bytes │ key u64 │ slots u64 │ room u64    written before it is passed on
//	128  marks published u64                                          the producer's
//	192  there is no room: since u64 (0: there is) │ 8 bytes │ cause u64 │ times that are over u64
//	256  intent: offset u64 │ marks u64 │ time u64 │ steady u64 │ kind u32 (whole: bit 16), most u32
//	384  marks passed u64 │ at work u64 │ suspect u64 │ deaths u64    the consumer's
//	448  bytes that wait in front u64, id of the far spool 16 bytes    a relay's: of a far and of a near one
//	512  checkpoint A │ checkpoint B                                  64 bytes and room each
//	  …  slots of 32 bytes: offset u64 │ time i64 │ kind u32, a u32 │ b u64
//	  …  times without room, of 24 bytes: from i64 │ to i64 │ cause u64    as many as there is memory
//
// A mark stands behind the bytes before its offset. One that tells of bytes read, tells of all
// between the mark before it and itself.
//
// # A read that is cut off
//
// SIGKILL in read(2) takes bytes from the device that nobody is told of. So where they will lie, a
// pattern lies first, made of a key that no device knows. In this order the producer
//
//  1. lays the pattern, where none lies yet;
//  2. states its intent: offset, length, time;
//  3. calls read(2);
//  4. writes the mark, and publishes it;
//  5. publishes the bytes;
//  6. takes the intent back.
//
// Its successor finds the intent. If the mark is there, the bytes are. Else they end at the last
// byte that differs from the pattern. A byte is like the pattern by chance once in 256 times, two
// once in 65,536. So it matters what else is known:
//
//   - A device that tells how many bytes it has given, as a TCP connection does, leaves no doubt
//     ([Spool.ProducerOf]).
//   - A read of what a tty or a datagram is known to have takes all of it or nothing
//     ([Producer.ReadWhole]): one byte that differs says which. Uncertain is only one of less than
//     eight bytes that left no trace.
//   - Of any other read up to eight may have been at the end, or have come alone.
//
// What is uncertain is said by a mark ([Lost], [Uncertain]). That the pattern was written has one
// more use: the pages are there, so a kill cannot make the kernel's copy fail.
//
// Nothing is lost by a consumer that is killed: the memory is kept from the older of its two
// checkpoints on. One that is torn fails its CRC, and the other holds.
//
// # What runs over
//
// A [Relay] passes on what one spool has to another, and by a file while that is full: see there.
//
// # Distrust
//
// Package ring says why indices that are wrong do no harm. The same holds here for marks and
// checkpoints: each is copied once and checked, and what cannot be is [ErrCorrupt]. Neither end
// ever touches memory outside of the spool. What bytes say is another matter: views are lent, and a
// hostile producer may change them while they are looked at.
//
// # When not to use it
//
// A spool has one producer and one consumer at a time: who starts a successor has seen the end of
// the one before (package ipc, Process). It never waits and wakes nobody. A full one takes no
// bytes; whether the device waits or something is given up is the owner's to decide. A power cut
// takes all of it, so what is stored is the log's.
package spool
