// Package rtswitch asks what it costs to go from one task to the next.
package rtswitch

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

var (
	goroutine  = lab.Ours("go/goroutine", pingPong(false)).But("GOMAXPROCS=1")
	locked     = lab.Ours("go/locked goroutine", pingPong(true)).But("each on a thread of its own (LockOSThread)")
	futex      = lab.C("switch.c", "apt install gcc", "-lpthread").As("c/futex", "switch", "how=futex")
	condvar    = lab.C("switch.c", "apt install gcc", "-lpthread").As("c/condvar", "switch", "how=condvar")
	rustThread = lab.Rust("switch.rs").As("rust/thread", "switch", "how=thread").But("park and unpark")
	rustAsync  = lab.Rust("switch.rs").As("rust/async", "switch",
		"how=async").But("an executor of two tasks, without a queue: the least that one can be")
	tokio   = lab.Cargo("tasks").As("rust/tokio", "tasks", "how=tokio").But("its executor of one thread")
	smol    = lab.Cargo("tasks").As("rust/smol", "tasks", "how=smol").But("its executor of one thread, async-executor")
	python  = lab.Python("switch.py", "threading", "apt install python3").As("python/thread", "switch", "how=thread")
	asyncio = lab.Python("switch.py", "asyncio", "apt install python3").As("python/asyncio", "switch", "how=asyncio")
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "rt-switch", Plane: lab.RealTime,
		Question: "What does it cost to go from one task to the next, and how much memory has one that waits?",
		Method: "Two tasks wake each other in turns; an operation is one of those switches, with the wake-up. The threads in C are on one CPU, others where the kernel has them. waiting_bytes is by how much the " +
			"process's resident memory grows for each of some hundred threads, or some thousand tasks, that wait for ever. The tasks of rust/tokio and rust/smol are the same code; what differs is who polls them.",
		Metrics: []lab.Metric{lab.NsPerOp, lab.WaitingBytes, lab.ContextSwitchesPerOp},
		Base:    futex,
		Contestants: []*lab.Contestant{
			goroutine, locked, futex, condvar, rustThread, rustAsync, tokio, smol, python,
			asyncio,
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(nil, lab.NsPerOp, "%.0f", 1, goroutine, futex, locked)
			if !ok {
				return ""
			}
			text := fmt.Sprintf("From goroutine to goroutine it takes %s ns, from thread to thread in C %s, and %s between goroutines that are locked to threads.", said...)
			if v.Beats(goroutine, locked, nil, lab.NsPerOp) {
				text += " Lock none that has to talk to others often."
			}
			if r, ok := v.Beside(nil, lab.NsPerOp, "%.0f", 1, tokio, smol); ok { // where crates can be fetched
				text += fmt.Sprintf(" From task to task in Rust it takes %s by tokio, %s by smol.", r...)
			}
			return text
		},
		Claims: []lab.Claim{
			claims.GoroutineSwitch.Judged(lab.Needs(nil, goroutine, futex), func(v lab.View) (lab.Verdict, bool) {
				r, ok := v.Ratio(goroutine, futex, nil, lab.NsPerOp)
				return lab.AtMost(r, 0.5,
					"The kernel has no part in it. The article has no figure; half is what is asked for here.").
					IfNot("The kernel has no part in it, but Go's scheduler has: it takes more than half of what a futex does, which is asked for here."), ok
			}),
			claims.AsyncStack.Judged(lab.Needs(nil, rustAsync), func(v lab.View) (lab.Verdict, bool) {
				least, ok := v.AtLeast(rustAsync, nil, lab.WaitingBytes, 2<<10, "From 2 to 8 KiB is what is let pass here.")
				most, ok2 := v.AtMost(rustAsync, nil, lab.WaitingBytes, 8<<10, "From 2 to 8 KiB is what is let pass here.")
				m, _ := v.Median(rustAsync, nil, lab.WaitingBytes)
				return lab.All(least, most).As("%.0f bytes", m).IfNot(
					"An async task has no stack: what it keeps over a wait is a value, as large as its variables are. From 2 to 8 KiB is what is let pass here."), ok && ok2
			}),
			claims.RustStack.Judged(lab.Needs(nil, rustThread), func(v lab.View) (lab.Verdict, bool) {
				verdict, ok := v.AtLeast(rustThread, nil, lab.WaitingBytes, 1<<20, "One MiB of memory is what is asked for here.")
				return verdict.IfNot(
					"2 MiB of addresses are the default (std::thread, Builder::stack_size); memory comes page by page as it is touched. One MiB of it is what is asked for here."), ok
			}),
		},
	})
}
