package modbus_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/modbus"
)

// printer says what it is told.
type printer struct{}

func (printer) Frame(f *frame.Frame) { fmt.Printf("frame % X\n", f.Data) }
func (printer) Damaged()             { fmt.Println("damaged") }
func (printer) Skip(b []byte)        { fmt.Printf("skip % X\n", b) }

// An adapter brings a request and its answer as one chunk; the function says where each ends.
func Example() {
	var chunk []byte
	for _, pdu := range [][]byte{{1, 3, 0, 0, 0, 2}, {1, 3, 4, 0, 9, 0, 8}} {
		crc := crc16.Modbus(pdu)
		chunk = append(append(chunk, pdu...), byte(crc), byte(crc>>8))
	}
	d := modbus.New(9600, 11)
	fmt.Println("a silence of", d.Silence(), "parts frames")
	d.Decode(chunk, printer{})
	// Output:
	// a silence of 4.010416ms parts frames
	// frame 01 03 00 00 00 02 C4 0B
	// frame 01 03 04 00 09 00 08 2B F7
}
