// Package httpconnect asks what a request costs that has a connection of its own.
package httpconnect

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	of            = servers.With(servers.Hello)
	gnet          = servers.ClosingGnet()
	cRing, cEpoll = servers.C("once=1")
	net           = of.NetHTTP
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-connect", Plane: lab.Network,
		Question: "What does a request cost that has a connection of its own?",
		Method: "A connection over loopback, GET / with Connection: close, a small answer, whose bytes are compared, and the server's end of the connection, which is waited for: then it is answered. 64 at a time. " +
			"The CPU time of the server for each decides. The kernel's work for the handshake is done where the client connects, and not counted; accepting, closing and what a server makes for each connection is.",
		Metrics: []lab.Metric{
			lab.CPUPerOp, lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.SyscallsPerOp,
			lab.ContextSwitchesPerOp, lab.RSS,
		},
		Base: net, Turn: time.Second, Calls: true,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("connections", 64) },
		Contestants: append(of.OwnAuto(), gnet, of.FastHTTP, cRing, cEpoll),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections"), Close: true, Exchanges: load.Hello()}.Scene(b)
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(nil, cpu, "%.0f", 1, net, of.Auto, of.UringCoroutine, of.UringInline)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A request with a connection of its own costs %s µs by net/http, %s on goroutines, %s as a coroutine, %s inline.", said...)
		},
		Claims: claims(),
	})
}

var cpu = lab.CPUPerOp

func claims() []lab.Claim {
	const why = "The kernel's accept, close and timers are most of it and the same for all; what differs is goroutines, buffers and calls for each connection."
	goal := lab.Goal("≤ 0.75×")
	return []lab.Claim{
		lab.AllAtMost("A server that asks for no engine takes, for a request with a connection of its own, three quarters of net/http.", goal, []*lab.Contestant{of.Auto}, net, nil, cpu, 0.75, why),
		lab.AllAtMost("As a coroutine and inline a request with a connection of its own takes three quarters of net/http.", goal, []*lab.Contestant{of.UringCoroutine, of.UringInline}, net, nil, cpu, 0.75, why),
		lab.AllAtMost("Inline, a ring in Go costs at most a sixth more than liburing in C for a request with a connection of its own.", lab.Goal("≤ 1.15×"), []*lab.Contestant{of.UringInline}, cRing, nil, cpu, 1.15, why),
	}
}
