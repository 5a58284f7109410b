package spool

import "encoding/binary"

// pattern is what lies where bytes will be read to: bytes that depend on their offset and on the
// key, and that no device can guess.
type pattern uint64

// doubt is the most bytes at the end of a read that are said to be uncertain: that so many are like
// the pattern by chance happens once in 2^64 times.
const doubt = 8

// word is the eight bytes of the pattern from offset 8i on, the first of them lowest (splitmix64).
func (p pattern) word(i uint64) uint64 {
	z := uint64(p) + i*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (p pattern) at(offset uint64) byte { return byte(p.word(offset/8) >> (offset % 8 * 8)) }

// lay fills b, which lies at an offset.
func (p pattern) lay(b []byte, offset uint64) {
	for len(b) > 0 && offset%8 != 0 {
		b[0] = p.at(offset)
		b, offset = b[1:], offset+1
	}
	for ; len(b) >= 8; b, offset = b[8:], offset+8 {
		binary.LittleEndian.PutUint64(b, p.word(offset/8))
	}
	for i := range b {
		b[i] = p.at(offset + uint64(i))
	}
}

// written is the number of bytes of b, which lies at an offset, up to the last that differs.
func (p pattern) written(b []byte, offset uint64) int {
	n := len(b)
	for n > 0 && b[n-1] == p.at(offset+uint64(n-1)) {
		n--
	}
	return n
}
