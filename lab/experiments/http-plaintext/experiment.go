// Package httpplaintext asks which engine answers the smallest request with the least.
package httpplaintext

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

// Experiment is the question, its contestants and its claims.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name: "http-plaintext", Plane: "network",
		Question: "What does an HTTP server itself cost, by engine and by the way handlers run?",
		Method: "GET / with keep-alive over loopback, a small answer, connections that send again as soon as they are answered, or 16 requests at a time; with --full also wrk -t12 -c400, the articles' load, whose 30 s are several turns here. The load is made on the same CPUs by " +
			"two threads, as wrk would, so requests a second say how much server and load fit on them together; the CPU time of the server for each request is what decides. " +
			"Latency under such a load is mostly waiting for a CPU: see http-tail.",
		Metrics: []string{"cpu_us_per_op", "ops_per_s", "latency_us_p50", "latency_us_p99", "syscalls_per_op", "context_switches_per_op", "rss_bytes"},
		Base:    "net/http", Turn: 1500 * time.Millisecond, Calls: true,
		Cells: func(o lab.Options) []lab.Params {
			cells := []lab.Params{{"connections": "64", "pipeline": "1"}, {"connections": "400", "pipeline": "1"}}
			if o.Full {
				cells = append(cells, lab.Params{"connections": "64", "pipeline": "16"}, lab.Params{"connections": "400", "pipeline": "1", "load": "wrk"})
			}
			return cells
		},
		Contestants: append(append(servers.Own("hello"), servers.Peers("hello")...), servers.Others()...),
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			if cell["load"] == "wrk" {
				return load.Wrk{Threads: 12, Connections: cell.Int("connections")}.Scene(b)
			}
			return load.HTTP{Connections: cell.Int("connections"), Pipeline: cell.Int("pipeline")}.Scene(b)
		},
		Advice: advice,
		Claims: claims(),
	}
}

const cpu = "cpu_us_per_op"

func cell(connections string) lab.Params {
	return lab.Params{"connections": connections, "pipeline": "1"}
}

func advice(v lab.View) string {
	m, ok := v.Medians(cell("64"), cpu, "tallywheel/uring-goroutine", "tallywheel/uring-coroutine", "tallywheel/uring-inline", "net/http")
	if !ok {
		return ""
	}
	return fmt.Sprintf("net/http costs %.1f µs a request here. The same handler on engine uring costs %.1f on goroutines and %.1f as a coroutine, one written for it %.1f inline. A handler that works "+
		"for 50 µs hides most of that: see http-json.", m[3], m[0], m[1], m[2])
}

// atMost is a claim on CPU time by request.
func atMost(text, seed, a, b, connections string, x float64, why string) lab.Claim {
	return lab.Claim{
		Claim: text, Seed: seed, Needs: a + " and " + b,
		Judge: func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(a, b, cell(connections), cpu)
			return lab.AtMost(r, x, why), ok
		},
	}
}

func claims() []lab.Claim {
	const ring = "A ring and C cost the kernel's network stack alike; what is above is parsing, which C does not do, and the bookkeeping that makes misuse an error."
	const churn = "net/http wakes a goroutine for each request and makes garbage for it."
	return []lab.Claim{
		{
			Claim: "io_uring answers 37.2 % more requests a second than epoll.", Seed: "+37.2 % QPS with wrk -t12 -c400 -d30s", Needs: "tallywheel/uring-inline and tallywheel/epoll-inline",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("tallywheel/uring-inline", "tallywheel/epoll-inline", cell("400"), "ops_per_s")
				return lab.AtLeast(r, 1.372, "The same code on both engines: on loopback the network stack is most of the cost, and it is the same."), ok
			},
		},
		{
			Claim: "Against net/http, an engine on io_uring does.", Seed: "+37.2 % QPS", Needs: "tallywheel/uring-inline and net/http",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("tallywheel/uring-inline", "net/http", cell("400"), "ops_per_s")
				return lab.AtLeast(r, 1.372, "The gain is net/http's goroutine for each request that is not woken; epoll without it has most of it, too."), ok
			},
		},
		{
			Claim: "It makes 45.2 % fewer context switches.", Seed: "124K → 68K a second", Needs: "tallywheel/uring-inline and net/http",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("tallywheel/uring-inline", "net/http", cell("400"), "context_switches_per_op")
				return lab.AtMost(r, 0.548, "Counted by request, server threads only."), ok
			},
		},
		{
			Claim: "Go's net/http uses io_uring by itself where the kernel has it.", Seed: "“Go 1.20 supports it natively”", Needs: "the system calls of net/http",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				n, counted := v.Median("net/http", cell("64"), "syscalls_per_op")
				enters, uses := v.Median("net/http", cell("64"), "call_io_uring_enter")
				if !counted {
					return lab.Verdict{}, false
				}
				if uses {
					return lab.Holds(true, fmt.Sprintf("%.2f io_uring_enter a request", enters), "It was seen to."), true
				}
				return lab.CannotBe(fmt.Sprintf("%.1f system calls a request, none of them io_uring_enter", n), "No version of Go's runtime has a line of it: netpoll is epoll."), true
			},
		},
		{
			Claim: "Kernel 4.19 is enough for it.", Seed: "“CentOS 7 with kernel 4.19”", Needs: "tallywheel/uring-inline, which wants Linux 6.0",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median("tallywheel/uring-inline", cell("64"), cpu)
				return lab.CannotBe("io_uring_setup came with Linux 5.1", "4.19 answers ENOSYS; multishot accept and receive, which a server wants, are of 5.19 and 6.0."), ok
			},
		},
		atMost("Inline, a ring in Go costs a sixth more than liburing in C.", "this project: ≤ 1.15×", "tallywheel/uring-inline", "c/liburing", "400", 1.15, ring),
		atMost("… and a quarter more with 64 connections.", "this project: ≤ 1.25×", "tallywheel/uring-inline", "c/liburing", "64", 1.25, ring),
		atMost("It costs about half of net/http.", "this project: ≤ 0.55×", "tallywheel/uring-inline", "net/http", "400", 0.55, churn),
		atMost("net/http's own handlers as coroutines cost 0.7 of net/http.", "this project: ≤ 0.70×", "tallywheel/uring-coroutine", "net/http", "64", 0.70, churn),
		atMost("… no more than fasthttp.", "this project: ≤ 1.0×", "tallywheel/uring-coroutine", "fasthttp", "64", 1.0, "fasthttp saves the garbage by handlers of its own kind, and wakes a goroutine for each request."),
		atMost("… and 0.8 of net/http on goroutines.", "this project: ≤ 0.80×", "tallywheel/uring-goroutine", "net/http", "64", 0.80, churn),
		{
			Claim: "A ring needs a quarter of a system call for each request.", Seed: "this project: ≤ 0.25 with 400 connections", Needs: "system calls of tallywheel/uring-inline",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Median("tallywheel/uring-inline", cell("400"), "syscalls_per_op")
				co, _ := v.Median("tallywheel/uring-coroutine", cell("400"), "syscalls_per_op")
				return lab.Holds(m <= 0.25, strings.TrimSpace(fmt.Sprintf("%.2f inline, %.2f as coroutines", m, co)), "One call a turn receives and sends for all connections; counting slows the turn down, which makes it larger."), ok
			},
		},
	}
}
