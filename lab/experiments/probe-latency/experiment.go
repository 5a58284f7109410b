// Package probelatency asks whether what eBPF says of io_uring is what a program sees.
package probelatency

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
)

var (
	receives = lab.Ours("receives", follow(receiving)).But("waits for a byte that comes 200 µs later")
	syncs    = lab.Ours("syncs", follow(syncing)).But("an fdatasync behind a write, by a worker of the kernel")
	timers   = lab.Ours("timers", follow(timing)).But("timers of 500 µs, which no queue has")

	arrivals = lab.Ours("arrivals", follow(arriving)).But("one multishot receive: a byte every 200 µs, each timed from when another thread sends it")

	all = []*lab.Contestant{receives, arrivals, syncs, timers}
)

// The share of what a program waits that the probe must see, and may. What it misses is the call of
// the clock, the way into the kernel and the one out of it.
const leastShare, mostShare = 0.9, 1.01

// Of an arrival the program also waits for the other thread's call that sends it, which is of the
// same length as what the probe sees.
const leastOfArrivals = 0.5

func init() {
	lab.Register(&lab.Experiment{
		Name: "probe-latency", Plane: lab.Laboratory,
		Question: "Is what the probe says of io_uring's latency what the program itself sees?",
		Method: "A program makes one request of a ring after the other, and times each from before it is pushed until it is reaped. The probe looks at the same process and times every request in the kernel: from its submission until it is put aside, which is armed " +
			"for when its file is ready or given to a worker; from then until it is complete; and until the system call returned that completed it. A timer is not put aside: it has one segment for the first two. " +
			"A multishot receive is made once: the program times each byte from before the other thread sends it, and the probe from its arrival, when the socket wakes the request. Figures are means; the share is all " +
			"segments divided by what the program saw. It needs the right to load programs into the kernel.",
		Metrics: []lab.Metric{
			lab.LatencyMean, lab.ProbeShare, lab.ProbeQueue, lab.ProbeComplete, lab.ProbeAtOnce, lab.ProbeReady,
			lab.ProbeReaped,
			lab.LatencyP50, lab.LatencyP99,
		},
		Contestants: all,
		Advice: func(v lab.View) string {
			m, ok := v.Medians(nil, lab.ProbeShare, all...)
			own, ok2 := v.Median(receives, nil, lab.LatencyMean)
			wait, ok3 := v.Median(receives, nil, lab.ProbeComplete)
			if !ok || !ok2 || !ok3 {
				return ""
			}
			return fmt.Sprintf("The probe finds %.1f %% of what a program waits for receives, %.1f %% for arrivals at a multishot one, %.1f %% for syncs, %.1f %% for timers. Of a receive's %.0f µs, %.0f were spent waiting for the byte.",
				m[0], m[1], m[2], m[3], own, wait/1e3)
		},
		Claims: []lab.Claim{
			agrees("The segments that the probe sees of a receive add up to what the program waits for it.", receives, leastShare),
			agrees("The probe times a multishot receive from each arrival: most of what the program waits for it.",
				arrivals, leastOfArrivals),
			agrees("The segments that the probe sees of a sync add up to what the program waits for it.", syncs, leastShare),
			agrees("The segments that the probe sees of a timer add up to what the program waits for it.", timers, leastShare),
		},
	})
}

// agrees is the claim that the probe and the program say the same, in each round.
func agrees(text string, c *lab.Contestant, least float64) lab.Claim {
	return lab.Claim{
		Claim: text, Needs: lab.Needs(nil, c),
		Source: lab.Goal(fmt.Sprintf("%.0f to %.0f %%", 100*least, 100*mostShare)),
		Judge: func(v lab.View) (lab.Verdict, bool) {
			return v.Share(c, nil, lab.ProbeShare, least, mostShare,
				"What it misses is outside the kernel's part: the clock, the way into the kernel and the way back.")
		},
	}
}
