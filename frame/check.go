package frame

import (
	"bytes"
	"fmt"

	"github.com/tallywheel/tallywheel/crc16"
)

// Check is the check value at the end of a frame's decoded content, for framings that define none
// themselves.
type Check uint8

const (
	NoCheck     Check = iota
	CheckModbus       // CRC-16/MODBUS, low byte first
	CheckCCITT        // CRC-16/IBM-3740 (CCITT-FALSE), high byte first
	CheckNMEA         // the checksum of an NMEA 0183 sentence: "$…*hh" or "!…*hh", hh the XOR of the characters between
)

// ParseCheck reads "none" (or nothing), "modbus", "ccitt" or "nmea".
func ParseCheck(s string) (Check, error) {
	switch s {
	case "", "none":
		return NoCheck, nil
	case "modbus":
		return CheckModbus, nil
	case "ccitt":
		return CheckCCITT, nil
	case "nmea":
		return CheckNMEA, nil
	}
	return 0, fmt.Errorf("check %q: want none, modbus, ccitt or nmea", s)
}

// String is what ParseCheck reads.
func (c Check) String() string {
	switch c {
	case CheckModbus:
		return "modbus"
	case CheckCCITT:
		return "ccitt"
	case CheckNMEA:
		return "nmea"
	}
	return "none"
}

// Bits is the size of the check value in bits.
func (c Check) Bits() int {
	switch c {
	case CheckModbus, CheckCCITT:
		return 16
	case CheckNMEA:
		return 8
	}
	return 0
}

// OK reports whether content ends in its right check value.
func (c Check) OK(content []byte) bool {
	switch c {
	case NoCheck:
		return true
	case CheckNMEA:
		return sentence(content)
	}
	n := len(content) - 2
	if n < 0 {
		return false
	}
	if c == CheckModbus {
		return crc16.Modbus(content[:n]) == uint16(content[n])|uint16(content[n+1])<<8
	}
	return crc16.CCITT(content[:n]) == uint16(content[n])<<8|uint16(content[n+1])
}

// sentence reports whether b is an NMEA sentence with a right checksum, without or with what ends
// its line.
func sentence(b []byte) bool {
	b = bytes.TrimRight(b, "\r\n")
	n := len(b) - len("*hh")
	if n < 1 || b[0] != '$' && b[0] != '!' || b[n] != '*' {
		return false
	}
	var sum byte
	for _, c := range b[1:n] {
		sum ^= c
	}
	hi, lo := unhex(b[n+1]), unhex(b[n+2])
	return hi >= 0 && lo >= 0 && int(sum) == hi<<4|lo
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
