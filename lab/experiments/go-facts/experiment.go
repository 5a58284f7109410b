// Package gofacts asks whether what the articles say of Go and its packages is so.
package gofacts

import (
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

var (
	setupInXSys    = lab.Peers("xsys-setup").As("x/sys/unix: IoUringSetup", "fact")
	statxInXSys    = lab.Peers("xsys-statx").As("x/sys/unix lacks statx", "fact")
	gnetUring      = lab.Peers("gnet-uring").As("gnet.IOUring", "fact")
	portLists      = lab.Peers("serial").As("go-serial lists no ports", "list")
	growing        = ask("bufio: grows without Discard", bufferGrows)
	refilling      = ask("bufio: refills early", bufioRefills)
	indexByte      = ask("IndexByte spares a copy", indexByteSpares)
	lockTwice      = ask("RLock twice", readLockTwice)
	runtimeMmap    = ask("runtime: syscall.Mmap", runtimeUsesSyscall)
	runtimeBarrier = ask("runtime: PROT_ and the write barrier", barrierByMap)
	movingHeap     = ask("runtime: moves the heap", heapMoves)
	preemptBuild   = ask("runtime: asyncpreemptoff at build", needsPreemptAtBuild)
	blocked        = ask("runtime: blocked in read", blockedInRead)
	gopsutilPorts  = lab.Peers("gopsutil-ports").As("gopsutil: SerialPorts", "fact")
	sizeCheck      = ask("mmap: a size check keeps SIGBUS away", sizeCheckKeeps)
)

func ask(name string, try func(*contestant.Turn) (contestant.Finding, error)) *lab.Contestant {
	return lab.Ours(name, contestant.Asks(try))
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "go-facts", Plane: lab.Laboratory,
		Question: "Is what the articles say of Go and its packages so?",
		Method: "Each contestant tries it, or is a program that compiles only if a package has what it names, or reads the source of the Go that is installed. It answers once, by yes or no, " +
			"and says what shows it.",
		Metrics: []lab.Metric{lab.Answer}, Once: true,
		Contestants: []*lab.Contestant{
			setupInXSys, statxInXSys, gnetUring, portLists, growing, refilling, indexByte, lockTwice,
			runtimeMmap, runtimeBarrier, movingHeap, preemptBuild, blocked, sizeCheck,
			gopsutilPorts,
		},
		Advice: lab.HowManySo("Of %d things that articles say of Go and its packages, and that compile and were tried, %d are so with this Go."),
		Claims: []lab.Claim{
			claims.SetupInXSys.Compiled(setupInXSys, "The package has neither helpers nor types for io_uring."),
			claims.XSysStatx.Lacks(statxInXSys, "Statx_t and Statx are there since 2018."),
			claims.GnetUring.Compiled(gnetUring, "gnet works by epoll and kqueue."),
			claims.GopsutilPorts.Compiled(gopsutilPorts,
				"gopsutil tells of CPUs, memory, disks, networks and processes; it has no function for ports."),
			claims.PortLists.Asked(portLists,
				"",
				"GetPortsList, and enumerator.GetDetailedPortsList with the USB names. gopsutil has no function for ports."),
			claims.Discard.Asked(growing,
				"",
				"ReadSlice gives a part of a buffer that keeps its size; a line that does not fit is ErrBufferFull. Discard skips what nobody wants to see."),
			claims.BufioRefills.Asked(refilling, "",
				"Read reads from below only where nothing is held, and then once."),
			claims.IndexByte.Asked(indexByte, "bytes.Index would do as well: it is the conversion that costs.", ""),
			claims.RLockTwice.Asked(lockTwice,
				"",
				"package sync: an RWMutex is not for recursive read locking; a writer that waits keeps new readers out."),
			claims.RuntimeMmap.Refuted(runtimeMmap,
				"Package syscall is above the runtime, which has system calls of its own."),
			claims.ProtBarrier.Refuted(runtimeBarrier, "The phase of the collector switches it."),
			claims.GCMoves.Asked(movingHeap,
				"",
				"Go's collector moves no memory of the heap. What can go wrong is that it is freed: runtime.Pinner or a reference keeps it. Stacks move when they grow."),
			claims.PreemptAtBuild.Asked(preemptBuild, "",
				"It is read when a program starts, and 0 is the default."),
			claims.BlockedInRead.Asked(blocked,
				"So it is where the descriptor blocks. os.File puts it into the poller's set, and then no thread waits.", ""),
			claims.SizeCheck.Asked(sizeCheck,
				"",
				"It is right for that moment only. debug.SetPanicOnFault makes an error of the fault, as package asyncfile does."),
			claims.Versions.Judged("any", func(v lab.View) (lab.Verdict, bool) {
				return lab.NotHere("a Go before 1.21 and a kernel before 5.15: both are newer here. io_uring is there since Linux 5.1, and system calls by number in every Go; this project's package needs 5.11."), len(v.Rows) > 0
			}),
		},
	})
}
