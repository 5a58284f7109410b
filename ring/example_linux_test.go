package ring_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/ring"
)

func Example() {
	r, err := ring.New(64 << 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()

	n := copy(r.Space(), "from the wire") // the producer: usually a read(2) into Space
	r.Publish(n)

	fmt.Printf("%s\n", r.View()[:4]) // the consumer: a view, not a copy
	r.Release(4)
	fmt.Printf("%s\n", r.View())
	// Output:
	// from
	//  the wire
}
