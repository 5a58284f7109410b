// Package stranger tests the recorder as a stranger would: a real `tallywheel run`, fed by programs
// that share no code with it, in situations that a plant brings.
//
// A scenario is a framing, a carrier (pty, TCP in both directions, TCP from several senders at
// once, UDP), a situation and a seed, which decides the rest. The feeder (testdata/feeder.py, with
// nothing but Python's standard library) makes frames by the framings' public descriptions and
// keeps its own truth: what it handed to its kernel, and what the kernel of the other side
// acknowledged. The law is
//
//	sent and acknowledged by the kernel = stored + named in the books
//
// in frames, and in bytes where every start of the recorder ended in order. Named is what the
// sheets of all starts call missing, dropped, unread or over-run; where the recorder was killed, or
// its log taken away, what was sent around that moment. Where it is three processes, and recorder
// or reader was killed, that is no excuse. Besides:
//
//   - nothing is stored that was not sent, nothing twice, and each connection in its order;
//   - no loss is named that is none, and no verdict is green over one;
//   - the level that the API gives is bad only where something was lost or damaged, good only where
//     frames are numbered and nothing was, and bad where the books of a whole start lack something;
//   - frames that are due and do not come are missing by time, and a source is silent while it is;
//   - every sheet balances, and nothing is in flight at the end;
//   - recording goes on after the end of what disturbed it;
//   - every wait has an end: what does not end is a hang.
//
// Seeds count through all scenarios: 80 in a row have every situation on every carrier, 720 with
// every framing.
package stranger
