package processpool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/admission"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// served is how long a task of the article's pool takes: 8 threads do 1,200 of them a second.
const served = 6667 * time.Microsecond

// ready is a pool that takes tasks; it refuses one where it has no room.
type ready func(task func()) error

// database has a pool do tasks that wait for a database of so many connections, 6.67 ms each. Load
// "steady": 128 clients, each with the next task when the last is done; "bursts": 2,048 clients for
// 50 ms, then 8 for as long. 2,048 are more than 8 workers and a queue of 1,024 have room for.
func database(connections int, open func() (ready, error)) contestant.Work {
	return func(t *contestant.Turn) error {
		submit, err := open()
		if err != nil {
			return err
		}
		return ask(t, connections, submit)
	}
}

// goroutines is one for each task.
func goroutines() (ready, error) {
	return func(f func()) error { go f(); return nil }, nil
}

// pooled is package admission's pool.
func pooled(cfg admission.PoolConfig) func() (ready, error) {
	return func() (ready, error) {
		p, err := admission.NewPool(cfg)
		if err != nil {
			return nil, err
		}
		return func(f func()) error { return p.Submit(context.Background(), f) }, nil
	}
}

func ask(t *contestant.Turn, connections int, submit ready) error {
	free := make(chan struct{}, connections)
	task := func() {
		free <- struct{}{}
		time.Sleep(served)
		<-free
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
		many, few = 2048, 8
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
	v := append(contestant.Latencies(latencies),
		contestant.Value{Metric: "refused_per_s", V: float64(refused.Load()) / took.Seconds()})
	return t.Result(took, done.Load(), v...)
}
