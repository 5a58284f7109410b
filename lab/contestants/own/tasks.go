package own

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/admission"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/steal"
)

// tree does tasks that beget 63 more each, of the parameter loops of work: by package steal
// (how=steal), by a channel that all workers read (channel), by a queue under a lock (mutex), by a
// goroutine for each (goroutine). All but the last have 256 places for tasks that wait at each
// worker, and do a task at once where there is none.
func tree(t *contestant.Turn) error {
	const children = 63
	loops := t.Int("loops", 100)
	var done atomic.Uint64
	var left sync.WaitGroup
	work := func() {
		done.Add(min(spin(loops), 1))
		left.Done()
	}
	root, end, err := forest(t.Text("how"), children, work)
	if err != nil {
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	inFlight := make(chan struct{}, 16) // trees at a time
	for time.Now().Before(until) {
		inFlight <- struct{}{}
		left.Add(children + 1)
		root(func() { <-inFlight })
	}
	left.Wait()
	end()
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, done.Load())
}

// forest is how a tree is begun: root has its first task done, by the workers, which has the others
// done; begun is called when all of them are on their way.
func forest(how string, children int, work func()) (root func(begun func()), end func(), err error) {
	places := 256 * runtime.GOMAXPROCS(0)
	var put func(func()) bool
	switch how {
	case "steal":
		p, err := steal.New(steal.Config{})
		if err != nil {
			return nil, nil, err
		}
		child := func(*steal.Worker) { work() }
		return func(begun func()) {
			_ = p.Submit(context.Background(), func(w *steal.Worker) { // it is open
				for range children {
					w.Spawn(child)
				}
				begun()
				work()
			})
		}, p.Close, nil
	case "goroutine":
		put = func(f func()) bool { go f(); return true }
		end = func() {}
	case "channel":
		tasks := make(chan func(), places)
		for range runtime.GOMAXPROCS(0) {
			go func() {
				for f := range tasks {
					f()
				}
			}()
		}
		put = func(f func()) bool {
			select {
			case tasks <- f:
				return true
			default:
				return false
			}
		}
		end = func() { close(tasks) }
	case "mutex":
		put, end = lockedTasks(places)
	default:
		return nil, nil, fmt.Errorf("how=%s: want steal, channel, mutex or goroutine", how)
	}
	begin := func(f func()) {
		if !put(f) {
			f()
		}
	}
	return func(begun func()) {
		begin(func() {
			for range children {
				begin(work)
			}
			begun()
			work()
		})
	}, end, nil
}

// lockedTasks is a queue under a lock, and as many workers as there are CPUs.
func lockedTasks(places int) (put func(func()) bool, end func()) {
	var mu sync.Mutex
	come := sync.NewCond(&mu)
	var queue []func()
	over := false
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for {
				mu.Lock()
				for len(queue) == 0 && !over {
					come.Wait()
				}
				if len(queue) == 0 {
					mu.Unlock()
					return
				}
				f := queue[0]
				queue = queue[1:]
				mu.Unlock()
				f()
			}
		}()
	}
	return func(f func()) bool {
			mu.Lock()
			defer mu.Unlock()
			if len(queue) >= places {
				return false
			}
			queue = append(queue, f)
			come.Signal()
			return true
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			over = true
			come.Broadcast()
		}
}

// served is how long a task of the article's pool takes: 8 threads do 1,200 of them a second.
const served = 6667 * time.Microsecond

// database has a pool do tasks that wait for a database of the parameter connections many
// connections, 6.67 ms each. how=pool: package admission's, with core, max, queue; how=goroutine:
// one for each. full is what becomes of a task for which there is no room. Load "steady": 128
// clients, each with the next task when the last is done; "bursts": 1,024 clients for 50 ms, then 8
// for as long.
func database(t *contestant.Turn) error {
	connections := make(chan struct{}, t.Int("connections", 50))
	task := func() {
		connections <- struct{}{}
		time.Sleep(served)
		<-connections
	}
	submit := func(f func()) error { go f(); return nil }
	if t.Text("how") == "pool" {
		p, err := admission.NewPool(admission.PoolConfig{
			Core: t.Int("core", 8), Max: t.Int("max", 8), KeepAlive: time.Minute, Queue: t.Int("queue", 1024), Full: admission.Policy(t.Text("full")),
		})
		if err != nil {
			return err
		}
		submit = func(f func()) error { return p.Submit(context.Background(), f) }
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var done, refused atomic.Uint64
	var mu sync.Mutex
	var latencies []int64
	var clients sync.WaitGroup
	many, few := 128, 128
	if t.Text("load") == "bursts" {
		many, few = 1024, 8
	}
	for i := range many {
		clients.Go(func() {
			for now := time.Now(); now.Before(until); now = time.Now() {
				if i >= few && now.UnixMilli()/50%2 == 1 {
					time.Sleep(time.Millisecond)
					continue
				}
				over := make(chan struct{})
				if submit(func() { task(); close(over) }) != nil {
					refused.Add(1)
					time.Sleep(time.Millisecond)
					continue
				}
				<-over
				done.Add(1)
				mu.Lock()
				latencies = append(latencies, int64(time.Since(now)))
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	took, err := t.Done()
	if err != nil {
		return err
	}
	v := append(contestant.Latencies(latencies), contestant.Value{Metric: "refused_per_s", V: float64(refused.Load()) / took.Seconds()})
	return t.Result(took, done.Load(), v...)
}
