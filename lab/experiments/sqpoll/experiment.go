// Package sqpoll asks what a kernel thread that polls for submissions brings and costs.
package sqpoll

import (
	"fmt"
	"math"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
	"github.com/tallywheel/tallywheel/server"
)

var (
	without = with("without", 0)
	ms2     = with("sqpoll/2ms", 2*time.Millisecond)
	us50    = with("sqpoll/50us", 50*time.Microsecond).But("rounded up to 1 ms by the kernel's unit")
)

func with(name string, poll time.Duration) *lab.Contestant {
	return lab.Ours(name, servers.Kind{Engine: server.Uring, Mode: server.Inline, SQPoll: poll}.Serves(servers.Hello))
}

var many = lab.Params{"connections": "64"}

func init() {
	lab.Register(&lab.Experiment{
		Name: "sqpoll", Plane: lab.Network,
		Question: "Does a polling kernel thread (SQPOLL) make a server on a ring quicker?",
		Method: "The server tallywheel/uring-inline with and without, under the load of http-plaintext. The kernel thread's CPU time is the server's, as far as the kernel counts it there. It goes to " +
			"sleep after 2 ms without work, or after 50 µs.",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.CPUPercent, lab.CPUPerOp, lab.LatencyP50, lab.LatencyP99,
			lab.SyscallsPerOp,
		},
		Base: without, Turn: time.Second, Calls: true,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("connections", 1, 64) },
		Contestants: []*lab.Contestant{without, ms2, us50},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: advice,
		Claims: []lab.Claim{
			claims.SQPollRate.Judged("sqpoll/2ms and without, connections=64", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(ms2, without, many, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.01, "").IfNot(
					"A batch needs one system call for dozens of requests; the polling thread needs a CPU, which server and load need as well."), ok
			}),
		},
	})
}

// advice says what SQPOLL does to the rate and what to the CPU time of a request, where that could
// be told.
func advice(v lab.View) string {
	r, ok := v.Ratio(ms2, without, many, lab.OpsPerSecond)
	cpu, ok2 := v.Ratio(ms2, without, many, lab.CPUPerOp)
	if !ok || !ok2 || !r.Enough() || !r.Quiet() {
		return ""
	}
	costs := ""
	if cpu.Differ() {
		costs = fmt.Sprintf(" A request takes %v of the CPU time with it.", cpu)
	}
	switch {
	case !r.Differ():
		return fmt.Sprintf("SQPOLL makes no difference to the rate above %.0f %% here.", math.Ceil(100*r.Unseen())) + costs
	case r.Median > 1:
		return fmt.Sprintf("SQPOLL brings %.0f %% more requests here.", 100*(r.Median-1)) + costs
	}
	return fmt.Sprintf("Leave SQPOLL off here: %v of the requests with it. Its thread wants a CPU of its own for each ring.",
		r) + costs
}
