package claims

import "github.com/tallywheel/tallywheel/lab"

var realTime = of(lab.RealTimeArticle)

// What the article on real time claims.
var (
	TickerIsExact = realTime(1, "1",
		"A time.Ticker on a locked thread keeps an exact period.",
		"“LockOSThread, and a time.Ticker for an exact period”, 5 ms × 1000")
	NoPauses = realTime(2, "1",
		"Go has been tuned so that its collector makes no pauses that matter to a periodic task.",
		"“optimised to have no GC pauses”")
	CrossVariable = realTime(3, "1",
		"GOCROSSCOMPILE is a variable of the Go command.",
		"GOCROSSCOMPILE=1 go build")
	GoroutineStack = realTime(4, "2.1",
		"A goroutine begins with a stack of 2 KB that grows.",
		"about 2 KB")
	ThreadStack = realTime(5, "2.1",
		"A POSIX thread has a fixed stack of 2 to 8 MB.",
		"2–8 MB")
	CyclictestExact = realTime(6, "2.2",
		"cyclictest tells the wake-up latency to about 10 µs.",
		"~10 µs")
	GoschedCost = realTime(7, "2.3",
		"runtime.Gosched costs 20 to 50 ns.",
		"20–50 ns")
	GoschedQueue = realTime(8, "2.3",
		"Gosched puts the goroutine into the global queue.",
		"“into the global run queue”")
	LoopMean = realTime(9, "2.3",
		"10⁷ iterations with 10⁴ calls of Gosched take 1,240 µs on average on a Cortex-A7.",
		"1240 µs")
	MoreProcsMean = realTime(10, "2.3",
		"With GOMAXPROCS=8 instead of 1 such a loop takes a fifth less on average.",
		"1240 → 980 µs")
	MoreProcsWorst = realTime(11, "2.3",
		"With GOMAXPROCS=8 instead of 1 the worst case of such a loop is a third.",
		"P99.9 8920 → 3150 µs")
	SysmonTenMs = realTime(12, "2.4",
		"sysmon asks a goroutine to yield that has run for 10 ms.",
		"“every 10 ms by default”")
	PreemptFails = realTime(13, "2.4",
		"Beside a goroutine that computes, one that wakes at 10 kHz waits for up to 42.6 ms, because pre-emption fails.",
		"42.6 ms")
	PatchSchedule = realTime(14, "2.4",
		"A check of the request to yield at the entry of runtime.schedule bounds that to 9.8 ms.",
		"42.6 → ≤ 9.8 ms")
	Jitter = realTime(15, "2.4",
		"With such a patch the jitter of switches falls from 15,200 to 310 µs.",
		"15,200 → 310 µs")
	FlushTLB = realTime(16, "2.5",
		"A benchmark in user space keeps the TLB out of it by the instruction INVLPG.",
		"INVLPG")
	CounterOfA7 = realTime(17, "2.5",
		"The A40i's time is read by mrs from cntvct_el0.",
		"mrs x0, cntvct_el0")
	PageOf4K = realTime(18, "3.1",
		"A page of Go's allocator has 4 KB.",
		"_PageSize = 4096")
	HugePageField = realTime(19, "3.2",
		"/proc/PID/smaps has a field HugePageSize.",
		"HugePageSize")
	Fragmentation = realTime(20, "3.2",
		"Over 72 hours 38.7 % of the huge pages cannot be had on average, 62.4 % at the peak, and 41.2 % of the trials fail.",
		"38.7 %, 62.4 %, 41.2 %")
	ArenaFragments = realTime(21, "3.3",
		"Over 1,000 hours malloc fragments by 38.7 % and fails 12 times, an arena by 0 % and never.",
		"38.7 % and 12, 0 % and 0")
	StaticStart = realTime(22, "4.1",
		"Static and without cgo a program starts in an eighth less time.",
		"128.3 against 147.6 ms, from the A40i's NAND")
	StaticScatter = realTime(26, "4.1",
		"Static and without cgo the start of a program scatters by a fifth of what it does otherwise.",
		"± 1.7 against ± 9.4 ms, from the A40i's NAND")
	InitCall = realTime(23, "4.2",
		"A Go program's init functions run in the kernel's do_initcalls, by a symbol in __initcall_level7.",
		"__initcall_level7")
	ConstFlag = realTime(24, "4.3",
		"GCC has a flag -fconstexpr.",
		"GCC -fconstexpr")
	HeapAtStart = realTime(25, "4.4",
		"runtime.startTheWorld calls mheap_.init.",
		"mheap_.init() in startTheWorld, P99 1347 µs")
	StoppingTakes = realTime(30, "4.4",
		"Until all goroutines have stopped for the collector it takes 3 µs at the median, 17 at 90 %, 89 at 99 %.",
		"gcwaiting, P50 3 µs, P90 17 µs, P99 89 µs")
	GoroutineSwitch = realTime(27, "2.1",
		"To go from goroutine to goroutine costs less than from thread to thread: the kernel has no part in it.",
		"“scheduled M:N in user space”")
	RustStack = realTime(28, "2.1",
		"A Rust thread has a stack of about 2 MB.",
		"~2 MB")
	AsyncStack = realTime(29, "2.1",
		"A Rust async task has a stack of about 4 KB.",
		"~4 KB")
	EdgeBySignal = realTime(31, "1",
		"An edge of a GPIO reaches a Go program through the interrupt and a signal.",
		"“GPIO edge → IRQ → signal handling in user space”, without a figure")
	TriggerTakes = realTime(32, "2.5",
		"From the trigger to the first line it takes 37 ns in C, 42 in Rust, 112 in Python.",
		"37, 42, 112 ns")
	StampTakes = realTime(33, "2.5",
		"A time stamp takes 9 ns in C, 11 in Rust, 48 in Python.",
		"9, 11, 48 ns")
	AggregateTakes = realTime(34, "2.5",
		"To aggregate a value takes 21 ns in C, 18 in Rust, 293 in Python.",
		"21, 18, 293 ns")
	EachInstance = realTime(35, "2.2",
		"A probe by eBPF at the scheduler sees each instance of a wake-up.",
		"“each instance of scheduling”")
	LTTngExact = realTime(36, "2.2",
		"LTTng tells the kernel's events to about 1 µs.",
		"~1 µs")
	ConstAtCompileTime = realTime(37, "4.3",
		"A checksum by a const fn in Rust costs nothing at run time: the compiler makes it.",
		"“no branch at run time, no access to memory”")
	NoRecursionInC = realTime(38, "4.3",
		"C evaluates no recursion at compile time: there are macros only.",
		"“only expansion of macros”")
	SameConstants = realTime(39, "4.3",
		"Rust and C make the same constants at compile time, by which the way of a start can be checked.",
		"“aligned by one hash”")
	ConstsNeedNoMangle = realTime(40, "4.3",
		"A const in Rust has to be exported with #[no_mangle], so that it is kept.",
		"“all const symbols need an explicit #[no_mangle]”")
	TrimmedConstants = realTime(41, "4.3",
		"The linker's --gc-sections takes away constants that the check needs.",
		"“--gc-sections must not trim .rodata.const”")
	ProcsResized = realTime(42, "4.4",
		"When the world starts, procresize takes 12 µs at the median, 42 at 90 %, 216 at 99 %.",
		"procresize(), P50 12 µs, P90 42 µs, P99 216 µs")
	YieldForHeap = realTime(43, "4.4",
		"A loop of osyield before mheap_.init in startTheWorld, until the memory is ready, cuts its 99 % to a seventh.",
		"P99 1347 → 203 µs")
	TwelveStreams = realTime(44, "5",
		"On a Jetson AGX Orin YOLOv8m on 12 streams of 1080p at 30 frames a second takes 83 ms from end to end.",
		"83 ms")
	GPUOverPCIe = realTime(45, "5",
		"With these streams a MIC-7700 loses frames, its GPU at 98 %, for its PCIe is too slow.",
		"98 % with dropped frames")
	ClusterSync = realTime(46, "5",
		"With these streams a cluster of Raspberry Pi CM4 has 42 % less throughput, by its synchronisation.",
		"−42 %")
	ProtocolTable = realTime(47, "5",
		"Six platforms of the edge speak OPC UA PubSub, MQTT-SN, Modbus TCP, EtherCAT and CANopen FD as a table says.",
		"a table of 6 platforms and 5 protocols: natively, by middleware, or not")
)
