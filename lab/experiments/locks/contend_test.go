package locks

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// TestContend: each contestant works, and says how long it waited for locks.
func TestContend(t *testing.T) {
	for _, c := range []*lab.Contestant{channel, channels, writer, writers, storing, loading} {
		var out bytes.Buffer
		turn, err := contestant.New([]string{"own", "seconds=0.01"}, strings.NewReader("go\n"), &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Work(turn); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if !strings.Contains(out.String(), " lock_wait_percent") {
			t.Errorf("%s: %q", c.Name, out.String())
		}
	}
}
