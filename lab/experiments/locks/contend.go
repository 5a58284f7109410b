package locks

import (
	"bufio"
	"io"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// contenders is how many goroutines do the same at a time.
const contenders = 8

// contend has goroutines 0 to contenders-1 do what work returns until the time is over, and says
// for how long they waited for locks meanwhile, of the time of all CPUs.
func contend(work func() func(g int)) contestant.Work {
	return func(t *contestant.Turn) error {
		do := work()
		until, err := t.Ready()
		if err != nil {
			return err
		}
		before := lockWait()
		var done atomic.Uint64
		var all sync.WaitGroup
		for g := range contenders {
			all.Go(func() {
				const between = 256 // looks at the clock
				for time.Now().Before(until) {
					for range between {
						do(g)
					}
					done.Add(between)
				}
			})
		}
		all.Wait()
		waited := lockWait() - before
		took, err := t.Done()
		if err != nil {
			return err
		}
		return t.Result(took, done.Load(), contestant.Value{
			Metric: "lock_wait_percent",
			V:      100 * waited.Seconds() / took.Seconds() / float64(runtime.GOMAXPROCS(0)),
		})
	}
}

// lockWait is how long goroutines have waited for locks, of the runtime and of package sync, since
// the program began.
func lockWait() time.Duration {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}

// sharedChannel is one channel for all, with room.
func sharedChannel() func(g int) {
	c := make(chan int, 1024)
	return func(g int) {
		select {
		case c <- g:
		case <-c:
		}
	}
}

// ownChannels is a channel for each.
func ownChannels() func(g int) {
	var own [contenders]chan int
	for i := range own {
		own[i] = make(chan int, 1)
	}
	return func(g int) { own[g] <- g; <-own[g] }
}

var line = make([]byte, 100)

// ownWriters is a bufio.Writer for each.
func ownWriters() func(g int) {
	var own [contenders]*bufio.Writer
	for i := range own {
		own[i] = bufio.NewWriter(io.Discard)
	}
	return func(g int) { _, _ = own[g].Write(line) } // to io.Discard nothing fails
}

// sharedWriter is one for all, under a lock.
func sharedWriter() func(g int) {
	var mu sync.Mutex
	w := bufio.NewWriter(io.Discard)
	return func(int) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = w.Write(line) // to io.Discard nothing fails
	}
}

// stores and loads are of one key of a sync.Map.
func stores() func(g int) {
	var m sync.Map
	return func(g int) { m.Store(1, g) }
}

func loads() func(g int) {
	var m sync.Map
	m.Store(1, 1)
	return func(int) { m.Load(1) }
}
