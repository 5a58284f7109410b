// Package httptail asks how long answers take when the server is not overrun.
package httptail

import (
	"fmt"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	of    = servers.With(servers.Hello)
	cRing = servers.HelloRing()
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-tail", Plane: lab.Network,
		Question: "How long do answers take at a rate that every server can bear?",
		Method: "Requests are due at a fixed rate on 64 connections, and latency counts from when they are due, so a server that stalls is charged for all that it delays. The load is made on the same CPUs: " +
			"the tail has its delays, too, which are the same for all. Quick turns are too short for 99.9 %: use --full.",
		Metrics: []lab.Metric{
			lab.LatencyP50, lab.LatencyP90, lab.LatencyP99, lab.LatencyP999, lab.CPUPerOp,
			lab.Unsent,
		},
		Base: of.NetHTTP, Turn: 2 * time.Second,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("rate", 10000, 30000) },
		Contestants: slices.Concat(of.Own(), of.Peers(), []*lab.Contestant{cRing}, servers.HelloOthers()),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: 64, Rate: float64(cell.Int("rate"))}.Scene(b)
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(lab.Params{"rate": "30000"}, lab.LatencyP99, "%.0f", 1, of.NetHTTP, of.UringGoroutine,
				of.UringCoroutine, of.UringInline)
			if !ok {
				return ""
			}
			return fmt.Sprintf("At 30,000 requests a second 99 %% are answered within %s µs by net/http, %s on goroutines of a ring, %s as coroutines, %s inline.", said...)
		},
		Claims: []lab.Claim{
			atMost("The slowest hundredth is no slower on goroutines than with net/http.", "≤ 1.0×", of.UringGoroutine,
				lab.LatencyP99, 1, "A batch answers its first request when its last has been looked at."),
			atMost("The slowest hundredth is no slower as coroutines than with net/http.", "≤ 1.0×", of.UringCoroutine,
				lab.LatencyP99, 1, "A batch answers its first request when its last has been looked at."),
			atMost("The slowest hundredth is no slower inline than with net/http.", "≤ 1.0×", of.UringInline,
				lab.LatencyP99, 1, "A batch answers its first request when its last has been looked at."),
		},
	})
}

func atMost(text, goal string, who *lab.Contestant, metric lab.Metric, x float64, why string) lab.Claim {
	return lab.Claim{
		Claim: text, Source: lab.Goal(goal), Needs: lab.Needs(lab.Params{"rate": "30000"}, who, of.NetHTTP),
		Judge: func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(who, of.NetHTTP, lab.Params{"rate": "30000"}, metric)
			return lab.AtMost(r, x, why), ok
		},
	}
}
