package crc16

import "golang.org/x/sys/cpu"

// clmulMin is the shortest input that clmul takes: one whole 16-byte load.
const clmulMin = 16

var hasCLMUL = cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSSE3

// folding holds what clmul needs to know of one polynomial; the assembly relies on the order of its
// fields.
type folding struct {
	order [16]byte     // PSHUFB mask that brings a loaded block into the order of the polynomial
	k512  [2]uint64    // multipliers that carry the low and the high half of a block over 512 bits …
	k384  [2]uint64    // … 384 …
	k256  [2]uint64    // … 256 …
	k128  [2]uint64    // … 128 bits of message
	part  [16][16]byte // part[r]: as order, for a first block of which only r bytes count (leading zeros are neutral)
}

var foldModbus, foldCCITT = makeFoldings()

// reduction holds what barrett needs: bit-reversed polynomials.
type reduction struct {
	x80, x64 uint64 // powers of x modulo P, for products that come out multiplied by x
	mu       uint64 // floor(x^64 / P)
	poly     uint64 // P without x^16
}

var barrettModbus = makeReduction(0x8005)

func makeReduction(poly uint16) reduction {
	var mu uint64 // by long division; it has degree 48
	for rest, at := uint16(0), 64; at >= 0; at-- {
		top := rest >> 15
		rest = rest << 1
		if at == 64 {
			rest |= 1 // the dividend x^64 has this one coefficient
		}
		if top != 0 {
			rest ^= poly
			mu |= 1 << at
		}
	}
	var reverse uint64
	for j := range 64 {
		reverse |= mu >> j & 1 << (63 - j)
	}
	return reduction{reversed(power(poly, 79)), reversed(power(poly, 63)), reverse, reversed(poly)}
}

// barrett is the bit-reversed CRC, from 0, of the 16 message bytes in lo and hi, without a table.
//
//go:noescape
func barrett(lo, hi uint64, k *reduction) uint16

// clmul folds the n ≥ 16 bytes at p, with init XORed into the first two, to 16 bytes of the same
// CRC. n%16 must not be 1.
//
//go:noescape
func clmul(p *byte, n int, init uint64, f *folding) (lo, hi uint64)

func makeFoldings() (lsb, msb folding) {
	const none = 0x80 // PSHUFB writes a zero
	for i := range 16 {
		lsb.order[i], msb.order[i] = byte(i), byte(15-i)
		for r := range 16 {
			lsb.part[r][i], msb.part[r][i] = none, none
			if skip := 16 - r; i >= skip {
				lsb.part[r][i] = byte(i - skip)
			}
			if i < r {
				msb.part[r][i] = byte(r - 1 - i)
			}
		}
	}
	for _, k := range []struct {
		lsb, msb *[2]uint64
		bits     int
	}{
		{&lsb.k512, &msb.k512, 512},
		{&lsb.k384, &msb.k384, 384},
		{&lsb.k256, &msb.k256, 256},
		{&lsb.k128, &msb.k128, 128},
	} {
		// Bit-reversed: the low half is the more significant; a product of reversed operands is one
		// bit short.
		*k.lsb = [2]uint64{reversed(power(0x8005, k.bits+63)), reversed(power(0x8005, k.bits-1))}
		*k.msb = [2]uint64{uint64(power(0x1021, k.bits)), uint64(power(0x1021, k.bits+64))}
	}
	return lsb, msb
}

// power returns x^e modulo x^16 + poly.
func power(poly uint16, e int) uint16 {
	r := uint16(1)
	for range e {
		r = r<<1 ^ poly*(r>>15)
	}
	return r
}

// reversed puts the coefficient of x^j into bit 63-j.
func reversed(v uint16) (k uint64) {
	for j := range 16 {
		k |= uint64(v>>j&1) << (63 - j)
	}
	return k
}
