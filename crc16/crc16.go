// Package crc16 computes the two CRC-16 families that serial protocols use, fast on every target.
//
// # Concepts
//
// A CRC-16 is fixed by a polynomial, the order of bits, an initial value and a final XOR. This
// package offers the two polynomials met on industrial lines:
//
//   - Modbus: polynomial 0x8005, least significant bit first, initial value 0xFFFF, no final XOR
//     (CRC-16/MODBUS; check value of "123456789" is 0x4B37);
//   - CCITT: polynomial 0x1021, most significant bit first, initial value 0xFFFF, no final XOR
//     (CRC-16/IBM-3740, often called CCITT-FALSE; check value 0x29B1). With initial value 0
//     [UpdateCCITT] gives CRC-16/XMODEM (check value 0x31C3).
//
// Parameters and check values are those of the catalogue of parametrised CRC algorithms
// (https://reveng.sourceforge.io/crc-catalogue/16.htm).
//
// # How it is fast
//
// On amd64 with PCLMULQDQ and SSSE3, inputs of 16 bytes and more are folded four 16-byte lanes at a
// time by carry-less multiplication (Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel 2009); what remains is reduced in the same way for Modbus.
// Everything else, and everything on other machines, goes through slicing-by-16 (Kounavis and
// Berry, 2008). Every path gives the same result for every length; nothing allocates.
//
// # When not to use it
//
// A CRC-16 lets one damaged frame in 65,536 pass when damage is random. It guards a short frame on
// a line; it does not guard a file (seglog uses CRC-32C) and it authenticates nothing.
package crc16

import "encoding/binary"

// Initial values for [UpdateModbus] and [UpdateCCITT].
const (
	InitModbus uint16 = 0xFFFF
	InitCCITT  uint16 = 0xFFFF
	InitXModem uint16 = 0x0000
)

// Modbus returns the CRC-16/MODBUS of b. On the wire it follows the data low byte first.
func Modbus(b []byte) uint16 { return UpdateModbus(InitModbus, b) }

// CCITT returns the CRC-16/IBM-3740 ("CCITT-FALSE") of b.
func CCITT(b []byte) uint16 { return UpdateCCITT(InitCCITT, b) }

// UpdateModbus continues a CRC-16/MODBUS: UpdateModbus(UpdateModbus(c, a), b) is that of a followed
// by b.
func UpdateModbus(crc uint16, b []byte) uint16 {
	if len(b) >= clmulMin && hasCLMUL {
		if len(b)&15 == 1 { // the initial value spans two bytes: give the first block at least two
			crc = crc>>8 ^ tablesModbus[0][byte(crc)^b[0]]
			b = b[1:]
		}
		lo, hi := clmul(&b[0], len(b), uint64(crc), &foldModbus)
		return barrett(lo, hi, &barrettModbus)
	}
	return sliceModbus(crc, b)
}

// UpdateCCITT continues a CRC of the CCITT polynomial, most significant bit first.
func UpdateCCITT(crc uint16, b []byte) uint16 {
	if len(b) >= clmulMin && hasCLMUL {
		if len(b)&15 == 1 {
			crc = crc<<8 ^ tablesCCITT[0][byte(crc>>8)^b[0]]
			b = b[1:]
		}
		lo, hi := clmul(&b[0], len(b), uint64(crc>>8|crc<<8), &foldCCITT)
		return reduceCCITT(hi, lo)
	}
	return sliceCCITT(crc, b)
}

// tables[k][v] is the CRC of byte v followed by k zero bytes, from an initial value of 0.
type tables [16][256]uint16

var tablesModbus, tablesCCITT = makeTables()

func makeTables() (lsb, msb tables) {
	for v := range 256 {
		l, m := uint16(v), uint16(v)<<8
		for range 8 {
			l = l>>1 ^ 0xA001*(l&1) // 0xA001 is 0x8005 with its bits reversed
			m = m<<1 ^ 0x1021*(m>>15)
		}
		lsb[0][v], msb[0][v] = l, m
	}
	for k := 1; k < 16; k++ {
		for v := range 256 {
			l, m := lsb[k-1][v], msb[k-1][v]
			lsb[k][v] = l>>8 ^ lsb[0][byte(l)]
			msb[k][v] = m<<8 ^ msb[0][m>>8]
		}
	}
	return lsb, msb
}

// reduceModbus is the CRC, from 0, of 16 message bytes: a holds the first eight, little-endian.
func reduceModbus(a, b uint64) uint16 {
	t := &tablesModbus
	return t[15][byte(a)] ^ t[14][byte(a>>8)] ^ t[13][byte(a>>16)] ^ t[12][byte(a>>24)] ^
		t[11][byte(a>>32)] ^ t[10][byte(a>>40)] ^ t[9][byte(a>>48)] ^ t[8][byte(a>>56)] ^
		t[7][byte(b)] ^ t[6][byte(b>>8)] ^ t[5][byte(b>>16)] ^ t[4][byte(b>>24)] ^
		t[3][byte(b>>32)] ^ t[2][byte(b>>40)] ^ t[1][byte(b>>48)] ^ t[0][byte(b>>56)]
}

// reduceCCITT is the CRC, from 0, of 16 message bytes: a holds the first eight, big-endian.
func reduceCCITT(a, b uint64) uint16 {
	t := &tablesCCITT
	return t[15][byte(a>>56)] ^ t[14][byte(a>>48)] ^ t[13][byte(a>>40)] ^ t[12][byte(a>>32)] ^
		t[11][byte(a>>24)] ^ t[10][byte(a>>16)] ^ t[9][byte(a>>8)] ^ t[8][byte(a)] ^
		t[7][byte(b>>56)] ^ t[6][byte(b>>48)] ^ t[5][byte(b>>40)] ^ t[4][byte(b>>32)] ^
		t[3][byte(b>>24)] ^ t[2][byte(b>>16)] ^ t[1][byte(b>>8)] ^ t[0][byte(b)]
}

func sliceModbus(crc uint16, b []byte) uint16 {
	for len(b) >= 16 {
		crc = reduceModbus(binary.LittleEndian.Uint64(b)^uint64(crc), binary.LittleEndian.Uint64(b[8:]))
		b = b[16:]
	}
	for _, v := range b {
		crc = crc>>8 ^ tablesModbus[0][byte(crc)^v]
	}
	return crc
}

func sliceCCITT(crc uint16, b []byte) uint16 {
	for len(b) >= 16 {
		crc = reduceCCITT(binary.BigEndian.Uint64(b)^uint64(crc)<<48, binary.BigEndian.Uint64(b[8:]))
		b = b[16:]
	}
	for _, v := range b {
		crc = crc<<8 ^ tablesCCITT[0][byte(crc>>8)^v]
	}
	return crc
}
