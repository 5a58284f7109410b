// Package ringcopy asks what it costs to hand bytes from one goroutine to another.
package ringcopy

import (
	"fmt"
	"maps"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

func init() {
	how := func(name, how string) lab.Contestant { return lab.Ours(name, "ring-copy", "how="+how) }
	lab.Register(&lab.Experiment{
		Name: "ring-copy", Plane: lab.Memory,
		Question: "What does it cost to hand bytes from one goroutine to another: read in place, copied, through a channel, under a lock?",
		Method: "A producer fills messages, a consumer reads every byte of them. load=max: as fast as it goes, a queue of 1 MiB. load=paced: a message every 20 µs, " +
			"latency from the moment it was due. Waiting is by Gosched on all sides.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.MBPerSecond, lab.LatencyP50, lab.LatencyP99, lab.CPUPerOp},
		Base:    "tallywheel/ring",
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
		Derive: func(cell lab.Params, _ string, _ time.Duration, m lab.Metrics) {
			if cell["load"] == "paced" { // the pace is given: latency is what is asked for
				maps.DeleteFunc(m, func(name string, _ float64) bool {
					return name == lab.NsPerOp.String() || name == lab.MBPerSecond.String()
				})
			}
		},
		Contestants: []lab.Contestant{
			how("tallywheel/ring", "view"), how("ring+memcpy", "copy"), how("channel", "channel").But("slices from a sync.Pool"), how("mutex", "mutex").But("two buffers that change places"),
		},
		Advice: func(v lab.View) string {
			cell := lab.Params{"bytes": "64", "load": "max"}
			all := []string{"tallywheel/ring", "ring+memcpy", "channel", "mutex"}
			m, ok := v.Medians(cell, lab.NsPerOp, all...)
			if !ok {
				return ""
			}
			best, sure := v.Best(cell, lab.NsPerOp, all...)
			return fmt.Sprintf("To hand on 64 bytes takes %.0f ns by a ring, %.0f with a copy, %.0f by a channel, %.0f under a lock: ", m[0], m[1], m[2], m[3]) + lab.Or(sure, best+" is the quickest.", "none beats all others.")
		},
		Claims: []lab.Claim{
			claims.RingLatency.Judged("tallywheel/ring and ring+memcpy at load=paced", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("tallywheel/ring", "ring+memcpy", lab.Params{"load": "paced"}, lab.LatencyP50)
				return lab.AtMost(r, 0.6, "A copy of 64 bytes takes a few ns; latency between two threads is that of cache lines and of the scheduler."), ok
			}),
			claims.RingThroughput.Judged("tallywheel/ring and ring+memcpy at bytes=64, load=max", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("tallywheel/ring", "ring+memcpy", lab.Params{"bytes": "64", "load": "max"}, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.2, "What is copied is in the cache anyway. What costs is to hand over message by message."), ok
			}),
		},
	})
}
