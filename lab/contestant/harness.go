package contestant

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// LogBuffer is the room, in bytes, for what logs gather before they write it, where nothing waits
// for the disk: the same for all that gather.
const LogBuffer = 1 << 20

// TextRecord is a record of so many letters, which those that write text need not escape.
func TextRecord(size int) []byte {
	record := make([]byte, size)
	for i := range record {
		record[i] = 'a' + byte(i*7%26)
	}
	return record
}

// Appenders lets the parameter "producers" many goroutines append records of the parameter "bytes"
// (128) each, which are letters, until the time is over. Each append returns when its record is as
// safe as the contestant makes it, which is its latency. The figures of also are added at the end.
func Appenders(t *Turn, appendOne func(record []byte) error, also ...func() []Value) error {
	producers, size := t.Int("producers", 1), t.Int("bytes", 128)
	errs, latencies := make([]error, producers), make([][]int64, producers)
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var n atomic.Uint64
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			record := TextRecord(size)
			var own uint64
			each := uint64(1) // timed; where an append takes no longer than to look at the clock, few are
			for now := time.Now(); errs[p] == nil && now.Before(until); {
				for range each - 1 {
					errs[p] = errors.Join(errs[p], appendOne(record))
				}
				then := now
				if each > 1 {
					then = time.Now()
				}
				errs[p] = errors.Join(errs[p], appendOne(record))
				now = time.Now()
				own += each
				latencies[p] = append(latencies[p], int64(now.Sub(then)))
				if each = 1; now.Sub(then) < 5*time.Microsecond {
					each = 64
				}
			}
			n.Add(own)
		})
	}
	all.Wait()
	took, err := t.Done()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	var merged []int64
	for _, l := range latencies {
		merged = append(merged, l...)
	}
	v := append(Latencies(merged), Value{"MB_per_s", float64(n.Load()) * float64(size) / 1e6 / took.Seconds()})
	for _, more := range also {
		v = append(v, more()...)
	}
	return t.Result(took, n.Load(), v...)
}

// Repeat calls work, which does count operations on size bytes each, until the time is over.
func Repeat(t *Turn, count, size int, work func()) error {
	work() // what it makes at its first use is made
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	until, err := t.Ready()
	if err != nil {
		return err
	}
	n := uint64(0)
	for ok := true; ok; ok = time.Now().Before(until) {
		work()
		n += uint64(count)
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&m1)
	v := []Value{{"allocs_per_op", float64(m1.Mallocs-m0.Mallocs) / float64(n)}}
	if size > 0 {
		v = append(v, Value{"MB_per_s", float64(n) * float64(size) / 1e6 / took.Seconds()})
	}
	return t.Result(took, n, v...)
}

// Pool is a pool of workers, as the harness sees it.
type Pool struct {
	Submit func(task func()) // waits where the pool is full
	Close  func()
}

const (
	poolSlice   = 10 * time.Millisecond // of which throughput is compared
	poolWorkers = 16                    // most that a pool may have
	poolWave    = 50 * time.Millisecond // each, high and low
	poolWait    = time.Millisecond
	// Tasks one at a time by which each worker of a pool at rest has had some, if it has time
	// between them to wait for the next: else one and the same may have all of them.
	poolRest  = 64
	poolPause = 100 * time.Microsecond
	poolRoom  = 40 << 10 // of its stack in bytes that a task uses by which the memory is measured
)

// Pools lets a pool do small tasks, of the parameter "work_ns" (5000) each, until the time is over.
// With load=waves they come in waves: for poolWave as many as the pool takes, for as long one each
// millisecond, and each waits a millisecond for another, as for a disk. Before, it measures how
// long a pool at rest takes to have as many workers as it may at work, by so many tasks that wait
// for each other, and how much more memory for stacks it has then.
func Pools(t *Turn, p Pool) error {
	work := t.Int("work_ns", 5000)
	loops, waves := calibrate(work), t.Text("load") == "waves"
	collects := debug.SetGCPercent(-1) // the collector takes stacks back that are not in use
	rest := stacksAtRest(p)
	grown, stacked := growth(p)
	debug.SetGCPercent(collects)
	for range 5 { // a collection halves a stack of which little is in use: the turn begins with small ones
		debug.FreeOSMemory()
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var done atomic.Uint64
	var slices []float64
	stop, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		tick := time.NewTicker(poolSlice)
		defer tick.Stop()
		last, lastAt := uint64(0), time.Now()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			n, at := done.Load(), time.Now()
			slices = append(slices, float64(n-last)/at.Sub(lastAt).Seconds())
			last, lastAt = n, at
		}
	}()
	n := uint64(0)
	var left sync.WaitGroup
	began := time.Now()
	for ok := true; ok; ok = n%64 != 0 && !waves || time.Now().Before(until) {
		if waves && time.Since(began)/poolWave%2 == 1 {
			time.Sleep(poolWait)
		}
		n++
		left.Add(1)
		p.Submit(func() {
			if waves {
				time.Sleep(poolWait)
			} else {
				spin(loops)
			}
			done.Add(1)
			left.Done()
		})
	}
	left.Wait()
	close(stop)
	<-sampled
	took, err := t.Done()
	if err != nil {
		return err
	}
	v := []Value{{"rate_variation_percent", Variation(slices)}, {"grown_bytes", stacked - rest}}
	if grown > 0 {
		v = append(v, Value{"scale_up_us", float64(grown.Nanoseconds()) / 1e3})
	}
	p.Close()
	return t.Result(took, n, v...)
}

// stacks is the memory for the stacks of goroutines, in bytes.
func stacks() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// stacksAtRest is the memory for stacks where tasks come one at a time, and each worker's stack is
// as large as they need.
func stacksAtRest(p Pool) float64 {
	for range poolRest {
		time.Sleep(poolPause)
		over := make(chan struct{})
		p.Submit(func() {
			onStack(func() {})
			close(over)
		})
		<-over
	}
	return stacks()
}

// onStack does something with poolRoom of the stack in use. Stacks below 32 KiB come from pieces of
// that size, of which each P keeps some: only of larger ones can it be seen how many there are.
//
//go:noinline
func onStack(do func()) {
	var room [poolRoom]byte
	for i := range room {
		room[i] = byte(i)
	}
	do()
	spun.Add(uint64(room[spun.Load()%poolRoom])) // or it would be left out
}

// growth is how long it takes until poolWorkers tasks run at the same time, 0 if they never do; and
// the memory for stacks while as many as do have poolRoom of theirs in use.
func growth(p Pool) (took time.Duration, stacked float64) {
	var running, after atomic.Int64
	all, over := make(chan struct{}), make(chan struct{})
	deep := make(chan struct{}, poolWorkers)
	start := time.Now()
	giveUp := time.After(500 * time.Millisecond)
	var ended sync.WaitGroup
	submitted := make(chan struct{})
	ended.Add(poolWorkers)
	go func() {
		defer close(submitted)
		for range poolWorkers {
			p.Submit(func() {
				defer ended.Done()
				if running.Add(1) == poolWorkers {
					after.Store(int64(time.Since(start)))
					close(all)
				}
				<-all
				onStack(func() {
					deep <- struct{}{}
					<-over
				})
			})
		}
	}()
	atOnce := int64(poolWorkers)
	select {
	case <-all:
	case <-giveUp:
		if n := running.Add(poolWorkers); n < 2*poolWorkers { // they will not all come: let those that wait go
			atOnce = n - poolWorkers
			close(all)
		}
	}
	for range atOnce {
		<-deep
	}
	stacked = stacks()
	close(over)
	<-submitted
	ended.Wait()
	return time.Duration(after.Load()), stacked
}

// Variation is the coefficient of variation, in %.
func Variation(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	var sum, squares float64
	for _, x := range v {
		sum += x
	}
	mean := sum / float64(len(v))
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return 100 * math.Sqrt(squares/float64(len(v)-1)) / mean
}

var spun atomic.Uint64

func spin(loops int) {
	if Spin(loops) == 0 {
		spun.Add(1)
	}
}

// Spin computes something that is never 0, for so many loops of about 1 ns.
func Spin(loops int) uint64 {
	x := uint64(88172645463325252)
	for range loops {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate returns how many loops take so many ns here.
func calibrate(ns int) int {
	const loops = 1 << 16
	best := time.Hour
	for range 5 {
		start := time.Now()
		spin(loops)
		best = min(best, time.Since(start))
	}
	return max(1, int(float64(loops)*float64(ns)/float64(best.Nanoseconds())))
}

// Collections is how often the garbage collector has run, and how long it has stopped the program
// in all, in µs.
func Collections() (cycles, pauseUs float64) {
	s := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(s[0].Value.Uint64()), float64(m.PauseTotalNs) / 1e3
}
