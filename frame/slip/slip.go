// Package slip frames SLIP: the byte C0 ends each frame, and DB DC and DB DD stand for C0 and DB
// within it (RFC 1055). A leading C0, which many senders use to flush line noise, is part of the
// frame that follows it.
//
// A frame is valid when every DB is followed by DC or DD and its content, where a check is set,
// ends in the right check value. Frames are stored as on the wire.
package slip

import "github.com/tallywheel/tallywheel/frame"

// DefaultMax is the longest frame on the wire, in bytes, when none is set: RFC 1055 asks for 1006
// of content.
const DefaultMax = 2048

const end, esc, escEnd, escEsc = 0xC0, 0xDB, 0xDC, 0xDD

// New returns a decoder of frames of at most maxBytes on the wire; 0 means [DefaultMax].
func New(maxBytes int, check frame.Check) frame.Decoder {
	if maxBytes == 0 {
		maxBytes = DefaultMax
	}
	return &frame.Delimited{Delimiter: end, MaxBytes: maxBytes, Content: Decode, Check: check}
}

// Decode appends the content of the escaped bytes b (no delimiter) to dst[:0] and reports whether b
// is well formed.
func Decode(dst, b []byte) ([]byte, bool) {
	dst = dst[:0]
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == esc {
			i++
			switch {
			case i < len(b) && b[i] == escEnd:
				c = end
			case i < len(b) && b[i] == escEsc:
				c = esc
			default:
				return dst, false
			}
		}
		dst = append(dst, c)
	}
	return dst, true
}

// Encode appends content, escaped and delimited, to dst.
func Encode(dst, content []byte) []byte {
	for _, c := range content {
		switch c {
		case end:
			dst = append(dst, esc, escEnd)
		case esc:
			dst = append(dst, esc, escEsc)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, end)
}
