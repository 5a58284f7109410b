package slip_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/frame/slip"
)

func Example() {
	wire := slip.Encode([]byte{0xC0}, []byte{0x01, 0xC0, 0xDB}) // a C0 before it flushes noise
	fmt.Printf("on the wire % X\n", wire)

	content, ok := slip.Decode(nil, wire[1:len(wire)-1])
	fmt.Printf("content % X %v\n", content, ok)
	// Output:
	// on the wire C0 01 DB DC DB DD C0
	// content 01 C0 DB true
}
