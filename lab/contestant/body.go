package contestant

import "strconv"

// period is the length of the pattern: a prime, so that a piece of a body that is lost, doubled or
// moved does not fit where it comes.
const period = 65521

// Pattern is one period of what bodies and files are made of.
func Pattern() []byte {
	b := make([]byte, period)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	return b
}

// Page is so many bytes of the pattern.
func Page(bytes int) []byte {
	b := append(make([]byte, 0, bytes+period), Pattern()...)
	for len(b) < bytes {
		b = append(b, b[:period]...)
	}
	return b[:bytes:bytes]
}

// Digest is what a server says of a body that it has read: its length, and a sum over one byte of
// each 512. So nobody can answer without having read all of it, in order, and the sum costs next to
// nothing.
type Digest struct {
	bytes uint64
	sum   uint32
}

const stride = 512

// Write reads the next piece. It never fails.
func (d *Digest) Write(b []byte) (int, error) {
	for i := int((stride - d.bytes%stride) % stride); i < len(b); i += stride {
		d.sum = d.sum*31 + uint32(b[i])
	}
	d.bytes += uint64(len(b))
	return len(b), nil
}

// Append appends the answer: "65536 bytes, sum 01234567" and the end of the line.
func (d *Digest) Append(to []byte) []byte {
	to = strconv.AppendUint(to, d.bytes, 10)
	to = append(to, " bytes, sum "...)
	for shift := 28; shift >= 0; shift -= 4 {
		to = append(to, "0123456789abcdef"[d.sum>>shift&15])
	}
	return append(to, '\n')
}

// DigestOf is the answer to a body that is whole.
func DigestOf(body []byte) []byte {
	var d Digest
	_, _ = d.Write(body)
	return d.Append(nil)
}
