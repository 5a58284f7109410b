package claims

import "github.com/tallywheel/tallywheel/lab"

var network = of(lab.NetworkArticle)

// What the article on networks claims.
var (
	EngineRate = network(1, "1",
		"An engine on io_uring answers 37.2 % more requests than net/http, with the same handlers.",
		"+37.2 % QPS with wrk -t12 -c400 -d30s")
	EngineLatency = network(2, "1",
		"An engine on io_uring cuts the mean latency by 37.7 %, with the same handlers.",
		"13.8 → 8.6 ms with wrk -t12 -c400 -d30s")
	EngineSwitches = network(3, "1",
		"An engine on io_uring makes 45.2 % fewer context switches than net/http.",
		"124K → 68K a second")
	EngineSystemTime = network(4, "1",
		"An engine on io_uring cuts the CPU time in the kernel by 37.5 %, with the same handlers.",
		"42.1 → 26.3 %")
	LatencyByRate = network(5, "1",
		"400 connections that answer 38,985 requests a second have a mean latency of 8.6 ms.",
		"8.6 ms at 38,985 a second")
	Kernel419 = network(6, "1",
		"A kernel 4.19 has io_uring, with CONFIG_IOURING.",
		"CentOS 7 with kernel 4.19.290 and io_uring")
	UnshareFlags = network(7, "1",
		"Whether a kernel has io_uring is to be seen in /proc/sys/kernel/unshare_flags.",
		"grep io_uring /proc/sys/kernel/unshare_flags")
	RegisterFiles = network(8, "1",
		"Writing 1 to /proc/sys/kernel/io_uring_register_files frees io_uring's potential.",
		"echo 1 > /proc/sys/kernel/io_uring_register_files")
	AioFrees = network(9, "1",
		"fs.aio-max-nr limits what io_uring may do.",
		"echo 1024 > /proc/sys/fs/aio-max-nr “frees io_uring's potential”")
	PreemptAtBuild = network(10, "1",
		"A program must be built with GODEBUG=asyncpreemptoff=0 to be preempted.",
		"“make sure to set it when building”")
	UringFile = network(11, "2.2",
		"/proc/sys/fs/io_uring shows that a kernel has io_uring.",
		"/proc/sys/fs/io_uring")
	AioSoft = network(12, "2.3",
		"Beyond fs.aio-max-nr no request is refused.",
		"“logs a warning, but does not refuse”")
	Swappiness = network(13, "2.3",
		"vm.swappiness is 60 by default; with 0 a kernel swaps only before it runs out of memory.",
		"0, 1 and 60")
	Somaxconn = network(14, "2.3",
		"The backlog of a listener is the smaller of what it asked for and somaxconn; beyond it the SYN is dropped.",
		"min(backlog, somaxconn)")
	RuntimeUring = network(15, "3.1",
		"Go's runtime uses io_uring for the network since 1.20 where the kernel has it.",
		"runtime/netpoll_io_uring.go")
	StaticSize = network(16, "3.2",
		"Without cgo a program is 0.6 of its size.",
		"15 → 9 MB")
	StrippedSize = network(17, "3.2",
		"The linker's flags -s -w take a third off a static program.",
		"9 → 6.2 MB")
	PreemptOff = network(18, "3.3",
		"A server answers 12 % more requests with asyncpreemptoff=1.",
		"24,800 → 27,900 a second")
	Procs8 = network(19, "3.3",
		"A server answers 5 % more requests with GOMAXPROCS=8.",
		"24,800 → 26,100 a second, of 16 CPUs")
	Gosched = network(20, "3.3",
		"runtime.Gosched costs next to nothing.",
		"“extremely low overhead”")
	TuningLatency = network(21, "3.3",
		"A server's mean latency falls by 13 % with GOMAXPROCS=8, and by 25 % with asyncpreemptoff=1.",
		"12.3 → 10.7 and 9.2 ms")
	TuningPauses = network(22, "3.3",
		"A server has half as many more pauses of the garbage collector with asyncpreemptoff=1, and longer ones.",
		"8, 7 and 12 pauses")
	BatchedCalls = network(23, "4.1",
		"io_uring spares nearly all system calls.",
		"“submits in batches” instead of one call for each read and each write")
	ConnectionMemory = network(24, "4.1",
		"A connection holds 2 KB with net/http and 200 B with gnet.",
		"≈ 2 KB and ≈ 200 B")
	ThreadPool = network(25, "4.1",
		"net/http is a pool of threads that block.",
		"“OS thread pool + blocking I/O”")
	GnetUring = network(26, "4.1",
		"gnet has an engine on io_uring, gnet.IOUring.",
		"Engine: gnet.IOUring")
	CallsPerRequest = network(27, "4.1",
		"net/http makes one read and one write for each request.",
		"“one each”")
	SQPollRate = network(28, "4.2",
		"SQPOLL makes a server quicker, since it needs no system calls.",
		"“bypasses the cost of system calls”")
	SQPollCap = network(29, "4.2",
		"SQPOLL needs CAP_SYS_ADMIN.",
		"“and the capability CAP_SYS_ADMIN”")
	ThreeMaps = network(30, "4.2",
		"The queues of a ring need three maps.",
		"“mmap three times”")
	CompletionTimes = network(31, "4.3",
		"Of receives 68 % are complete within 10 µs, 27 % within 100 µs, 5 % later.",
		"68, 27 and 5 %")
)
