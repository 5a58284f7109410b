// Package httpwrk puts the articles' own load on the servers that run one handler.
package httpwrk

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var of = servers.With(servers.Hello)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-wrk", Plane: lab.Network,
		Question: "What do the articles' own load and figures say of servers that run the same handler?",
		Method: "wrk -t12 -c400, as the articles have it, for a second a turn and, with --full, 30 s; its threads are on the same CPUs as the server. All servers run one http.Handler. " +
			"Latency is what wrk says, which does not see what it does not send: a connection sends when it is answered.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.LatencyMean, lab.LatencyP50, lab.LatencyP99, lab.CPUPerOp,
			lab.CPUSystemPerOp, lab.ContextSwitchesPerOp,
		},
		Base: of.NetHTTP, Turn: 30 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("connections", 400) },
		Contestants: []*lab.Contestant{of.NetHTTP, of.Std, of.UringGoroutine, of.UringCoroutine, of.EpollGoroutine},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.Wrk{Threads: 12, Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(nil, lab.OpsPerSecond, "%.0f", 1e3, of.NetHTTP, of.UringGoroutine, of.UringCoroutine,
				of.EpollGoroutine)
			if !ok {
				return ""
			}
			return fmt.Sprintf("Under wrk with 400 connections net/http answers %s thousand requests a second; the same handler on a ring %s on goroutines and %s as coroutines, on epoll %s.",
				said...)
		},
		Claims: []lab.Claim{
			claims.EngineRate.Judged("tallywheel/uring-goroutine, tallywheel/uring-coroutine and net/http",
				func(v lab.View) (lab.Verdict, bool) {
					on, ok1 := v.Ratio(of.UringGoroutine, of.NetHTTP, nil, lab.OpsPerSecond)
					as, ok2 := v.Ratio(of.UringCoroutine, of.NetHTTP, nil, lab.OpsPerSecond)
					const why = "What is gained is mostly net/http's goroutine for each request that is not woken: the same code on epoll has it, too."
					verdict := lab.All(lab.AtLeast(on, 1.372, why),
						lab.AtLeast(as, 1.372, why)).As("%v on goroutines, %v as coroutines", on, as).
						IfNot("What is to be gained is mostly net/http's goroutine for each request that is not woken: the same code on epoll has it, too. It is less than 37.2 % here.")
					if ring, ok := v.Ratio(of.UringGoroutine, of.EpollGoroutine, nil, lab.OpsPerSecond); ok {
						verdict.Here += fmt.Sprintf("; on goroutines, over the same code on epoll, %v", ring)
					}
					return verdict, ok1 && ok2
				}),
			claims.EngineLatency.Judged("tallywheel/uring-goroutine, tallywheel/uring-coroutine and net/http",
				func(v lab.View) (lab.Verdict, bool) {
					on, ok1 := v.Ratio(of.UringGoroutine, of.NetHTTP, nil, lab.LatencyMean)
					as, ok2 := v.Ratio(of.UringCoroutine, of.NetHTTP, nil, lab.LatencyMean)
					const why = "Of 400 connections that send again at once, the mean latency is 400 ÷ requests a second (Little's law): 37.7 % less is 60 % more requests, where the article has 37.2 %."
					return lab.All(lab.AtMost(on, 0.623, why),
						lab.AtMost(as, 0.623, why)).As("%v on goroutines, %v as coroutines", on, as), ok1 && ok2
				}),
		},
	})
}
