// Package modbus frames Modbus RTU as a passive listener sees it: requests and responses of all units on the bus.
//
// On the wire a frame is unit, function, data and CRC-16/MODBUS, 4 to 256 bytes, and frames are parted by a
// silence of at least 3.5 characters, or 1.75 ms above 19200 baud (MODBUS over Serial Line, Specification and
// Implementation Guide V1.02, 2.5.1.1). Operating systems and USB adapters blur silences: two frames may arrive as
// one chunk. So a chunk whose CRC is not right as a whole is searched for frames within it, by CRC.
//
// Chance limits that search: one in 65,536 wrong cuts passes. The whole chunk is always tried first.
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

// Decoder finds RTU frames.
type Decoder struct {
	silence   time.Duration
	searching bool
	out       frame.Frame
}

var _ frame.Decoder = (*Decoder)(nil)

// New returns a decoder for a line of the given rate, in baud, with characters of charBits bits (11 with
// parity as the standard has it, 10 for 8N1; 0 means 11).
func New(baud, charBits int) *Decoder {
	return &Decoder{silence: T35(baud, charBits)}
}

// T35 is the silence that ends a frame: 3.5 characters, 1.75 ms above 19200 baud or where the rate is unknown (0).
func T35(baud, charBits int) time.Duration {
	if charBits == 0 {
		charBits = 11
	}
	if baud > 19200 || baud <= 0 {
		return 1750 * time.Microsecond
	}
	return time.Duration(3.5 * float64(charBits) / float64(baud) * float64(time.Second))
}

// Max is [MaxSize].
func (d *Decoder) Max() int { return MaxSize }

// Silence is the silence that ends a frame.
func (d *Decoder) Silence() time.Duration { return d.silence }

// Decode implements [frame.Decoder]. Frames end by silence, so nothing is decided before there are more bytes than one
// frame can have.
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at := 0
	for len(view)-at > MaxSize {
		at += d.cut(view[at:at+MaxSize], sink)
	}
	return at
}

// Break implements [frame.Decoder].
func (d *Decoder) Break(view []byte, _ frame.Cause, sink frame.Sink) {
	at := d.Decode(view, sink)
	for at < len(view) {
		rest := view[at:]
		if whole(rest) {
			d.frame(rest, sink)
			break
		}
		at += d.cut(rest, sink)
	}
	d.searching = false
}

func whole(b []byte) bool {
	n := len(b)
	return MinSize <= n && n <= MaxSize && crc16.Modbus(b[:n-2]) == binary.LittleEndian.Uint16(b[n-2:])
}

// cut takes the shortest frame at the front of b, or gives up one byte.
func (d *Decoder) cut(b []byte, sink frame.Sink) int {
	if n := shortest(b); n > 0 {
		d.frame(b[:n], sink)
		return n
	}
	if !d.searching {
		d.searching = true
		sink.Damaged()
	}
	sink.Skip(b[:1])
	return 1
}

// shortest is the length of the shortest frame at the front of b, or 0. The CRC of a frame and its CRC is 0.
func shortest(b []byte) int {
	if len(b) < MinSize || b[1]&0x7F == 0 { // function codes are 1–127, 129–255 in exceptions
		return 0
	}
	crc := crc16.UpdateModbus(crc16.InitModbus, b[:MinSize-1])
	for n := MinSize; n <= len(b); n++ {
		if crc = crc16.UpdateModbus(crc, b[n-1:n]); crc == 0 {
			return n
		}
	}
	return 0
}

func (d *Decoder) frame(b []byte, sink frame.Sink) {
	d.searching = false
	d.out.Data = b
	sink.Frame(&d.out)
	d.out.Data = nil
}
