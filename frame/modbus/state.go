package modbus

import (
	"encoding/binary"
	"errors"
)

// The state of a decoder: version u8, flags u8, two questions (what was asked, and that of turns),
// and the borders: a bit for each byte that may be pending, set where the line was silent behind
// it, the lowest bit of the first byte first. A question is unit u8, function u8, body of 4 bytes,
// size u16 and CRC u16. All is little-endian. It is what the decoder knows of the pending bytes,
// and of the frame before them; whoever saves it keeps those bytes.
//
// In version 2, which is still read, the borders are their number u16, and each as one byte, less
// 1.
const (
	stateVersion = 3
	questionSize = 10
	bordersAt    = 2 + 2*questionSize
	stateSize    = bordersAt + window/8

	stateVersion2 = 2
	stateHeader2  = bordersAt + 2
	maxState2     = stateHeader2 + MaxSize

	flagFollows = 1
	flagLost    = 2
	flagSure    = 4
)

func (q question) append(b []byte) []byte {
	b = append(b, q.unit, q.function)
	b = append(b, q.body[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(q.size))
	return binary.LittleEndian.AppendUint16(b, q.sum)
}

func questionFrom(b []byte) question {
	return question{
		b[0], b[1], [4]byte(b[2:]), int(binary.LittleEndian.Uint16(b[6:])),
		binary.LittleEndian.Uint16(b[8:]),
	}
}

// State implements [frame.Stateful]: 86 bytes.
func (d *Decoder) State() []byte {
	flags := byte(0)
	if d.follows {
		flags |= flagFollows
	}
	if d.lost {
		flags |= flagLost
	}
	if d.turns.sure {
		flags |= flagSure
	}
	b := make([]byte, 0, stateSize)
	b = append(b, stateVersion, flags)
	for _, q := range []question{d.asked, d.turns.open} {
		b = q.append(b)
	}
	b = b[:stateSize]
	for _, at := range d.borders {
		b[bordersAt+(at-1)/8] |= 1 << ((at - 1) % 8)
	}
	return b
}

// Restore implements [frame.Stateful].
func (d *Decoder) Restore(b []byte) error {
	old := len(b) >= stateHeader2 && b[0] == stateVersion2 && len(b) <= maxState2 &&
		len(b) == stateHeader2+int(binary.LittleEndian.Uint16(b[bordersAt:]))
	if !old && (len(b) != stateSize || b[0] != stateVersion) {
		return errors.New("not the state of a modbus decoder")
	}
	d.follows, d.lost = b[1]&flagFollows != 0, b[1]&flagLost != 0
	d.asked = questionFrom(b[2:])
	d.turns = turns{questionFrom(b[2+questionSize:]), b[1]&flagSure != 0}
	d.borders = d.borders[:0]
	if old {
		for _, at := range b[stateHeader2:] {
			d.borders = append(d.borders, int(at)+1)
		}
		return nil
	}
	for at := range window {
		if b[bordersAt+at/8]>>(at%8)&1 == 1 {
			d.borders = append(d.borders, at+1)
		}
	}
	return nil
}
