package contestant

import (
	"runtime/metrics"
	"sync"
	"time"
)

// Contenders is how many goroutines [Contended] has.
const Contenders = 8

// Contended is how long goroutines 0 to [Contenders]-1 waited in all for locks, of the runtime and
// of package sync, while they did work for a while.
func Contended(while time.Duration, work func(g int)) time.Duration {
	before := lockWait()
	until := time.Now().Add(while)
	var all sync.WaitGroup
	for g := range Contenders {
		all.Go(func() {
			for time.Now().Before(until) {
				for range 256 {
					work(g)
				}
			}
		})
	}
	all.Wait()
	return lockWait() - before
}

// lockWait is how long goroutines have waited for locks since the program began.
func lockWait() time.Duration {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}
