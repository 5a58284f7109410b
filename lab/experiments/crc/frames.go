package crc

import (
	"fmt"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// check checks blocks of the parameter bytes (126, the checked part of a frame).
func check(t *contestant.Turn) error {
	b := make([]byte, t.Int("bytes", 126))
	for i := range b {
		b[i] = byte(i * 7)
	}
	const count = 256
	var sum uint16
	return contestant.Repeat(t, count, len(b), func() {
		for range count {
			sum ^= crc16.Modbus(b)
		}
	})
}

// decode decodes frames that lie in memory, CRC included.
func decode(t *contestant.Turn) error {
	const count = 512
	b := make([]byte, count*tally128.Size)
	for i := range count {
		tally128.Encode(b[i*tally128.Size:], tally128.Header{Seq: uint64(i)}, nil)
	}
	var n counter
	return contestant.Repeat(t, count, tally128.Size, func() {
		var dec tally128.Decoder
		n = 0
		if dec.Decode(b, &n); n != count {
			panic(fmt.Sprintf("%d of %d frames", n, count))
		}
	})
}

// counter counts frames.
type counter int

func (c *counter) Frame(*frame.Frame) { *c++ }
func (c *counter) Damaged()           {}
func (c *counter) Skip([]byte)        {}
