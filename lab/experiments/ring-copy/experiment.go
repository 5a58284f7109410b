// Package ringcopy asks what it costs to hand bytes from one goroutine to another.
package ringcopy

import (
	"fmt"
	"maps"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	view    = lab.Ours("tallywheel/ring", by(viewed))
	memcpy  = lab.Ours("ring+memcpy", by(copied))
	channel = lab.Ours("channel", by(channelQueue)).But("slices from a sync.Pool")
	mutex   = lab.Ours("mutex", by(mutexQueue)).But("two buffers that change places")
	every   = []*lab.Contestant{view, memcpy, channel, mutex}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "ring-copy", Plane: lab.Memory,
		Question: "What does it cost to hand bytes from one goroutine to another: read in place, copied, through a channel, under a lock?",
		Method: "A producer fills messages, a consumer reads every byte of them. load=max: as fast as it goes, a queue of 1 MiB. load=paced: a message every 20 µs, " +
			"latency from the moment it was due. Waiting is by Gosched on all sides.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.MBPerSecond, lab.LatencyP50, lab.LatencyP99, lab.CPUPerOp},
		Base:    view,
		Cells: func(o lab.Options) (cells []lab.Params) {
			sizes := []any{64, 4096}
			if o.Full {
				sizes = []any{64, 128, 1024, 4096}
			}
			for _, c := range lab.Cells("bytes", sizes...) {
				c["load"] = "max"
				cells = append(cells, c)
			}
			return append(cells, lab.Params{"bytes": "64", "load": "paced"})
		},
		Derive: func(cell lab.Params, _ time.Duration, m lab.Metrics) {
			if cell["load"] == "paced" { // the pace is given: latency is what is asked for
				maps.DeleteFunc(m, func(name string, _ float64) bool {
					return name == lab.NsPerOp.String() || name == lab.MBPerSecond.String()
				})
			}
		},
		Contestants: every,
		Advice: func(v lab.View) string {
			cell := lab.Params{"bytes": "64", "load": "max"}
			said, ok := v.Beside(cell, lab.NsPerOp, "%.0f", 1, every...)
			if !ok {
				return ""
			}
			best, sure := v.Best(cell, lab.NsPerOp, every...)
			return fmt.Sprintf("To hand on 64 bytes takes %s ns by a ring, %s with a copy, %s by a channel, %s under a lock: ", said...) + lab.Or(sure, best.Name+" is the quickest.", "none beats all others.")
		},
		Claims: []lab.Claim{
			claims.RingLatency.Judged("tallywheel/ring and ring+memcpy at load=paced",
				func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(view, memcpy, lab.Params{"load": "paced"}, lab.LatencyP50)
					return lab.AtMost(r, 0.6, "").IfNot(
						"A copy of 64 bytes takes a few ns; latency between two threads is that of cache lines and of the scheduler."), ok
				}),
			claims.RingThroughput.Judged("tallywheel/ring and ring+memcpy at bytes=64, load=max",
				func(v lab.View) (lab.Verdict, bool) {
					r, ok := v.Ratio(view, memcpy, lab.Params{"bytes": "64", "load": "max"}, lab.OpsPerSecond)
					return lab.AtLeast(r, 1.2, "").IfNot(
						"What is copied is in the cache anyway. What costs is to hand over message by message."), ok
				}),
		},
	})
}
