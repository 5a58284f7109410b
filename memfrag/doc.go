// Package memfrag follows how memory fragments: of the machine, and of a process on it.
//
// # Concepts
//
// A [Sample] is taken each interval, for hours or days:
//
//   - Of the machine, /proc/buddyinfo: how much memory is free, and how much of that is in blocks
//     of a huge page or more. [Sample.Unusable] is the share that is not: of no use to whoever
//     needs a huge page. /proc/pagetypeinfo, where it may be read, every five minutes: how many
//     blocks of that size are pinned by memory that cannot be moved.
//   - Of a process, /proc/PID/smaps_rollup: what is resident, and how much of it in huge pages.
//   - A [Trial] of huge pages: of each pool that is reserved (hugetlb, 2 MiB or 1 GiB), how many
//     are to be had; where none is, whether the kernel can make some now (MADV_COLLAPSE, Linux
//     6.1). [Trial.Rate] is 1 − those to be had ÷ those that there should be: the measure of an
//     article on real time in Go, which takes HugePages_Total × 2 MiB for the latter.
//
// A [Log] keeps the samples in a file, one line of JSON each. It is bounded: once there are
// MaxSamples of them, each second one of the older half is left out. Whoever opens it again goes on
// with it, also behind a kill.
//
// # When not to use it
//
// For the heap of a Go program alone: runtime/metrics says more. A trial takes a few huge pages for
// about a millisecond; on a machine that has none to spare, leave it out.
//
// Linux only.
package memfrag
