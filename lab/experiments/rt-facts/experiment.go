// Package rtfacts asks whether what the article on real time says of Go, of the kernel and of the
// processor is so.
package rtfacts

import (
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

var (
	crossCompile = ask("GOCROSSCOMPILE", crossVariable)
	smallStack   = ask("goroutine: 2 KB", goroutineStack)
	queue        = ask("Gosched: global queue", goschedQueue)
	tenMs        = ask("sysmon: 10 ms", sysmonAsks)
	pageSize     = ask("page of 4 KB", allocatorPage)
	heapInit     = ask("startTheWorld: mheap.init", heapAtStart)
	smaps        = ask("smaps: HugePageSize", hugePageField)
	constexpr    = ask("gcc -fconstexpr", constFlag)
	recursion    = ask("recursion in C", noRecursion)
	noMangle     = ask("#[no_mangle] const", needsNoMangle)
	schedule     = ask("schedule: checks the request", scheduleChecks)
	counter      = ask("mrs cntvct_el0 on ARMv7", counterOfA7)
	initcalls    = ask("Go: section of initcalls", initCall)
	threadStack  = inC("thread: 2–8 MB", "stack")
	invlpg       = inC("INVLPG", "invlpg")
)

func ask(name string, try func(*contestant.Turn) (contestant.Finding, error)) *lab.Contestant {
	return lab.Ours(name, contestant.Asks(try))
}

func inC(name, fact string) *lab.Contestant {
	return lab.C("facts_rt.c", "apt install gcc", "-lpthread").As(name, "fact", "ask="+fact)
}

func init() {
	board := func(p lab.Published, missing string) lab.Claim {
		return p.Judged("any", func(v lab.View) (lab.Verdict, bool) { return lab.NotHere(missing), len(v.Rows) > 0 })
	}
	lab.Register(&lab.Experiment{
		Name: "rt-facts", Plane: lab.RealTime,
		Question: "Is what the article on real time says of Go, the kernel and the processor so?",
		Method:   "Each contestant tries it, or reads the source of the Go that is installed. It answers once, by yes or no, and says what shows it.",
		Metrics:  []lab.Metric{lab.Answer}, Once: true,
		Contestants: []*lab.Contestant{
			crossCompile, smallStack, queue, tenMs, pageSize, heapInit, smaps, constexpr,
			recursion, noMangle, schedule, counter, initcalls, threadStack, invlpg,
		},
		Advice: lab.HowManySo("Of %d things that the article says of Go, the kernel and the processor, and that were tried here, %d are so here."),
		Claims: []lab.Claim{
			claims.CrossVariable.Refuted(crossCompile,
				"GOOS and GOARCH are enough; a variable that the Go command does not know does nothing."),
			claims.GoroutineStack.Asked(smallStack,
				"It is copied to one of twice the size when it is too small (runtime/stack.go).", ""),
			claims.ThreadStack.Asked(threadStack,
				"It is what RLIMIT_STACK says (pthread_create(3)), and addresses only: memory comes page by page. It is fixed in that it does not grow beyond.",
				"It is what RLIMIT_STACK says (pthread_create(3)), and addresses only: memory comes page by page. It is fixed in that it does not grow beyond."),
			claims.GoschedQueue.Asked(queue, "From there whichever P comes first takes it.", ""),
			claims.SysmonTenMs.Asked(tenMs,
				"It looks each 10 ms at the most, so what is asked may have run for up to 20.", ""),
			claims.PageOf4K.Refuted(pageSize,
				"A page of the allocator is one of 8 KiB on every machine, whatever the kernel's are; a span of small objects has as many of them as its size class says, 1 to 10, and not 256."),
			claims.HeapAtStart.Refuted(heapInit,
				"The heap is made once, before main, by mallocinit; startTheWorld runs behind every stop of the world."),
			claims.HugePageField.Asked(smaps,
				"",
				"KernelPageSize and MMUPageSize are there, and sums of huge pages as AnonHugePages (proc_pid_smaps(5))."),
			claims.ConstFlag.Refuted(constexpr,
				"constexpr is a word of C++ and C23; GCC has -fconstexpr-depth and its like, and evaluates constants without being asked to."),
			claims.NoRecursionInC.Asked(recursion,
				"An expression that has to be constant calls no function (C17, 6.6). Enumerators have each other as numbers, which is how rt-const makes a checksum; C++ has constexpr functions.", ""),
			claims.ConstsNeedNoMangle.Refuted(noMangle,
				"A const is no symbol: its value stands where it is used. A static is one."),
			claims.FlushTLB.Refuted(invlpg,
				"The instruction is for the kernel: at any other level it is a general protection fault (Intel SDM, volume 2, INVLPG)."),
			claims.CounterOfA7.Refuted(counter,
				"The register cntvct_el0 is of AArch64. The Cortex-A7 is an ARMv7: there the counter is read by mrrc p15, 1 (ARM ARM, ARMv7-A, B8.2)."),
			claims.InitCall.Refuted(initcalls,
				"do_initcalls calls functions that are linked into the kernel (init/main.c). A Go program begins when it is executed, behind all of them; its linker script says where things lie in its own file."),
			claims.PatchSchedule.Refuted(schedule,
				"A goroutine that computes does not call runtime.schedule: that runs when one has already stopped. A check there interrupts nobody."),
			claims.YieldForHeap.Refuted(heapInit,
				"Behind startTheWorld no mheap_.init follows: the heap is made once, before main, by mallocinit. A program is in memory when it begins, so memory is ready; a loop that waits for that is never entered."),
			board(claims.Fragmentation,
				"72 hours of an A40i with 512 MB; `tallywheel doctor` says whether huge pages can be had now"),
			board(claims.ProcsResized,
				"a runtime that says how long procresize takes: runtime/metrics has the whole stop of the world (rt-stw)"),
			board(claims.TwelveStreams, "a Jetson AGX Orin, 12 cameras, and the article's model"),
			board(claims.GPUOverPCIe, "a MIC-7700 with its GPU, 12 cameras, and the article's model"),
			board(claims.ClusterSync, "a cluster of Raspberry Pi CM4, 12 cameras, and the article's model"),
			board(claims.ProtocolTable,
				"those six platforms, on a bus of each kind; docs/guide/advise.md says which of these protocols this program speaks"),
		},
	})
}
