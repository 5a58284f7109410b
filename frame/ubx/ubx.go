// Package ubx frames what u-blox receivers send: UBX messages, NMEA sentences and RTCM 3 messages,
// which such a receiver mixes on one line.
//
//	UBX     B5 62, class, id, length u16 little-endian, payload, 2 bytes of an 8-bit Fletcher sum over
//	        all from class to payload (u-blox F9 HPG 1.30 Interface Description, section 3)
//	NMEA    "$" or "!", printable characters, "*hh" with the XOR of the characters between, line feed
//	        with or without a carriage return before it (NMEA 0183)
//	RTCM 3  D3, 6 bits of 0, length of 10 bits, payload, CRC-24Q over all before it (RTCM 10403)
//
// Each whole message with a right sum is one frame, as it was on the wire; [KindOf] tells them
// apart. Everything else is skipped: sentences without a sum, text, other protocols.
//
// # Resynchronisation
//
// At each byte that no frame has taken, a frame is looked for; the first that is right is taken.
// A start that proves to be none costs one byte, so frames behind it, and frames inside what it
// claimed, are found. A wrong length can only delay them: until as many bytes have come as it says,
// until a silence behind a whole frame (see [Silence]), or until the line has been silent for
// [Patience]. A message inside the payload of a damaged UBX message is taken for a frame.
//
// Chance limits what the sums can say. A start and a length must come together with a right sum:
// one UBX message in 65,536 damaged ones passes, one sentence in 256, one RTCM 3 message in 16
// million.
package ubx

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// DefaultMax is the longest frame in bytes when none is set. It holds UBX-RXM-RAWX with 255
// measurements, the longest message that receivers are known to send.
const DefaultMax = 8192

// Silence is the pause at which whole frames are believed that stand behind a false start.
const Silence = 50 * time.Millisecond

// Patience is how long a line must be silent before a frame that is not whole is given up.
const Patience = 10 * time.Second

// Decoder finds frames.
type Decoder struct {
	max    int
	shadow int // up to here, from the front of what is pending, a damaged frame reaches that has been counted
	out    frame.Frame
}

var (
	_ frame.Decoder  = (*Decoder)(nil)
	_ frame.Patient  = (*Decoder)(nil)
	_ frame.Stateful = (*Decoder)(nil)
	_ frame.Checked  = (*Decoder)(nil)
)

// New returns a decoder of frames of at most maxBytes, 8 or more; 0 means [DefaultMax].
func New(maxBytes int) *Decoder {
	if maxBytes == 0 {
		maxBytes = DefaultMax
	}
	return &Decoder{max: maxBytes}
}

// Max is the longest frame in bytes.
func (d *Decoder) Max() int { return d.max }

// Silence is [Silence].
func (d *Decoder) Silence() time.Duration { return Silence }

// Patience is [Patience].
func (d *Decoder) Patience() time.Duration { return Patience }

// CheckBits implements [frame.Checked]: 8, those of a sentence.
func (d *Decoder) CheckBits() int { return frame.CheckNMEA.Bits() }

// Decode implements [frame.Decoder].
func (d *Decoder) Decode(view []byte, sink frame.Sink) int { return d.decode(view, more, sink) }

// Break implements [frame.Decoder]. A message ends the sentence at its end; any other frame that is
// not whole is damaged.
func (d *Decoder) Break(view []byte, why frame.Cause, sink frame.Sink) {
	end := nothing
	if why == frame.Message {
		end = message
	}
	d.decode(view, end, sink)
	d.shadow = 0
}

// Pause implements [frame.Patient]. A frame that has begun is waited for, unless whole frames stand
// behind its start, up to the last byte: then the start was none.
func (d *Decoder) Pause(view []byte, sink frame.Sink) int {
	at := d.Decode(view, sink)
	rest := view[at:]
	for n := start(rest); n < len(rest); n += 1 + start(rest[n+1:]) {
		if d.chain(rest[n:]) {
			d.decode(rest[:n], nothing, sink)
			return at + n + d.Decode(rest[n:], sink)
		}
	}
	return at
}

// chain reports whether b is frames, one behind the other.
func (d *Decoder) chain(b []byte) bool {
	for len(b) > 0 {
		l := d.look(b, nothing)
		if l.what != good {
			return false
		}
		b = b[l.size:]
	}
	return true
}

func (d *Decoder) decode(view []byte, then follows, sink frame.Sink) int {
	at, bad := 0, 0 // view[bad:at] is to be skipped
	skip := func() {
		if bad < at {
			sink.Skip(view[bad:at])
			bad = at
		}
	}
	shadow := d.shadow
	for at < len(view) {
		l := d.look(view[at:], then)
		if l.what == waits {
			break
		}
		if l.what == good {
			skip()
			d.out.Data = view[at : at+l.size]
			sink.Frame(&d.out)
			d.out.Data = nil
			at += l.size
			bad, shadow = at, 0
			continue
		}
		if l.like && at >= shadow {
			skip()
			sink.Damaged()
			shadow = at + l.size
		}
		at++
		at += start(view[at:])
	}
	skip()
	d.shadow = max(0, shadow-at)
	return at
}

// The state of a decoder: version u8, shadow u16 little-endian.
const (
	stateVersion = 1
	stateSize    = 3
)

// State implements [frame.Stateful].
func (d *Decoder) State() []byte {
	return binary.LittleEndian.AppendUint16([]byte{stateVersion}, uint16(d.shadow))
}

// Restore implements [frame.Stateful].
func (d *Decoder) Restore(b []byte) error {
	if len(b) != stateSize || b[0] != stateVersion {
		return errors.New("not the state of a ubx decoder")
	}
	d.shadow = int(binary.LittleEndian.Uint16(b[1:]))
	return nil
}
