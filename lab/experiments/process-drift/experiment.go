// Package processdrift asks whether a server holds more the longer it runs.
package processdrift

import (
	"fmt"
	"math"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/servers"
	"github.com/tallywheel/tallywheel/server"
)

var (
	netHTTP = lab.Ours("net/http", drift(servers.Kind{}))
	auto    = lab.Ours("tallywheel/auto", drift(servers.Kind{Engine: server.Auto, Mode: server.Goroutine}))
	inline  = lab.Ours("tallywheel/uring-inline", drift(servers.Kind{Engine: server.Uring, Mode: server.Inline}))
	epoll   = lab.Ours("tallywheel/epoll-goroutine", drift(servers.Kind{Engine: server.Epoll, Mode: server.Goroutine}))
	all     = []*lab.Contestant{netHTTP, auto, inline, epoll}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-drift", Plane: lab.Processes,
		Question: "Does a server hold more the longer it runs, and do its requests wait for locks?",
		Method: "A server and its client in one process, 64 connections: kept, or a new one for each request. Descriptors and goroutines are counted after the first and the last fifth of a turn, when nothing is under way; what is allocated " +
			"is compared from fifth to fifth. lock_wait_percent is what goroutines have waited for sync.Mutex and sync.RWMutex, of the time of all CPUs (runtime/metrics).",
		Metrics: []lab.Metric{
			lab.DescriptorDrift, lab.GoroutineDrift, lab.AllocationVariation, lab.LockWait,
			lab.OpsPerSecond, lab.RSS,
		},
		Turn:        2 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("load", "kept", "new") },
		Contestants: all,
		Advice: func(v lab.View) string {
			m, ok := v.Medians(kept, lab.LockWait, auto, netHTTP)
			r, _ := v.Ratio(auto, netHTTP, kept, lab.LockWait)
			if !ok {
				return ""
			}
			return fmt.Sprintf("Goroutines of ours wait for locks %.2f %% of the CPUs' time, those of net/http %.2f %%: %s.", m[0], m[1],
				r.Tell("longer", "less long"))
		},
		Claims: []lab.Claim{
			steady(claims.NoDescriptorLeak, lab.DescriptorDrift),
			steady(claims.NoGoroutineLeft, lab.GoroutineDrift),
			claims.NoLockWait.Judged("net/http, load=kept", func(v lab.View) (lab.Verdict, bool) {
				return v.AtMost(netHTTP, kept, lab.LockWait, 1,
					"The article looked at a profile; this is all waiting for locks, of the CPUs' time. 1 % is what is let pass here.")
			}),
			claims.SteadyAllocation.Judged("net/http, load=kept", func(v lab.View) (lab.Verdict, bool) {
				return v.AtMost(netHTTP, kept, lab.AllocationVariation, 25,
					"It goes with the requests, which vary with the machine; 25 % from fifth to fifth is what is let pass here.")
			}),
		},
	})
}

var kept = lab.Params{"load": "kept"}

// steady is the claim that a figure of no contestant grows: in no round by more than what comes
// and goes with 64 connections, whose both ends are in this process, and in half of them by no more
// than a few.
func steady(p lab.Published, metric lab.Metric) lab.Claim {
	const comesAndGoes, few = 2 * 64, 16
	return p.Judged("all servers", func(v lab.View) (lab.Verdict, bool) {
		var parts []lab.Verdict
		worst, most := "", math.Inf(-1)
		for _, who := range all {
			for _, cell := range lab.Cells("load", "kept", "new") {
				part, ok := v.Never(who, cell, metric, comesAndGoes,
					"With 64 connections that come and go some are open at any moment; what leaks grows with the requests, of which there were tens of thousands.")
				if !ok {
					continue
				}
				if m, _ := v.Median(who, cell, metric); m > few && part.Verdict == lab.Reproduced {
					part.Verdict, part.Reason = lab.NotMeasurable, lab.TooNoisy
					part.Why = fmt.Sprintf("Too noisy: in half of the rounds more than %d, in none more than %d.", few,
						comesAndGoes)
				}
				parts = append(parts, part)
				if m, _ := v.Largest(who, cell, metric); m > most {
					worst, most = who.Name+" "+cell.String(), m
				}
			}
		}
		if len(parts) == 0 {
			return lab.Verdict{}, false
		}
		return lab.All(parts...).As("at most %.0f more, %s", most, worst), true
	})
}
