package rtswitch

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// waiters is how many goroutines wait for ever, to see what memory one has.
const waiters = 10_000

// pingPong is two goroutines that wake each other by channels without a buffer; lock has each on a
// thread of its own.
func pingPong(lock bool) contestant.Work {
	return func(t *contestant.Turn) error {
		n := waiters
		if lock {
			n = waiters / 50
		} else {
			runtime.GOMAXPROCS(1)
		}
		begin := func(do func()) {
			go func() {
				if lock {
					runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				}
				do()
			}()
		}
		forever, begun := make(chan struct{}), make(chan struct{})
		defer close(forever)
		before, err := resident()
		if err != nil {
			return err
		}
		for range n {
			begin(func() { begun <- struct{}{}; <-forever })
			<-begun
		}
		after, err := resident()
		if err != nil {
			return err
		}
		there, back := make(chan struct{}), make(chan struct{})
		result := make(chan error, 1)
		begin(func() {
			for range there {
				back <- struct{}{}
			}
		})
		begin(func() { result <- first(t, there, back, float64(after-before)/float64(n)) })
		return <-result
	}
}

// first is the goroutine that counts.
func first(t *contestant.Turn, there, back chan struct{}, each float64) error {
	defer close(there)
	until, err := t.Ready()
	if err != nil {
		return err
	}
	switches := uint64(0)
	for ok := true; ok; ok = time.Now().Before(until) {
		for range 256 {
			there <- struct{}{}
			<-back
		}
		switches += 512
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, switches, contestant.Value{Metric: "waiting_bytes", V: max(0, each)})
}

// resident is the memory of this process, in bytes.
func resident() (int, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	return pages * os.Getpagesize(), err
}
