// Package seglog is a durable log of small records in segments, made for many producers and one
// disk.
//
// # Concepts
//
// A record is a number of the log (sequence, from 1, without holes), a time, a stream number and
// bytes. Records are staged in memory and committed in batches: one write of the records and a
// commit frame behind them, then one fdatasync where the policy asks for it. Whoever appends and
// finds no commit under way commits for all that is staged (leader and followers), so the more
// producers wait, the larger the batches grow, and nobody waits for a timer while the disk is idle.
//
// Segments are files of one size, filled with zeros ahead of time in the background, and used again
// when retention has removed their records: overwriting blocks that exist syncs about twice as fast
// as extending a file. FORMAT.md draws every byte.
//
// The files are those of package os, or of another engine that [DirWith] is given. One that can
// write and sync in one call ([SyncWriter]), as the uring backend of package asyncfile does, is
// used so. [Config.Chain] asks for one linked operation per record ([ChainWriter]); with
// BatchRecords 64 and BatchDelay 1 ms that is the writer which articles on io_uring praise. It is
// here to be measured: one write for the whole batch does the same work in a fraction of the time.
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
//   - After a cut, recovery finds every record that was durable, in order, and nothing that was not
//     committed.
//   - A torn tail is cut and reported. Damage before it is an error with segment and offset
//     ([CorruptError]), which [Repair] handles when asked to; nothing else is lost by it.
//   - A full disk never crashes and never loses silently: first the file that lies ready for the
//     next segment gives way, then appending fails with [ErrDiskFull] until there is room, or the
//     oldest segment goes, as [Config.OnFull] says.
//   - Readers see only what is committed. One process writes a directory; a second is refused
//     ([ErrLocked]), also when somebody removed the file LOCK.
//   - When somebody removes or replaces the directory, or the segment that is written to, while the
//     log is open, the log fails within a second or two. It never writes over what others made
//     there.
//
// # When stored data is damaged
//
// A log reads what it has stored in the background, slowly, once in [Config.Scrub], and tells
// [Config.OnChecked] of each segment what is damaged. It looks each second whether the segment that
// is written to still is what was written: its length, its header, and the commit frame that was
// the last one a second before. If it is not, that segment is read at once, and the next batch goes
// into another. The damage stays until [Repair].
//
// # When the disk fails
//
// Errors that leave nothing in doubt are tried again, five times a second, until they pass. Nothing
// that was taken is lost meanwhile; [Position].Stalled says why the log waits.
//
// A write or a sync that gives neither an error nor an end is [ErrNoAnswer] there.
//
//	beginning a segment: any error                 tried again; TryAppend says ErrBusy, Append waits
//	write: EAGAIN, EINTR, ENOMEM, ENOBUFS          tried again; TryAppend says ErrBusy, Append waits
//	either: ENOSPC, EDQUOT                         tried again; both say ErrDiskFull, once the buffer is full
//	opening a sealed segment to sync it            Sync returns the error, and may be called again
//
// Under SyncAlways Append waits as long as the log does, and so does Sync under every policy.
//
// Every other error of a write, and every error of a sync, poisons the log: the kernel may have
// dropped the data and would report success the second time. All that waits, and all that is
// appended from then on, gets [ErrFailed], and [Config.OnCommit] is told with Commit.Err. The owner
// then closes the log and opens it again, with the same Config:
//
//   - Close lets go of the files and the lock. It returns ErrFailed.
//   - Open recovers the log. What was written, and may not have reached the disk, it writes once
//     more: only so a sync can be believed. It may fail as long as the disk does; try again later.
//   - [Recovery].Last is the truth: records up to it are in the log and durable. It lies between
//     Commit.Stored and Commit.Doubt of the commit that told of the failure. What was appended
//     behind it is not in the log, and can be appended again.
//
// # When files are gone
//
// Somebody removes the newest segment of a log that is not open, or cuts it short. [Open] finds
// that by what other files tell, among them one that says how far the log was durable, and by what
// the owner tells it of the log ([Config.Expect]: for example the last durable sequence, from the
// owner's books). It goes on: [Recovery].Missing says what is gone, readers get a [GapError] there,
// and the sequences are not given again. The same goes for records that were stored, were not
// durable, and are gone, as behind a power cut: [Recovery].Unsynced. An opening that fails keeps
// nothing from the next one. A segment that has a head (Config.Proves) is left as it is: the log
// goes on in a new one. [Config.OnRecovered] lets the owner keep what was found, before the log
// forgets it. [VerifyKnown] reports the same. The oldest segment is missed, too: a log that removes
// its oldest segments by itself says by the name of an empty file which record it keeps first.
//
// A log that finds no room for its first segment opens all the same: appending then waits as on any
// full disk.
//
// # Which log it is
//
// A log has an identity, a random number in the header of each segment ([Log.Identity],
// [Reader.Identity]). A segment of another log that comes into the directory is named and refused;
// [Repair] sets it aside. [Config.Identity] refuses another log altogether. Each header also has a
// hash of the segment before, which [Verify] checks.
//
// # What proves it to others
//
// [Log.Prove] has the log make a head of each segment that is full: package proof says what that
// is. [VerifyProven] holds a log to its heads, and [ProveEntry] makes the proof of a record, for
// somebody who has not the log.
//
// # Notes between the records
//
// A record may carry the offset of its first byte in the stream of bytes that it was cut from
// ([Log.AppendAt]). Which stream that is, and what of it was dropped, stands between the records,
// in the same order: [Log.TryAppendLane], [Log.TryAppendDrop]. Readers get these notes when they
// ask for them ([Reader.Notes]). They are for a recorder that goes on in the middle of what it had
// read; that of this module writes none yet.
//
// # When not to use it
//
// There is no lookup by key, no update and no delete of single records. A record larger than half
// of [Config.BufferBytes] is refused.
package seglog
