package pool

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// of is a pool of lo to hi workers: one more when nobody takes a task at once, one less after a
// second without work.
func of(lo, hi int) contestant.Work {
	return func(t *contestant.Turn) error { return contestant.Pools(t, workers(lo, hi)) }
}

// goroutines is one for each task, at most 16 by a channel as semaphore.
func goroutines(t *contestant.Turn) error {
	slots := make(chan struct{}, 16)
	return contestant.Pools(t, contestant.Pool{
		Submit: func(task func()) {
			slots <- struct{}{}
			go func() {
				task()
				<-slots
			}()
		},
		Close: func() {},
	})
}

// workers is a pool of lo to hi workers.
func workers(lo, hi int) contestant.Pool {
	tasks := make(chan func(), 2*lo)
	var n atomic.Int64
	var all sync.WaitGroup
	work := func(stays bool) {
		defer n.Add(-1)
		idle := time.NewTimer(time.Second)
		defer idle.Stop()
		for {
			select {
			case task, ok := <-tasks:
				if !ok {
					return
				}
				task()
				continue
			default:
			}
			idle.Reset(time.Second)
			select {
			case task, ok := <-tasks:
				if !ok {
					return
				}
				task()
			case <-idle.C:
				if !stays {
					return
				}
			}
		}
	}
	for range lo {
		n.Add(1)
		all.Go(func() { work(true) })
	}
	return contestant.Pool{
		Submit: func(task func()) {
			select {
			case tasks <- task:
				if lo == hi || len(tasks) == 0 { // somebody has taken it already
					return
				}
			default:
				defer func() { tasks <- task }()
			}
			if n.Load() < int64(hi) {
				n.Add(1)
				all.Go(func() { work(false) })
			}
		},
		Close: func() { close(tasks); all.Wait() },
	}
}
