// Package rtpreempt asks how long a goroutine waits that wakes often, beside goroutines that
// compute.
package rtpreempt

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/cell/cyclic"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// tick is the article's: 10 kHz. stretch is how long a goroutine computes without a call.
const (
	tick    = 100 * time.Microsecond
	stretch = 50 * time.Millisecond
)

var (
	alone  = lab.Ours("alone", ticks(0, byTicker))
	beside = lab.Ours("computing", ticks(stretch, byTicker))
	off    = lab.Ours("computing, asyncpreemptoff=1",
		ticks(stretch, byTicker)).With("GODEBUG=asyncpreemptoff=1").But("as before Go 1.14")
	yields = lab.Ours("computing, yields each 100 µs", ticks(100*time.Microsecond, byTicker))
	ofCell = lab.Ours("computing, ticks in a cell",
		ticks(stretch, byCell)).But("a process of its own, in SCHED_FIFO 80 where that is allowed")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-preempt", Plane: lab.RealTime,
		Question: "How long does a goroutine wait that wakes at 10 kHz, beside goroutines that compute?",
		Method: "A goroutine waits for a time.Ticker of 100 µs, beside as many goroutines as there are CPUs that compute for 50 ms without a call, yield, and go on. Latency is what it was longer from one tick to the next " +
			"than 100 µs; in a cell, from the release to the wake-up. The remedies: to yield oftener, or a cell.",
		Metrics:     []lab.Metric{lab.LatencyP50, lab.LatencyP99, lab.LatencyMax},
		Base:        alone,
		Turn:        time.Second,
		Contestants: []*lab.Contestant{alone, beside, off, yields, ofCell},
		Advice: func(v lab.View) string {
			m, ok := v.LongestBeside(nil, beside, yields, ofCell)
			if !ok {
				return ""
			}
			return fmt.Sprintf("Beside goroutines that compute, a round's latest tick was late by %s of %d rounds; by %s, where those yield each 100 µs; by %s, in a cell.",
				m[0], v.Rounds, m[1], m[2])
		},
		Claims: []lab.Claim{
			claims.PreemptFails.Judged("computing, with asyncpreemptoff=1 and without", func(v lab.View) (lab.Verdict, bool) {
				verdict, ok := v.Sometimes(beside, nil, lab.LatencyMax, 20_000,
					"20 ms are twice the time after which sysmon asks: what the article calls a failure. Where all Ps compute, who wakes waits for the end of a time slice, and behind others that wait.")
				// where pre-emption fails, it is as if there were none
				r, ok2 := v.Ratio(beside, off, nil, lab.LatencyMax)
				none := lab.AtLeast(r, 0.8, "").As("%v of what it is without pre-emption", r)
				return lab.All(verdict, none).IfNot(
					"A signal interrupts a loop without calls since Go 1.14, so who wakes waits for the end of a time slice, or of two. 20 ms are twice the time after which sysmon asks: what the article calls a failure."), ok && ok2
			}),
			claims.Jitter.Judged("any", func(v lab.View) (lab.Verdict, bool) {
				return lab.NotHere("the article's patched runtime, of which it prints lines that cannot do it"),
					len(v.Rows) > 0
			}),
		},
	})
}

var sum atomic.Uint64

// ticks waits for ticks beside goroutines that compute for so long at a time.
func ticks(compute time.Duration, wait func(until time.Time) ([]int64, error)) contestant.Work {
	return func(t *contestant.Turn) error {
		loops := calibrate(compute)
		var over atomic.Bool
		defer over.Store(true)
		until, err := t.Ready()
		if err != nil {
			return err
		}
		for n := runtime.GOMAXPROCS(0); n > 0 && compute > 0; n-- {
			go func() {
				for !over.Load() {
					spin(loops)
					runtime.Gosched()
				}
			}()
		}
		late, err := wait(until)
		if err != nil {
			return err
		}
		over.Store(true)
		took, err := t.Done()
		if err != nil {
			return err
		}
		return t.Result(took, uint64(len(late)), contestant.Latencies(late)...)
	}
}

// byTicker is how much longer than a period it was from each tick to the next.
func byTicker(until time.Time) (late []int64, err error) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := time.Now(); last.Before(until); {
		<-ticker.C
		now := time.Now()
		late = append(late, int64(max(0, now.Sub(last)-tick)))
		last = now
	}
	return late, nil
}

// patience is how much longer than its time a turn may take: a cell is a process, which has to
// start.
const patience = 20 * time.Second

// byCell is how late a cell wakes up.
func byCell(until time.Time) (late []int64, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), until.Add(patience))
	defer cancel()
	count := uint64(max(1, time.Until(until)/tick))
	_, err = cyclic.Run(ctx, cyclic.Config{
		Style: cyclic.Cell, Interval: tick, Count: count, Priority: 80,
		Sample: func(s cyclic.Sample) {
			late = append(late, int64(s.Woke-s.Release))
		},
	})
	return late, err
}

// spin computes without a call.
//
//go:noinline
func spin(loops int) {
	x := uint64(loops) + 88172645463325252
	for range loops {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sum.Store(x)
}

// calibrate is how many loops take so long here.
func calibrate(want time.Duration) int {
	const loops = 1 << 16
	best := time.Hour
	for range 5 {
		began := time.Now()
		spin(loops)
		best = min(best, time.Since(began))
	}
	return max(1, int(float64(loops)*float64(want)/float64(max(best, 1))))
}
