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
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	asItIs     = with("as it is", 0)
	procs1     = with("GOMAXPROCS=1", 0, "GOMAXPROCS=1")
	procs8     = with("GOMAXPROCS=8", 0, "GOMAXPROCS=8")
	preemptOff = with("asyncpreemptoff=1", 0, "GODEBUG=asyncpreemptoff=1")
	yielding   = with("gosched", 10)
	gogc400    = with("GOGC=400", 0, "GOGC=400")
	gogcOff    = with("GOGC=off", 0, "GOGC=off", "GOMEMLIMIT=512MiB").But("with a limit of 512 MiB, where it collects")
)

// with is the server whose handlers yield so many times, with variables of its environment.
func with(name string, yields int, env ...string) *lab.Contestant {
	c := lab.Ours(name, servers.Kind{}.Serves(servers.Yielding(yields)))
	debug := "GODEBUG=gctrace=1" // it says what it collects
	for _, e := range env {
		if settings, ok := strings.CutPrefix(e, "GODEBUG="); ok {
			debug += "," + settings
		}
	}
	return c.With(append(slices.Clone(env), debug)...)
}

// leastLonger is how much longer a pause is at least that is called longer.
const leastLonger = 1.05

func init() {
	lab.Register(&lab.Experiment{
		Name: "runtime-tuning", Plane: lab.Network,
		Question: "What do GOMAXPROCS, asyncpreemptoff, Gosched and the garbage collector's settings do for a server?",
		Method:   "The server of package net/http, with one setting changed in each contestant, under the load of http-plaintext with 400 connections, with --full also 2,000. gosched: every handler yields ten times. Collections and their pauses are what the runtime says of them (gctrace=1).",
		Metrics: []lab.Metric{
			lab.OpsPerSecond, lab.CPUPerOp, lab.LatencyMean, lab.LatencyP50, lab.LatencyP99,
			lab.ContextSwitchesPerOp, lab.RSS, lab.GCCycles, lab.GCPause, lab.GCPauseMean,
		},
		Base: asItIs, Turn: time.Second,
		Cells: func(o lab.Options) []lab.Params {
			if o.Full {
				return lab.Cells("connections", 400, 2000)
			}
			return lab.Cells("connections", 400)
		},
		Contestants: []*lab.Contestant{asItIs, procs1, procs8, preemptOff, yielding, gogc400, gogcOff},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: func(v lab.View) string {
			gc, ok := v.Ratio(gogc400, asItIs, nil, lab.CPUPerOp)
			off, ok2 := v.Ratio(preemptOff, asItIs, nil, lab.CPUPerOp)
			if !ok || !ok2 {
				return ""
			}
			procs, _ := v.Best(nil, lab.CPUPerOp, asItIs, procs1, procs8)
			return fmt.Sprintf("asyncpreemptoff changes a request's CPU time to %v of what it was, GOGC=400 to %v for some memory. ", off, gc) + lab.Or(procs == asItIs, "Leave GOMAXPROCS as it is.", procs.Name+" costs the least CPU time.")
		},
		Claims: []lab.Claim{
			claims.PreemptOff.Judged("asyncpreemptoff=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(preemptOff, asItIs, nil, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.12, "").IfNot(
					"Handlers return long before they would be preempted, so there is nothing to switch off."), ok
			}),
			claims.Procs8.Judged("GOMAXPROCS=8 and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(procs8, asItIs, nil, lab.OpsPerSecond)
				return lab.AtLeast(r, 1.05, "").IfNot("More Ps than CPUs only means more threads that look for work."), ok
			}),
			claims.TuningLatency.Judged("GOMAXPROCS=8, asyncpreemptoff=1 and as it is",
				func(v lab.View) (lab.Verdict, bool) {
					procs, ok1 := v.Ratio(procs8, asItIs, nil, lab.LatencyMean)
					off, ok2 := v.Ratio(preemptOff, asItIs, nil, lab.LatencyMean)
					const why = "Connections that send again at once: the mean latency is their number divided by the rate, so 25 % less would be a third more requests, where the article has 12 % more."
					return lab.All(lab.AtMost(procs, 0.87, why),
							lab.AtMost(off, 0.75, why)).As("%v with GOMAXPROCS=8, %v with asyncpreemptoff=1", procs,
							off),
						ok1 && ok2
				}),
			claims.TuningPauses.Judged("asyncpreemptoff=1 and as it is", func(v lab.View) (lab.Verdict, bool) {
				often, ok1 := v.Ratio(preemptOff, asItIs, nil, lab.GCCycles)
				long, ok2 := v.Ratio(preemptOff, asItIs, nil, lab.GCPauseMean)
				const why = "How often the collector runs is up to what is allocated. A pause waits for goroutines that do not yield, and those of a server do all the time."
				return lab.All(lab.AtLeast(often, 1.5, ""),
						lab.AtLeast(long, leastLonger, "")).IfNot(why).As("%v of the collections, a pause is %v as long", often,
						long),
					ok1 && ok2
			}),
			claims.Gosched.Judged("gosched and as it is", func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(yielding, asItIs, nil, lab.CPUPerOp)
				base, _ := v.Median(asItIs, nil, lab.CPUPerOp)
				return lab.AtMost(r, 1.5,
					"There are ten of them in each request: less than half more is less than 5 % for one.").As("%.2f µs each; with ten of them %v", base*(r.Median-1)/10, r), ok
			}),
		},
	})
}
