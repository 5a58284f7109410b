package claims

import "github.com/tallywheel/tallywheel/lab"

var processes = of(lab.ProcessesArticle)

// What the article on processes claims.
var (
	FourProcesses = processes(1, "1",
		"Four processes answer four times the requests of one.",
		"2,053 → 8,196 QPS (+300 %)")
	GainOfProcesses = processes(2, "1",
		"What several processes gain is theirs: one process with all CPUs does not have it.",
		"“beyond the limit of goroutines alone”")
	OneLatency = processes(3, "1",
		"One process with 2,000 connections answers 2,053 requests a second in 48.7 ms on average.",
		"2,000 connections, 2,053 QPS, 48.7 ms")
	FourLatency = processes(4, "1",
		"Four processes with 2,000 connections answer 8,196 requests a second in 12.3 ms on average.",
		"2,000 connections, 8,196 QPS, 12.3 ms")
	WorkersCPU = processes(5, "1",
		"One process under such a load takes 98 % of a CPU, each of four takes 95 % of one.",
		"98 % and 95 % × 4")
	HotLock = processes(6, "1",
		"Several processes keep a hot lock from being one.",
		"“avoids contention of threads”")
	ReusePort = processes(7, "1",
		"Workers that share a port by SO_REUSEPORT need nothing else.",
		"“no balancer beside”")
	NoLockWait = processes(8, "1",
		"A server under load has no lock that is waited for.",
		"“no hot spot of lock contention”")
	SteadyAllocation = processes(9, "1",
		"A server under load allocates at a rate that stays the same.",
		"“the rate stays stable”")
	NoDescriptorLeak = processes(10, "1",
		"A server under load leaks no descriptor.",
		"“no leak of handles”")
	NoGoroutineLeft = processes(11, "1",
		"A server under load leaves no goroutine behind.",
		"“no goroutines pile up”")
	MillionConnections = processes(12, "1",
		"A server in Go can hold a million connections.",
		"10⁶")
	CheapGoroutine = processes(13, "2.1",
		"Thousands of goroutines run on a few threads.",
		"“thousands on a few threads”")
	ChannelsNoLocks = processes(14, "2.1",
		"Goroutines that hand on data by channels avoid contention for locks.",
		"“avoids lock contention”")
	ProcsThreads = processes(15, "2.2",
		"GOMAXPROCS is the largest number of a program's threads.",
		"GOMAXPROCS(4): “at most 4 threads”")
	GoProcesses = processes(16, "2.2",
		"Two go statements start two processes.",
		"go func() { /* process A */ }()")
	StartForks = processes(17, "2.3",
		"os.StartProcess makes a copy of the process by fork.",
		"“wraps fork() directly”")
	StartNoShell = processes(18, "2.3",
		"os.StartProcess goes through no shell: variables and paths are left as they are.",
		"“not through a shell”")
	BufferedFIFO = processes(19, "2.4",
		"A bufio.Writer makes writing messages to a FIFO more efficient.",
		"bufio.NewWriter(pipe), Flush after each")
	PipeOneWay = processes(20, "2.4",
		"A pipe is simple and goes one way, a Unix socket goes both ways.",
		"“one way” against “both ways, streams”")
	SharedMemoryFast = processes(21, "2.4",
		"Shared memory is the fast way between processes.",
		"“high performance”")
	ExitOrder = processes(22, "2.5",
		"At its end a process gives back its memory, then its files, then its maps, and then leaves the scheduler.",
		"release_memory, close_files, unmap_pages, remove_from_scheduler")
	Zombies = processes(23, "2.5",
		"A child that nobody waits for is a zombie, and init takes in those whose parent has ended.",
		"“zombie”, “adopted by init”")
	CPUBoundCount = processes(24, "4.1",
		"Of work that computes, as many processes as CPUs do most: twice as many do no more.",
		"8 CPUs → 8 processes")
	IOBoundCount = processes(25, "4.1",
		"Of work that waits, up to twice as many processes as CPUs do more.",
		"8 CPUs → 12–16 processes")
	Binding = processes(26, "4.1",
		"To bind processes to CPUs makes them quicker: fewer switches, warmer caches.",
		"taskset -c 0,1")
	SemaphoreMemory = processes(27, "4.2",
		"Shared memory under a semaphore of value 1 avoids the cost of system calls and copies.",
		"sem_open(…, 1)")
	SameFile = processes(28, "4.2",
		"Who receives a descriptor by SCM_RIGHTS has the same open file.",
		"“the same entry of the kernel's table”")
	StealingThroughput = processes(29, "4.3",
		"A common queue, queues of each worker's own and stealing let small tasks flow faster than one queue.",
		"“raises the throughput”")
	UnboundedQueue = processes(30, "4.3",
		"The common queue may be without a bound.",
		"“global: unbounded”")
	PoolTasks = processes(31, "4.4",
		"With 32 instead of 8 workers four times the tasks are done.",
		"1,200 → 4,800 TPS")
	PoolTime = processes(32, "4.4",
		"With 32 instead of 8 workers the time of a task falls by 67 %.",
		"−67 %")
	PoolConnections = processes(33, "4.4",
		"200 connections to a database instead of 50 bring more.",
		"50 → 200")
	PoolRefusals = processes(34, "4.4",
		"A queue of 8,192 with caller runs refuses nobody, where one of 1,024 with abort does.",
		"1024 → 8192, AbortPolicy → CallerRunsPolicy")
)
