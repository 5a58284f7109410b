package memoryreturn

import (
	"os"
	"runtime/debug"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// giveBack makes 64 MiB of garbage and gives it back to the kernel, again and again.
func giveBack(t *contestant.Turn) error {
	const bytes = 64 << 20
	return contestant.Repeat(t, 1, bytes, func() {
		sink = make([]byte, bytes)
		for i := 0; i < len(sink); i += os.Getpagesize() {
			sink[i] = 1
		}
		sink = nil
		debug.FreeOSMemory()
	})
}

var sink []byte // keeps it from living on the stack
