package contestant_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// A contestant that does so much work and reports it. A program calls contestant.Main instead,
// which takes the arguments and the standard streams; the laboratory is at their other end.
func Example() {
	t, err := contestant.New([]string{"sum", "depth=8", "seconds=0.01"}, strings.NewReader("go\n"), os.Stdout)
	if err != nil {
		fmt.Println(err)
		return
	}
	until, err := t.Ready()
	if err != nil {
		fmt.Println(err)
		return
	}
	for time.Now().Before(until) { // the work
	}
	if _, err := t.Done(); err != nil {
		fmt.Println(err)
	}
	// it would say how long it took
	if err := t.Result(10*time.Millisecond, 1000, contestant.Value{Metric: "lost_frames", V: 0}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ready
	// done
	// BenchmarkSum 1000 10000 ns/op 0 lost_frames
}
