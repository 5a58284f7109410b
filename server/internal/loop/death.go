package loop

import (
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/tallywheel/tallywheel/internal/beat"
)

// diedByGoexit stands for a call of runtime.Goexit, which cannot be recovered from. Who calls it in
// a coroutine ends the coroutine, and package iter then ends the goroutine that waits for it, too.
// A panic in a deferred function takes the place of the Goexit there: iter hands it on as a panic,
// from which the loop recovers.
type diedByGoexit struct{}

// live runs the loop as a coroutine of its goroutine, and reports whether a handler has ended it by
// runtime.Goexit. The coroutine is gone then, but the goroutine and its thread, to which a ring is
// bound, are as they were.
func (l *Loop) live() (died bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, died = p.(diedByGoexit); !died {
				panic(p)
			}
		}
	}()
	next, _ := iter.Pull(func(func(struct{}) bool) { standIn(l.turnOver) })
	next()
	return false
}

// standIn calls f. If that ends by runtime.Goexit it panics with diedByGoexit.
func standIn(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil { // a fault of ours: the process ends, and shall say where it was
			panic(fmt.Sprintf("%v\n\n%s", p, debug.Stack()))
		}
		panic(diedByGoexit{})
	}()
	f()
	returned = true
}

// Guard calls a function that is not ours on a loop's thread, and reports whether it has returned:
// runtime.Goexit in it ends nothing else.
func Guard(f func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, died := p.(diedByGoexit); !died {
				panic(p)
			}
		}
	}()
	next, _ := iter.Pull(func(func(struct{}) bool) { standIn(f) })
	next()
	return true
}

// afterDeath ends the connection whose handler ended the loop's coroutine. The others go on.
func (l *Loop) afterDeath() {
	c := l.current
	l.current = nil
	l.group.cfg.Log.Error("a handler has called runtime.Goexit: its connection is closed", "loop", l.index)
	l.driver.Recover()
	if c != nil && c.state == Open {
		c.app.Died()
	}
}

// stallAfter is about how long a handler may hold its loop before that is said aloud.
const stallAfter = time.Second

// watchStalls looks after the loop while handlers run on it. One that waits for something other
// than the network holds up every connection of the loop, and nothing else would say so. Each such
// turn is told once, while it lasts.
func (l *Loop) watchStalls() (stop func()) {
	over := make(chan struct{})
	l.group.running.Go(func() {
		next := time.NewTimer(beat.Next(stallAfter))
		defer next.Stop()
		var seen time.Time
		// the turn that was under way at the last look, 0 if none was; and the last one that was
		// told of
		var last, told uint64
		for ; ; next.Reset(beat.Next(stallAfter)) {
			select {
			case <-over:
				return
			case <-next.C:
			}
			turn := l.turns.Load()
			switch {
			case l.asleep.Load():
				last = 0
			case turn != last:
				last, seen = turn, time.Now()
			case turn != told:
				told = turn
				l.shared.Stalls.Add(1)
				l.group.cfg.Log.Warn("a handler holds up all connections of a loop; handlers that wait belong on goroutines: mode goroutine",
					"loop", l.index, "longer than", time.Since(seen).Truncate(time.Millisecond))
			}
		}
	})
	return func() { close(over) }
}
