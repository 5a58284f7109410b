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
		Method: "A server and its client in one process, 64 connections: kept, or a new one for each request. Descriptors and goroutines are counted after each fifth of a turn, when nothing is under way: how many more the last has than the first, and by how much they grow with the requests, by the median slope between any two of these. What is allocated " +
			"is compared from fifth to fifth. lock_wait_percent is what goroutines have waited for sync.Mutex and sync.RWMutex, of the time of all CPUs (runtime/metrics).",
		Metrics: []lab.Metric{
			lab.DescriptorLeak, lab.GoroutineLeak, lab.DescriptorDrift, lab.GoroutineDrift,
			lab.AllocationVariation, lab.LockWait,
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
			steady(claims.NoDescriptorLeak, lab.DescriptorLeak),
			steady(claims.NoGoroutineLeft, lab.GoroutineLeak),
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

// letPass is how many descriptors or goroutines more count as none, in 1,000 requests: one in
// 10,000.
const letPass = 0.1

// steady is the claim that a figure of no contestant grows with the requests, by the interval of
// its rounds. One that was not measured may be the one that leaks, so without it the claim does not
// hold.
func steady(p lab.Published, metric lab.Metric) lab.Claim {
	return p.Judged("all servers", func(v lab.View) (lab.Verdict, bool) {
		var parts []lab.Verdict
		worst, here, most := "", "", math.Inf(-1)
		for _, who := range all {
			for _, cell := range lab.Cells("load", "kept", "new") {
				part, ok := v.GrowsAtMost(who, cell, metric, letPass,
					"What leaks grows with the requests, of which a turn has thousands. One for 10,000 of them is let pass here: less is not seen.")
				if !ok {
					parts = append(parts, lab.NotHere("not measured: "+lab.Needs(cell, who)))
					continue
				}
				parts = append(parts, part.IfNot(
					"What one finds more after each fifth of a turn is not given back: more than one for 10,000 requests, which are let pass here."))
				if m, _ := v.Median(who, cell, metric); m > most {
					worst, here, most = who.Name+" "+cell.String(), part.Here, m
				}
			}
		}
		if worst == "" {
			return lab.Verdict{}, false
		}
		return lab.All(parts...).As("%s by %s, which has the most", here, worst), true
	})
}
