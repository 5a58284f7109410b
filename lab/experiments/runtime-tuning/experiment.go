// Package runtimetuning asks what the knobs of Go's runtime do for a server.
package runtimetuning

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
)

func init() {
	with := func(name, arg string, env ...string) lab.Contestant {
		c := lab.Ours(name, "http", "engine=net/http", arg)
		c.Env = env
		return c
	}
	lab.Register(&lab.Experiment{
		Name: "runtime-tuning", Plane: lab.Network,
		Question: "What do GOMAXPROCS, asyncpreemptoff, Gosched and the garbage collector's settings do for a server?",
		Method:   "The server of package net/http, with one setting changed in each contestant, under the load of http-plaintext with 64 connections. gosched: every handler yields ten times.",
		Metrics:  []lab.Metric{lab.OpsPerSecond, lab.CPUPerOp, lab.LatencyP50, lab.LatencyP99, lab.ContextSwitchesPerOp, lab.RSS},
		Base:     "as it is", Turn: time.Second,
		Cells: func(lab.Options) []lab.Params { return lab.Cells("connections", 64) },
		Contestants: []lab.Contestant{
			with("as it is", "yield=0"),
			with("GOMAXPROCS=1", "yield=0", "GOMAXPROCS=1"),
			with("GOMAXPROCS=8", "yield=0", "GOMAXPROCS=8"),
			with("asyncpreemptoff=1", "yield=0", "GODEBUG=asyncpreemptoff=1"),
			with("gosched", "yield=10"),
			with("GOGC=400", "yield=0", "GOGC=400"),
			with("GOGC=off", "yield=0", "GOGC=off", "GOMEMLIMIT=512MiB").But("with a limit of 512 MiB, where it collects"),
		},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: func(v lab.View) string {
			gc, ok := v.Ratio("GOGC=400", "as it is", nil, lab.CPUPerOp)
			off, ok2 := v.Ratio("asyncpreemptoff=1", "as it is", nil, lab.CPUPerOp)
			if !ok || !ok2 {
				return ""
			}
			procs, _ := v.Best(nil, lab.CPUPerOp, "as it is", "GOMAXPROCS=1", "GOMAXPROCS=8")
			return fmt.Sprintf("asyncpreemptoff changes a request's CPU time to %v of what it was, GOGC=400 to %v for some memory. ", off, gc) + lab.Or(procs == "as it is", "Leave GOMAXPROCS as it is.", procs+" costs the least CPU time.")
		},
		Claims: []lab.Claim{
			claims.PreemptOff.Judged("asyncpreemptoff=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("asyncpreemptoff=1", "as it is", nil, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.12, "Handlers return long before they would be preempted, so there is nothing to switch off."), ok
			}),
			claims.Procs8.Judged("GOMAXPROCS=8 and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("GOMAXPROCS=8", "as it is", nil, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.05, "More Ps than CPUs only means more threads that look for work."), ok
			}),
			claims.Gosched.Judged("gosched and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("gosched", "as it is", nil, lab.CPUPerOp)
				base, _ := v.Median("as it is", nil, lab.CPUPerOp)
				return lab.AtMost(r, 1.5, "There are ten of them in each request: less than half more is less than 5 % for one.").As("%.2f µs each; with ten of them %v", base*(r.Median-1)/10, r), ok
			}),
		},
	})
}
