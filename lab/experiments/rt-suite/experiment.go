// Package rtsuite asks what the parts of a measurement cost in each language: the trigger, the time
// stamp, the statistics, and the queue by which a result goes to another process.
package rtsuite

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/suite"
)

var (
	inGo   = lab.Ours("go", suite.Ours(parts))
	c      = lab.Ours(suite.C, suite.Others(parts))
	rust   = lab.Ours(suite.Rust, suite.Others(parts))
	python = lab.Ours(suite.Python, suite.Others(parts)).But("the counter is read by code that ctypes calls")

	timer = lab.Params{"trigger": "timer"}
	event = lab.Params{"trigger": "event"}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-suite", Plane: lab.RealTime,
		Question: "What do the parts of a measurement cost in Go, C, Rust and Python: the trigger, the time stamp, the statistics, the queue of results?",
		Method: "Each program is triggered each 200 µs: by clock_nanosleep (Python: time.sleep), or by an eventfd that another process on another CPU writes to. It reads the processor's counter twice (TSC, CNTVCT_EL0), adds a value to a histogram, a sum, " +
			"a sum of squares and a maximum, reads the counter, and pushes a record of 64 bytes into a ring of package ipc in shared memory, from which this program takes it: 512 at a time by the timer, one by one by the event, where most pushes wake it. Latency is from the release of the timer, or from before the event, to the first of those " +
			"stamps; the other parts are the ticks between two of them, with one reading of the counter in each. Ticks become ns by CLOCK_MONOTONIC at the start and the end. Programs are in SCHED_FIFO 80 where that is allowed.",
		Metrics:     []lab.Metric{lab.LatencyP50, lab.LatencyP99, lab.StampP50, lab.AggregateP50, lab.PushP50},
		Base:        c,
		Cells:       func(lab.Options) []lab.Params { return []lab.Params{timer, event} },
		Contestants: []*lab.Contestant{inGo, c, rust, python},
		Scene:       suite.Scene,
		Advice: func(v lab.View) string {
			m, ok := v.Beside(timer, lab.LatencyP50, "%.1f", 1, inGo, c)
			if !ok {
				return ""
			}
			text := fmt.Sprintf("By a timer the wake-up takes %s µs in Go, %s in C.", m[0], m[1])
			for _, by := range []struct {
				cell lab.Params
				name string
			}{{timer, "the timer"}, {event, "an event"}} {
				n, ok := v.Medians(by.cell, lab.PushP50, inGo, c, rust, python)
				if !ok {
					return ""
				}
				text += fmt.Sprintf(" A result that %s has triggered is in another process's queue after %.0f ns in Go, %.0f in C, %.0f in Rust, %.0f in Python.",
					by.name, n[0], n[1], n[2], n[3])
			}
			return text + " A push that finds its taker asleep has to wake it, and that is most of it."
		},
		Claims: []lab.Claim{
			takes(claims.TriggerTakes, lab.LatencyP50, 1e-3, 37, 42, 112, "",
				"An interrupt has to wake a thread, which alone takes microseconds; nothing that runs in user space has its first line 37 ns behind one. Up to 1.5 times is let pass here."),
			takes(claims.StampTakes, lab.StampP50, 1, 9, 11, 48, stamping, stamping),
			takes(claims.AggregateTakes, lab.AggregateP50, 1, 21, 18, 293, aggregating, aggregating),
		},
	})
}

// Reasons that speak neither for a claim nor against it.
const (
	stamping    = "It is one instruction where a compiler makes it, and a call through ctypes in Python. Up to 1.5 times is let pass here."
	aggregating = "One reading of the counter is in it. Up to 1.5 times is let pass here."
)

// takes judges a claim that a part takes so many ns in C, Rust and Python; unit is what a ns is in
// the unit of the metric.
func takes(p lab.Published, metric lab.Metric, unit, inC, inRust, inPython float64,
	why, ifNot string,
) lab.Claim {
	return p.Judged(lab.Needs(timer, c, rust, python), func(v lab.View) (lab.Verdict, bool) {
		var parts []lab.Verdict
		for _, of := range []struct {
			*lab.Contestant
			ns float64
		}{{c, inC}, {rust, inRust}, {python, inPython}} {
			r, ok := v.Level(of.Contestant, timer, metric, of.ns*unit)
			m, ok2 := v.Median(of.Contestant, timer, metric)
			if !ok || !ok2 {
				return lab.Verdict{}, false
			}
			parts = append(parts, lab.AtMost(r, 1.5, why).As("%s %.0f ns", of.Name, m/unit))
		}
		return lab.All(parts...).IfNot(ifNot), true
	})
}
