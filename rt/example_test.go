package rt_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/rt"
)

func ExampleParseCPUs() {
	cpus, err := rt.ParseCPUs("8-11,0-6:2")
	fmt.Println([]int(cpus), err)
	fmt.Println(cpus)
	// Output:
	// [0 2 4 6 8 9 10 11] <nil>
	// 0,2,4,6,8-11
}

func ExampleTryScheduling() {
	err := rt.TryScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 10})
	if err != nil {
		fmt.Println(err) // says what is missing: CAP_SYS_NICE, RLIMIT_RTPRIO, a cgroup's budget
	}
}
