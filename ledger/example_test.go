package ledger_test

import (
	"fmt"

	"github.com/tallywheel/tallywheel/ledger"
)

func Example() {
	b := ledger.NewBook(128)
	device := ledger.Stream{Device: 7, Epoch: 1}
	for _, seq := range []uint64{0, 1, 4, 3, 3} {
		b.Read(128)
		b.Numbered(128, device, seq)
	}
	b.Stored(2)
	b.Drop("disk_full", 1)

	// Two frames are still held; the book does not know that by itself.
	p := b.Sheet("line-1", "open", ledger.Held{Frames: 2}, nil)
	f := p.Frames
	fmt.Println("unique", f.Unique, "duplicate", f.Duplicate, "reordered", f.Reordered, "missing", f.Missing)
	fmt.Println("stored", f.Stored, "dropped", f.Dropped, "in flight", f.InFlight, "wrong", p.Unbalanced)
	// Output:
	// unique 4 duplicate 1 reordered 1 missing 1
	// stored 2 dropped map[disk_full:1] in flight 2 wrong []
}
