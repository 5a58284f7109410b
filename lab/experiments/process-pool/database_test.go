package processpool

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

var refusedRate = regexp.MustCompile(` (\S+) refused_per_s`)

// TestBurstsFillTheQueue: more clients come at once than 8 workers and a queue of 1,024 have room
// for, or nothing could be refused; a queue of 8,192 takes them all.
func TestBurstsFillTheQueue(t *testing.T) {
	for c, refuses := range map[*lab.Contestant]bool{small: true, larger: false} {
		var out bytes.Buffer
		turn, err := contestant.New([]string{"own", "seconds=0.2", "load=bursts"}, strings.NewReader("go\n"), &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Work(turn); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		found := refusedRate.FindStringSubmatch(out.String())
		if found == nil {
			t.Fatalf("%s: %q", c.Name, out.String())
		}
		if rate, err := strconv.ParseFloat(found[1], 64); err != nil || rate > 0 != refuses {
			t.Errorf("%s: %v refused a second, %v", c.Name, rate, err)
		}
	}
}
