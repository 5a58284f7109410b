// Package rtpath asks where the time goes between the moment at which a thread is to wake up and
// its first line.
package rtpath

import (
	"fmt"
	"math"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/suite"
)

var (
	inGo   = lab.Ours("go", suite.Ours(follow))
	c      = lab.Ours(suite.C, suite.Others(follow))
	rust   = lab.Ours(suite.Rust, suite.Others(follow))
	python = lab.Ours(suite.Python, suite.Others(follow))

	timer = lab.Params{"trigger": "timer"}
	event = lab.Params{"trigger": "event"}
)

// clockError is by how much two readings of the clock may contradict each other, in ns: those of
// the kernel are the clock's, those of the programs are ticks that are held to it at both ends of a
// turn.
const clockError = 200

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-path", Plane: lab.RealTime,
		Question: "Where does the time go between the moment at which a thread is to wake up and its first line?",
		Method: "The programs of rt-suite, beside programs of eBPF at the beginning and the end of each interrupt, and at hrtimer_expire_entry, sched_wakeup and sched_switch, that note how the one thread comes to run. Each of its wake-ups is joined with the kernel's: those whose moments are in order. " +
			"The stages are means, which add up to the mean latency: until the timer interrupts (none, where the interrupt of another timer has begun before); from there until the thread may run (path_irq_ns); until it has a CPU; until its first line. An event has no timer: there " +
			"path_wake_ns begins with the call that makes it. path_error_ns is by how much a moment lay before the one that it follows at worst, which is how far the two clocks contradict each other. It needs the right to load programs into the kernel.",
		Metrics: []lab.Metric{
			lab.LatencyMean, lab.PathTimer, lab.PathIRQ, lab.PathWake, lab.PathSwitch, lab.PathUser,
			lab.PathJoined, lab.PathMissed, lab.PathWakeUps, lab.PathError,
		},
		Base: c, Cells: func(lab.Options) []lab.Params { return []lab.Params{timer, event} },
		Contestants: []*lab.Contestant{inGo, c, rust, python},
		Scene:       suite.Scene,
		Advice: func(v lab.View) string {
			var stages []float64
			for _, m := range []lab.Metric{lab.PathTimer, lab.PathIRQ, lab.PathSwitch, lab.PathUser} {
				ns, ok := v.Median(c, timer, m)
				if !ok {
					return ""
				}
				stages = append(stages, ns/1e3)
			}
			return fmt.Sprintf("Of the way to a thread in C the wait for the interrupt has %.2f µs, the interrupt %.2f, the scheduler %.2f, the return to the program %.2f.", stages[0], stages[1], stages[2], stages[3])
		},
		Claims: []lab.Claim{
			claims.EachInstance.Judged(lab.Needs(timer, c), func(v lab.View) (lab.Verdict, bool) {
				missed, ok := v.RateAtMost(c, timer, lab.PathMissed, lab.PathWakeUps, 0.001,
					"Of 1,000 wake-ups of a program 999 have to be found among those of the kernel.")
				return missed.IfNot(
					"A wake-up that others interrupt has more than one switch, and the last of them is taken: one that does not fit is missed. Of 1,000 wake-ups 999 have to be found."), ok
			}),
			claims.LTTngExact.Judged("any", func(v lab.View) (lab.Verdict, bool) {
				return lab.NotHere("LTTng, whose modules are built for one kernel; the same tracepoints are read by eBPF here, in ns"), len(v.Rows) > 0
			}),
			{
				Claim:  "The stages of a wake-up add up to the latency that the program sees.",
				Source: lab.Goal("within the clock's error"), Needs: lab.Needs(timer, c, inGo),
				Judge: func(v lab.View) (lab.Verdict, bool) {
					off, ok := sumOff(v, c)
					off2, ok2 := sumOff(v, inGo)
					why := fmt.Sprintf("No moment lies more than %d ns before the one that it follows, so the stages follow each other.", clockError)
					inC, ok3 := v.Never(c, timer, lab.PathError, clockError, why)
					goes, ok4 := v.Never(inGo, timer, lab.PathError, clockError, why)
					sums := lab.Holds(max(off, off2) <= clockError,
						fmt.Sprintf("the sums are off by at most %.1f ns", max(off, off2)), why)
					return lab.All(inC, goes, sums).IfNot(fmt.Sprintf(
						"The clocks contradict each other by more than %d ns, or a stage is missing.", clockError)), ok && ok2 && ok3 && ok4
				},
			},
		},
	})
}

// sumOff is by how much the stages of a timer's wake-up do not add up to the latency, in the worst
// round, in ns.
func sumOff(v lab.View, who *lab.Contestant) (worst float64, ok bool) {
	whole, ok := v.Figure(who, timer, lab.LatencyMean)
	if !ok {
		return 0, false
	}
	sums := make([]float64, len(whole.Samples))
	for _, m := range []lab.Metric{lab.PathTimer, lab.PathIRQ, lab.PathSwitch, lab.PathUser} {
		stage, ok := v.Figure(who, timer, m)
		if !ok || len(stage.Samples) != len(sums) {
			return 0, false
		}
		for i, ns := range stage.Samples {
			sums[i] += ns
		}
	}
	for i, us := range whole.Samples {
		worst = max(worst, math.Abs(us*1e3-sums[i]))
	}
	return worst, true
}
