// Package tally128 is Tallywheel's own framing: 128 bytes, numbered, dated and checked.
//
//	offset  size  field (all little-endian)
//	     0     2  sync, A5 5A
//	     2     1  version, 1
//	     3     1  flags
//	     4     4  device
//	     8     4  epoch: changes each time the device's counter starts anew
//	    12     8  sequence: counts every frame of the epoch, from 0 on
//	    20     8  device time, ns
//	    28    98  payload
//	   126     2  CRC-16/MODBUS of bytes 0–125
//
// The device numbers every frame it makes, so a receiver can tell a lost frame from one that was
// never sent, a repeated one and one out of order: see the ledger.
package tally128

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
)

// Sizes in bytes.
const (
	Size        = 128
	PayloadSize = 98
)

const (
	sync0, sync1, version = 0xA5, 0x5A, 1

	atFlags   = 3
	atDevice  = 4
	atEpoch   = 8
	atSeq     = 12
	atTime    = 20
	atPayload = 28
	atCRC     = 126
)

// plausibleAhead bounds how far ahead of the last good frame the number of a damaged frame may be
// and still be believed.
const plausibleAhead = 1 << 16

// Header is all of a frame but its payload.
type Header struct {
	Flags      uint8
	Device     uint32
	Epoch      uint32
	Seq        uint64
	DeviceTime int64 // ns
}

// Encode writes a frame into dst, which must hold [Size] bytes. A payload shorter than
// [PayloadSize] is padded with zeros; of a longer one the rest is left out.
func Encode(dst []byte, h Header, payload []byte) {
	d := dst[:Size]
	d[0], d[1], d[2], d[atFlags] = sync0, sync1, version, h.Flags
	binary.LittleEndian.PutUint32(d[atDevice:], h.Device)
	binary.LittleEndian.PutUint32(d[atEpoch:], h.Epoch)
	binary.LittleEndian.PutUint64(d[atSeq:], h.Seq)
	binary.LittleEndian.PutUint64(d[atTime:], uint64(h.DeviceTime))
	n := copy(d[atPayload:atCRC], payload)
	clear(d[atPayload+n : atCRC])
	Seal(d)
}

// Seal writes the CRC of the frame in d.
func Seal(d []byte) { binary.LittleEndian.PutUint16(d[atCRC:], crc16.Modbus(d[:atCRC])) }

// Payload returns the payload of a frame, padding included.
func Payload(d []byte) []byte { return d[atPayload:atCRC] }

// Decoder finds frames in a stream. The zero value is ready to use.
type Decoder struct {
	pos       uint64 // bytes classified so far
	shadowEnd uint64 // up to here, what looks like a damaged frame is part of one already counted
	last      frame.Frame
	out       frame.Frame
}

var (
	_ frame.Decoder   = (*Decoder)(nil)
	_ frame.FixedSize = (*Decoder)(nil)
	_ frame.Numbered  = (*Decoder)(nil)
	_ frame.Checked   = (*Decoder)(nil)
	_ frame.Stateful  = (*Decoder)(nil)
)

// Max is [Size].
func (d *Decoder) Max() int { return Size }

// FixedSize is [Size].
func (d *Decoder) FixedSize() int { return Size }

// CheckBits implements [frame.Checked].
func (d *Decoder) CheckBits() int { return 16 }

// Silence is 0: gaps mean nothing to this framing.
func (d *Decoder) Silence() time.Duration { return 0 }

// Decode implements [frame.Decoder].
func (d *Decoder) Decode(view []byte, sink frame.Sink) int {
	at := 0
	for len(view)-at >= Size {
		f := view[at : at+Size]
		if looks(f) {
			if crc16.Modbus(f[:atCRC]) == binary.LittleEndian.Uint16(f[atCRC:]) {
				d.good(f, sink)
				at += Size
				continue
			}
			d.damaged(f, sink)
		}
		at += d.skip(view[at:], sink)
	}
	if rest := view[at:]; len(rest) > 0 && !looks(rest) {
		at += d.skip(rest, sink)
	}
	return at
}

// Break implements [frame.Decoder]: fewer bytes than a frame are a truncated one.
func (d *Decoder) Break(view []byte, _ frame.Cause, sink frame.Sink) {
	at := d.Decode(view, sink)
	for at < len(view) {
		if len(view)-at > 2 && looks(view[at:]) {
			d.damaged(view[at:], sink)
		}
		at += d.skip(view[at:], sink)
	}
	d.shadowEnd = d.pos // what was cut off does not go on behind the break
}

// looks reports whether b may begin a frame, as far as it goes.
func looks(b []byte) bool {
	return b[0] == sync0 && (len(b) < 2 || b[1] == sync1) && (len(b) < 3 || b[2] == version)
}

func (d *Decoder) good(f []byte, sink frame.Sink) {
	d.pos += Size
	d.out = numbers(f)
	d.last.Device, d.last.Epoch, d.last.Seq = d.out.Device, d.out.Epoch, d.out.Seq
	sink.Frame(&d.out)
	d.out.Data = nil
}

// numbers reads the frame in f.
func numbers(f []byte) frame.Frame {
	return frame.Frame{
		Data: f, Sequenced: true,
		Device:     binary.LittleEndian.Uint32(f[atDevice:]),
		Epoch:      binary.LittleEndian.Uint32(f[atEpoch:]),
		Seq:        binary.LittleEndian.Uint64(f[atSeq:]),
		DeviceTime: int64(binary.LittleEndian.Uint64(f[atTime:])),
	}
}

// Number implements [frame.Numbered]. It does not check the CRC again.
func (d *Decoder) Number(data []byte) (frame.Frame, bool) {
	if len(data) != Size || !looks(data) {
		return frame.Frame{}, false
	}
	return numbers(data), true
}

// damaged counts the damaged frame at the front of f, unless it is only a chance sync inside one
// already counted. A header that continues the numbers of the last good frame is no chance.
func (d *Decoder) damaged(f []byte, sink frame.Sink) {
	if d.pos < d.shadowEnd && !d.continues(f) {
		return
	}
	d.shadowEnd = d.pos + Size
	sink.Damaged()
}

func (d *Decoder) continues(f []byte) bool {
	return len(f) >= atTime &&
		binary.LittleEndian.Uint32(f[atDevice:]) == d.last.Device &&
		binary.LittleEndian.Uint32(f[atEpoch:]) == d.last.Epoch &&
		binary.LittleEndian.Uint64(f[atSeq:])-d.last.Seq-1 < plausibleAhead
}

// skip gives up the first byte of b and all that cannot begin a frame after it.
func (d *Decoder) skip(b []byte, sink frame.Sink) int {
	n := 1
	for n < len(b) {
		i := bytes.IndexByte(b[n:], sync0)
		if i < 0 {
			n = len(b)
			break
		}
		n += i
		if looks(b[n:]) {
			break
		}
		n++
	}
	d.pos += uint64(n)
	sink.Skip(b[:n])
	return n
}

// Parse reads the header of a whole frame that has been checked before.
func Parse(f []byte) (Header, bool) {
	if len(f) != Size || !looks(f) {
		return Header{}, false
	}
	return Header{
		Flags:      f[atFlags],
		Device:     binary.LittleEndian.Uint32(f[atDevice:]),
		Epoch:      binary.LittleEndian.Uint32(f[atEpoch:]),
		Seq:        binary.LittleEndian.Uint64(f[atSeq:]),
		DeviceTime: int64(binary.LittleEndian.Uint64(f[atTime:])),
	}, true
}
