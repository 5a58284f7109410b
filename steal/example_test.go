package steal_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/steal"
)

// The sum of a range, whose halves are tasks of their own until they are small.
func Example() {
	pool, err := steal.New(steal.Config{Workers: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	var sum atomic.Int64
	var add func(lo, hi int64) steal.Task
	add = func(lo, hi int64) steal.Task {
		return func(w *steal.Worker) {
			for ; hi-lo > 100; hi = (lo + hi) / 2 {
				w.Spawn(add((lo+hi)/2, hi))
			}
			for n := lo; n < hi; n++ {
				sum.Add(n)
			}
		}
	}
	if err := pool.Submit(context.Background(), add(0, 100_000)); err != nil {
		fmt.Println(err)
	}
	pool.Close()
	fmt.Println(sum.Load())
	// Output: 4999950000
}
