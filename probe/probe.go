// Package probe looks into the kernel by eBPF: how long io_uring requests take from submission to
// completion, how long received bytes wait for their reader, and how long threads wait for a CPU
// after they were woken. [Follow] notes for one thread how it comes to run, each time.
//
// It needs Linux 5.11 with BTF (/sys/kernel/btf/vmlinux) and the right to load programs: root, or
// CAP_BPF with CAP_PERFMON. The probe of sockets needs Linux 6.3. [Available] says what is missing.
//
// Counts are of every event. Times are of a sample, since there can be millions of events a second:
// of one io_uring request in 64, chosen by its user_data: of a program that has few different ones,
// of more or fewer; of one socket in 16 at a time, another one every 16 ticks of the
// kernel's clock (64 ms at 250 Hz), and of all threads. [Options] has the figure. A wait of which
// the beginning fell into another socket's turn is taken from the next arrival on. What is read by
// splice(2) is not seen.
//
// A multishot request of io_uring is submitted once, for all that comes. Each of its completions is
// timed from the arrival of what it completes. What has no file to wait for, as a timer that ticks,
// is counted alone.
package probe

import (
	"errors"
	"math"
	"time"
)

// Kind is what is looked at.
type Kind string

// The kinds.
const (
	Uring Kind = "uring" // io_uring: from submission, or multishot from arrival, to completion, by operation
	Net   Kind = "net"   // sockets: from the arrival of data to its being read
	Sched Kind = "sched" // threads: from being woken to running
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Uring, Net, Sched} }

// Options say what to look at.
type Options struct {
	PID int // of the process; 0: all
	// times are taken of one request (Uring) or socket (Net) in so many, a power of two up to 1024;
	// 0: 64 requests, 16 sockets; Sched: of all threads, 1 or 0
	Sample int
	// Uring: also in segments; each system call of the process costs it some hundred nanoseconds
	// more then, of all processes where PID is 0
	Segments bool
}

// ErrOptions is in the error for a kind and options that no probe can have.
var ErrOptions = errors.New("wrong options")

// Report is what was seen since the start.
type Report struct {
	Kind      Kind   `json:"kind"`
	Submitted uint64 `json:"submitted"` // Uring: requests
	// Uring: completions, all of a multishot request; Net: reads with data; Sched: times a thread
	// was woken and ran
	Completed uint64      `json:"completed"`
	Sample    int         `json:"sample"` // times are of one in so many
	Latency   []Histogram `json:"latency"`
}

// Histogram counts durations by powers of two.
type Histogram struct {
	Op string `json:"op"` // the operation of io_uring; else "read" or "wakeup"
	// Uring: of requests that complete many times, which have a histogram of their own. Each
	// completion is timed, from when the file became ready for which the request waits. Of those
	// that come together, of one such moment, the first is timed.
	Multishot bool     `json:"multishot,omitempty"`
	Submitted uint64   `json:"submitted"` // Uring: requests of this operation
	Count     uint64   `json:"count"`
	SumNs     uint64   `json:"sum_ns"`
	Log2Ns    []uint64 `json:"log2_ns"` // entry i counts 2^i ns and above, below twice that

	Segments []Segment `json:"segments,omitempty"` // Uring with [Options].Segments: those that were seen
}

// Segment is a part of the way of requests, from their submission to where the program has them.
// The sum of its segments is the latency that the program sees, but for the calls of the clock and
// what happens in the program itself.
type Segment struct {
	Name string `json:"segment"`
	Histogram
}

// The segments of a request of io_uring. It is put aside when the kernel cannot do it at once: it
// is armed, to be woken when its file is ready, or given to a worker.
const (
	ToQueue    = "submit to queue"    // until it is put aside
	ToComplete = "queue to complete"  // from then until it is complete
	AtOnce     = "submit to complete" // of one that is not put aside: timers, too
	// until the system call returns in which it was completed: the program can take it then. Of
	// what no call completes, but a worker or a polling thread, it is not seen, nor is it of
	// more than the first 32 of a call.
	ToReaped = "complete to reaped"
	// of a multishot request, whose time begins when its file became ready
	FromReady = "ready to complete"
)

// Segments lists them, in their order.
func Segments() []string { return []string{ToQueue, ToComplete, AtOnce, ToReaped, FromReady} }

// Quantile is an upper bound of a quantile, 0 to 1: the end of the bucket in which it is, or the
// longest Duration where that is longer still.
func (h Histogram) Quantile(q float64) time.Duration {
	if h.Count == 0 {
		return 0
	}
	rank, seen := uint64(0), uint64(0)
	if at := q * float64(h.Count); at > 0 { // not where q is no number
		rank = uint64(min(at, float64(h.Count-1)))
	}
	last := 0
	for i, n := range h.Log2Ns {
		if n > 0 {
			last = i
		}
		if seen += n; seen > rank {
			break
		}
	}
	if last >= 62 {
		return math.MaxInt64
	}
	return 2 << last
}

// Mean is the average.
func (h Histogram) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	return time.Duration(h.SumNs / h.Count)
}
