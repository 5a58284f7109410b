package cobs_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/frame/cobs"
)

func Example() {
	wire := cobs.Encode(nil, []byte{0x11, 0x22, 0x00, 0x33})
	fmt.Printf("on the wire % X\n", wire)

	content, ok := cobs.Decode(nil, wire[:len(wire)-1]) // without the zero that ends it
	fmt.Printf("content % X %v\n", content, ok)
	// Output:
	// on the wire 03 11 22 02 33 00
	// content 11 22 00 33 true
}
