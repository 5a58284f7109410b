package framings_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
)

func Example() {
	d, err := framings.New(framings.Config{Kind: "cobs", Check: frame.CheckCCITT})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("longest frame:", d.Max(), "bytes")

	_, err = framings.New(framings.Config{Kind: "modbus", Max: 100})
	fmt.Println(err)
	// Output:
	// longest frame: 1024 bytes
	// frame modbus: max is a setting of cobs, slip, line, ubx, length, raw
}
