package frame_test

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

// A stream is shown in pieces. What a decoder has not classified is shown again, with what follows.
func Example() {
	var d frame.Decoder = line.New(0, frame.NoCheck)
	var pending []byte
	for _, piece := range []string{"12.5 kg\r\n12", ".6 kg\r\n$GPGLL,A*00\r\n", "12."} {
		pending = append(pending, piece...)
		done := d.Decode(pending, printer{})
		pending = pending[done:]
	}
	d.Break(pending, frame.Closed, printer{}) // nothing follows
	// Output:
	// frame "12.5 kg\r\n"
	// frame "12.6 kg\r\n"
	// damaged
	// skip "$GPGLL,A*00\r\n"
	// damaged
	// skip "12."
}

// What a framing cannot know is asked by what its decoder can do, never by its name.
func ExampleEvidenceOf() {
	for _, check := range []frame.Check{frame.NoCheck, frame.CheckNMEA} {
		e := frame.EvidenceOf(line.New(0, check))
		fmt.Println("numbered:", e.Numbered, "check bits:", e.CheckBits)
		for _, unknown := range e.Unknown() {
			fmt.Println("-", unknown)
		}
	}
	// Output:
	// numbered: false check bits: 0
	// - a frame that never arrives leaves no trace: frames have no numbers
	// - a damaged frame may count as valid: frames have no check value
	// numbered: false check bits: 8
	// - a frame that never arrives leaves no trace: frames have no numbers
	// - one damaged frame in 256 counts as valid: the check value has 8 bits
}
