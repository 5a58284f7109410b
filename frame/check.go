package frame

import (
	"fmt"

	"github.com/tallywheel/tallywheel/crc16"
)

// Check is the check value at the end of a frame's decoded content, for framings that define none themselves.
type Check uint8

const (
	NoCheck     Check = iota
	CheckModbus       // CRC-16/MODBUS, low byte first
	CheckCCITT        // CRC-16/IBM-3740 (CCITT-FALSE), high byte first
)

// ParseCheck reads "none" (or nothing), "modbus" or "ccitt".
func ParseCheck(s string) (Check, error) {
	switch s {
	case "", "none":
		return NoCheck, nil
	case "modbus":
		return CheckModbus, nil
	case "ccitt":
		return CheckCCITT, nil
	}
	return 0, fmt.Errorf("check %q: want none, modbus or ccitt", s)
}

// OK reports whether content ends in its right check value.
func (c Check) OK(content []byte) bool {
	if c == NoCheck {
		return true
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
