// Package asyncfile reads and writes files by one interface over three backends: ordinary calls, a
// memory map, and io_uring.
//
// A [File] is an io.ReaderAt and io.WriterAt with Sync, Truncate, Size and Close. [Open] picks the
// backend by what is asked, or takes the one it is told, and [File.Choice] says which and why:
//
//	std    pread and pwrite on the calling goroutine; with Config.Buffer, through a window that reads ahead and
//	       gathers writes. The right one unless you know better: quick on cached data, no surprises.
//	mmap   loads and stores on mapped pages. Quickest for random reads of data in the page cache. A page that is not in
//	       memory stops the whole thread, and so one of GOMAXPROCS, until the disk has answered.
//	uring  reads and writes on the calling goroutine like std; Sync, WriteSync and WriteChain through a ring; and a [Batch]
//	       that keeps many operations in flight from one goroutine. For disks, past the page cache; Linux.
//
// io_uring makes nothing quicker that the page cache can answer, and a single read that waits for a
// ring is slower than one system call. What it gives is depth: see [NewBatch].
//
// # Guarantees
//
// ReadAt and WriteAt do all that was asked or return an error, as io.ReaderAt and io.WriterAt say;
// interrupted and short transfers are continued. A File is safe for concurrent use: operations on
// disjoint ranges do not disturb each other, and overlapping ones leave any mixture of the bytes.
// Reading past the end gives io.EOF, writing past it grows the file, and a gap reads as zeros. What
// would end beyond the largest offset is refused: EINVAL for a read, EFBIG for a write.
//
// When Sync returns nil, everything written before it was called is durable, the length of the file
// included. When it returns an error, nothing is known about what was written since the last
// success, and no later Sync of this File returns nil: the kernel may have dropped the data and
// forgotten about it. Two errors may pass, since nothing was handed over: there was no descriptor
// for a ring, or a window could not be written; what it holds goes with the next call. The name of
// a new file is its directory's affair, which must be synced by itself.
//
// A mapped file that another process truncates, or whose holes no longer fit on the disk, gives an
// [*AccessError] with the offset where an ordinary program would be killed by SIGBUS. See
// Config.Shared for the last page of such a file. A write past the end is an ordinary one: it takes
// the room that it needs, and no gap takes any. A mapped file is no longer than what the address
// space has room for: what would end beyond fails and changes nothing, and a file that others have
// made longer can be truncated, and not be read or written.
//
// # Lines and misuse
//
// [Lines] cuts a file into lines without copying or allocating. [Detect] watches a reader and says
// when it is used in a way that costs: tiny reads, a line scanner over binary data, an allocation
// for each item.
package asyncfile
