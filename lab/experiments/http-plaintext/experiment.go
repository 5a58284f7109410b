// Package httpplaintext asks which engine answers the smallest request with the least.
package httpplaintext

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	of    = servers.With(servers.Hello)
	cRing = servers.HelloRing()

	// the system calls that any of them makes, and what there is besides
	calls = []lab.Metric{
		lab.Calls("read"), lab.Calls("recvfrom"), lab.Calls("write"), lab.Calls("writev"), lab.Calls("sendto"),
		lab.Calls("sendmsg"), lab.Calls("accept4"), lab.Calls("epoll_ctl"), lab.Calls("epoll_wait"),
		lab.Calls("epoll_pwait"), lab.Calls("io_uring_enter"), lab.Calls("futex"),
		// Go's scheduler makes these by time: the fewer requests a loaded machine serves, the more
		// of them has each request
		lab.Calls("nanosleep"), lab.Calls("sched_yield"),
	}
	otherCalls = lab.Calls("others")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-plaintext", Plane: lab.Network,
		Question: "What does an HTTP server itself cost, by engine and by the way handlers run?",
		Method: "GET / with keep-alive over loopback, a small answer, connections that send again as soon as they are answered, or 16 requests at a time. The articles' own load is in http-wrk. The load is made on the same CPUs by " +
			"two threads, as wrk would, so requests a second say how much server and load fit on them together; the CPU time of the server for each request is what decides. " +
			"Latency under such a load is mostly waiting for a CPU: see http-tail. System calls by name add up to all of them; nanosleep and sched_yield are Go's scheduler, which makes them by time and not by request.",
		Metrics: slices.Concat([]lab.Metric{
			lab.CPUPerOp, lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.SyscallsPerOp, lab.ContextSwitchesPerOp,
			lab.RSS, lab.CPUSystemPerOp, lab.Threads,
		}, calls, []lab.Metric{otherCalls}),
		Derive: others,
		Base:   of.NetHTTP, Turn: 1500 * time.Millisecond, Calls: true,
		Cells: func(o lab.Options) []lab.Params {
			cells := []lab.Params{{"connections": "64", "pipeline": "1"}, {"connections": "400", "pipeline": "1"}}
			if o.Full {
				cells = append(cells, lab.Params{"connections": "64", "pipeline": "16"})
			}
			return cells
		},
		Contestants: slices.Concat(of.Own(), of.Peers(), []*lab.Contestant{cRing}, servers.HelloOthers()),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections"), Pipeline: cell.Int("pipeline")}.Scene(b)
		},
		Advice: advice,
		Claims: judges(),
	})
}

// others makes the columns of system calls add up.
func others(_ lab.Params, _ time.Duration, m lab.Metrics) {
	rest, counted := m[lab.SyscallsPerOp.String()]
	for _, c := range calls {
		rest -= m[c.String()]
	}
	if counted {
		m[otherCalls.String()] = max(0, rest) // less than nothing by rounding alone
	}
}

var cpu = lab.CPUPerOp

func cell(connections string) lab.Params {
	return lab.Params{"connections": connections, "pipeline": "1"}
}

func advice(v lab.View) string {
	said, ok := v.Beside(cell("64"), cpu, "%.1f", 1, of.NetHTTP, of.UringGoroutine, of.UringCoroutine, of.UringInline)
	if !ok {
		return ""
	}
	return fmt.Sprintf("net/http costs %s µs a request here. The same handler on engine uring costs %s on goroutines and %s as a coroutine, one written for it %s inline. See "+
		"http-json for what is left of that where handlers work.", said...)
}

// atMost is a claim on CPU time by request.
func atMost(text, goal string, a, b *lab.Contestant, connections string, x float64, why string) lab.Claim {
	return lab.Claim{
		Claim: text, Source: lab.Goal(goal), Needs: lab.Needs(nil, a, b),
		Judge: func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(a, b, cell(connections), cpu)
			return lab.AtMost(r, x, why), ok
		},
	}
}

func judges() []lab.Claim {
	const ring = "A ring and C cost the kernel's network stack alike; what is above is parsing, which C does not do, and the bookkeeping that makes misuse an error."
	const churn = "net/http wakes a goroutine for each request and makes garbage for it."
	return []lab.Claim{
		claims.EngineSwitches.Judged("tallywheel/uring-goroutine, tallywheel/uring-coroutine and net/http with 400 connections", func(v lab.View) (lab.Verdict, bool) {
			on, ok1 := v.Ratio(of.UringGoroutine, of.NetHTTP, cell("400"), lab.ContextSwitchesPerOp)
			as, ok2 := v.Ratio(of.UringCoroutine, of.NetHTTP, cell("400"), lab.ContextSwitchesPerOp)
			const why = "Counted by request, server threads only."
			return lab.All(lab.AtMost(on, 0.548, why),
				lab.AtMost(as, 0.548, why)).As("%v on goroutines, %v as coroutines", on, as), ok1 && ok2
		}),
		claims.EngineSystemTime.Judged("tallywheel/uring-goroutine, tallywheel/uring-coroutine and net/http with 400 connections", func(v lab.View) (lab.Verdict, bool) {
			on, ok1 := v.Ratio(of.UringGoroutine, of.NetHTTP, cell("400"), lab.CPUSystemPerOp)
			as, ok2 := v.Ratio(of.UringCoroutine, of.NetHTTP, cell("400"), lab.CPUSystemPerOp)
			const why = "Counted for each request. The network stack itself is the same for all; what goes is waking and asking."
			return lab.All(lab.AtMost(on, 0.625, why),
				lab.AtMost(as, 0.625, why)).As("%v on goroutines, %v as coroutines", on, as), ok1 && ok2
		}),
		claims.LatencyByRate.Judged("net/http with 400 connections", func(v lab.View) (lab.Verdict, bool) {
			rate, ok1 := v.Median(of.NetHTTP, cell("400"), lab.OpsPerSecond)
			p50, ok2 := v.Median(of.NetHTTP, cell("400"), lab.LatencyP50)
			return lab.CannotBe(fmt.Sprintf("400 ÷ 38,985 is %.1f ms; here 400 ÷ %.0f is %.1f ms, and the median latency was %.1f ms", 400/38.985, rate, 400e3/rate, p50/1e3),
				"Connections that send again at once have a mean latency of their number divided by the rate (J. D. C. Little, Operations Research 9, 1961)."), ok1 && ok2
		}),
		claims.ThreadPool.Judged("net/http with 400 connections", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Median(of.NetHTTP, cell("400"), lab.Threads)
			return lab.Holds(m >= 200, fmt.Sprintf("%.0f threads for 400 connections", m), "").IfNot(
				"A goroutine that waits for a connection has no thread; epoll waits for all of them."), ok
		}),
		claims.CallsPerRequest.Judged("the system calls of net/http with 400 connections",
			func(v lab.View) (lab.Verdict, bool) {
				reads, ok1 := v.Median(of.NetHTTP, cell("400"), lab.Calls("read"))
				writes, ok2 := v.Median(of.NetHTTP, cell("400"), lab.Calls("write"))
				all, ok3 := v.Median(of.NetHTTP, cell("400"), lab.SyscallsPerOp)
				return lab.Holds(reads >= 0.9 && reads <= 1.1 && writes >= 0.9 && writes <= 1.1,
					fmt.Sprintf("%.2f read, %.2f write, %.2f calls in all", reads, writes, all), "").IfNot(
					"One read more finds nothing, before the goroutine waits."), ok1 && ok2 && ok3
			}),
		atMost("Inline, a ring in Go costs at most a sixth more than liburing in C, with 400 connections.", "≤ 1.15×",
			of.UringInline, cRing, "400", 1.15, ring),
		atMost("Inline, a ring in Go costs at most a quarter more than liburing in C, with 64 connections.", "≤ 1.25×",
			of.UringInline, cRing, "64", 1.25, ring),
		atMost("Inline, a ring in Go costs about half of net/http.", "≤ 0.55×", of.UringInline, of.NetHTTP, "400", 0.55,
			churn),
		atMost("net/http's own handlers as coroutines cost 0.7 of net/http.", "≤ 0.70×", of.UringCoroutine, of.NetHTTP,
			"64", 0.70, churn),
		atMost("net/http's own handlers as coroutines cost no more than fasthttp.", "≤ 1.0×", of.UringCoroutine,
			of.FastHTTP, "64", 1.0,
			"fasthttp saves the garbage by handlers of its own kind, and wakes a goroutine for each request."),
		atMost("net/http's own handlers on goroutines of a ring cost 0.8 of net/http.", "≤ 0.80×", of.UringGoroutine,
			of.NetHTTP, "64", 0.80, churn),
		{
			Claim:  "A ring needs a quarter of a system call for each request.",
			Source: lab.Goal("≤ 0.25 with 400 connections"), Needs: "system calls of tallywheel/uring-inline",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Median(of.UringInline, cell("400"), lab.SyscallsPerOp)
				co, _ := v.Median(of.UringCoroutine, cell("400"), lab.SyscallsPerOp)
				return lab.Holds(m <= 0.25, strings.TrimSpace(fmt.Sprintf("%.2f inline, %.2f as coroutines", m, co)),
					"One call a turn receives and sends for all connections; counting slows the turn down, which makes it larger."), ok
			},
		},
	}
}
