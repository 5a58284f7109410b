package frame

import (
	"fmt"
	"time"
)

// FixedSize is implemented by decoders all of whose frames have one length, in bytes.
type FixedSize interface {
	FixedSize() int
}

// Patient is implemented by decoders that may keep bytes through a silence, because drivers and
// adapters make silences that were not on the wire.
type Patient interface {
	// Pause is called at a silence in the place of Break, once. It returns how many bytes, from
	// the front of view, it classified.
	Pause(view []byte, sink Sink) int
	// Patience is how long the line must be silent before Break is called after all.
	Patience() time.Duration
}

// Holding is implemented by Patient decoders that hold a frame through any silence, until something
// proves that it is none.
type Holding interface {
	Patient
	// Wait is called at a silence in the place of Pause and Break, first behind Silence and again
	// behind Patience. It is told for how long the line has been silent, and for how long the first
	// byte of view has been pending. It returns how many bytes, from the front of view, it
	// classified.
	Wait(view []byte, silent, held time.Duration, sink Sink) int
}

// Stateful is implemented by decoders that remember more than the pending bytes. One that is
// restored, and shown those bytes again, goes on as if it had never stopped. Its settings are not
// part of the state. A decoder that is not Stateful goes on without a state.
type Stateful interface {
	// State is at most [MaxState] bytes.
	State() []byte
	// Restore takes what State gave; after an error the decoder is as it was.
	Restore(state []byte) error
}

// MaxState is the most bytes that a decoder's state takes.
const MaxState = 512

// Numbered is implemented by decoders whose frames carry sequence numbers: a number that never
// comes is a frame that was lost. Where a decoder is not Numbered, a frame that is lost as a whole
// leaves no trace.
type Numbered interface {
	// Number reads the numbers of one whole frame, as Decode does, and reports whether data is a
	// frame. It does not touch the decoder: any goroutine may call it at any time.
	Number(data []byte) (Frame, bool)
}

// Asking is implemented by decoders that hear both sides of a line and tell requests from answers.
// Each request whose frame Asks is followed by a frame that Answers it, or by one that says it is
// Unanswered, or by neither: damaged bytes came behind it, or the end of the stream, and nobody
// knows.
type Asking interface {
	// AnswerWithin is how long an answer may take.
	AnswerWithin() time.Duration
}

// Checked is implemented by decoders whose frames carry a check value, if their settings ask for
// it. Where a decoder is not Checked, a damaged frame may count as a valid one.
type Checked interface {
	// CheckBits is the size of the check value in bits, the smallest if there are several kinds of
	// frame: of frames that are damaged at random, one in 2^CheckBits passes. 0 is no check.
	CheckBits() int
}

// Evidence is what the frames of a decoder prove about those that are not there.
type Evidence struct {
	Numbered  bool // see [Numbered]
	CheckBits int  // see [Checked]
}

// EvidenceOf asks a decoder what its frames prove.
func EvidenceOf(d Decoder) (e Evidence) {
	_, e.Numbered = d.(Numbered)
	if c, ok := d.(Checked); ok {
		e.CheckBits = c.CheckBits()
	}
	return e
}

// Unknown lists what cannot be known, one sentence each, for people. Nothing on a serial line is
// certain, but a check of 16 bits and more is taken as good.
func (e Evidence) Unknown() (all []string) {
	if !e.Numbered {
		all = append(all, "a frame that never arrives leaves no trace: frames have no numbers")
	}
	switch {
	case e.CheckBits == 0:
		all = append(all, "a damaged frame may count as valid: frames have no check value")
	case e.CheckBits < 16:
		all = append(all, fmt.Sprintf("one damaged frame in %d counts as valid: the check value has %d bits",
			1<<e.CheckBits, e.CheckBits))
	}
	return all
}
