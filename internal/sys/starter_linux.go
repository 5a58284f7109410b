package sys

import (
	"runtime"
	"sync"
)

// Starter is a thread that starts processes, and lives until it is closed. The kernel kills a
// child that has a Pdeathsig when the thread ends that started it (PR_SET_PDEATHSIG of prctl(2)),
// not when its process does, and a thread of Go's ends with a goroutine that is locked to it. So a
// child that shall live as long as its parent is started here.
type Starter struct{ work chan func() }

// NewStarter makes a thread that starts processes.
func NewStarter() Starter {
	s := Starter{make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// Do runs f on that thread, and returns what it returns.
func (s Starter) Do(f func() error) error {
	result := make(chan error)
	s.work <- func() { result <- f() }
	return <-result
}

// Close ends the thread, and with it the children that have a Pdeathsig.
func (s Starter) Close() { close(s.work) }

// starter is the thread of this process, which ends with it.
var starter = sync.OnceValue(NewStarter)

// Start calls a function that starts a process with a Pdeathsig on a thread that ends with this
// process.
func Start(start func() error) error { return starter().Do(start) }
