// Package cobs frames Consistent Overhead Byte Stuffing: a zero byte ends each frame and occurs
// nowhere else (Cheshire and Baker, "Consistent Overhead Byte Stuffing", IEEE/ACM Transactions on
// Networking 7(2), 1999).
//
// A frame is valid when its chain of code bytes ends exactly at the delimiter and its content,
// where a check is set, ends in the right check value. Frames are stored as on the wire, stuffing
// and delimiter included.
package cobs

import "github.com/tallywheel/tallywheel/frame"

// DefaultMax is the longest frame on the wire, in bytes, when none is set.
const DefaultMax = 1024

// New returns a decoder of frames of at most maxBytes on the wire; 0 means [DefaultMax].
func New(maxBytes int, check frame.Check) frame.Decoder {
	if maxBytes == 0 {
		maxBytes = DefaultMax
	}
	return &frame.Delimited{Delimiter: 0, MaxBytes: maxBytes, Content: Decode, Check: check}
}

// Decode appends the content of the stuffed bytes b (no delimiter) to dst[:0] and reports whether b
// is well formed.
func Decode(dst, b []byte) ([]byte, bool) {
	dst = dst[:0]
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || n > len(b) {
			return dst, false
		}
		dst = append(dst, b[1:n]...)
		b = b[n:]
		if n < 0xFF && len(b) > 0 {
			dst = append(dst, 0)
		}
	}
	return dst, true
}

// Encode appends content, stuffed and delimited, to dst.
func Encode(dst, content []byte) []byte {
	code := len(dst)
	dst = append(dst, 0)
	for i, c := range content {
		if c != 0 {
			dst = append(dst, c)
		}
		if full := len(dst)-code == 0xFF; c == 0 || full {
			dst[code] = byte(len(dst) - code)
			if full && c != 0 && i == len(content)-1 {
				return append(dst, 0) // a full block at the end needs no block after it
			}
			code = len(dst)
			dst = append(dst, 0)
		}
	}
	dst[code] = byte(len(dst) - code)
	return append(dst, 0)
}
