// Package archive says what a log on disk means: whose records are in it, what they hold, and what
// the books said when each start of the recorder ended. Package seglog below it knows numbered
// bytes alone.
//
// # Concepts
//
// A [Stream] is what one source records by one framing; records carry its number, and [Streams], a
// table beside the log, names it. A [Record] is a record of the log as people and programs read it.
// A [Cursor] goes through those that answer a [Query]; everything that shows records does so by it:
// the API's pages and its event stream, `tallywheel log cat`, tail and export. A [StartSheet] is
// the balance sheet of one start of the recorder, with the numbers that it had stored: where the
// next one goes on.
//
// # Files beside the log's segments
//
// streams.json is the table of streams, and streams.json.copy the same again. sheet.json is the
// sheet of this start, renewed every second while it changes, and sheet.json.before the one before
// it, whose room a full disk gives to the next. sheet.json.unsaved is empty, and is there while the
// sheet cannot be renewed: who finds it does not know all. sheets.ndjson holds those of starts that
// have ended, the oldest of them folded into a line.
//
// # Guarantees
//
// A stream's number is durable before it is used, and names the same source for ever. A damaged
// sheet keeps nobody from recording. A cursor never passes over a record in silence: what is gone
// is told, and damage that looks like the end of the log is an error.
//
// The package opens no source, serves nobody, and builds on any system.
package archive
