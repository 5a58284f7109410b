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
	GCBySize = files(8, "2.2",
		"Small buffers make the garbage collector run often: 1 KiB 42 times a minute, 8 KiB 9 times, 64 KiB 3 times.",
		"42, 9 and 3 young collections a minute, 8.3, 2.1 and 1.9 ms each (Java's figures)")
	ReadSlice = files(13, "2.4",
		"ReadSlice reads lines 2.3 times as fast as Scanner, without allocating.",
		"192 MB/s and 0 B against 85 MB/s and ≈ 2 KB")
	ScannerThroughput = files(16, "2.5",
		"A Reader of 64 KiB with Read has seven times the throughput of a Scanner with 4 KiB.",
		"89,100 against 12,400 operations a second: 7.2×")
	ScannerCalls = files(17, "2.5",
		"A Reader of 64 KiB makes 94 % fewer system calls than a Scanner with 4 KiB.",
		"160 against 2,650 a second")
	MapThroughput = files(23, "3.3",
		"At random, a map has 1.3 times the throughput of seek and read.",
		"1240 against 960 MB/s: 1.29×")
	MapP99 = files(24, "3.3",
		"At random, a map has a P99 of 0.6 of that of seek and read.",
		"182 against 310 µs: 0.59×")
	MapFaults = files(25, "3.3",
		"Random reads through a map take a page fault each.",
		"98,700 faults for 100,000 reads")
	Sendfile = files(27, "4.1",
		"io_uring has an operation for sendfile.",
		"IORING_OP_SENDFILE, native since 6.1")
	StatxFsync = files(28, "4.1",
		"statx and fsync work through a ring.",
		"IORING_OP_STATX, IORING_OP_FSYNC")
	RingSync = files(40, "4.3",
		"io_uring makes a log that syncs faster.",
		"IORING_OP_FSYNC instead of fdatasync")
	LinkedLog = files(41, "4.4",
		"Linking the submissions of 64 records, each with its own completion, makes a log fast.",
		"64 linked SQEs or 1 ms a batch, “QPS at ten thousands”")
)
