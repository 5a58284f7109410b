// Package seglog is a durable log of small records in segments, made for many producers and one disk.
//
// # Concepts
//
// A record is a number of the log (sequence, from 1, without holes), a time, a stream number and bytes. Records are
// staged in memory and committed in batches: one write of the records and a commit frame behind them, then one
// fdatasync where the policy asks for it. Whoever appends and finds no commit under way commits for all that is staged
// (leader and followers), so the more producers wait, the larger the batches grow, and nobody waits for a timer while the
// disk is idle.
//
// Segments are files of one size, filled with zeros ahead of time in the background, and used again when retention has
// removed their records: overwriting blocks that exist syncs about twice as fast as extending a file. FORMAT.md
// draws every byte.
//
// The files are those of package os, or of another engine that [DirWith] is given. One that can write and sync in one call
// ([SyncWriter]), as the uring backend of package asyncfile does, is used so. [Config.Chain] asks for one linked operation per record
// ([ChainWriter]); with BatchRecords 64 and BatchDelay 1 ms that is the writer which articles on io_uring praise. It is here
// to be measured: one write for the whole batch does the same work in a fraction of the time.
//
// # What a power cut can cost
//
//	SyncAlways    nothing whose Append has returned
//	SyncBatch     what was staged in the last BatchDelay, at most BatchRecords, and the batch being written
//	SyncInterval  what came in the last SyncInterval
//	SyncNever     whatever the kernel had not written back: by its defaults up to 30 seconds
//
// A process that is killed loses what is staged, and nothing that was written.
//
// # Guarantees
//
//   - After a cut, recovery finds every record that was durable, in order, and nothing that was not committed.
//   - A torn tail is cut and reported. Damage before it is an error with segment and offset ([CorruptError]), which
//     [Repair] handles when asked to; nothing else is lost by it.
//   - A failed sync poisons the log: the kernel may have dropped the data and would report success the second time.
//   - A full disk never crashes and never loses silently: first the file that lies ready for the next segment gives way, then
//     appending fails with [ErrDiskFull] until there is room, which is looked for five times a second, or the oldest segment goes,
//     as [Config.OnFull] says.
//   - Readers see only what is committed. One process writes a directory; a second is refused ([ErrLocked]).
//
// # When not to use it
//
// There is no lookup by key, no update and no delete of single records. A record larger than half of
// [Config.BufferBytes] is refused.
package seglog
