package cell_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/cell"
)

// pulse counts to its argument, one each period, and ends.
var pulse = cell.Register("pulse", func(c *cell.Self, to uint64) (cell.Step, error) {
	return func(t cell.Tick) error { // here nothing is allocated, and nothing waits
		if t.N+1 == to {
			return cell.ErrStop
		}
		return nil
	}, nil
})

// The program's main calls cell.Main first; here TestMain does.
func Example() {
	c, err := cell.Start(context.Background(),
		cell.Config{Task: pulse.With(10), Period: time.Millisecond, Priority: 50})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for _, what := range c.Lacking() { // it runs all the same
		_ = what // "scheduling fifo 50: … operation not permitted; run as root, or …"
	}
	s, err := c.Wait()
	fmt.Println(s.Cycles, "cycles,", s.Allocs, "allocations:", err)
	// Output:
	// 10 cycles, 0 allocations: <nil>
}
