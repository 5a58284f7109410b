package line_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/line"
)

// printer says what it is told.
type printer struct{}

func (printer) Frame(f *frame.Frame) { fmt.Printf("frame %q\n", f.Data) }
func (printer) Damaged()             { fmt.Println("damaged") }
func (printer) Skip(b []byte)        { fmt.Printf("skip %q\n", b) }

// Text is whatever a line holds; with CheckNMEA only sentences count.
func Example() {
	stream := []byte("hello\n$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n")
	for _, check := range []frame.Check{frame.NoCheck, frame.CheckNMEA} {
		line.New(0, check).Decode(stream, printer{})
	}
	// Output:
	// frame "hello\n"
	// frame "$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n"
	// skip "hello\n"
	// frame "$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n"
}
