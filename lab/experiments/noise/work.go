package noise

import (
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// spun keeps the compiler from leaving the work out.
var spun atomic.Uint64

// Work works the CPU, and does so many percent more for each operation.
func Work(slower int) contestant.Work {
	return func(t *contestant.Turn) error {
		until, err := t.Ready()
		if err != nil {
			return err
		}
		n, sum := uint64(0), uint64(0)
		for turn := 0; turn&1023 != 0 || time.Now().Before(until); turn++ {
			sum += contestant.Spin(100 + slower)
			n++
		}
		took, err := t.Done()
		if err != nil {
			return err
		}
		spun.Store(sum)
		return t.Result(took, n)
	}
}
