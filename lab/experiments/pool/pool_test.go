package pool

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// TestStacksTell: whether a pool has grown is to be seen by the memory of its stacks, or no machine
// could show that it wanders.
func TestStacksTell(t *testing.T) {
	if testenv.Race {
		t.Skip("SKIPPED: the race detector has stacks of its own; run it without -race")
	}
	grown := regexp.MustCompile(` (\S+) grown_bytes`)
	for name, c := range map[string]struct {
		work  contestant.Work
		grows bool
	}{"fixed": {of(8, 8), false}, "dynamic": {of(4, 16), true}, "goroutine": {goroutines, true}} {
		var out bytes.Buffer
		turn, err := contestant.New([]string{name, "work_ns=1000", "seconds=0.01"}, strings.NewReader("go\n"), &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.work(turn); err != nil {
			t.Fatal(err)
		}
		found := grown.FindStringSubmatch(out.String())
		if found == nil {
			t.Fatalf("%s: %q", name, out.String())
		}
		n, err := strconv.ParseFloat(found[1], 64)
		t.Logf("%s: %.0f KiB", name, n/1024)
		if err != nil || (n >= wanders) != c.grows {
			t.Errorf("%s: stacks take %s bytes more at work, %v: want %d or more: %v", name, found[1], err, wanders, c.grows)
		}
	}
}
