package server

import "time"

// stallAfter is how long a handler may hold its loop before that is said aloud.
const stallAfter = time.Second

// watch looks after the loop while handlers run on it. One that waits for something other than the network holds up every connection of the
// loop, and nothing else would say so. Each such turn is told once, while it lasts.
func (l *loop) watch() (stop func()) {
	over := make(chan struct{})
	l.srv.running.Go(func() {
		tick := time.NewTicker(stallAfter)
		defer tick.Stop()
		var last, told uint64 // the turn that was under way at the last look, 0 if none was; and the last one that was told of
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			turn := l.turns.Load()
			switch {
			case l.asleep.Load():
				last = 0
			case turn != last:
				last = turn
			case turn != told:
				told = turn
				l.srv.shared[l.index].stalls.Add(1)
				l.srv.log.Warn("a handler holds up all connections of a loop; handlers that wait belong on goroutines: mode goroutine",
					"loop", l.index, "longer than", stallAfter)
			}
		}
	})
	return func() { close(over) }
}
