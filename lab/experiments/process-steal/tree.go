package processsteal

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/steal"
)

// forest is how a tree of tasks is begun: root has its first task done, by the workers, which has
// the others done; begun is called when all of them are on their way. It ends by end.
type forest func(work func()) (root func(begun func()), end func(), err error)

const (
	children = 63
	places   = 256 // for tasks that wait, of each worker
)

// tree does tasks that beget 63 more each, of the parameter loops of work.
func tree(plant forest) contestant.Work {
	return func(t *contestant.Turn) error { return grow(t, plant) }
}

func grow(t *contestant.Turn, plant forest) error {
	loops := t.Int("loops", 100)
	var done atomic.Uint64
	var left sync.WaitGroup
	root, end, err := plant(func() {
		done.Add(min(contestant.Spin(loops), 1))
		left.Done()
	})
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

// stealing is package steal.
func stealing(work func()) (root func(begun func()), end func(), err error) {
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
}

// queued is one queue, which put puts tasks into; a task for which there is no place is done at
// once.
func queued(open func() (put func(func()) bool, end func())) forest {
	return func(work func()) (func(begun func()), func(), error) {
		put, end := open()
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
}

// goroutines is one for each task, without a bound.
func goroutines() (put func(func()) bool, end func()) {
	return func(f func()) bool { go f(); return true }, func() {}
}

// channelTasks is a channel that all workers read.
func channelTasks() (put func(func()) bool, end func()) {
	tasks := make(chan func(), places*runtime.GOMAXPROCS(0))
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for f := range tasks {
				f()
			}
		}()
	}
	return func(f func()) bool {
		select {
		case tasks <- f:
			return true
		default:
			return false
		}
	}, func() { close(tasks) }
}

// lockedTasks is a queue under a lock, and as many workers as there are CPUs.
func lockedTasks() (put func(func()) bool, end func()) {
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
			if len(queue) >= places*runtime.GOMAXPROCS(0) {
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
