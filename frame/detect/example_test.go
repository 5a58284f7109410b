package detect_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/frame/detect"
)

func Example() {
	d := detect.New(9600, 10)
	for n := range 4 {
		d.Bytes(fmt.Appendf(nil, "ST,GS,+  %d.5 kg\r\n", n))
		fit, ok := d.Decide()
		fmt.Printf("%v %q\n", ok, fit.Framing)
	}
	fit, _ := d.Decide()
	fmt.Println(fit)
	// Output:
	// false ""
	// false ""
	// true "line"
	// true "line"
	// line: 4 frames, 100 % of the bytes, 84 bits of evidence
}
