package modbus

import (
	"bytes"

	"github.com/tallywheel/tallywheel/crc16"
)

// A frame whose length only its CRC says is believed by what follows it. That is a run: frames one
// behind the other, up to
//
//   - the end of the bytes, if the line was silent there,
//   - a frame whose function code says its length, or
//   - two frames of one unit and function: a request and its answer.
//
// So a wrong cut that a right CRC hides by chance, once in 65,536, needs a second chance of that
// kind behind it. Bytes that the line brings without a border until the decoder can hold no more
// have no end: there two right CRCs, one behind the other, are enough, where there is no run.
//
// The work is bounded: each byte of at most 512 is looked at once as the beginning of a frame, and
// a frame has at most 256 bytes.

// places is how many there are in the bytes, their end included.
const places = window + 1

// run is what is known of the bytes as a run of frames. Make it for some bytes, and forget it.
type run struct {
	b     []byte
	final bool          // the line was silent behind b
	seen  [places]uint8 // of each place: what was found there
}

// What is found at a place.
const (
	looked = 1 << iota // it has been looked at
	sealed             // a right CRC ends a frame that begins here
	leads              // a run begins here
)

// ended is the size of the shortest frame at the front of b that a run follows; 0 if there is none.
// A longer one may seem to end where one of the others does: that wants one chance, a shorter one
// wants two.
func ended(b []byte, final bool) (n int) {
	if !ends(b) {
		return 0
	}
	r := run{b: b, final: final}
	weak := 0 // of the shortest that one more right CRC follows
	eachEnd(b, func(size int) {
		switch {
		case n > 0:
		case r.follows(0, size), twice(b, size):
			n = size
		case !final && weak == 0 && r.look(size)&sealed != 0:
			weak = size
		}
	})
	if n == 0 {
		n = weak
	}
	return n
}

// follows reports whether a run follows the frame between two places.
func (r *run) follows(from, to int) bool {
	found := r.look(to)
	return found&leads != 0 || found&sealed != 0 && r.b[from] == r.b[to] && r.b[from+1]&0x7F == r.b[to+1]&0x7F
}

// look finds out what begins at a place.
func (r *run) look(at int) uint8 {
	if r.seen[at]&looked != 0 {
		return r.seen[at]
	}
	found := uint8(looked)
	switch rest := r.b[at:]; {
	case len(rest) == 0:
		if r.final {
			found |= leads
		}
	case len(rest) < MinSize:
	case front(rest) > 0:
		found |= sealed | leads
	default:
		eachEnd(rest, func(size int) {
			found |= sealed
			if r.follows(at, at+size) {
				found |= leads
			}
		})
	}
	r.seen[at] = found
	return found
}

// ends reports whether a frame at the front of b may end in it.
func ends(b []byte) (any bool) {
	eachEnd(b, func(int) { any = true })
	return any
}

// eachEnd calls found for each size that a frame at the front of b has by its CRC, in ascending
// order. The CRC of a frame and its CRC is 0.
func eachEnd(b []byte, found func(size int)) {
	if len(b) < MinSize || b[1] == 0 { // function codes are 1–127, 128–255 in exceptions
		return
	}
	crc := crc16.UpdateModbus(crc16.InitModbus, b[:MinSize-1])
	for size := MinSize; size <= min(len(b), MaxSize); size++ {
		if crc = crc16.UpdateModbus(crc, b[size-1:size]); crc == 0 {
			found(size)
		}
	}
}

// twice reports whether b begins with a diagnostic of that size and its answer, which is the same
// again.
func twice(b []byte, size int) bool {
	return echoes(b) && len(b) >= 2*size && bytes.Equal(b[:size], b[size:2*size])
}
