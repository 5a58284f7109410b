// Package processsteal asks how to share out small tasks that beget tasks.
package processsteal

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	ours    = lab.Ours("tallywheel/steal", tree(stealing))
	channel = lab.Ours("channel", tree(queued(channelTasks))).But("one, which all workers read")
	locked  = lab.Ours("mutex queue", tree(queued(lockedTasks)))
	each    = lab.Ours("goroutine", tree(queued(goroutines))).But("one for each task, no bound")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-steal", Plane: lab.Processes,
		Question: "How to share out small tasks that beget tasks?",
		Method: "A task begets 63 others; 16 such trees at a time. A task computes so many loops of about 1 ns. All ways have a worker for each CPU and 256 places for each, and do a task at once where there is " +
			"none; a goroutine for each has no bound.",
		Metrics:     []lab.Metric{lab.OpsPerSecond, lab.CPUPerOp, lab.ContextSwitchesPerOp, lab.RSS},
		Base:        channel,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("loops", 100, 1000, 10000) },
		Contestants: []*lab.Contestant{ours, channel, locked, each},
		Advice: func(v lab.View) string {
			r, ok := v.Ratio(ours, channel, lab.Params{"loops": "100"}, lab.OpsPerSecond)
			s, ok2 := v.Ratio(ours, channel, lab.Params{"loops": "10000"}, lab.OpsPerSecond)
			if !ok || !ok2 {
				return ""
			}
			tell := func(r lab.Ratio) string {
				return r.Tell(fmt.Sprintf("more (%.2f×)", r.Median), fmt.Sprintf("fewer (%.2f×)", r.Median))
			}
			return fmt.Sprintf("Against one channel, queues of each worker's own do of tasks of 0.1 µs %s, of tasks of 10 µs %s.",
				tell(r), tell(s))
		},
		Claims: []lab.Claim{claims.StealingThroughput.Judged(lab.Needs(lab.Params{"loops": "100"}, ours, channel),
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(ours, channel, lab.Params{"loops": "100"}, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.2,
					"A lock that nobody else wants costs less than one that all do. The article gives no figure; a fifth is asked for here.").
					IfNot("A lock that nobody else wants costs less than one that all do, but this load does not wait for it long enough to gain the fifth that is asked for here."), ok
			}), claims.UnboundedQueue.Judged("goroutine, loops=10000", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(lab.Params{"loops": "10000"}, lab.RSS, each, ours)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.CannotBe(fmt.Sprintf("%.1f MB without a bound, %.1f with, of 1,024 tasks at a time", m[0]/1e6,
				m[1]/1e6),
				"A queue without a bound, into which more comes than goes, grows until memory ends, and makes all wait as long as it is. Ours has who submits wait."), true
		})},
	})
}
