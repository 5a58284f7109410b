// Package rtcyclic asks how late a program wakes up that does something each period.
package rtcyclic

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/cell/cyclic"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/load"
)

var (
	ofCell       = lab.Ours("tallywheel/cell", wait(cyclic.Cell)).But("a process of its own")
	raw          = lab.Ours("go/clock_nanosleep, raw", wait(cyclic.Raw)).But("Go's scheduler is not told").InQuick(idle)
	syscall      = lab.Ours("go/clock_nanosleep", wait(cyclic.Syscall)).InQuick(idle)
	timerfd      = lab.Ours("go/timerfd", wait(cyclic.Timerfd)).But("through the poller of the runtime").InQuick(idle)
	uringTimeout = lab.Ours("go/io_uring", wait(cyclic.Uring)).InQuick(idle)
	ticker       = lab.Ours("go/time.Ticker", wait(cyclic.Ticker))
	sleep        = lab.Ours("go/time.Sleep", wait(cyclic.Sleep)).InQuick(idle)
	c            = others(lab.C("cyclic.c", "apt install gcc", "-lm").As("c/clock_nanosleep", "cyclic",
		"how=nanosleep"))
	cTimerfd  = others(lab.C("cyclic.c", "apt install gcc", "-lm").As("c/timerfd", "cyclic", "how=timerfd"))
	rust      = others(lab.Rust("cyclic.rs").As("rust/clock_nanosleep", "cyclic", "how=nanosleep"))
	rustSleep = others(lab.Rust("cyclic.rs").As("rust/thread::sleep", "cyclic", "how=sleep"))
	python    = others(lab.Python("cyclic.py", "os", "apt install python3").As("python/time.sleep", "cyclic"))
	reference = others(cyclictest())

	idle   = lab.Params{"interval_us": "1000", "load": load.None}
	beside = lab.Params{"interval_us": "1000", "load": load.GC}
	within = lab.Params{"interval_us": "1000", "load": load.SameGC}
)

// others are contestants that have no collector: a collection in their own process is none.
func others(c *lab.Contestant) *lab.Contestant {
	c.Skip = func(cell lab.Params) bool { return cell["load"] == load.SameGC }
	return c
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-cyclic", Plane: lab.RealTime,
		Question: "How late does a program wake up that does something each period?",
		Method: "One thread wakes up each period and does nothing else. Latency is from the release to the moment at which the program has seen the clock; a release is missed if it has passed before the " +
			"one before it was done with. Every contestant asks for SCHED_FIFO 80, for the thread that waits alone, and for a timer slack of 1 ns; the programs in C and Rust lock their memory, too. gc: the laboratory's " +
			"process makes garbage meanwhile, in turns of 5 s, for which a quick run has no time; gc-same: the contestant's own does, that of a cell being the one that has started it. cpu and memory: as many threads as CPUs compute, or copy.",
		Metrics: []lab.Metric{
			lab.LatencyP50, lab.LatencyP99, lab.LatencyP999, lab.LatencyMax, lab.PeriodStddev,
			lab.MissedReleases, lab.FaultsAfterSetUp, lab.AllocsAfterSetUp,
		},
		Base: c, Turn: 2 * time.Second, Least: least,
		Cells: cells,
		Contestants: []*lab.Contestant{
			ofCell, raw, syscall, timerfd, uringTimeout, ticker, sleep, c, cTimerfd,
			reference, rust, rustSleep, python,
		},
		Scene: load.BurdenScene,
		Advice: func(v lab.View) string {
			m, ok := v.Beside(idle, lab.LatencyP50, "%.0f", 1, ofCell, c, ticker)
			n, more := v.Beside(within, lab.LatencyP99, "%.0f", 1, ofCell, ticker)
			if !ok || !more {
				return ""
			}
			return fmt.Sprintf("A cell wakes up %s µs behind its time, a program in C %s, a time.Ticker %s. Where the program makes garbage, 99 %% of a cell's wake-ups are within %s µs, of a Ticker's within %s.",
				append(m, n...)...)
		},
		Claims: judges(),
	})
}

func cells(o lab.Options) (all []lab.Params) {
	if !o.Full { // what is asked of beside takes turns of seconds
		return []lab.Params{idle, within}
	}
	for _, every := range []string{"1000", "5000"} {
		for _, l := range []string{load.None, load.CPU, load.Memory, load.GC, load.SameGC} {
			all = append(all, lab.Params{"interval_us": every, "load": l})
		}
	}
	return all
}

// least is how long a turn must be for the percentiles that claims ask for, of which five values
// are beyond, and some periods more, for those that are missed: 99.9 % beside a process that
// collects garbage, 99 % where nothing does and within one.
func least(cell lab.Params) time.Duration {
	const missed = 1.03
	switch {
	case cell.Has(beside):
		return time.Duration(missed * float64(5000*time.Millisecond))
	case cell.Has(idle), cell.Has(within):
		return time.Duration(missed * float64(500*time.Millisecond))
	}
	return 0
}

// noCyclictest is the verdict where one of the two is missing; the table says why.
var noCyclictest = lab.NotHere("cyclictest (apt install rt-tests), or a program in C beside it")

func judges() []lab.Claim {
	return []lab.Claim{
		claims.TickerIsExact.Judged("go/time.Ticker and c/clock_nanosleep", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(ticker, c, idle, lab.LatencyP50)
			return lab.AtMost(r, 1.5, "").IfNot(
				"A Ticker's goroutine waits for whichever thread runs the runtime's timers; what LockOSThread holds is the thread that waits for that. The article has no figure; 1.5 times C's is what is let pass here."), ok
		}),
		claims.NoPauses.Judged("go/time.Ticker beside garbage of its own and without",
			func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Across(ticker, within, ticker, idle, lab.LatencyP99)
				return lab.AtMost(r, 1.5, "").IfNot(
					"It stops the world for microseconds only, but its helpers take CPUs, and goroutines help it by what they allocate. 1.5 times is what is let pass here."), ok
			}),
		claims.CyclictestExact.Judged("cyclictest and c/clock_nanosleep", func(v lab.View) (lab.Verdict, bool) {
			if v.Row(reference, idle) == nil || v.Row(c, idle) == nil {
				return noCyclictest, true
			}
			return v.ApartAtMost(reference, c, idle, lab.LatencyP50, 10,
				"Its median is held to that of a program of ours that waits in the same way. It reads the clock in ns, and prints µs if it is not told otherwise.")
		}),
		{
			Claim:  "cyclictest and a program of ours that waits in the same way tell the same latency.",
			Source: lab.Goal("p50 and p99 within 10 %"), Needs: lab.Needs(idle, reference, c),
			Judge: func(v lab.View) (lab.Verdict, bool) {
				const why = "Both call clock_nanosleep in SCHED_FIFO 80 with locked memory and look at the clock; they have turns in the same rounds."
				p50, ok := v.Ratio(reference, c, idle, lab.LatencyP50)
				p99, ok2 := v.Ratio(reference, c, idle, lab.LatencyP99)
				if v.Row(reference, idle) == nil || v.Row(c, idle) == nil {
					return noCyclictest, true
				}
				return lab.All(lab.Within(p50, 0.9, 1.1, why), lab.Within(p99, 0.9, 1.1, why)), ok && ok2
			},
		},
		lab.AllAtMost("A cell wakes up as early as a program in C, at the median.",
			lab.Goal("≤ 1.1× clock_nanosleep in C"), []*lab.Contestant{ofCell}, c, idle, lab.LatencyP50, 1.1,
			"The same call, on a thread that nothing else of Go's has to do with."),
		lab.AllAtMost("A cell wakes up as early as a program in C, at 99 %.", lab.Goal("≤ 1.25×"),
			[]*lab.Contestant{ofCell}, c, idle, lab.LatencyP99, 1.25,
			"It yields to Go's scheduler between the periods."),
		lab.AllAtMost("A cell wakes up as early as a program in C beside a process that collects garbage, at 99.9 %.",
			lab.Goal("≤ 2×"), []*lab.Contestant{ofCell}, c, beside, lab.LatencyP999, 2, "No heap is shared."),
		{
			Claim:  "A cell allocates nothing and has no page fault, once it is set up.",
			Source: lab.Goal("0 allocations, 0 page faults"), Needs: "tallywheel/cell",
			Judge: func(v lab.View) (lab.Verdict, bool) {
				const none = 0.5 // a turn has whole ones
				const why = "Its memory is locked, and mapped before it begins."
				faults, ok := v.Never(ofCell, within, lab.FaultsAfterSetUp, none, why)
				allocs, ok2 := v.Never(ofCell, within, lab.AllocsAfterSetUp, none, why)
				mostFaults, _ := v.Largest(ofCell, within, lab.FaultsAfterSetUp)
				mostAllocs, _ := v.Largest(ofCell, within, lab.AllocsAfterSetUp)
				verdict := lab.All(faults, allocs).As("at most %.0f page faults and %.0f allocations a turn",
					mostFaults, mostAllocs)
				verdict.Needed = "none in any turn"
				return verdict, ok && ok2
			},
		},
	}
}
