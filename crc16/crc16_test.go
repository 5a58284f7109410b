package crc16

import (
	"math/rand/v2"
	"testing"
)

// bitwise is the definition, one bit at a time: the reference for every fast path.
func bitwiseModbus(crc uint16, b []byte) uint16 {
	for _, v := range b {
		crc ^= uint16(v)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0xA001
			} else {
				crc >>= 1
			}
		}
	}
	return crc
}

func bitwiseCCITT(crc uint16, b []byte) uint16 {
	for _, v := range b {
		crc ^= uint16(v) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

func TestCheckValues(t *testing.T) {
	check := []byte("123456789")
	if got := Modbus(check); got != 0x4B37 {
		t.Errorf("Modbus = %#04x, want 0x4B37", got)
	}
	if got := CCITT(check); got != 0x29B1 {
		t.Errorf("CCITT = %#04x, want 0x29B1", got)
	}
	if got := UpdateCCITT(InitXModem, check); got != 0x31C3 {
		t.Errorf("XMODEM = %#04x, want 0x31C3", got)
	}
}

func TestEveryLengthEqualsBitwise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 512+16)
	for n := 0; n <= 512; n++ {
		for _, at := range []int{0, 1, 7, rng.IntN(16)} { // alignment must not matter
			b := buf[at : at+n]
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			crc := uint16(rng.Uint32())
			for _, c := range []struct {
				name      string
				got, want uint16
			}{
				{"UpdateModbus", UpdateModbus(crc, b), bitwiseModbus(crc, b)},
				{"sliceModbus", sliceModbus(crc, b), bitwiseModbus(crc, b)},
				{"UpdateCCITT", UpdateCCITT(crc, b), bitwiseCCITT(crc, b)},
				{"sliceCCITT", sliceCCITT(crc, b), bitwiseCCITT(crc, b)},
			} {
				if c.got != c.want {
					t.Fatalf("%s of %d bytes = %#04x, want %#04x", c.name, n, c.got, c.want)
				}
			}
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("a frame on a wire, longer than one block of sixteen"), 5)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if cut < 0 || cut > len(b) {
			return
		}
		if got, want := UpdateModbus(Modbus(b[:cut]), b[cut:]), bitwiseModbus(InitModbus, b); got != want {
			t.Fatalf("Modbus in two parts = %#04x, want %#04x", got, want)
		}
		if got, want := UpdateCCITT(CCITT(b[:cut]), b[cut:]), bitwiseCCITT(InitCCITT, b); got != want {
			t.Fatalf("CCITT in two parts = %#04x, want %#04x", got, want)
		}
	})
}

func BenchmarkModbus126(b *testing.B)  { benchmark(b, Modbus, 126) }
func BenchmarkModbus4096(b *testing.B) { benchmark(b, Modbus, 4096) }
func BenchmarkCCITT126(b *testing.B)   { benchmark(b, CCITT, 126) }

func BenchmarkModbus126Slicing(b *testing.B) {
	benchmark(b, func(p []byte) uint16 { return sliceModbus(InitModbus, p) }, 126)
}

func benchmark(b *testing.B, crc func([]byte) uint16, n int) {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i * 7)
	}
	b.SetBytes(int64(n))
	for b.Loop() {
		crc(p)
	}
}
