// Package modbus frames Modbus RTU as a passive listener sees it: requests and answers of all units
// on the bus.
//
// On the wire a frame is unit, function, data and CRC-16/MODBUS, 4 to 256 bytes, and frames are
// parted by a silence of at least 3.5 characters, or 1.75 ms above 19200 baud (MODBUS over Serial
// Line, Specification and Implementation Guide V1.02, 2.5.1.1). Operating systems and USB adapters
// blur silences: a request and its answer arrive as one chunk, and one frame as several.
//
// So a silence is a hint, a border, and no more. The length of a frame comes from its function code
// where that says it (1–8, 11, 12, 15–17, 20–24, 43 with MEI type 14, exceptions), and its CRC must
// be right. Other functions, and frames of another length, are found between borders: the shortest
// one whose CRC is right and behind which a frame follows, or nothing. What follows may be such a
// frame, too: run.go says how much it must prove. Where no border comes, they wait until the line
// has brought 512 bytes.
//
// A frame that is not whole yet is waited for across borders, until the bytes behind a border are a
// frame by themselves, or the line has been silent for [Patience].
//
// A request to which the next frame is no answer is unanswered. What is a request the decoder tells
// by the forms of frames and by what it has heard before; where it cannot tell, nothing is counted.
//
// Chance limits what a CRC can say: one in 65,536 wrong cuts passes. A byte of 0 behind a frame
// keeps its CRC right: where reading ends behind the first byte of a request to all units, and the
// frame before it has a function that says no length, that byte is taken for its last.
package modbus

import (
	"encoding/binary"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
)

// Sizes of a frame in bytes.
const (
	MinSize = 4
	MaxSize = 256
)

// window is how many bytes are held at most: a frame whose length only its CRC says, and the one
// behind it that proves it.
const window = 2 * MaxSize

// Patience is how long a line must be silent before a frame that is not whole is given up.
const Patience = time.Second

// AnswerWithin is how long an answer may take. The specification leaves it to the master, whose
// timeout is "typically from 1s to several second at 9600 bps" (MODBUS over Serial Line V1.02,
// 2.4.1).
const AnswerWithin = 5 * time.Second

// Decoder finds RTU frames.
type Decoder struct {
	silence time.Duration
	asked   question
	follows bool  // the last frame was a request, or the answer to one: both sides are heard
	lost    bool  // what is at the front begins neither at a border nor behind a frame
	borders []int // where the line was silent, in bytes from the front of what is pending, ascending
	turns   turns
	out     frame.Frame
}

var (
	_ frame.Decoder  = (*Decoder)(nil)
	_ frame.Patient  = (*Decoder)(nil)
	_ frame.Stateful = (*Decoder)(nil)
	_ frame.Checked  = (*Decoder)(nil)
	_ frame.Asking   = (*Decoder)(nil)
)

// New returns a decoder for a line of the given rate, in baud, with characters of charBits bits (11
// with parity as the standard has it, 10 for 8N1; 0 means 11).
func New(baud, charBits int) *Decoder {
	return &Decoder{silence: T35(baud, charBits)}
}

// T35 is the silence that ends a frame: 3.5 characters, 1.75 ms above 19200 baud or where the rate
// is unknown (0).
func T35(baud, charBits int) time.Duration {
	if charBits == 0 {
		charBits = 11
	}
	if baud > 19200 || baud <= 0 {
		return 1750 * time.Microsecond
	}
	return time.Duration(3.5 * float64(charBits) / float64(baud) * float64(time.Second))
}

// Max is how many bytes may be pending: two frames. None is longer than [MaxSize].
func (d *Decoder) Max() int { return window }

// CheckBits implements [frame.Checked].
func (d *Decoder) CheckBits() int { return 16 }

// Silence is the silence that ends a frame.
func (d *Decoder) Silence() time.Duration { return d.silence }

// Patience is [Patience].
func (d *Decoder) Patience() time.Duration { return Patience }

// AnswerWithin implements [frame.Asking].
func (d *Decoder) AnswerWithin() time.Duration { return AnswerWithin }

// Decode implements [frame.Decoder]. It takes frames whose function code says how long they are;
// others end at a border.
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at := 0
	for at < len(view) {
		rest := view[at:]
		n, waits := d.known(rest, false)
		switch {
		case n > 0:
			d.frame(rest[:n], sink)
		case waits, !d.lost && borderMayTell(rest):
			return at
		default:
			// no more, so that it makes no difference how much has come
			n = d.search(rest[:min(len(rest), window)], false, sink)
		}
		at += n
	}
	return at
}

// borderMayTell reports whether it is worth waiting for a border behind b: it may end the frame at
// the front, or prove one that ends already.
func borderMayTell(b []byte) bool {
	return len(b) <= MaxSize || len(b) <= window && ends(b[:MaxSize])
}

// Pause implements [frame.Patient].
func (d *Decoder) Pause(view []byte, sink frame.Sink) int {
	at := d.Decode(view, sink)
	for at < len(view) {
		rest := view[at:]
		if b := d.behindBorder(rest); b > 0 { // what stands before will not be completed any more
			at += d.settle(rest[:b], sink)
			at += d.Decode(view[at:], sink)
			continue
		}
		if d.goesOn(rest) {
			break
		}
		at += d.search(rest, true, sink)
		at += d.Decode(view[at:], sink)
	}
	if n := len(view) - at; n > 0 && (len(d.borders) == 0 || d.borders[len(d.borders)-1] < n) {
		d.borders = append(d.borders, n)
	}
	return at
}

// goesOn reports whether the frame at the front of b, at whose end the line was silent, may go on
// behind the silence.
func (d *Decoder) goesOn(b []byte) bool {
	if _, waits := d.known(b, false); waits {
		return true
	}
	return shapeOf(b) == nil && !d.lost && ended(b, true) == 0
}

// Break implements [frame.Decoder].
func (d *Decoder) Break(view []byte, why frame.Cause, sink frame.Sink) {
	at := d.Decode(view, sink)
	d.settle(view[at:], sink)
	d.borders, d.lost = d.borders[:0], false
	if why == frame.Closed {
		d.asked, d.follows, d.turns = question{}, false, turns{}
	}
}

// settle classifies all of b: nothing more belongs to it.
func (d *Decoder) settle(b []byte, sink frame.Sink) int {
	for at := 0; at < len(b); {
		rest := b[at:]
		n, _ := d.known(rest, true)
		if n > 0 {
			d.frame(rest[:n], sink)
		} else {
			n = d.search(rest, true, sink)
		}
		at += n
	}
	return len(b)
}

// sum is the CRC that a frame ends with.
func sum(b []byte) uint16 { return binary.LittleEndian.Uint16(b[len(b)-2:]) }

func whole(b []byte) bool {
	n := len(b)
	return MinSize <= n && n <= MaxSize && crc16.Modbus(b[:n-2]) == sum(b)
}

// known is the size of the frame at the front of b whose function code says it, or 0; waits says
// that there may be one once more bytes have come, which final rules out.
func (d *Decoder) known(b []byte, final bool) (n int, waits bool) {
	all, count := d.lengths(b)
	for _, size := range all[:count] {
		switch {
		case size > MaxSize:
		case size == unknown || size > len(b):
			if !final {
				return 0, true
			}
		case whole(b[:size]):
			return size, false
		}
	}
	return 0, false
}

// behindBorder is the first border behind which everything is whole frames by their function codes;
// 0 if there is none. A right CRC alone would be found in the middle of a long frame that came in
// many pieces, once in 65,536 pieces.
func (d *Decoder) behindBorder(b []byte) int {
	for _, border := range d.borders {
		if border < len(b) && chain(b[border:]) {
			return border
		}
	}
	return 0
}

// chain reports whether b is frames, one behind the other, whatever was asked before.
func chain(b []byte) bool {
	for len(b) > 0 {
		n := front(b)
		if n == 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// front is the size of a frame at the front of b by its function code; 0 if there is none.
func front(b []byte) int {
	var d Decoder
	n, _ := d.known(b, true)
	return n
}

// search takes the frame at the front of b whose length nothing but its CRC says, or gives up one
// byte. Such a frame is only believed where one is due, and where another follows it, or nothing:
// final says that b ends at a border.
func (d *Decoder) search(b []byte, final bool, sink frame.Sink) int {
	if !d.lost {
		if n := ended(b, final); n > 0 {
			d.frame(b[:n], sink)
			return n
		}
		d.lost, d.turns = true, turns{}
		sink.Damaged()
	}
	sink.Skip(b[:1])
	d.passed(1)
	return 1
}

func (d *Decoder) frame(b []byte, sink frame.Sink) {
	d.hear(b)
	d.turns.hear(b, &d.out)
	d.out.Data = b
	sink.Frame(&d.out)
	d.out.Data = nil
	d.lost = false
	d.passed(len(b))
}

// hear learns from a frame what comes next.
func (d *Decoder) hear(b []byte) {
	asked := d.asked.unit == b[0] && d.asked.function == b[1]&0x7F && d.asked.function != 0
	f := shapeOf(b)
	switch {
	case echoes(b):
		if asked && len(b) == d.asked.size && d.asked.body == [4]byte(b[2:]) {
			d.asked = question{}
		} else {
			d.asked = ask(b)
		}
		d.follows = true
	case f == nil, !asked && b[1] > 0x80: // it may answer a request that was sent twice
		d.asked = question{}
	case asked && (b[1] > 0x80 || len(b) == f.answer.length(b) && (d.asked.size == unknown || len(b) == d.asked.size)):
		d.asked, d.follows = question{}, true
	case b[1] < 0x80 && len(b) == f.request.length(b) && asks(b):
		d.asked, d.follows = ask(b), true
	default: // an answer to nothing
		d.asked, d.follows = question{}, false
	}
}

// passed moves the borders when n bytes at the front are done with. A border is where a frame may
// begin.
func (d *Decoder) passed(n int) {
	kept := d.borders[:0]
	for _, b := range d.borders {
		switch {
		case b > n:
			kept = append(kept, b-n)
		case b == n:
			d.lost = false
		}
	}
	d.borders = kept
}
