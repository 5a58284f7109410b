// Package pool asks which pool of workers to use.
package pool

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	waves   = lab.Params{"load": "waves"}
	fixed   = lab.Ours("fixed/8", of(8, 8))
	dynamic = lab.Ours("dynamic/4-16", of(4, 16))
	each    = lab.Ours("goroutine", goroutines).But("one for each task, at most 16 by a channel as semaphore")
	ants    = lab.Peers("pool").As("ants", "ants")
	pond    = lab.Peers("pool").As("pond", "pond")
)

// wanders is how much more the stacks must take at work than at rest for the memory to be said to
// wander, in bytes: four of those by which it is measured. What the runtime itself has for stacks
// goes up and down by pieces of 32 KiB.
const wanders = 256 << 10

func init() {
	lab.Register(&lab.Experiment{
		Name: "pool", Plane: lab.Memory,
		Question: "A fixed pool of workers, one that grows, or a goroutine for each task?",
		Method: "One goroutine submits tasks for as long as the turn takes: of 1 or 20 µs of work, as many as the pool takes; or, load=waves, tasks that wait 1 ms for another, for 50 ms as many as it takes and for 50 ms one each millisecond. rate_variation_percent is the coefficient of variation of the throughput of " +
			"slices of 10 ms. grown_bytes is how much more memory for stacks a pool takes, before the turn, with as many tasks at once as it has workers, 16 at most, than where they come one at a time; each has 40 KiB of its stack in use, which makes it one of 64 KiB: below 32 KiB the runtime counts no single stacks. scale_up_us is how long a pool at rest takes until 16 tasks that wait for each other all run; none for a pool that never has 16 workers.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.RateVariation, lab.ScaleUp, lab.CPUPerOp, lab.RSS,
			lab.GrownBytes,
		},
		Base:        fixed,
		Cells:       func(lab.Options) []lab.Params { return append(lab.Cells("work_ns", 1000, 20000), waves) },
		Contestants: []*lab.Contestant{fixed, dynamic, each, ants, pond},
		Derive: func(_ lab.Params, _ time.Duration, m lab.Metrics) {
			if grown, ok := m[lab.GrownBytes.String()]; ok { // what it gave back meanwhile is no growth
				m[lab.GrownBytes.String()] = max(0, grown)
			}
		},
		Advice: func(v lab.View) string {
			small := lab.Params{"work_ns": "1000"}
			best, sure := v.Best(small, lab.OpsPerSecond, fixed, dynamic, each, ants, pond)
			most, ok := v.Median(best, small, lab.OpsPerSecond)
			if !ok {
				return ""
			}
			return fmt.Sprintf("Of tasks of 1 µs %s does %.2f million a second, ", best.Name, most/1e6) + lab.Or(sure,
				"more than all others.", "and no way beats all others.")
		},
		Claims: []lab.Claim{
			claims.PoolVariation.Judged("fixed/8 and dynamic/4-16 at load=waves", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(dynamic, fixed, waves, lab.RateVariation)
				m, _ := v.Medians(waves, lab.RateVariation, fixed, dynamic)
				if !ok {
					return lab.Verdict{}, false
				}
				return lab.AtLeast(r, 1.2,
					"Throughput follows the load, and the larger pool follows it further up.").As("± %.1f %% against ± %.1f %%: %v", m[0], m[1], r), true
			}),
			claims.PoolMemory.Judged("fixed/8 and dynamic/4-16", func(v lab.View) (lab.Verdict, bool) {
				const why = "A worker more has a stack more, as large as its tasks need: 64 KiB for those by which it is measured. With tasks that need 2 KiB twelve workers more are no matter."
				same, ok1 := v.AtMost(fixed, waves, lab.GrownBytes, wanders, why)
				wanders, ok2 := v.AtLeast(dynamic, waves, lab.GrownBytes, wanders, why)
				return lab.All(same, wanders).IfNot("Four workers more would have stacks of 256 KiB: the pool that grows did not have so many more, or the fixed one's memory grew, too.").As("stacks take %s more at work than at rest in the fixed pool, %s in the one that grows",
					same.Here, wanders.Here), ok1 && ok2
			}),
			claims.PoolGrowth.Judged("dynamic/4-16", func(v lab.View) (lab.Verdict, bool) {
				m, _ := v.Median(dynamic, lab.Params{"work_ns": "20000"}, lab.ScaleUp)
				r, ok := v.Level(dynamic, lab.Params{"work_ns": "20000"}, lab.ScaleUp, 12_000)
				return lab.Within(r, 1.0/3, 3, "").IfNot(
					"A goroutine starts in microseconds; a pool that takes longer waits by its own rule.").As("%.2f ms, %v of it", m/1e3, r), ok
			}),
		},
	})
}
