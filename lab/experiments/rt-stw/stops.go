package rtstw

import (
	"errors"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// Whose stops are counted: the end of their names in runtime/metrics.
const (
	byCollector = "gc:seconds"
	byOthers    = "other:seconds"
)

// stops makes garbage, with something else beside it, and says how long the runtime stopped all for
// that.
func stops(by string, beside func(over *atomic.Bool)) contestant.Work {
	return func(t *contestant.Turn) error {
		live := make([][]byte, t.Int("heap_MB", 1)*16)
		for i := range live {
			live[i] = make([]byte, 64<<10)
		}
		total, stopping := counted("/sched/pauses/total/"+by), counted("/sched/pauses/stopping/"+by)
		until, err := t.Ready()
		if err != nil {
			return err
		}
		var over atomic.Bool
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for !over.Load() {
					sink.Store(new([1 << 10]byte))
				}
			})
		}
		all.Go(func() { beside(&over) })
		time.Sleep(time.Until(until))
		if t.Int("heap_MB", 1) == 1 {
			more(until.Add(patience), func() int { return len(since(total, counted("/sched/pauses/total/"+by))) })
		}
		over.Store(true)
		length, err := t.Done()
		if err != nil {
			return err
		}
		all.Wait()
		runtime.KeepAlive(live)
		took := since(total, counted("/sched/pauses/total/"+by))
		if len(took) == 0 {
			return errors.New("the runtime has not stopped once")
		}
		values := contestant.Latencies(took)
		for _, v := range contestant.Latencies(since(stopping, counted("/sched/pauses/stopping/"+by))) {
			switch v.Metric {
			case "latency_us_p50":
				values = append(values, contestant.Value{Metric: "stopping_us_p50", V: v.V})
			case "latency_us_p90":
				values = append(values, contestant.Value{Metric: "stopping_us_p90", V: v.V})
			case "latency_us_p99":
				values = append(values, contestant.Value{Metric: "stopping_us_p99", V: v.V})
			}
		}
		return t.Result(length, uint64(len(took)), values...)
	}
}

// A percentile of 99 takes hundreds of values, so a turn with a small heap has at least so many
// stops, or takes so much longer.
const (
	enough   = 600
	patience = 5 * time.Second
)

// more waits until there are stops enough, or until a time.
func more(until time.Time, stops func() int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for stops() < enough && time.Now().Before(until) {
		<-tick.C
	}
}

// sink keeps garbage from living on the stack, and spun what is computed from being left out.
var (
	sink atomic.Pointer[[1 << 10]byte]
	spun atomic.Uint64
)

func nothing(*atomic.Bool) {}

// compute has a goroutine for each CPU go through a loop without a call, a second at a time.
func compute(over *atomic.Bool) {
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for !over.Load() {
				spun.Add(contestant.Spin(1 << 22))
			}
		})
	}
	all.Wait()
}

// readStats stops the world each millisecond, to look at the heap.
func readStats(over *atomic.Bool) {
	var m runtime.MemStats
	for !over.Load() {
		runtime.ReadMemStats(&m)
		time.Sleep(time.Millisecond)
	}
}

// counted is a histogram of the runtime.
func counted(name string) *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

// since lists in ns what a histogram has more than it had, each as the upper bound of its cell.
func since(before, now *metrics.Float64Histogram) (all []int64) {
	for i, n := range now.Counts {
		bound := now.Buckets[i+1]
		if math.IsInf(bound, 1) {
			bound = now.Buckets[i]
		}
		for range n - before.Counts[i] {
			all = append(all, int64(bound*1e9))
		}
	}
	return all
}
