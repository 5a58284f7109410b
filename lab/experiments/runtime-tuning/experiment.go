// Package runtimetuning asks what the knobs of Go's runtime do for a server.
package runtimetuning

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
)

func init() {
	with := func(name, arg string, env ...string) lab.Contestant {
		c := lab.Ours(name, "http", "engine=net/http", arg)
		debug := "GODEBUG=gctrace=1" // it says what it collects
		for _, e := range env {
			if settings, ok := strings.CutPrefix(e, "GODEBUG="); ok {
				debug += "," + settings
			}
		}
		c.Env = append(slices.Clone(env), debug)
		return c
	}
	lab.Register(&lab.Experiment{
		Name: "runtime-tuning", Plane: lab.Network,
		Question: "What do GOMAXPROCS, asyncpreemptoff, Gosched and the garbage collector's settings do for a server?",
		Method:   "The server of package net/http, with one setting changed in each contestant, under the load of http-plaintext with 64 connections. gosched: every handler yields ten times. Collections and their pauses are what the runtime says of them (gctrace=1).",
		Metrics:  []lab.Metric{lab.OpsPerSecond, lab.CPUPerOp, lab.LatencyP50, lab.LatencyP99, lab.ContextSwitchesPerOp, lab.RSS, lab.GCCycles, lab.GCPause},
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
			claims.TuningLatency.Judged("GOMAXPROCS=8, asyncpreemptoff=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				procs, ok1 := v.Ratio("as it is", "GOMAXPROCS=8", nil, lab.OpsPerSecond)
				off, ok2 := v.Ratio("as it is", "asyncpreemptoff=1", nil, lab.OpsPerSecond)
				const why = "Connections that send again at once: the mean latency is their number divided by the rate, so 25 % less would be a third more requests, where the article has 12 % more."
				return lab.All(lab.AtMost(procs, 0.9, why), lab.AtMost(off, 0.8, why)).As("%v with GOMAXPROCS=8, %v with asyncpreemptoff=1", procs, off), ok1 && ok2
			}),
			claims.TuningPauses.Judged("asyncpreemptoff=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				often, ok1 := v.Ratio("asyncpreemptoff=1", "as it is", nil, lab.GCCycles)
				long, ok2 := v.Ratio("asyncpreemptoff=1", "as it is", nil, lab.GCPause)
				const why = "How often the collector runs is up to what is allocated. A pause waits for goroutines that do not yield, and those of a server do all the time."
				return lab.All(lab.AtLeast(often, 1.25, why), lab.AtLeast(long, 1.25, why)).As("%v of the collections, %v of the time in pauses", often, long), ok1 && ok2
			}),
			claims.Gosched.Judged("gosched and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio("gosched", "as it is", nil, lab.CPUPerOp)
				base, _ := v.Median("as it is", nil, lab.CPUPerOp)
				return lab.AtMost(r, 1.5, "There are ten of them in each request: less than half more is less than 5 % for one.").As("%.2f µs each; with ten of them %v", base*(r.Median-1)/10, r), ok
			}),
		},
	})
}
