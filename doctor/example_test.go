package doctor_test

import (
	"errors"
	"fmt"

	"github.com/tallywheel/tallywheel/doctor"
)

// Say what is not as it should be, change what is safe, and take that back.
func Example() {
	var k doctor.Kernel
	findings := k.Examine()
	for _, f := range findings {
		if f.State != doctor.Good {
			fmt.Printf("%s: %s, wanted %s: %s\n", f.Name, f.Found, f.Wanted, f.How)
		}
	}
	fix, err := k.Prescribe(findings, "/var/lib/tallywheel/doctor.json")
	if errors.Is(err, doctor.ErrNothing) {
		return
	}
	if err := fix.Apply(); err != nil {
		fmt.Println(err)
	}
	if undo, err := k.Undo("/var/lib/tallywheel/doctor.json"); err == nil {
		fmt.Println(undo.Apply())
	}
}
