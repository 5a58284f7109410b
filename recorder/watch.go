package recorder

import (
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// Watcher is told what happens on the ports while it happens.
type Watcher interface {
	// Watch is called by whoever reads the source, which goes on when it returns: it must not wait,
	// nor call the recorder. Calls of one source never overlap, and come in the order of the bytes.
	// What e points to is lent for the call.
	Watch(e Event)
}

// EventKind is what has happened.
type EventKind uint8

// The kinds of events.
const (
	SawFrame   EventKind = iota // a valid frame came
	SawDamage                   // something looked like a frame and failed its check; its bytes follow by SawBytes
	SawBytes                    // bytes came that are in no valid frame; they are told of in pieces of any size
	PortOpen                    // the device is open
	PortGone                    // it is gone; Err says why
	PortAbsent                  // it cannot be opened; Err says why, at each try
	Turned                      // what follows is framed as Recorder.Reframe was asked to
	NoAnswer                    // the answer to the last request has not come in time; nothing has followed it
)

// Part is what stands behind the bytes of an event.
type Part uint8

// The parts. The strategy pipeline knows only InFlow.
const (
	InFlow    Part = iota // further bytes
	AtSilence             // a silence of the line
	AtMessage             // the end of a datagram
	AtGone                // nothing: the device is gone
	AtStop                // nothing: the source is not read any more
)

// Event is something that has happened.
type Event struct {
	Kind   EventKind
	Source string
	At     int64 // when the bytes were read, or the port was opened or missed; ns since 1970
	Part   Part
	Frame  *frame.Frame // SawFrame
	Fate   Fate         // SawFrame
	Data   []byte       // SawBytes
	Device string       // PortOpen: where it was found
	Err    error        // PortGone, PortAbsent
}

// Fate is what a frame says of those before it.
type Fate struct {
	Repeated bool   // the number has been there before
	Late     bool   // it was missing until now
	Missing  uint64 // so many numbers were found missing by this frame, Corrupt of them seen damaged
	Corrupt  uint64
	From     uint64 // the first of them
	// Unanswered says that the request before this frame got no answer. The framing has no numbers.
	Unanswered bool
	// AnsweredLate says that the frame answers a request of which NoAnswer was told.
	AnsweredLate bool
}

// watch tells of the port. mu is held.
func (l *lane) watch(e Event) {
	if l.in.watcher != nil {
		e.Source = l.in.source
		l.in.watcher.Watch(e)
	}
}

// absent tells that the device cannot be opened.
func (l *lane) absent(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		l.watch(Event{Kind: PortAbsent, At: time.Now().UnixNano(), Err: err})
	}
}

// saw tells of bytes that are in no frame, or of damage.
func (in *intake) saw(kind EventKind, b []byte) {
	if in.watcher != nil {
		in.watcher.Watch(Event{Kind: kind, Source: in.source, At: in.now, Part: in.part, Data: b})
	}
}

// postWatched books a valid frame, and tells of it.
func (in *intake) postWatched(f *frame.Frame) {
	before := in.book.Frames()
	in.account(f)
	after := in.book.Frames()
	fate := Fate{Unanswered: after.Unanswered > before.Unanswered, AnsweredLate: after.Unanswered < before.Unanswered}
	if f.Sequenced {
		fate.Repeated = after.Duplicate > before.Duplicate
		fate.Late = after.Missing < before.Missing || after.Late > before.Late
		if after.Missing > before.Missing {
			fate.Missing, fate.Corrupt = after.Missing-before.Missing, after.MissingCorrupt-before.MissingCorrupt
			// it is older than the first one seen
			if fate.From = f.Seq - fate.Missing; after.Reordered > before.Reordered {
				fate.From = f.Seq + 1
			}
		}
	}
	in.watcher.Watch(Event{Kind: SawFrame, Source: in.source, At: in.now, Part: in.part, Frame: f, Fate: fate})
}
