package claims

import "github.com/tallywheel/tallywheel/lab"

var serial = of(lab.SerialArticle)

// What the article on ports claims.
var (
	PipelineThroughput = serial(1, "1",
		"A pipeline of four goroutines (read, parse, validate, store) doubles the throughput of one goroutine that blocks in read.",
		"397 KB/s against 182 KB/s: 2.18×")
	PipelineP99 = serial(2, "1",
		"A pipeline of four goroutines has two thirds of the P99 latency of one goroutine that blocks in read.",
		"8.1 against 12.4 ms: 0.65×")
	PipelineCPU = serial(3, "1",
		"A pipeline of four goroutines takes three times the CPU time of one goroutine that blocks in read, a ring twice.",
		"42 and 28 against 14 %")
	RingP99 = serial(4, "1",
		"Reading in place from a ring has a third of the P99 latency of blocking reads.",
		"3.7 ms against 12.4 ms: 0.30×")
	RingSwitches = serial(5, "1",
		"A ring saves most of the context switches of blocking reads.",
		"83 % fewer")
	MappedPort = serial(6, "1",
		"Mapping /dev/ttyS2 with mmap gives a ring that the kernel fills, with head and tail in its first bytes.",
		"P99 3.7 ms with /dev/ttyS2 mapped as a ring buffer, “the best way”")
	BaudLimit = serial(7, "1",
		"A serial line at 115,200 baud, 8N1, was read at 468 KB/s (397 and 182 KB/s by other ways).",
		"468 KB/s")
	TriggerLevel = serial(8, "1",
		"Writing 4096 to rx_trig_lvl makes a UART's receive FIFO larger.",
		"echo 4096 > /sys/class/tty/ttyS2/device/rx_trig_lvl")
	SkipTxen = serial(9, "1",
		"The option skip_txen=1 of the 8250 driver cuts the interrupts of a UART.",
		"options serial8250 skip_txen=1")
	SetserialDMA = serial(10, "1",
		"setserial switches a UART to DMA.",
		"setserial /dev/ttyS2 dma 1")
	MadvDontNeed = serial(11, "1",
		"GODEBUG=madvdontneed=1 makes Go give memory back to the kernel with less delay.",
		"“cuts the delay of reclaiming mapped memory”")
	SelectTimeout = serial(12, "2.2",
		"A read of go.bug.st/serial with a time-out waits in select, and ends with EAGAIN.",
		"“unix.Select”, “triggers syscall.EAGAIN”")
	PortLists = serial(13, "2.2",
		"go-serial cannot list the serial ports.",
		"“must be named by hand”")
	Framing = serial(14, "2.3",
		"The bits around each byte take 20 to 30 % of a line.",
		"20–30 %")
	ClockFormula = serial(15, "2.3",
		"A serial line carries baud ÷ 10 × (1 − 2δ) bytes a second at 8N1, with clocks that differ by δ.",
		"effective rate = baud ÷ 10 × (1 − 2δ)")
	ClockLoss = serial(16, "2.3",
		"Clocks that differ by 2 % cost up to 12 % of the throughput.",
		"±2 %: at most 12 % less")
	NeedsDMA = serial(17, "2.3",
		"From 500 kbit/s on, a FIFO of 16 bytes whose interrupts are served within 5 to 20 µs needs DMA.",
		"16 B, 5–20 µs, ≥ 500 kbit/s")
	Trigger12 = serial(18, "2.3",
		"With a FIFO trigger of 12 instead of 14 bytes, 115,200 baud can be sustained at 10.1 KB/s instead of 9.2 KB/s.",
		"10.1 KB/s against 9.2 KB/s")
	BlockedInRead = serial(19, "2.4",
		"A goroutine that blocks in read is in a system call, and its P is handed to another thread.",
		"_Grunning → _Gsyscall, handoffp")
	BlockTimes = serial(20, "2.5",
		"A reader of a serial port blocks for 1 to 500 ms at a time, and works for 0.05 to 2 ms on what came.",
		"1–500 and 0.05–2 ms")
	ReadInterrupts = serial(21, "3.1",
		"Each read of a serial port is at least one interrupt.",
		"“each read(2) is at least one interrupt”")
	BufioCost = serial(22, "3.1",
		"bufio.Reader in front of a serial port costs more than reading it directly.",
		"“the bufio.Reader + port.Read bottleneck”: 62 % of the CPU in system calls")
	ReadTime = serial(23, "3.1",
		"A Read of frames of 128 bytes at 1 Mbit/s takes 8.3 ms.",
		"8.3 ms")
	DMAUse = serial(24, "3.1",
		"Reading a UART through bufio.Reader uses 37 % of its DMA.",
		"37 %")
	BufioRefills = serial(25, "3.1",
		"bufio.Reader reads again from the port while it still holds data.",
		"“refills even while n < cap(buf)”")
	ReadBypassesDMA = serial(26, "3.1",
		"A read of a serial port goes around the DMA and reads the FIFO.",
		"“read(2) bypasses DMA”")
	RingLatency = serial(27, "3.2",
		"Reading in place has 42 ns of latency, copying out 117 ns.",
		"42 against 117 ns: 0.36×")
	RingThroughput = serial(28, "3.2",
		"Reading in place has 1.4 times the throughput of copying out, at 64 bytes.",
		"18.3 against 12.9 million messages a second: 1.42×")
	BufferCPU = serial(29, "3.3",
		"A larger read buffer saves two thirds of the CPU time: 128 B against 8 KiB and more.",
		"38 % CPU with 128 B, 11 % with 8 KiB, 9 % with 64 KiB")
	BufferLoss = serial(30, "3.3",
		"A buffer of 64 KiB loses 1.7 % of the datagrams, because what is behind the first MTU stays in the kernel and is written over.",
		"1.7 % with 64 KiB, 0.003 % with 8 KiB")
	BufferPieces = serial(31, "3.3",
		"A buffer smaller than the datagram reads all of it in pieces, with 0.2 % loss.",
		"0.2 % lost with 128 B at 256 B datagrams")
	BufferCalls = serial(32, "3.3",
		"A buffer of 128 B takes 7.8 system calls for each datagram of 256 B.",
		"≈ 780,000 a second for 100,000 datagrams a second")
	PoolVariation = serial(33, "4.1",
		"A fixed pool of eight varies less in throughput than one of four to sixteen.",
		"± 3.2 % against ± 8.7 %")
	PoolGrowth = serial(34, "4.1",
		"A pool that grows takes some 12 ms to do so.",
		"≈ 12 ms")
	PoolMemory = serial(35, "4.1",
		"The memory of a fixed pool stays the same, that of a pool which grows wanders.",
		"“constant” against “wanders”")
	SelectRealTime = serial(36, "4.2",
		"A reader that waits by select for at most 10 ms, three at a time, and tries again after 5 ms, is real-time.",
		"10 ms, 3 readers, 5 ms")
	MapRefused = serial(37, "4.3",
		"mmap of a tty fails with ENODEV.",
		"-ENODEV")
	PortFops = serial(38, "4.3",
		"The kernel's operations of a serial port, serial_port_fops, have no mmap.",
		"serial_port_fops = {.mmap = NULL}")
	ReadFaults = serial(39, "4.3",
		"Reading a serial port takes no page fault.",
		"0 a second")
	ReadKernelTime = serial(40, "4.3",
		"A read of a serial port spends 8.2 µs in the kernel.",
		"8.2 µs")
	PollAndRing = serial(41, "4.3",
		"Polling by ioctl(TIOCGSERIAL) and poll with a ring works instead of a map.",
		"“feasible alternative”")
	BurstLoss = serial(42, "4.4",
		"Under bursts, a reader that waits for input loses 12.7 % of the frames, one that polls while data flows 0.1 %.",
		"12.7 % against 0.1 %")
	BurstLossPolling = serial(43, "4.4",
		"Under bursts, a reader by DMA and polling loses 0.3 % of the frames.",
		"0.3 %")
	ErrorRates = serial(44, "4.4",
		"In 30 minutes at 400 KB/s, waiting, polling and hybrid readers have error rates of 8.2e-5, 1.1e-7 and 4.6e-8.",
		"8.2e-5, 1.1e-7, 4.6e-8")
	SteadyLatency = serial(45, "4.4",
		"A reader that drops the oldest above 70 % and 450 KB/s has a P99 of 9.3 ms at a steady 400 KB/s, and never more than 12 ms.",
		"≤ 12 ms, P99 9.3 ms")
	BrownOut = serial(46, "4.4",
		"Where a USB line breaks down for a moment, a reader that waits loses frame after frame, a hybrid one goes on without a seam.",
		"“chain loss” against “seamless”")
	MappedUIO = serial(47, "4.3",
		"Where a UART's registers are exposed by UIO, mapping /dev/uioX works.",
		"“feasible alternative”")
	GopsutilPorts = serial(48, "2.2",
		"gopsutil lists the serial ports of a machine, by SerialPorts().",
		"“walks /sys/class/tty/”")
)
