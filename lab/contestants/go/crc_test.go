package contestants

import (
	"testing"

	"github.com/sigurn/crc16"
)

// BenchmarkSigurn126 is the CRC of the library that most Go programs use, over the checked part of a tally128 frame.
func BenchmarkSigurn126(b *testing.B) {
	p := make([]byte, 126)
	for i := range p {
		p[i] = byte(i * 7)
	}
	t := crc16.MakeTable(crc16.CRC16_MODBUS)
	b.SetBytes(126)
	for b.Loop() {
		crc16.Checksum(p, t)
	}
}
