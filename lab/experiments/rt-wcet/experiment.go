// Package rtwcet asks what runtime.Gosched and GOMAXPROCS do to the worst case of a computation.
package rtwcet

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

const (
	every = 1000 // iterations from one Gosched to the next
	short = 10_000
	// loops of so few iterations that a turn has at least: 99.9 % has five beyond it
	leastLoops = 5000
	otherNs    = 5_000 // that each of the others computes at a time, in iterations, which take no less than 1 ns
)

var (
	yields1 = lab.Ours("yields, GOMAXPROCS=1", loop(every, 1))
	yieldsN = lab.Ours("yields, GOMAXPROCS=n", loop(every, 0))
	holds1  = lab.Ours("holds, GOMAXPROCS=1", loop(0, 1)).But("calls no Gosched")
	holdsN  = lab.Ours("holds, GOMAXPROCS=n", loop(0, 0)).But("calls no Gosched")
	gosched = lab.Ours("Gosched alone", yield).But("nothing else can run").For(alone)

	alone = lab.Params{"iterations": "10000", "others": "0"}
	among = lab.Params{"iterations": "10000", "others": "4"}
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-wcet", Plane: lab.RealTime,
		Question: "What do Gosched and GOMAXPROCS do to the worst case of a computation?",
		Method: "A goroutine goes through a loop again and again and calls runtime.Gosched each 1,000 iterations, or never. The collector is off. others: goroutines of the same program that compute some µs, call Gosched, " +
			"and go on. Latency is the time of one whole loop. The article's loops have 10⁷ iterations, which a full run has, too; those of 10⁴, by which the claims are judged, go on until there are 5,000 of them, for 99.9 %.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.LatencyP50, lab.LatencyP999, lab.LatencyMax},
		Turn:    2 * time.Second,
		Cells: func(o lab.Options) []lab.Params {
			all := []lab.Params{alone, among}
			if o.Full {
				all = append(all, lab.Params{"iterations": "10000000", "others": "0"},
					lab.Params{"iterations": "10000000", "others": "4"})
			}
			return all
		},
		Contestants: []*lab.Contestant{yields1, yieldsN, holds1, holdsN, gosched},
		Advice: func(v lab.View) string {
			m, ok := v.LongestBeside(among, yields1, holds1)
			if !ok {
				return ""
			}
			text := fmt.Sprintf("Among four goroutines that compute, a round's longest loop that yields each 1,000 iterations took %s of %d rounds, one that does not %s",
				m[0], v.Rounds, m[1])
			if v.Beats(holds1, yields1, among, lab.LatencyP50) {
				text += ": to yield is to let others go first. What must not wait belongs into a process of its own"
			}
			return text + "."
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.GoschedCost.Judged("Gosched alone", func(v lab.View) (lab.Verdict, bool) {
			ns, ok := v.Median(gosched, alone, lab.NsPerOp)
			low, ok2 := v.Level(gosched, alone, lab.NsPerOp, 20)
			high, ok3 := v.Level(gosched, alone, lab.NsPerOp, 50)
			why := "Where nothing else can run, the goroutine goes through the global queue and back."
			return lab.All(lab.AtLeast(low, 1, why), lab.AtMost(high, 1, why)).As("%.0f ns", ns), ok && ok2 && ok3
		}),
		claims.LoopMean.Judged("any", func(v lab.View) (lab.Verdict, bool) {
			return lab.CannotBe("by arithmetic: 10⁷ iterations are at least 10⁷ cycles, 8,333 µs at 1.2 GHz",
				"An iteration that counts, compares and branches takes a cycle at the least; the A40i's Cortex-A7 has at most 1.2 GHz (Allwinner A40i data sheet)."), len(v.Rows) > 0
		}),
		claims.MoreProcsMean.Judged("yields among others, GOMAXPROCS 1 and n", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(yieldsN, yields1, among, lab.NsPerOp)
			return lab.AtMost(r, 0.85,
				"n is the CPUs of this machine; 980 ÷ 1240 is 0.79, and 0.85 is asked for here. Who yields gives its place to those that wait: with more places fewer wait.").
				IfNot("n is the CPUs of this machine; 980 ÷ 1240 is 0.79, and 0.85 is asked for here. More places are the others', too."), ok
		}),
		claims.MoreProcsWorst.Judged("yields among others, GOMAXPROCS 1 and n", func(v lab.View) (lab.Verdict, bool) {
			r, ok := v.Ratio(yieldsN, yields1, among, lab.LatencyP999)
			return lab.AtMost(r, 0.4, "3150 ÷ 8920 is 0.35, and 0.4 is asked for here."), ok
		}),
	}
}

var sum atomic.Uint64

// loop does the article's loop, with a Gosched each so many iterations, and so many Ps; 0: never,
// and as many as there are CPUs.
func loop(yield, procs int) contestant.Work {
	return func(t *contestant.Turn) error {
		n := t.Int("iterations", short)
		debug.SetGCPercent(-1)
		if procs > 0 {
			runtime.GOMAXPROCS(procs)
		}
		var over atomic.Bool
		defer over.Store(true)
		took := make([]int64, 0, 1<<20)
		until, err := t.Ready()
		if err != nil {
			return err
		}
		for range t.Int("others", 0) {
			go func() {
				for !over.Load() {
					work(otherNs, 0)
					runtime.Gosched()
				}
			}()
		}
		least := 0
		if n <= short {
			least = leastLoops
		}
		for now := time.Now(); (now.Before(until) || len(took) < least) && len(took) < cap(took); {
			began := now
			work(n, yield)
			now = time.Now()
			took = append(took, int64(now.Sub(began)))
		}
		over.Store(true)
		length, err := t.Done()
		if err != nil {
			return err
		}
		return t.Result(length, uint64(len(took)), contestant.Latencies(took)...)
	}
}

// work is n iterations.
//
//go:noinline
func work(n, yield int) {
	x := uint64(1)
	for i := range n {
		x ^= x<<13 + uint64(i)
		if yield > 0 && i%yield == 0 {
			runtime.Gosched()
		}
	}
	sum.Store(x)
}

// yield calls Gosched where nothing else can run.
func yield(t *contestant.Turn) error {
	runtime.GOMAXPROCS(1)
	return contestant.Repeat(t, 1000, 0, func() {
		for range 1000 {
			runtime.Gosched()
		}
	})
}
