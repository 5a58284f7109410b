// Package ring is a byte queue between one producer and one consumer whose contents are always in
// one piece.
//
// # Concepts
//
// The memory is mapped twice, back to back, so a run of bytes that goes over the end continues at
// the start of the second mapping without a break. The producer reads from the kernel straight into
// [Ring.Space] and publishes; the consumer parses frames in place, in [Ring.View], and releases. No
// byte is copied in between.
//
// [Ring] lies between two goroutines. [Shared] lies on a descriptor that another process maps,
// which is not trusted, and may be killed at any instruction; its positions are offsets on the
// wire, so they never rewind.
//
// # Guarantees
//
// No locks, no allocation after [New], no system call after it. One goroutine may produce while
// another consumes; two producers, or two consumers, need a lock of their own. What was published
// is seen whole and in order.
//
// # When not to use it
//
// A ring never blocks and never wakes anybody: waiting is its owner's affair, and that of package
// ipc between processes. It takes two mappings and at least a page of memory; for a few small
// messages a channel is simpler. Linux only.
package ring

// MaxSize bounds the size of a ring, in bytes, so that two mappings fit a 32-bit address space.
const MaxSize = 64 << 20
