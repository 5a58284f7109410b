// Package processscale asks what several processes bring that one with all CPUs does not.
package processscale

import (
	"fmt"
	"runtime"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/workers"
)

var (
	one      = served("1 process, GOMAXPROCS=1", 1, 1)
	whole    = served("1 process, all CPUs", 1, 0)
	two      = served("2 processes, GOMAXPROCS=1", 2, 1)
	four     = served("4 processes, GOMAXPROCS=1", 4, 1)
	twoWhole = served("2 processes, all CPUs", 2, 0)
)

func served(name string, count, procs int) *lab.Contestant {
	return lab.Ours(name, workers.Prefork{
		Workers: count,
		Procs:   procs,
	}.Serves).But("a master of package prefork beside, which serves nobody")
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-scale", Plane: lab.Processes,
		Question: "What do several processes bring that one with all CPUs does not?",
		Method: "net/http behind prefork, one worker or more, each with a socket of its own. A request computes some 20 µs (cpu), allocates 200 × 512 bytes (alloc), holds a lock for 10 µs that all of its " +
			"process want (mutex), or waits 2 ms (io). Each connection asks as soon as it is answered. With n CPUs no number of processes does more than n times what one with GOMAXPROCS=1 does; the client " +
			"takes its share of them, too.",
		Metrics: []lab.Metric{lab.OpsPerSecond, lab.LatencyP50, lab.LatencyP99, lab.CPUPercent},
		Base:    whole, Turn: time.Second,
		Cells:       cells,
		Contestants: []*lab.Contestant{one, whole, two, four, twoWhole},
		Scene: func(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			return load.HTTP{Connections: cell.Int("connections")}.Scene(b)
		},
		Advice: func(v lab.View) string {
			cpu, ok1 := v.Ratio(twoWhole, whole, at("cpu"), lab.OpsPerSecond)
			lock, ok2 := v.Ratio(twoWhole, whole, at("mutex"), lab.OpsPerSecond)
			alloc, ok3 := v.Ratio(twoWhole, whole, at("alloc"), lab.OpsPerSecond)
			if !ok1 || !ok2 || !ok3 {
				return ""
			}
			tell := func(r lab.Ratio) string {
				return r.Tell(fmt.Sprintf("more (%.2f×)", r.Median), fmt.Sprintf("fewer (%.2f×)", r.Median))
			}
			return fmt.Sprintf("Against one process with all CPUs, two with all of them do of the requests that compute %s, of those that allocate %s, of those that want one lock %s.",
				tell(cpu), tell(alloc), tell(lock))
		},
		Claims: judges(),
	})
}

func cells(o lab.Options) (all []lab.Params) {
	for _, connections := range []string{"100", "2000"} {
		for _, work := range []string{"cpu", "alloc", "mutex", "io"} {
			if o.Full || connections == "100" {
				all = append(all, lab.Params{"work": work, "connections": connections})
			}
		}
	}
	return all
}

func at(work string) lab.Params { return lab.Params{"work": work, "connections": "100"} }

// cpusOfFour is how many CPUs four workers with one each want, and a load that keeps them busy.
const cpusOfFour = 5

func fewCPUs() lab.Verdict {
	return lab.NotHere(fmt.Sprintf("CPUs: four workers and a load that keeps them busy want %d at least, this machine has %d",
		cpusOfFour, runtime.NumCPU()))
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.FourProcesses.Judged("1 and 4 processes, work=cpu", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(four, one, at("cpu"), lab.OpsPerSecond)
			if ok && runtime.NumCPU() < cpusOfFour {
				return fewCPUs().As("%v", r), true
			}
			return lab.AtLeast(r, 3.6,
				"One process with GOMAXPROCS=1 uses one CPU: what is compared is one CPU with four. A tenth less than four times is let pass here.").
				IfNot("Four processes have four CPUs at most, and the rest of the machine, with the load, takes its share of them."), ok
		}),
		claims.GainOfProcesses.Judged("2 processes with all CPUs and one, work=cpu",
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(twoWhole, whole, at("cpu"), lab.OpsPerSecond)
				return lab.AtLeast(r, 1.2,
						"One process with all CPUs is what one has without any of this; a fifth more is asked for here."),
					ok
			}),
		claims.OneLatency.Judged("1 process, work=cpu", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(at("cpu"), lab.OpsPerSecond, one)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.CannotBe(byLittle(100, m[0]),
				"2,000 connections that each wait for an answer, at 2,053 answers a second, wait 2,000 ÷ 2,053 = 0.974 s on average (J. D. C. Little, Operations Research 9, 1961). 48.7 ms is what 100 connections would see."), true
		}),
		claims.FourLatency.Judged("4 processes, work=cpu", func(v lab.View) (lab.Verdict, bool) {
			m, ok := v.Medians(at("cpu"), lab.OpsPerSecond, four)
			if !ok {
				return lab.Verdict{}, false
			}
			return lab.CannotBe(byLittle(100, m[0]),
				"2,000 ÷ 8,196 = 0.244 s, by the same law. 12.3 ms is what 100 connections would see."), true
		}),
		claims.WorkersCPU.Judged("1 and 4 processes, work=cpu", func(v lab.View) (lab.Verdict, bool) {
			alone, ok1 := v.Median(one, at("cpu"), lab.CPUPercent)
			all, ok2 := v.Median(four, at("cpu"), lab.CPUPercent)
			if ok1 && ok2 && runtime.NumCPU() < cpusOfFour {
				return fewCPUs().As("%.0f %% and %.0f %%", alone, all), true
			}
			const why = "A load that asks as soon as it is answered leaves a server no pause."
			a, _ := v.AtLeast(one, at("cpu"), lab.CPUPercent, 90, why)
			b, _ := v.AtLeast(four, at("cpu"), lab.CPUPercent, 4*90, why)
			return lab.All(a, b).As("%s, and %s for all four", a.Here, b.Here), ok1 && ok2
		}),
		claims.HotLock.Judged("2 processes with all CPUs and one, work=mutex", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(twoWhole, whole, at("mutex"), lab.OpsPerSecond)
			return lab.AtLeast(r, 1.1, "Each process has a lock of its own.").
				IfNot("Each process has a lock of its own, but waiting for it is not what bounds this load here."), ok
		}),
	}
}

// byLittle says what the mean has to be of so many connections that each wait for an answer.
func byLittle(connections int, perSecond float64) string {
	return fmt.Sprintf("%d connections at %.0f/s: %.1f ms", connections, perSecond, 1e3*float64(connections)/perSecond)
}
