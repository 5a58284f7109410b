// Package forward brings the log on to destinations: NATS JetStream, where each frame arrives once
// and in order, and MQTT, where it arrives at least once.
//
// # Concepts
//
// A [Forwarder] has a destination for each section of the configuration, on a goroutine of its own.
// A destination has a link while it is connected, and a walker, which goes through the log with a
// cursor of its own and shares the records out to lanes, one for each source. A lane fills a
// message while the one before it is on its way: one of each source at a time, so that their order
// is that of the log. What comes back acknowledged is noted in the mark, a file beside the log.
//
// Where a lane goes on behind a break, two witnesses say: the last message of its subject, whose
// headers name the last record, and the mark (witness.go). Each message says which message it must
// follow, and the destination refuses it otherwise; so a message that was sent before a break and
// arrives behind it, or one of somebody else, is never taken for the next one.
//
// # Guarantees
//
// A record is forwarded once it is durable, never before. Recording waits for nothing here: the
// walker reads what is on disk, in memory that is bounded, whatever a destination does. Nothing is
// passed over in silence: what a destination does not take stops its lane, or the destination, with
// a reason in the books; what the log removed first is counted as gone.
package forward
