// Package isolate is `isolate: process`: a recorder that is three processes of one program, so
// that none of them takes bytes with it when it is killed.
//
//	keeper ──── starts the other two, again and again; holds every descriptor that they must not lose
//	reader ──── reads the ports, each into a spool
//	recorder ── frames, books, log, API, from the spools
//
// # Concepts
//
//   - The shelf ([Link.Put]) is all that the keeper knows: named entries, each a little data and
//     a few descriptors. What one of the two puts there, the other gets at once, and whoever is
//     started gets all of it. It outlives both. The names are [BellEntry], [StartEntry],
//     [ReadEntry], [CellEntry], [APIEntry], [ConfigEntry], [DoorEntry], [EndEntry], a [LaneOf] and
//     a [PortOf] for each source, a [ClosedOf] for what the log has of it from spools that were
//     given back, and what some sources have besides: see entry_linux.go.
//   - The store is where systemd keeps what is on the shelf for the next keeper, if the unit has it
//     do so ([StoreEntry]). Each change goes there as it is made, so the keeper may be killed, too.
//   - A [Renewal] replaces a process while it works, by another of the same or of a new program:
//     the new one prepares itself, the old one ends as soon as it has nothing in its hands, and
//     the new one has the shelf. Where it cannot, the old program goes on, or is started again.
//   - A [Bell] is a word of shared memory at which the recorder sleeps. The reader rings it when
//     it has written to a spool: a system call only where the other sleeps. Where much comes, the
//     recorder dozes: it looks by itself, and before the log writes.
//   - A spool (package spool) has the bytes of one port, and what happened to it. Reader and
//     recorder tell each other about the port in there, and nowhere else: the order of marks and
//     bytes is the order of events, for whoever comes after a kill, too. The shelf adds what has
//     no order: which ports there are, and texts for people.
//   - A [Cell] makes the reader a process that keeps time: its thread in SCHED_FIFO, its memory
//     locked, no collection until it has allocated much. What it may not have it does without.
//
// # Who dies, and what then
//
//   - The recorder: bytes go on into the spools. Its successor goes on at the last checkpoint of
//     each.
//   - The reader: devices stay open, for the keeper has them. Its successor recovers the read
//     that was cut off, writes down for how long nobody read, and goes on.
//   - The keeper: the other two see the end of their links. The reader reads what there is and
//     ends; the recorder records that, and stops in order. With a store both leave all as it is,
//     and another three go on, as behind the deaths of reader and recorder.
//
// # Without descriptors
//
// A message whose descriptors cannot be taken stays in the link for takesWithin, and comes without
// them then ([Entry.Bare]). Descriptors that pass are the keeper's already, or still the sender's:
//
//   - The reader ends as if it were killed; the next one has all from the shelf.
//   - The recorder needs those of connections alone, for which it asks again.
//   - The keeper kills who has sent them, as of one that is killed nothing is lost. It does so no
//     more while it stops: it says what it has not taken, and the recorder counts that.
//
// Sending takes no descriptors.
//
// A stop by SIGTERM is told from a restart by nobody but systemd. With a store, the reader ends
// first and closes nothing, then the recorder records what there is and ends ([Link.Leaves]): a
// restart goes on from that, and behind a stop nothing is missing but what the kernel held.
//
// # Who waits for whom
//
// The keeper holds one lock while it sends, and hears nobody meanwhile. So a child receives from
// the moment on at which it has the shelf, on a goroutine that does nothing else, and never waits
// for its own sends: what it has not taken in yet waits in its memory, in its order (inbox), up to
// inboxHolds messages. So the keeper waits for no child that waits for the keeper. Descriptors that
// nobody needs while he follows the link are closed as they come.
//
// Nothing here waits without a bound: a child that does not take what it is sent within 5 s is
// taken for dead, and killed. That is by time, as no pidfd tells of a process that hangs; what the
// child waits for a CPU meanwhile does not count, up to 10 s.
package isolate
