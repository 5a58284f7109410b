// Package line frames text lines: everything up to and with a line feed, as NMEA 0183 receivers,
// scales, barcode readers and consoles send it. A carriage return before the line feed is part of
// the frame.
//
// Text has no check, so a line is whatever stands before a line feed: one that is damaged, or glued
// to what came before it, counts as valid. Only where it has the form of an NMEA 0183 sentence with
// a checksum ("$…*hh" or "!…*hh", hh the XOR of the characters between) must that be right; a
// sentence whose first character or whose form is damaged is text like any other.
//
// With the check [frame.CheckNMEA] a frame is a sentence with a right checksum, and nothing else
// is. What stands before it in its line, as the binary messages that receivers mix in, is skipped;
// a line that has a sign of a sentence and holds none that is right, is damaged.
//
// A receiver that mixes UBX or RTCM messages with its sentences has no lines: a message may hold
// line feeds, and a sentence behind it counts as part of its line. Package ubx keeps each message
// of the three.
package line

import (
	"bytes"
	"errors"
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// DefaultMax is the longest line, in bytes, when none is set. NMEA allows 82; scales and consoles
// send more.
const DefaultMax = 1024

// Decoder finds lines.
type Decoder struct {
	max     int
	nmea    bool // only sentences with a right checksum
	scanned int  // pending bytes known to hold no line feed
	over    bool // inside a line that was too long: skip to its end
	out     frame.Frame
}

var (
	_ frame.Decoder  = (*Decoder)(nil)
	_ frame.Stateful = (*Decoder)(nil)
	_ frame.Checked  = (*Decoder)(nil)
)

// New returns a decoder of lines of at most maxBytes, line feed included; 0 means [DefaultMax].
// check is none or CheckNMEA.
func New(maxBytes int, check frame.Check) *Decoder {
	if maxBytes == 0 {
		maxBytes = DefaultMax
	}
	return &Decoder{max: maxBytes, nmea: check == frame.CheckNMEA}
}

// Max is the longest line in bytes.
func (d *Decoder) Max() int { return d.max }

// Silence is 0: a pause within a line means nothing.
func (d *Decoder) Silence() time.Duration { return 0 }

// CheckBits implements [frame.Checked]: a line has a check value only with [frame.CheckNMEA].
func (d *Decoder) CheckBits() int {
	if d.nmea {
		return frame.CheckNMEA.Bits()
	}
	return 0
}

// Decode implements [frame.Decoder].
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at := 0
	for {
		rest := view[at:]
		i := bytes.IndexByte(rest[d.scanned:], '\n')
		n := len(rest)
		if i >= 0 {
			n = d.scanned + i + 1
		}
		switch {
		case d.nmea && (n > d.max || n == d.max && i < 0): // a sentence may begin in what is too long
			gone := 1 + start(rest[1:d.max])
			sink.Skip(rest[:gone])
			at += gone
			if d.scanned = n - gone; i >= 0 {
				d.scanned-- // but for the line feed
			}
		case i >= 0:
			d.scanned = 0
			d.line(rest[:n], sink)
			at += n
		default:
			if d.scanned = n; n >= d.max || d.over && n > 0 {
				at += d.drop(rest, sink)
			}
			return at
		}
	}
}

// Break implements [frame.Decoder]. A message ends its last line; anything else truncates it.
func (d *Decoder) Break(view []byte, why frame.Cause, sink frame.Sink) {
	at := d.Decode(view, sink)
	rest := view[at:]
	d.scanned = 0
	switch {
	case len(rest) == 0:
	case why == frame.Message:
		d.line(rest, sink)
	case d.nmea: // nothing ends this sentence
		if start(rest) < len(rest) {
			sink.Damaged()
		}
		sink.Skip(rest)
	default:
		d.drop(rest, sink)
	}
	d.scanned, d.over = 0, false
}

func (d *Decoder) line(b []byte, sink frame.Sink) {
	switch {
	case d.nmea:
		d.sentence(b, sink)
	case d.over:
		d.over = false
		sink.Skip(b)
	case len(b) > d.max || !checksumOK(b):
		sink.Damaged()
		sink.Skip(b)
	default:
		d.frame(b, sink)
	}
}

// sentence takes the sentence at the end of a line, wherever it begins.
func (d *Decoder) sentence(b []byte, sink frame.Sink) {
	for at := start(b); at < len(b); at += 1 + start(b[at+1:]) {
		if !frame.CheckNMEA.OK(b[at:]) {
			continue
		}
		if at > 0 {
			sink.Skip(b[:at])
		}
		d.frame(b[at:], sink)
		return
	}
	if start(b) < len(b) || summed(b) {
		sink.Damaged()
	}
	sink.Skip(b)
}

// start is where the first sentence of b may begin; len(b) if none does.
func start(b []byte) int {
	if i := bytes.IndexAny(b, "$!"); i >= 0 {
		return i
	}
	return len(b)
}

// summed reports whether b ends as a sentence does.
func summed(b []byte) bool {
	b = bytes.TrimRight(b, "\r\n")
	return len(b) > 3 && b[len(b)-3] == '*'
}

func (d *Decoder) frame(b []byte, sink frame.Sink) {
	d.out.Data = b
	sink.Frame(&d.out)
	d.out.Data = nil
}

// drop gives up the bytes of a line that will not be whole.
func (d *Decoder) drop(b []byte, sink frame.Sink) int {
	if !d.over {
		d.over = true
		sink.Damaged()
	}
	d.scanned = 0
	sink.Skip(b)
	return len(b)
}

// checksumOK reports whether b has no NMEA checksum or a right one.
func checksumOK(b []byte) bool {
	return len(b) == 0 || b[0] != '$' && b[0] != '!' || !summed(b) || frame.CheckNMEA.OK(b)
}

// stateVersion is the version of the state: version u8, over u8.
const stateVersion = 1

// State implements [frame.Stateful].
func (d *Decoder) State() []byte {
	b := []byte{stateVersion, 0}
	if d.over {
		b[1] = 1
	}
	return b
}

// Restore implements [frame.Stateful].
func (d *Decoder) Restore(b []byte) error {
	if len(b) != 2 || b[0] != stateVersion || b[1] > 1 {
		return errors.New("not the state of a line decoder")
	}
	d.over, d.scanned = b[1] == 1, 0
	return nil
}
