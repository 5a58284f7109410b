package length_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/length"
)

// printer says what it is told.
type printer struct{}

func (printer) Frame(f *frame.Frame) { fmt.Printf("frame %q\n", f.Data) }
func (printer) Damaged()             { fmt.Println("damaged") }
func (printer) Skip(b []byte)        { fmt.Printf("skip %q\n", b) }

// A length out of range is damage. Without a check, nothing else is seen.
func Example() {
	d, err := length.New(length.Config{Prefix: 1, Max: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream := []byte("\x03abc\xFF\x02de\x05f")
	done := d.Decode(stream, printer{})
	fmt.Printf("pending %q\n", stream[done:])
	// Output:
	// frame "\x03abc"
	// damaged
	// skip "\xff"
	// frame "\x02de"
	// pending "\x05f"
}
