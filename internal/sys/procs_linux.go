package sys

import (
	"os"
	"runtime"
	"strings"
	"sync"
)

// Interrupts is whether the runtime's monitor interrupts a raw call that keeps a P, after some
// 10 ms, by a signal. So a wait without a limit ends, too. A short limit would cost: a timer that
// is the next to expire is programmed into the hardware at every wait, which in a virtual machine
// takes about as long as reading a frame.
var Interrupts = !strings.Contains(os.Getenv("GODEBUG"), "asyncpreemptoff=1")

var procs sync.Mutex

// AddProcs changes GOMAXPROCS: a thread that waits in raw system calls keeps a P that the others
// need.
func AddProcs(n int) {
	procs.Lock()
	defer procs.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}
