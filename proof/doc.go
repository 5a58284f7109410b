// Package proof shows others that a record was in a log, and is what it was. It is pure: it reads
// and writes bytes, and knows no file.
//
// # Concepts
//
// An [Entry] is a record of a log, or a note between records, with its sequence, time and stream. A
// [Stream] says what a stream's number stands for. A [Head] says what a whole segment of the log
// holds: the root of a tree over its entries, some on a leaf, and of one over the streams that
// occur in it. All trees are those of RFC 6962, by SHA-256; [Tree] makes them in one pass, and
// [Segment] makes heads.
//
// Heads are the leaves of one more tree, of the whole log. A [Checkpoint] is its size and its root,
// in the form of C2SP's tlog-checkpoint, signed or not. A [Proof] leads from an entry to a
// checkpoint: entry and stream in the segment, segment in the log. Its lower end, from the line
// c2sp.org/tlog-proof@v1 on, is a tlog-proof as C2SP has it, whose leaf is the text of the head.
//
// # Guarantees
//
// Whoever has a checkpoint, or the key that signs them, can tell a record that was in the log then
// from every other one, as long as SHA-256 and Ed25519 hold. A proof has one form: of the bytes
// that [Parse] takes, each counts. It is of bounded length.
//
// A proof does not say when a checkpoint was made, nor that no other log was shown to somebody
// else: publish checkpoints, and compare them.
package proof
