package ubx

import (
	"encoding/binary"

	"github.com/tallywheel/tallywheel/frame"
)

// Sizes in bytes of what is around a payload, and of the longest sentence: receivers send longer
// ones than the 82 characters of NMEA 0183, as PUBX,03 with all satellites.
const (
	ubxHead, ubxTail   = 6, 2
	rtcmHead, rtcmTail = 3, 3
	maxSentence        = 1024
)

const (
	sync0, sync1 = 0xB5, 0x62
	rtcmSync     = 0xD3
)

// Kind is what a frame is.
type Kind uint8

// The kinds of frames.
const (
	NoKind Kind = iota
	UBX
	NMEA
	RTCM
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case UBX:
		return "UBX"
	case NMEA:
		return "NMEA"
	case RTCM:
		return "RTCM"
	}
	return "none"
}

// KindOf tells of which kind a frame is by its first bytes.
func KindOf(data []byte) Kind {
	switch {
	case len(data) >= ubxHead+ubxTail && data[0] == sync0 && data[1] == sync1:
		return UBX
	case len(data) >= rtcmHead+rtcmTail && data[0] == rtcmSync:
		return RTCM
	case len(data) >= 5 && (data[0] == '$' || data[0] == '!'):
		return NMEA
	}
	return NoKind
}

// Append appends a UBX message to dst. A payload longer than 65,535 bytes has no message: it
// panics.
func Append(dst []byte, class, id byte, payload []byte) []byte {
	if len(payload) > 0xFFFF {
		panic("ubx: a payload of more than 65535 bytes")
	}
	from := len(dst) + 2
	dst = append(dst, sync0, sync1, class, id, byte(len(payload)), byte(len(payload)>>8))
	dst = append(dst, payload...)
	a, b := fletcher(dst[from:])
	return append(dst, a, b)
}

// follows says what comes behind the bytes that are looked at.
type follows uint8

const (
	more    follows = iota // other bytes may
	nothing                // nothing will
	message                // nothing will, and the last byte ends a message
)

type outcome uint8

const (
	bad   outcome = iota // no frame begins here
	good                 // a frame does
	waits                // more bytes must come
)

// look is what is at the front of some bytes.
type look struct {
	what outcome
	size int  // good: of the frame; bad: as far as a frame would reach
	like bool // bad: it looked like a frame, and its damage counts
}

// starts marks the bytes that a frame may begin with.
var starts = [256]bool{sync0: true, rtcmSync: true, '$': true, '!': true}

// start is where the first frame of b may begin; len(b) if none does.
func start(b []byte) int {
	for i, c := range b {
		if starts[c] {
			return i
		}
	}
	return len(b)
}

// look looks for a frame at the front of b, which is not empty.
func (d *Decoder) look(b []byte, then follows) (l look) {
	switch b[0] {
	case sync0:
		l = d.ubx(b)
	case rtcmSync:
		l = d.rtcm(b)
	case '$', '!':
		l = d.sentence(b, then)
	}
	if l.what == waits && then != more {
		l.what, l.size = bad, len(b)
	}
	return l
}

func (d *Decoder) ubx(b []byte) look {
	if len(b) < 2 {
		return look{what: waits}
	}
	if b[1] != sync1 {
		return look{}
	}
	if len(b) < ubxHead {
		return look{what: waits, like: true}
	}
	size := ubxHead + int(binary.LittleEndian.Uint16(b[4:])) + ubxTail
	if size > d.max {
		return look{size: ubxHead, like: true}
	}
	if size > len(b) {
		return look{what: waits, like: true}
	}
	if x, y := fletcher(b[2 : size-ubxTail]); x != b[size-2] || y != b[size-1] {
		return look{size: size, like: true}
	}
	return look{what: good, size: size}
}

// rtcm looks for an RTCM 3 message. A start of 14 bits is not much: it is like a message where the
// number of one follows.
func (d *Decoder) rtcm(b []byte) look {
	if len(b) >= 2 && b[1]&0xFC != 0 {
		return look{}
	}
	if len(b) < rtcmHead {
		return look{what: waits}
	}
	size := rtcmHead + int(binary.BigEndian.Uint16(b[1:])&0x3FF) + rtcmTail
	like := len(b) >= 5 && rtcmNumber(int(binary.BigEndian.Uint16(b[3:])>>4))
	switch {
	case size > d.max:
		return look{size: rtcmHead}
	case size > len(b):
		return look{what: waits, like: like}
	case crc24q(b[:size]) != 0: // that of a message and its CRC is 0
		return look{size: size, like: like}
	}
	return look{what: good, size: size}
}

// rtcmNumber reports whether RTCM 10403 has messages of about this number, proprietary ones
// included.
func rtcmNumber(n int) bool { return 1001 <= n && n <= 1299 || 4001 <= n && n <= 4095 }

// sentence looks for a sentence, which a message may end without a line feed.
func (d *Decoder) sentence(b []byte, then follows) look {
	n, limit := 1, min(len(b), d.max, maxSentence)
	for n < limit && ' ' <= b[n] && b[n] <= '~' {
		n++
	}
	l := look{size: n, like: n >= 5 && address(b[1:5])}
	rest := b[n:limit]
	ends := 0
	switch {
	case len(rest) >= 1 && rest[0] == '\n':
		ends = 1
	case len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n':
		ends = 2
	case limit == len(b) && (len(rest) == 0 || len(rest) == 1 && rest[0] == '\r'):
		if then != message {
			if len(b) < min(d.max, maxSentence) {
				l.what = waits
			}
			return l
		}
		ends = len(rest)
	default:
		return l
	}
	l.size = n + ends
	if frame.CheckNMEA.OK(b[:n]) {
		l.what = good
	}
	return l
}

// address reports whether b may begin the name of a sentence.
func address(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// fletcher is the sum of UBX: two sums of 8 bits, the second of all values of the first.
func fletcher(p []byte) (a, b byte) {
	var x, y uint32 // in more bits, for the lowest 8 are what they would be
	for _, c := range p {
		x += uint32(c)
		y += x
	}
	return byte(x), byte(y)
}

// tables[k][v] is the CRC-24Q of byte v followed by k zero bytes.
var tables = func() (t [4][256]uint32) {
	const polynomial = 0x864CFB // of CRC-24, as in RFC 4880, here from an initial value of 0
	for v := range 256 {
		crc := uint32(v) << 16
		for range 8 {
			crc <<= 1
			if crc&(1<<24) != 0 {
				crc ^= 1<<24 | polynomial
			}
		}
		t[0][v] = crc
	}
	for k := 1; k < len(t); k++ {
		for v := range 256 {
			crc := t[k-1][v]
			t[k][v] = crc<<8&0xFFFFFF ^ t[0][crc>>16]
		}
	}
	return t
}()

// crc24q is the CRC-24Q of b, four bytes at a time.
func crc24q(b []byte) (crc uint32) {
	for ; len(b) >= 4; b = b[4:] {
		crc = tables[3][byte(crc>>16)^b[0]] ^ tables[2][byte(crc>>8)^b[1]] ^ tables[1][byte(crc)^b[2]] ^ tables[0][b[3]]
	}
	for _, c := range b {
		crc = crc<<8&0xFFFFFF ^ tables[0][byte(crc>>16)^c]
	}
	return crc
}
