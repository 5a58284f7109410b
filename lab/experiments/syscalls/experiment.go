// Package syscalls asks how many system calls an operation makes, and which.
package syscalls

import (
	"fmt"
	"slices"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/logs"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/reader"
)

var (
	portRing       = lab.Ours("serial: tallywheel/ring", readers.By(reader.Ring, ""))
	portFile       = lab.Ours("serial: os.File", readers.Files)
	portThroughput = lab.Ours("serial: tallywheel/throughput", readers.By(reader.Ring, reader.Throughput))
	ring           = lab.Ours("read: tallywheel/uring", bigfile.Random{Depth: 64, Batch: 16}.ByRing)
	files          = lab.Ours("read: os.File", bigfile.Random{Depth: 1}.ByGoroutines)
	mapped         = lab.Ours("read: mmap", bigfile.Map.ReadAt)
	record         = lab.Ours("record: tallywheel/seglog", logs.Std.Durable)
	recordRing     = lab.Ours("record: tallywheel/seglog uring", logs.Uring.Durable)
	pair           = lab.Ours("round trip: socket pair", roundTrip)

	ports = []*lab.Contestant{portRing, portFile, portThroughput}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "syscalls", Plane: lab.Files,
		Question: "How many system calls does an operation make, and which?",
		Method: "Every call of every thread is counted in a turn apart: in the kernel, where programs may be loaded into it, else by ptrace, which slows the program down. A frame of a serial port, at 400 KB/s; a random " +
			"read of 4 KiB, 64 at a time or one; a record that is made durable by 64 goroutines; a ping-pong through a socket pair.",
		Metrics: []lab.Metric{
			lab.SyscallsPerOp, lab.Calls("read"), lab.Calls("pread64"), lab.Calls("epoll_pwait"),
			lab.Calls("io_uring_enter"), lab.Calls("fdatasync"), lab.Calls("pwrite64"), lab.Calls("write"),
			lab.Calls("futex"), lab.CPUPerOp,
		},
		Calls: true, Turn: 200e6,
		Contestants: append(slices.Clone(ports), ring, files, mapped, record, recordRing, pair),
		Prepare:     bigfile.Text(16),
		Scene: func(b *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			if slices.Contains(ports, c) {
				return load.Serial{Ports: 1, Rate: 400_000}.Scene(b)
			}
			s, err := bigfile.Scene(b, c, cell)
			if err == nil {
				s.Params["producers"] = "64"
			}
			return s, err
		},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(lab.Params{}, lab.SyscallsPerOp, ring, files, record)
			if !ok {
				return ""
			}
			return lab.Or(m[0] < m[1]/2, "Batching spares system calls",
				"Batching spared few system calls here") + fmt.Sprintf(": %.2f a read by io_uring at depth 64 against %.2f, %.2f a durable record with 64 producers.", m[0], m[1], m[2])
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.RuntimeUring.Judged("the system calls of round trip: socket pair", func(v lab.View) (lab.Verdict, bool) {
			row := v.Row(pair, nil)
			if row == nil || row.Metrics[lab.SyscallsPerOp.String()].N == 0 {
				return lab.Verdict{}, false
			}
			here := fmt.Sprintf("%.2f epoll_pwait and %.2f io_uring_enter a round trip",
				row.Metrics[lab.Calls("epoll_pwait").String()].Median,
				row.Metrics[lab.Calls("io_uring_enter").String()].Median)
			if row.Metrics[lab.Calls("io_uring_enter").String()].Median > 0 {
				return lab.Holds(true, here, "Then this Go is another than any so far."), true
			}
			return lab.CannotBe(here,
				"No version of Go has such a file (go.dev, src/runtime: netpoll_epoll.go). What uses io_uring in Go is a package of its own, such as this project's."), true
		}),
		claims.BatchedCalls.Judged("the system calls of read: tallywheel/uring and read: os.File",
			func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Medians(lab.Params{}, lab.SyscallsPerOp, ring, files)
				if !ok {
					return lab.Verdict{}, false
				}
				return lab.Holds(m[0] <= 0.2*m[1], fmt.Sprintf("%.3f against %.2f a read", m[0], m[1]),
						"One io_uring_enter submits and reaps a batch of 16. Not entirely, and only where there is a batch."),
					true
			}),
		claims.ReadInterrupts.Judged("the system calls of serial: os.File", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Median(portFile, lab.Params{}, lab.SyscallsPerOp)
			return lab.NotHere("a UART, which interrupts; a pty does not.").As("%.2f system calls a frame", m), ok
		}),
	}
}
