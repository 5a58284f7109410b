// Package steal runs small tasks, which may beget others, on a fixed number of goroutines: a common
// queue, a queue of each worker's own, and workers that take from others when they have nothing.
//
//	pool, err := steal.New(steal.Config{})
//	…
//	err = pool.Submit(ctx, func(w *steal.Worker) {
//		for _, part := range parts {
//			w.Spawn(func(*steal.Worker) { work(part) })
//		}
//	})
//	…
//	pool.Close() // waits until all is done
//
// # Queues
//
// [Pool.Submit] puts a task at the end of the common queue, which is taken in its order, and waits
// where that is full. [Worker.Spawn] puts one into the worker's own queue, which costs a lock that
// nobody else wants. A worker does the newest of its own tasks first, whose data its CPU still has;
// then it takes a share of the common queue; then half of what another worker has waiting, the
// oldest first. Every 61st time it looks at the common queue and at its oldest task first, so
// that nothing waits for ever behind what is spawned anew.
//
// # Bounds
//
// No more than Global + Workers × Local tasks wait. When a worker's own queue is full, half of it
// goes to the common queue; when that is full, too, Spawn does the task at once, on the stack of
// the one that spawned it.
//
// # When to use it
//
// For many tasks of some microseconds that beget tasks: a tree, parts of a whole. Where tasks come
// from outside only, or take long, package admission's Pool does as well, and can grow, refuse and
// have the caller do the work. A goroutine for each is simplest, and has no bound.
package steal
