package crc16_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/crc16"
)

func Example() {
	request := []byte{0x01, 0x03, 0x00, 0x00, 0x00, 0x0A} // read 10 holding registers of unit 1
	crc := crc16.Modbus(request)
	fmt.Printf("% X\n", append(request, byte(crc), byte(crc>>8)))
	// Output: 01 03 00 00 00 0A C5 CD
}
