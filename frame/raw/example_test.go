package raw_test

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/raw"
)

// printer says what it is told.
type printer struct{}

func (printer) Frame(f *frame.Frame) { fmt.Printf("chunk %q\n", f.Data) }
func (printer) Damaged()             { fmt.Println("damaged") }
func (printer) Skip(b []byte)        { fmt.Printf("skip %q\n", b) }

// A chunk ends when it is full, or when the line has been silent.
func Example() {
	d := raw.New(8, 5*time.Millisecond)
	stream := []byte("what is it?")
	done := d.Decode(stream, printer{})
	d.Break(stream[done:], frame.Silence, printer{})
	// Output:
	// chunk "what is "
	// chunk "it?"
}
