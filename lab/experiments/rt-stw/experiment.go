// Package rtstw asks for how long Go's runtime stops all goroutines of a program.
package rtstw

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	garbage = lab.Ours("garbage", stops(byCollector, nothing))
	rarely  = lab.Ours("garbage, GOGC=400", stops(byCollector, nothing)).With("GOGC=400")
	loops   = lab.Ours("garbage beside tight loops",
		stops(byCollector,
			compute)).But("each CPU has a goroutine that computes without a call, which has to be interrupted")
	others = lab.Ours("ReadMemStats",
		stops(byOthers, readStats)).But("stops for runtime.ReadMemStats, each ms, beside garbage")

	small = lab.Params{"heap_MB": "1"}
	large = lab.Params{"heap_MB": "64"}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-stw", Plane: lab.RealTime,
		Question: "For how long does Go's runtime stop all goroutines of a program?",
		Method: "Two goroutines make garbage beside a heap that lives, of 64 KiB blocks. An operation is a stop of the world, as runtime/metrics counts them (/sched/pauses/total and /sched/pauses/stopping): latency is from " +
			"the decision to stop until goroutines run again; stopping is the part of it until all have stopped. Both are read from the runtime's histograms, whose cells are about an eighth wide; the upper bound of a cell counts. Beside the small heap a turn goes on until there were 600 stops, so that 99 % can be told, but for no more than 5 s longer.",
		Metrics: []lab.Metric{
			lab.LatencyP50, lab.LatencyP99, lab.LatencyMax, lab.StoppingP50, lab.StoppingP90, lab.StoppingP99,
			lab.OpsPerSecond,
		},
		Base: garbage, Turn: 2 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return []lab.Params{small, large} },
		Contestants: []*lab.Contestant{garbage, rarely, loops, others},
		Advice: func(v lab.View) string {
			m, ok := v.Beside(large, lab.LatencyP50, "%.0f", 1, garbage, loops)
			most, ok2 := v.LongestBeside(large, garbage, loops)
			if !ok || !ok2 {
				return ""
			}
			return fmt.Sprintf("A collection stops a program for %s µs at the median here, a round's longest one for %s of %d rounds; beside goroutines that compute for %s, the longest one for %s. What must not wait so long belongs into a process of its own.",
				m[0], most[0], v.Rounds, m[1], most[1])
		},
		Claims: []lab.Claim{
			claims.StoppingTakes.Judged(lab.Needs(small, garbage), func(v lab.View) (lab.Verdict, bool) {
				const why = "It is the time until all goroutines have stopped: those that run are asked to, and do at once. Up to 1.5 times the article's is let pass here."
				p50, ok := v.AtMost(garbage, small, lab.StoppingP50, 1.5*3, why)
				p90, ok2 := v.AtMost(garbage, small, lab.StoppingP90, 1.5*17, why)
				p99, many := v.AtMost(garbage, small, lab.StoppingP99, 1.5*89, why)
				if ok && (!many || !ok2) {
					return lab.NotHere("too few stops of the world in a turn to tell 99 %"), true
				}
				return lab.All(p50, p90, p99).IfNot(
					"It is the time until all goroutines have stopped; a thread that has no CPU stops later. Up to 1.5 times the article's is let pass here."), ok && many
			}),
		},
	})
}
