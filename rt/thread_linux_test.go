package rt

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestThreadYields lets others run, and goes on on its thread.
func TestThreadYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	onThread(t, func() {
		var th Thread
		moved := 0
		th.Moved = func() { moved++ }
		th.Begin()
		for range 10 {
			var ran atomic.Bool
			go ran.Store(true)
			testenv.Until(t, time.Minute, "another goroutine runs", func() bool {
				th.Yield()
				return ran.Load()
			})
		}
		t.Logf("%d moves", moved)
	})
}
