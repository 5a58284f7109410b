package sys

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// Shrink gives back what only the beginning of a process needed: heap that is free, and pages of
// the program that are in its file, too, and come again when they are called for. What was written
// to since it was mapped, as an address that the loader has filled in, is "anonymous" to the
// kernel, and would be lost: a part that has any of it is left alone.
func Shrink() {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return // some kernels have none: the process stays larger
	}
	defer f.Close()
	var from, to uintptr
	for in := bufio.NewScanner(f); in.Scan(); {
		line := in.Text()
		var begin, end uintptr
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &begin, &end, &rights); n == 3 {
			from, to = begin, 0
			if !strings.Contains(rights, "w") && strings.Contains(line, " /") {
				to = end
			}
			continue
		}
		if fields := strings.Fields(line); to != 0 && len(fields) == 3 && fields[0] == "Anonymous:" &&
			fields[1] == "0" {
			GiveBackPages(from, to-from)
		}
	}
}
