// Package processaffinity asks how many workers there should be, and whether to bind them to CPUs.
package processaffinity

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/workers"
	"github.com/tallywheel/tallywheel/rt"
)

// cpus is n.
var cpus = func() int {
	all, err := rt.Affinity(0)
	if err != nil {
		return 2
	}
	return len(all)
}()

var (
	half   = served("n ÷ 2 workers", cpus/2, false)
	n      = served("n workers", cpus, false)
	pinned = served("n workers, bound", cpus, true)
	twice  = served("2n workers", 2*cpus, false)
	more   = served("4n workers", 4*cpus, false)
)

func served(name string, count int, pin bool) *lab.Contestant {
	count = max(1, count)
	return lab.Ours(name, workers.Prefork{Workers: count, Procs: 1, Pin: pin}.Serves).But(fmt.Sprintf("%d here", count))
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-affinity", Plane: lab.Processes,
		Question: "How many workers for n CPUs, and bound to them or not?",
		Method: "net/http behind prefork; each worker has GOMAXPROCS=1. A request computes some 20 µs (cpu) or waits 2 ms (io). 64 connections ask as soon as they are answered. Bound: worker i runs on CPU i " +
			"only, as by taskset. The client is on the same CPUs.",
		Metrics: []lab.Metric{lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99},
		Base:    n, Turn: time.Second,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("work", "cpu", "io") },
		Contestants: []*lab.Contestant{half, n, pinned, twice, more},
		Scene: func(b *lab.Bench, _ *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: 64}.Scene(b)
		},
		Advice: func(v lab.View) string {
			r, ok := v.Ratio(twice, n, lab.Params{"work": "cpu"}, lab.OpsPerSecond)
			p, ok2 := v.Ratio(pinned, n, lab.Params{"work": "cpu"}, lab.OpsPerSecond)
			if !ok || !ok2 {
				return ""
			}
			return fmt.Sprintf("Against as many workers as CPUs, of work that computes twice as many do %s, and as many that are bound %s.",
				r.Tell("more: "+r.String(), "less: "+r.String()), p.Tell("more: "+p.String(), "less: "+p.String()))
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	ratio := func(p lab.Published, a *lab.Contestant, work string, judge func(lab.Ratio) lab.Verdict) lab.Claim {
		return p.Judged(lab.Needs(lab.Params{"work": work}, a, n), func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(a, n, lab.Params{"work": work}, lab.OpsPerSecond)
			return judge(r), ok
		})
	}
	return []lab.Claim{
		cpuBound(),
		ratio(claims.IOBoundCount, twice, "io", func(r lab.Ratio) lab.Verdict {
			return lab.AtLeast(r, 1.05,
				"More processes have a larger share of the CPUs, which the client wants, too.").
				IfNot("A Go process waits for thousands of requests at a time: one is as good at waiting as two. The rule is of processes that wait for one.")
		}),
		ratio(claims.Binding, pinned, "cpu", func(r lab.Ratio) lab.Verdict {
			return lab.AtLeast(r, 1.02,
				"What is bound finds its caches warm.").
				IfNot("The kernel moves a process that computes only where a CPU is idle; a bound one has to wait for its own, which the client may have.")
		}),
	}
}

// cpuBound is the claim that n workers do most: none of the other counts does more.
func cpuBound() lab.Claim {
	cell, others := lab.Params{"work": "cpu"}, []*lab.Contestant{half, twice, more}
	all := lab.AllAtMost("", lab.Source{}, others, n, cell, lab.OpsPerSecond, 1.02,
		"A CPU that computes has nothing to give to another process, switches only cost, and fewer workers leave CPUs idle.")
	return claims.CPUBoundCount.Judged(all.Needs, func(v lab.View) (lab.Verdict, bool) {
		verdict, ok := all.Judge(v)
		return verdict.IfNot("The client wants the same CPUs: more processes take a larger share of them, fewer leave it one."), ok
	})
}
