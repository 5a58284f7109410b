// Package gofacts asks whether what the articles say of Go and its packages is so.
package gofacts

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

func init() {
	ask := func(name, fact string) lab.Contestant { return lab.Ours(name, "fact", "ask="+fact) }
	lab.Register(&lab.Experiment{
		Name: "go-facts", Plane: lab.Laboratory,
		Question: "Is what the articles say of Go and its packages so?",
		Method: "Each contestant tries it, or is a program that compiles only if a package has what it names, or reads the source of the Go that is installed. It answers once, by yes or no, " +
			"and says what shows it.",
		Metrics: []lab.Metric{lab.Answer}, Once: true,
		Contestants: []lab.Contestant{
			lab.Peers("xsys-setup").As("x/sys/unix: IoUringSetup", "fact"), lab.Peers("xsys-statx").As("x/sys/unix lacks statx", "fact"), lab.Peers("gnet-uring").As("gnet.IOUring", "fact"),
			lab.Peers("serial").As("go-serial lists no ports", "list"),
			ask("bufio: locks", "bufio-locks"), ask("bufio: grows without Discard", "buffer-grows"), ask("bufio: refills early", "bufio-refills"), ask("IndexByte spares a copy", "indexbyte"),
			ask("RLock twice", "rlock-twice"), ask("sync.Map: no locks", "syncmap-no-lock"),
			ask("runtime: syscall.Mmap", "runtime-syscall"), ask("runtime: PROT_ and the write barrier", "barrier-map"), ask("runtime: moves the heap", "heap-moves"),
			ask("runtime: asyncpreemptoff at build", "preempt-build"), ask("runtime: blocked in read", "blocked"), ask("mmap: a size check keeps SIGBUS away", "size-check"),
		},
		Advice: func(v lab.View) string {
			if len(v.Rows) == 0 {
				return ""
			}
			n, so := 0, 0
			for _, r := range v.Rows {
				if yes, _, ok := v.Answer(r.Contestant); ok {
					n++
					if yes {
						so++
					}
				}
			}
			return fmt.Sprintf("Of %d things that articles say of Go and its packages %d are so with this Go: try before you build on one.", n, so)
		},
		Claims: []lab.Claim{
			claims.SetupInXSys.Compiled("x/sys/unix: IoUringSetup", "The package has neither helpers nor types for io_uring."),
			claims.XSysStatx.Asked("x/sys/unix lacks statx", "Statx_t and Statx are there since 2018."),
			claims.GnetUring.Compiled("gnet.IOUring", "gnet works by epoll and kqueue."),
			claims.PortLists.Asked("go-serial lists no ports", "GetPortsList, and enumerator.GetDetailedPortsList with the USB names. gopsutil has no function for ports."),
			claims.BufioLocks.Asked("bufio: locks", "A bufio.Reader or Writer has no lock, and must not be shared without one."),
			claims.Discard.Asked("bufio: grows without Discard", "ReadSlice gives a part of a buffer that keeps its size; a line that does not fit is ErrBufferFull. Discard skips what nobody wants to see."),
			claims.BufioRefills.Asked("bufio: refills early", "Read reads from below only where nothing is held, and then once."),
			claims.IndexByte.Asked("IndexByte spares a copy", "bytes.Index would do as well: it is the conversion that costs."),
			claims.RLockTwice.Asked("RLock twice", "package sync: an RWMutex is not for recursive read locking; a writer that waits keeps new readers out."),
			claims.SyncMapLocks.Asked("sync.Map: no locks", "Loads need none; who stores takes a lock."),
			claims.RuntimeMmap.Refuted("runtime: syscall.Mmap", "Package syscall is above the runtime, which has system calls of its own."),
			claims.ProtBarrier.Refuted("runtime: PROT_ and the write barrier", "The phase of the collector switches it."),
			claims.GCMoves.Asked("runtime: moves the heap", "Go's collector moves no memory of the heap. What can go wrong is that it is freed: runtime.Pinner or a reference keeps it. Stacks move when they grow."),
			claims.PreemptAtBuild.Asked("runtime: asyncpreemptoff at build", "It is read when a program starts, and 0 is the default."),
			claims.BlockedInRead.Asked("runtime: blocked in read", "So it is where the descriptor blocks. os.File puts it into the poller's set, and then no thread waits."),
			claims.SizeCheck.Asked("mmap: a size check keeps SIGBUS away", "It is right for that moment only. debug.SetPanicOnFault makes an error of the fault, as package asyncfile does."),
			claims.Versions.Judged("any", func(v lab.View) (lab.Verdict, bool) {
				return lab.NotHere("a Go before 1.21 and a kernel before 5.15: both are newer here. io_uring is there since Linux 5.1, and system calls by number in every Go; this project's package needs 5.11."), len(v.Rows) > 0
			}),
		},
	})
}
