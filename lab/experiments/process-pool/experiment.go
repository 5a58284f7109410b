// Package processpool asks what a larger pool of workers brings.
package processpool

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/admission"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	small = of("8 workers, queue 1024", 50, 8, 8, 1024, admission.Refuse).But("AbortPolicy")
	large = of("32 to 64 workers, queue 8192", 50, 32, 64, 8192,
		admission.CallerRuns).But("CallerRunsPolicy; the article's, with 50 connections")
	larger = of("32 workers, 200 connections", 200, 32, 64, 8192, admission.CallerRuns).But("the article's")
	grows  = of("8 to 64 workers, queue 16", 200, 8, 64, 16, admission.CallerRuns).But("grows at once")
	free   = lab.Ours("a goroutine each, 200 connections", database(200, goroutines))
)

func of(name string, connections, core, most, queue int, full admission.Policy) *lab.Contestant {
	return lab.Ours(name, database(connections,
		pooled(admission.PoolConfig{Core: core, Max: most, KeepAlive: time.Minute, Queue: queue, Full: full})))
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-pool", Plane: lab.Processes,
		Question: "How many workers should wait for a database?",
		Method: "A task takes one of so many connections to a database and waits 6.67 ms for it, so that 8 workers do the 1,200 tasks a second that the article has. The pools are admission's, which obey the rules " +
			"of Java's ThreadPoolExecutor: workers beyond the core come when the queue is full. steady: 128 clients, each with the next task when the last is done. bursts: 2,048 clients for 50 ms, then 8 for " +
			"as long: more than 8 workers and a queue of 1,024 have room for, so that a pool has to grow, or to refuse. Latency is from the submission to the end.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.RefusedPerSecond, lab.CPUPerOp,
			lab.RSS,
		},
		Base:        small,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("load", "steady", "bursts") },
		Contestants: []*lab.Contestant{small, large, larger, grows, free},
		Advice: func(v lab.View) string {
			m, ok := v.Medians(lab.Params{"load": "steady"}, lab.OpsPerSecond, small, larger, free)
			if !ok {
				return ""
			}
			each, _ := v.Ratio(free, small, lab.Params{"load": "steady"}, lab.OpsPerSecond)
			more, _ := v.Ratio(larger, small, lab.Params{"load": "steady"}, lab.OpsPerSecond)
			return fmt.Sprintf("Against 8 workers that wait, with %.0f tasks a second, 32 do %s (%.0f), and a goroutine each with 200 connections %s (%.0f).",
				m[0], more.Tell("more", "fewer"), m[1], each.Tell("more", "fewer"), m[2])
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	steady, bursts := lab.Params{"load": "steady"}, lab.Params{"load": "bursts"}
	return []lab.Claim{
		claims.PoolTasks.Judged(lab.Needs(steady, larger, small), func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(larger, small, steady, lab.OpsPerSecond)
			m, _ := v.Medians(steady, lab.OpsPerSecond, small, larger)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.Within(r, 3.6, 4.2,
				"A worker that waits 6.67 ms does 150 tasks a second: 8 do 1,200, 32 do 4,800. It is the number of workers, and says nothing of processes.").
				IfNot("8 workers that wait 6.67 ms for each task can do 1,200 a second, 32 can do 4,800; here they do not wait alone.").As("%.0f → %.0f/s, %v", m[0], m[1], r), true
		}),
		claims.PoolTime.Judged(lab.Needs(steady, larger, small), func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(larger, small, steady, lab.LatencyP50)
			return lab.Within(r, 0.28, 0.38, "").IfNot(
				"With the same clients four times the throughput is a quarter of the time (Little's law): −75 %."), ok
		}),
		claims.PoolConnections.Judged(lab.Needs(steady, large, larger), func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(larger, large, steady, lab.OpsPerSecond)
			return lab.AtLeast(r, 1.05, "").IfNot(
				"32 workers hold at most 32 connections; beyond the core none comes before 8,192 tasks wait."), ok
		}),
		claims.PoolRefusals.Judged(lab.Needs(bursts, small, larger), func(v lab.View) (lab.Verdict, bool) {
			const why = "2,048 clients with a task each are more than 1,032 places. Who waits in a long queue is not refused, but late."
			none, ok1 := v.Never(larger, bursts, lab.RefusedPerSecond, 0, why)
			some, ok2 := v.AtLeast(small, bursts, lab.RefusedPerSecond, 1, why)
			m, _ := v.Medians(bursts, lab.LatencyP50, small, larger)
			if !ok1 || !ok2 || len(m) == 0 {
				return lab.Verdict{}, false
			}
			return lab.All(none, some).As("refused by 8,192 places: %s; by 1,024: %s; half of all wait %.0f ms there, %.0f ms here",
				none.Here, some.Here, m[1]/1e3, m[0]/1e3), true
		}),
	}
}
