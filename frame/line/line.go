// Package line frames text lines: everything up to and with a line feed, as NMEA 0183 receivers, scales,
// barcode readers and consoles send it. A carriage return before the line feed is part of the frame.
//
// Where a line has the form of an NMEA 0183 sentence with a checksum ("$…*hh" or "!…*hh", hh the XOR of the
// characters between), the checksum must be right. Lines without one are taken as they are.
package line

import (
	"bytes"
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// DefaultMax is the longest line, in bytes, when none is set. NMEA allows 82; scales and consoles send more.
const DefaultMax = 1024

// Decoder finds lines.
type Decoder struct {
	max     int
	scanned int  // pending bytes known to hold no line feed
	over    bool // inside a line that was too long: skip to its end
	out     frame.Frame
}

var _ frame.Decoder = (*Decoder)(nil)

// New returns a decoder of lines of at most maxBytes, line feed included; 0 means [DefaultMax].
func New(maxBytes int) *Decoder {
	if maxBytes == 0 {
		maxBytes = DefaultMax
	}
	return &Decoder{max: maxBytes}
}

// Max is the longest line in bytes.
func (d *Decoder) Max() int { return d.max }

// Silence is 0: a pause within a line means nothing.
func (d *Decoder) Silence() time.Duration { return 0 }

// Decode implements [frame.Decoder].
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at := 0
	for {
		rest := view[at:]
		i := bytes.IndexByte(rest[d.scanned:], '\n')
		if i < 0 {
			d.scanned = len(rest)
			if d.scanned >= d.max || d.over {
				at += d.drop(rest, sink)
			}
			return at
		}
		n := d.scanned + i + 1
		d.scanned = 0
		d.line(rest[:n], sink)
		at += n
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
	default:
		d.drop(rest, sink)
	}
	d.over = false
}

func (d *Decoder) line(b []byte, sink frame.Sink) {
	switch {
	case d.over:
		d.over = false
		sink.Skip(b)
	case len(b) > d.max || !checksumOK(b):
		sink.Damaged()
		sink.Skip(b)
	default:
		d.out.Data = b
		sink.Frame(&d.out)
		d.out.Data = nil
	}
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
	b = bytes.TrimRight(b, "\r\n")
	n := len(b)
	if n < 4 || b[0] != '$' && b[0] != '!' || b[n-3] != '*' {
		return true
	}
	hi, lo := unhex(b[n-2]), unhex(b[n-1])
	if hi < 0 || lo < 0 {
		return false
	}
	var sum byte
	for _, c := range b[1 : n-3] {
		sum ^= c
	}
	return int(sum) == hi<<4|lo
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
