package own

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

// found is what a fact answers: yes or no, and in words what shows it.
type found struct {
	yes  bool
	text string
}

// facts are what can be asked by ask=NAME. Each tries it; the error says why it cannot be tried
// here.
var facts = map[string]func(*contestant.Turn) (found, error){
	"file":            fileIsThere,
	"op":              ringHas,
	"rlock-twice":     readLockTwice,
	"syncmap-no-lock": syncMapLocks,
	"bufio-locks":     bufioLocks,
	"buffer-grows":    bufferGrows,
	"bufio-refills":   bufioRefills,
	"heap-moves":      heapMoves,
	"indexbyte":       indexByteSpares,
	"preempt-build":   needsPreemptAtBuild,
	"runtime-syscall": runtimeUsesSyscall,
	"barrier-map":     barrierByMap,
	"size-check":      sizeCheckKeeps,
	"broken-link":     brokenLink,
	"sqpoll-thread":   pollerNeedsThread,
	"8250":            skipTxen,
	"port-map":        portHasNoMap,
	"blocked":         blockedInRead,
	"receive-times":   receiveTimes,
}

// fact asks this machine something, once, by the parameter ask.
func fact(t *contestant.Turn) error {
	ask, ok := facts[t.Text("ask")]
	if !ok {
		return fmt.Errorf("ask=%s: want one of %s", t.Text("ask"), strings.Join(slices.Sorted(maps.Keys(facts)), ", "))
	}
	f, err := ask(t)
	if err != nil {
		return err
	}
	return t.Answer(f.yes, "%s", f.text)
}

// fileIsThere asks for the file of the parameter file.
func fileIsThere(t *contestant.Turn) (found, error) {
	switch _, err := os.Stat(t.Text("file")); {
	case errors.Is(err, fs.ErrNotExist):
		return found{false, err.Error()}, nil
	case err != nil:
		return found{}, err
	}
	return found{true, t.Text("file") + " is there"}, nil
}

// ringHas asks for the operation op of a ring.
func ringHas(t *contestant.Turn) (found, error) {
	op, ok := map[string]uring.Opcode{"splice": uring.OpSplice, "fsync": uring.OpFsync, "statx": uring.OpStatx}[t.Text("op")]
	if !ok {
		return found{}, fmt.Errorf("op=%s: want splice, fsync or statx", t.Text("op"))
	}
	if err := uring.Probe().HasOp(op); err != nil {
		return found{false, err.Error()}, nil
	}
	return found{true, "a ring does " + t.Text("op")}, nil
}
