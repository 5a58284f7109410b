// Package cell makes a part of a Go program keep time: a process of its own, the same program
// executed again, that does one thing at the beginning of each period and nothing else.
//
//	var blink = cell.Register("blink", func(c *cell.Self, pin int) (cell.Step, error) {
//		out, err := open(pin) // the set-up: allocates, opens, computes
//		return func(cell.Tick) error { return out.Toggle() }, err // each period: does not
//	})
//
//	func main() {
//		cell.Main() // in the process of a cell this does not return
//		...
//		c, err := cell.Start(ctx, cell.Config{
//			Task: blink.With(17), Period: time.Millisecond, Priority: 80, CPU: rt.CPUs{1},
//		})
//		...
//		stats, err := c.Stop()
//	}
//
// # Why a process
//
// The garbage collector of a program stops all of its goroutines, and its helpers are threads of
// the ordinary class. A thread in SCHED_FIFO that shares a heap with others waits for those. So the
// cell has a heap of its own, on which nothing is allocated once it has been set up, and the
// collector is off. What it allocates all the same is counted, and by Config.Strict ends it.
//
// # What is done to the process
//
// The set-up runs first, in an ordinary Go program. Then: a collection, and no more; all memory
// locked as it is touched (mlockall with MCL_ONFAULT), and the program's own pages mapped; the one
// thread that keeps time on Config.CPU, with a timer slack of 1 ns, without signals, in SCHED_FIFO
// (Config.Priority) or SCHED_DEADLINE (Config.Budget). That thread alone: were all threads of the
// process in a real-time class, one that does not end would keep the rest of Go's scheduler from
// running. Then it sleeps until each release by clock_nanosleep(TIMER_ABSTIME) of CLOCK_MONOTONIC,
// in a raw system call. That clock stands while the machine is suspended, and no step of the wall
// clock moves it.
//
// Rights that are missing do not keep it from running: [Cell.Lacking] says what is missing, and how
// to get it. Such a cell is an ordinary thread, and as late as one.
//
// # What is counted
//
// [Cell.Stats] reads memory that both processes map, so that to watch a cell costs it nothing:
// wake-up latencies, releases that were missed, page faults, involuntary switches, allocations. A
// release is missed if the step before it has not ended by then: it is left out, and the next one
// that is still ahead is waited for.
//
// # What bounds it
//
// A step that computes for Config.Runaway without an end is killed by the kernel (RLIMIT_RTTIME),
// if the thread is a real-time one. One that does not come back at all, because it waits for
// something, is killed by the process that has started it, after ten times as long. A step that
// panics ends the cell; its error has the place. A cell whose parent has died is killed at
// once, also within a step, for that may be one that never comes back.
//
// # What a step must not do
//
// Allocate; wait for a channel, a mutex that others hold long, or the network; call what sleeps. It
// talks to the rest of the program by the rings of package ipc that Config.In and Config.Out make:
// [ipc.Producer.Space] and [ipc.Consumer.View] do not wait.
//
// Go's scheduler asks each goroutine that has run for 10 ms to let others run, and a thread that
// sleeps in a raw call runs, for it. A goroutine that is locked to its thread is given back by
// another one then, an ordinary one. So a cell, in whose process one thread alone runs goroutines,
// yields by itself behind a step, unlocked for that moment, long before it is asked;
// Stats.LongestYield says how long that took. A step that runs for more than 10 ms may be
// interrupted by Go's scheduler. Goroutines that the set-up has started run in those moments too,
// at the cell's priority: better have none.
//
// Linux only; a cell needs Linux 5.3.
package cell
