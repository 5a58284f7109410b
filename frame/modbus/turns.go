package modbus

import (
	"encoding/binary"

	"github.com/tallywheel/tallywheel/frame"
)

// turns follows whose turn it is on the bus: a request is followed by its answer, and whatever else
// follows it says that there was none. The zero value knows nothing: reading begins, or what came
// last was damaged. It learns from the first frame whose form is that of a request alone, or that
// cannot be the answer to the frame before it. Where it does not know, it says nothing: no request
// is called unanswered that may have an answer.
//
// A write of one coil or register, and each other request that its answer repeats, looks like its
// answer. Such a request that is sent again is taken for the answer to the first, so that of those
// which come directly behind each other only every other one can be seen to be unanswered.
type turns struct {
	open question // the last request; zero: none waits for an answer
	sure bool     // open is a request; without one: what comes next is
}

// direction is what a frame is by its form.
type direction uint8

const (
	either   direction = iota // a request, or an answer
	request                   // it has no form of an answer
	answer                    // it has no form of a request
	strange                   // its function is known, and it has neither form
	nameless                  // its function is not known
)

// hear learns from a frame, and says of it what it is.
func (t *turns) hear(b []byte, f *frame.Frame) {
	f.Asks, f.Answers, f.Unanswered = false, false, false
	towards := directionOf(b)
	due := t.sure && t.open.function != 0
	switch {
	case due && t.open.answeredBy(b):
		f.Answers = true
		*t = turns{sure: true}
	case towards == answer, towards == strange: // to nothing that was heard: perhaps this is one side of the line
		*t = turns{}
	case towards == nameless:
		f.Unanswered = due && b[1] != t.open.function
		*t = turns{}
	case towards == request, t.sure, t.open.function != 0 && !t.open.answeredBy(b):
		f.Unanswered = due
		*t = turns{sure: true}
		if mustAnswer(b) {
			f.Asks, t.open = true, ask(b)
		}
	default: // a request, or an answer
		t.open = ask(b)
	}
}

// directionOf tells a request from an answer by the form of its frame.
func directionOf(b []byte) direction {
	f := shapeOf(b)
	switch {
	case b[0] == 0:
		return request // to all units
	case b[1] >= 0x80:
		return answer // an exception
	case echoes(b):
		return either
	case f == nil:
		return nameless
	}
	n := len(b)
	asking, answering := n == f.request.length(b), n == f.answer.length(b)
	switch {
	case !asking && !answering:
		return strange
	case asking && answering && asks(b) == answers(b):
		return either
	case asking && (!answering || asks(b)):
		return request
	}
	return answer
}

// listenOnly is the sub-function of a diagnostic that silences a device: it does not answer.
const listenOnly = 4

// mustAnswer reports whether the request b wants an answer.
func mustAnswer(b []byte) bool {
	return b[0] != 0 && !(b[1] == diagnostics && binary.BigEndian.Uint16(b[2:]) == listenOnly)
}

// answeredBy reports whether b is the answer to the question.
func (q question) answeredBy(b []byte) bool {
	if q.function == 0 || b[0] != q.unit || b[1]&0x7F != q.function && b[1] != 0x80 {
		return false
	}
	same := sum(b) == q.sum // of two frames of one length that are both valid
	switch {
	case b[1] >= 0x80:
		return true
	case echoes(b):
		return len(b) == q.size && same
	}
	f := shapeOf(b)
	if f == nil || len(b) != f.answer.length(b) || q.size != unknown && len(b) != q.size {
		return false
	}
	switch b[1] {
	case 5, 6, 21, 22: // the answer is the request
		return same
	case diagnostics: // it names the sub-function
		return [2]byte(b[2:]) == [2]byte(q.body[:])
	case 15, 16: // it names where was written, and how much
		return [4]byte(b[2:]) == q.body
	}
	return !same // else it is asked again
}
