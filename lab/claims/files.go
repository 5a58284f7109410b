package claims

import "github.com/tallywheel/tallywheel/lab"

var files = of(lab.FilesArticle)

// What the article on files claims.
var (
	SequentialReads = files(1, "1",
		"io_uring is the fastest for sequential reads of 4 KiB, bufio the slowest: 2.1× between them.",
		"182 (bufio), 295 (mmap), 378 (io_uring) MB/s")
	SequentialWrites = files(2, "1",
		"io_uring is the fastest for sequential writes of 4 KiB, bufio the slowest: 2.4× between them.",
		"146 (bufio), 268 (mmap), 351 (io_uring) MB/s")
	RandomReads = files(3, "1",
		"io_uring is the fastest for random reads of 4 KiB, bufio the slowest: 9.0× between them.",
		"32 (bufio), 211 (mmap), 289 (io_uring) MB/s")
	SetupInXSys = files(4, "1",
		"golang.org/x/sys/unix has IoUringSetup.",
		"unix.IoUringSetup(256, …)")
	BufioLocks = files(5, "1",
		"bufio suffers from contention for locks where many goroutines read and write.",
		"“copies and lock contention”")
	TLB = files(6, "1",
		"A touch of a mapped file costs more, the larger the file is.",
		"“TLB pressure grows with the file”")
	Versions = files(7, "1",
		"io_uring from Go needs Go 1.21 and Linux 5.15.",
		"Go 1.21+, Linux 5.15+")
	GCBySize = files(8, "2.2",
		"Small buffers make the garbage collector run often: 1 KiB 42 times a minute, 8 KiB 9 times, 64 KiB 3 times.",
		"42, 9 and 3 young collections a minute, 8.3, 2.1 and 1.9 ms each (Java's figures)")
	GoldenBuffer = files(9, "2.2",
		"8 KiB is the best size of a buffer.",
		"“the golden threshold”")
	SmallBufferGC = files(10, "2.2",
		"A buffer of 1 KiB makes the garbage collector run 37 % more often than larger ones.",
		"+37 % (Java's figure)")
	RLockTwice = files(11, "2.3",
		"Who holds an RWMutex for reading may take it for reading again.",
		"“re-entrant”")
	SyncMapLocks = files(12, "2.3",
		"sync.Map reads and writes without locks.",
		"“no lock”")
	ReadSlice = files(13, "2.4",
		"ReadSlice reads lines 2.3 times as fast as Scanner, without allocating.",
		"192 MB/s and 0 B against 85 MB/s and ≈ 2 KB")
	Discard = files(14, "2.4",
		"Without Discard the buffer of a bufio.Reader grows for ever.",
		"“must call reader.Discard(n)”")
	IndexByte = files(15, "2.4",
		"bytes.IndexByte spares the copy that strings.Index makes of a line.",
		"“avoids []byte → string”")
	ScannerThroughput = files(16, "2.5",
		"A Reader of 64 KiB with Read has seven times the throughput of a Scanner with 4 KiB.",
		"89,100 against 12,400 operations a second: 7.2×")
	ScannerCalls = files(17, "2.5",
		"A Reader of 64 KiB makes 94 % fewer system calls than a Scanner with 4 KiB.",
		"160 against 2,650 a second")
	ScannerGC = files(18, "2.5",
		"A Scanner with 4 KiB makes the garbage collector run 27 times as often as a Reader of 64 KiB.",
		"8.2 against 0.3 a second")
	ScannerCPU = files(19, "2.5",
		"A Scanner with 4 KiB takes more than a third more CPU time than a Reader of 64 KiB.",
		"+37 %")
	RuntimeMmap = files(20, "3.1",
		"Go's runtime maps its memory through syscall.Mmap.",
		"“runtime.sysAlloc calls syscall.Mmap”")
	ProtBarrier = files(21, "3.1",
		"The PROT_ flags of a map steer the write barrier of the garbage collector.",
		"“PROT_* affects the GC write barrier”")
	SizeCheck = files(22, "3.2",
		"A check of the file's size before it is mapped keeps SIGBUS away.",
		"“the root defence”")
	MapThroughput = files(23, "3.3",
		"At random, a map has 1.3 times the throughput of seek and read.",
		"1240 against 960 MB/s: 1.29×")
	MapP99 = files(24, "3.3",
		"At random, a map has a P99 of 0.6 of that of seek and read.",
		"182 against 310 µs: 0.59×")
	MapFaults = files(25, "3.3",
		"Random reads through a map take a page fault each.",
		"98,700 faults for 100,000 reads")
	Populate = files(26, "3.3",
		"MAP_POPULATE makes mapping a file of 16 GiB take 2.3 s longer.",
		"+2.3 s")
	Sendfile = files(27, "4.1",
		"io_uring has an operation for sendfile.",
		"IORING_OP_SENDFILE, native since 6.1")
	StatxFsync = files(28, "4.1",
		"statx and fsync work through a ring.",
		"IORING_OP_STATX, IORING_OP_FSYNC")
	StatxNew = files(29, "4.1",
		"Statx through a ring came with Linux 6.1.",
		"IORING_OP_STATX, native since 6.1")
	SingleIssue = files(30, "4.1",
		"A ring has the feature IORING_FEAT_SINGLE_ISSUE.",
		"IORING_FEAT_SINGLE_ISSUE")
	PollApart = files(31, "4.1",
		"A ring can poll for completions without a thread of the kernel that polls for submissions.",
		"“IOPOLL and SQPOLL decoupled in 6.1+”")
	XSysStatx = files(32, "4.1",
		"golang.org/x/sys/unix lacks the structures of statx.",
		"“not exported yet”")
	LockThread = files(33, "4.1",
		"Without runtime.LockOSThread a ring with SQPOLL asks to be woken for ever.",
		"“IORING_SQ_NEED_WAKEUP stays set”")
	GCMoves = files(34, "4.1",
		"The garbage collector may move a buffer on the heap that the kernel has.",
		"“GC may move stx”")
	LenTruncates = files(35, "4.1",
		"Len is the size of the buffer of a statx through a ring, and cuts it short without a word.",
		"“silently truncates”")
	SQWait = files(36, "4.2",
		"IORING_ENTER_SQ_WAIT waits until the submission queue has room.",
		"“avoids spinning”")
	IOPoll = files(37, "4.2",
		"With IORING_SETUP_IOPOLL the kernel polls for reads instead of waiting for an interrupt.",
		"“bypasses interrupts”")
	SQAffinity = files(38, "4.2",
		"IORING_SETUP_SQ_AFF binds the polling thread to one CPU.",
		"“binds the SQ thread to a CPU”")
	Backends = files(39, "4.3",
		"Of the ways to open a file bufio costs the least and io_uring the most.",
		"“lowest” against “higher” start cost")
	RingSync = files(40, "4.3",
		"io_uring makes a log that syncs faster.",
		"IORING_OP_FSYNC instead of fdatasync")
	LinkedLog = files(41, "4.4",
		"Linking the submissions of 64 records, each with its own completion, makes a log fast.",
		"64 linked SQEs or 1 ms a batch, “QPS at ten thousands”")
	BrokenLink = files(42, "4.4",
		"Where an operation of a linked chain fails, those behind it end with ECANCELED.",
		"-ECANCELED")
	BatchSuccess = files(43, "4.4",
		"97.2 % of the records of a batch are written.",
		"97.2 %, an example")
	BackendMemory = files(44, "4.3",
		"Of the ways to open a file bufio takes the least memory.",
		"“lowest”, in a table that has lost some of its cells")
)
