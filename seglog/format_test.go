package seglog

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// What a cut leaves may have any length in its first bytes. Where an int has 32 bits, half of these
// lengths are negative as an int.
func TestLengthsThatCannotBe(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 100_000 {
		b := make([]byte, frameHeader+rng.IntN(100))
		length := rng.Uint32() >> rng.IntN(32)
		if n < 64 {
			length = uint32(1)<<(n%32) - uint32(n/32)
		}
		binary.LittleEndian.PutUint32(b, length)
		binary.LittleEndian.PutUint32(b[28:], kindRecord)
		if f, ok := decodeFrame(b, 7); ok {
			t.Fatalf("a frame of %d bytes in %d without its CRC: %+v", length, len(b), f)
		}
		if want := frameWants(b); want < 0 || want > frameLen(maxRecord) {
			t.Fatalf("a length of %d wants %d bytes", length, want)
		}
	}
}
