// Package reader gets bytes out of descriptors: serial lines, TCP connections, UDP sockets. It
// reads on Linux only; elsewhere there are its types.
//
// # Concepts
//
// A [Reader] reads any number of ports by one [Strategy] and shows each port's [Handler] the bytes
// in place, in a double-mapped ring that the kernel wrote into. What the handler is done with makes
// room; what it is not done with it is shown again, together with what follows. The strategies
// differ only in who waits, and how:
//
//	ring       one locked thread and one epoll set for all ports, with raw system calls
//	blocking   one goroutine for each port in poll(2) and read(2)
//	polling    one goroutine for each port that looks once a tick; a semaphore limits those that read at a time
//
// A goroutine that goes from system call to system call is never scheduled, and the runtime's
// monitor takes its P again and again: four context switches a read. The strategy blocking yields
// every 5 ms, which prevents that. The strategy ring tells the runtime nothing while data flows, so
// it costs about what a C program's epoll loop costs. The price: its thread keeps a P. So [New]
// raises GOMAXPROCS by one for it, and Close takes that back. While the lines are idle it waits in
// the ordinary way and holds nothing.
//
// # Guarantees
//
// The bytes of a port come in order, each once. Handler calls of one port never overlap. Closed is
// always the last call. A port that pauses costs nothing until it is resumed, and does not slow the
// others.
//
// # When not to use it
//
// For writing, for a handful of slow connections that net.Conn serves well, and for descriptors
// that poll(2) cannot watch (regular files).
package reader
