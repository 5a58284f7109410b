// Package frame says what a framing is: how a stream of bytes is cut into frames, byte by byte
// accounted for.
//
// # Concepts
//
// A [Decoder] is shown a view of the bytes that have arrived and not yet been classified. It
// classifies as many of them as it can, from the front, and tells a [Sink] what they are:
//
//   - a valid [Frame], whole, as it was on the wire, delimiters included;
//   - bytes that are in no valid frame (Skip), with a mark (Damaged) for each thing that looked
//     like a frame and failed its check.
//
// What it cannot classify yet stays pending: the caller presents those bytes again, followed by
// what came later.
//
// # Guarantees
//
//   - Every byte is classified exactly once, in order: the sum of frames, skipped and pending
//     bytes is the sum of bytes read.
//   - How the stream was cut into views makes no difference to the result, nor does it that a
//     decoder was saved and restored in between ([Stateful]).
//   - No allocation per frame, and views are never kept after Decode returns.
//   - Pending bytes never exceed a bound: [Decoder.Max].
//   - After a false sync the search goes on one byte later, so a true frame inside a damaged one
//     is found.
//
// Package frametest checks them for any framing.
//
// The framings live in the folders below this one; framings.New opens one by name. What a framing
// can do beyond that, and what its frames prove, is asked by the interfaces of optional.go, never
// by its name.
package frame

import "time"

// Frame is one valid frame.
type Frame struct {
	Data       []byte // the frame as on the wire; a view, valid only during the call that brings it
	Sequenced  bool   // whether the framing numbers its frames: Device, Epoch and Seq are set
	Device     uint32 // who sent it
	Epoch      uint32 // which run of the device's counter; it changes when the device restarts
	Seq        uint64 // the frame's number within the epoch
	DeviceTime int64  // the device's clock, ns; 0 where the framing has none

	// Of framings that tell requests from answers: see [Asking].
	Asks       bool // an answer to it is due
	Answers    bool // it answers the request before it
	Unanswered bool // the request before it, to which an answer was due, got none
}

// Sink is told what the bytes are. Its methods must not keep the slices they are given.
type Sink interface {
	Frame(f *Frame)
	// Damaged counts one thing that looked like a frame and failed its check; its bytes follow by
	// Skip.
	Damaged()
	// Skip takes bytes that are in no valid frame.
	Skip(b []byte)
}

// Cause says why nothing will follow the pending bytes directly.
type Cause uint8

const (
	Silence Cause = iota // the line was silent for Decoder.Silence
	Message              // the bytes end a message with bounds of its own: a datagram
	Closed               // the stream ended
)

// Decoder cuts one stream of bytes. It belongs to one goroutine at a time.
type Decoder interface {
	// Decode classifies from the front of view and returns how many bytes it classified.
	Decode(view []byte, sink Sink) int
	// Break classifies all of view, because nothing will follow it directly.
	Break(view []byte, why Cause, sink Sink)
	// Silence is the gap after which Break(…, Silence, …) must be called; 0 if gaps mean nothing.
	Silence() time.Duration
	// Max is how many bytes may stay pending. No frame is longer.
	Max() int
}
