// Package rtevent asks how long it takes from an event to the program that waits for it.
package rtevent

import (
	"fmt"
	"slices"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	poller = not(lab.Ours("go", hear(byPoller, false)).But("through the runtime's poller; a signal through os/signal"),
		"gpio")
	thread = not(lab.Ours("go, locked thread", hear(byThread, true)).But("in read(2)"), "gpio", "signal")
	c      = lab.C("event.c", "apt install gcc linux-libc-dev", "-lpthread").As("c",
		"event").But("a signal counts from the handler's first line")
	rust = not(lab.Rust("event.rs").As("rust", "event").But("a signal counts from the handler's first line"), "gpio")

	eventfd = lab.Params{"event": "eventfd"}
	signals = lab.Params{"event": "signal"}
	gpio    = lab.Params{"event": "gpio"}
)

// not leaves a contestant out of some events.
func not(c *lab.Contestant, events ...string) *lab.Contestant {
	c.Skip = func(cell lab.Params) bool { return slices.Contains(events, cell["event"]) }
	return c
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-event", Plane: lab.RealTime,
		Question: "How long does it take from an event to the program that waits for it?",
		Method: "A thread makes an event 200 µs after the one before has been heard, when who waits sleeps again: it writes to an eventfd or a pipe, or sends a signal. Latency is from before that call to the line behind the wait, " +
			"in ns of CLOCK_MONOTONIC; for a timerfd it is from the expiration, for gpio from the kernel's time stamp of the edge. Where one thread waits it has the last CPU, in SCHED_FIFO 80 if that is allowed, and who makes the events has the first; Go's poller has no such thread. " +
			"gpio needs two lines of a GPIO chip that a wire connects: TALLYWHEEL_GPIO=/dev/gpiochipN:OUT:IN.",
		Metrics: []lab.Metric{lab.LatencyP50, lab.LatencyP99, lab.LatencyP999, lab.LatencyMax},
		Base:    c,
		Cells: func(lab.Options) []lab.Params {
			return lab.Cells("event", "eventfd", "pipe", "timerfd", "signal", "gpio")
		},
		Contestants: []*lab.Contestant{poller, thread, c, rust},
		Advice: func(v lab.View) string {
			m, ok := v.Beside(eventfd, lab.LatencyP50, "%.1f", 1, poller, thread, c)
			n, ok2 := v.Beside(signals, lab.LatencyP50, "%.1f", 1, poller, c)
			if !ok || !ok2 {
				return ""
			}
			return fmt.Sprintf("A goroutine hears of an eventfd after %s µs, a locked thread in read(2) after %s, a program in C after %s. A signal takes %s µs to a goroutine, %s to a handler in C.",
				append(m, n...)...)
		},
		Claims: []lab.Claim{
			claims.EdgeBySignal.Judged("c at event=gpio", func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Median(c, gpio, lab.LatencyP50)
				if !ok {
					return lab.NotHere("two lines of a GPIO chip that a wire connects (TALLYWHEEL_GPIO)"),
						len(v.Rows) > 0
				}
				return lab.Holds(false, fmt.Sprintf("from the edge to a read of the chip's descriptor %.1f µs", m),
					"The kernel tells an edge to who reads or polls the line's descriptor, and sends no signal (Documentation/userspace-api/gpio/chardev.rst)."), true
			}),
		},
	})
}
