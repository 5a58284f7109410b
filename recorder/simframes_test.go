package recorder

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/tallywheel/tallywheel/config"
)

// The frames of the devices in scenarios, made from the public descriptions of the framings:
// nothing here is shared with what takes them apart.

// maker makes the bytes of one source's devices.
type maker struct {
	kind string
	rng  *rand.Rand
	id   uint32 // of the next frame: no two are the same
	size int    // bytes of content, about

	epochs uint32 // how often the devices have begun to count anew
}

// settings are those of the framing in the configuration.
func (m *maker) settings() config.Frame {
	f := config.Frame{Kind: m.kind}
	switch m.kind {
	case "cobs", "slip", "length":
		f.Check, f.Max = "modbus", 1024
	case "line":
		f.Check = "nmea"
	}
	return f
}

// crcOf is CRC-16/MODBUS: polynomial 8005 reflected, from FFFF.
func crcOf(b []byte) uint16 {
	crc := uint16(0xFFFF)
	for _, c := range b {
		crc = crc>>8 ^ crcTable[byte(crc)^c]
	}
	return crc
}

var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i)
		for range 8 {
			odd := crc & 1
			crc >>= 1
			if odd != 0 {
				crc ^= 0xA001
			}
		}
		t[i] = crc
	}
	return t
}()

func sealed(b []byte) []byte { return binary.LittleEndian.AppendUint16(b, crcOf(b)) }

func (m *maker) noise(n int) []byte {
	b := make([]byte, 0, n+7)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, m.rng.Uint64())
	}
	return b[:n]
}

// content is bytes that begin with the frame's own number.
func (m *maker) content() []byte {
	m.id++
	return append(binary.BigEndian.AppendUint32(nil, m.id), m.noise(m.rng.IntN(m.size)+1)...)
}

// good makes a valid frame. device and number are of framings that have them.
func (m *maker) good(device uint32, number uint64) []byte {
	switch m.kind {
	case "tally128":
		b := append([]byte{0xA5, 0x5A, 1, 0}, make([]byte, 24)...)
		binary.LittleEndian.PutUint32(b[4:], device)
		binary.LittleEndian.PutUint32(b[8:], 77+m.epochs)
		binary.LittleEndian.PutUint64(b[12:], number)
		b = append(b, m.noise(98)...)
		return sealed(b)
	case "cobs":
		return append(stuffed(sealed(m.content())), 0)
	case "slip":
		return append(escaped(sealed(m.content())), 0xC0)
	case "line":
		return m.sentence()
	case "length":
		c := sealed(m.content())
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(c))), c...)
	case "modbus": // write multiple registers
		m.id++
		words := 2 + m.rng.IntN(20)
		b := []byte{byte(1 + m.rng.IntN(200)), 16, 0, 0, 0, byte(words), byte(2 * words)}
		b = binary.BigEndian.AppendUint32(b, m.id)
		return sealed(append(b, m.noise(2*words-4)...))
	case "ubx":
		if m.rng.IntN(3) == 0 {
			return m.sentence()
		}
		c := m.content()
		b := append([]byte{0xB5, 0x62, 0x01, 0x07}, byte(len(c)), byte(len(c)>>8))
		b = append(b, c...)
		var x, y byte
		for _, v := range b[2:] {
			x += v
			y += x
		}
		return append(b, x, y)
	}
	return m.content() // raw
}

func (m *maker) sentence() []byte {
	m.id++
	body := fmt.Sprintf("GPTXT,01,%d,%x", m.id, m.noise(m.rng.IntN(m.size/4+1)))
	var sum byte
	for i := range len(body) {
		sum ^= body[i]
	}
	return fmt.Appendf(nil, "$%s*%02X\r\n", body, sum)
}

// bad makes a frame that is damaged within, so that its border is still there where it has one.
func (m *maker) bad(device uint32, number uint64) []byte {
	b := m.good(device, number)
	for tries := 0; tries < 1000; tries++ {
		at := len(b)/2 + m.rng.IntN(len(b)/4)
		c := b[at] ^ byte(1<<m.rng.IntN(7))
		if c == 0 || c == 0xC0 || c == '\n' || c == '$' || c == '!' || c == '*' {
			continue // a border, or a sign of one
		}
		if escape := byte(0xDB); m.kind == "slip" && (c == escape || b[at] == escape) {
			continue
		}
		b[at] = c
		return b
	}
	panic(fmt.Sprintf("no place to damage %x (%s)", b, m.kind))
}

// junk makes bytes that are no frame, nor part of one; nil where the framing cannot tell.
func (m *maker) junk() (b []byte) {
	switch m.kind {
	case "tally128", "line", "ubx":
		for range 1 + m.rng.IntN(40) {
			b = append(b, "abcdefghij"[m.rng.IntN(10)])
		}
	case "cobs":
		b = append([]byte{0xF0, 1, 2, 3}, 0)
	case "slip":
		b = []byte{1, 0xDB, 5, 0xC0}
	}
	return b
}

// stuffed is Consistent Overhead Byte Stuffing, without the delimiter.
func stuffed(b []byte) (out []byte) {
	for {
		n := 0
		for n < len(b) && n < 254 && b[n] != 0 {
			n++
		}
		out = append(append(out, byte(n+1)), b[:n]...)
		switch {
		case n == len(b):
			return out
		case n == 254:
			b = b[n:]
		default:
			b = b[n+1:]
		}
	}
}

func escaped(b []byte) (out []byte) {
	for _, c := range b {
		switch c {
		case 0xC0:
			out = append(out, 0xDB, 0xDC)
		case 0xDB:
			out = append(out, 0xDB, 0xDD)
		default:
			out = append(out, c)
		}
	}
	return out
}
