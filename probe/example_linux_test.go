package probe_test

import (
	"fmt"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/probe"
)

// How long this process's threads wait for a CPU. It needs root, so this is compiled and not run.
func Example() {
	if err := probe.Available(probe.Sched); err != nil {
		fmt.Println(err) // says what is missing
		return
	}
	p, err := probe.Start(probe.Sched, probe.Options{PID: os.Getpid()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	time.Sleep(time.Second)
	report, err := p.Read()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range report.Latency {
		fmt.Println(h.Op, h.Count, "times; 99 % within", h.Quantile(0.99))
	}
}
