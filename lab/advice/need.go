package advice

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Need is what somebody wants of a machine. What is zero is not asked for.
type Need struct {
	Period, Tolerance time.Duration // something is to be done each period, at most so late
	Ports             int           // serial ports that send …
	Rate              float64       // … so many bytes a second each
	Durable           float64       // records a second, each on the disk before its sender goes on
	NoLossAtRestart   bool          // a crash of the recorder loses no byte that it, or the kernel, had taken
}

// form is what ParseNeed reads, for messages.
const form = `parts with commas between, of: "5ms ±100us" (a period, and how late at most), "8 ports 400KB/s" (each), "1000 durable/s" (records), "restart 0 loss"`

// ErrNeed is in the error of a need that cannot be read.
var ErrNeed = errors.New("want " + form)

// ParseNeed reads a need, such as "5ms ±100us, 8 ports 400KB/s, restart 0 loss".
func ParseNeed(text string) (n Need, err error) {
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(part, "+-", "±"), "±", " ±"))
		ok := false
		switch {
		case len(words) == 2 && strings.HasPrefix(words[1], "±") && n.Period == 0:
			ok = n.timing(words[0], strings.TrimPrefix(words[1], "±"))
		case len(words) == 3 && (words[1] == "ports" || words[1] == "port") && n.Ports == 0:
			ok = n.ports(words[0], words[2])
		case len(words) == 2 && words[1] == "durable/s" && n.Durable == 0:
			n.Durable, err = strconv.ParseFloat(words[0], 64)
			ok = err == nil && n.Durable > 0 && !math.IsInf(n.Durable, 0)
		case strings.Join(words, " ") == "restart 0 loss":
			n.NoLossAtRestart, ok = true, true
		}
		if !ok {
			return Need{}, fmt.Errorf("%q: %w, each once", strings.TrimSpace(part), ErrNeed)
		}
	}
	return n, nil
}

func (n *Need) timing(period, tolerance string) bool {
	p, err := time.ParseDuration(period)
	t, err2 := time.ParseDuration(tolerance)
	n.Period, n.Tolerance = p, t
	return err == nil && err2 == nil && p > 0 && t > 0
}

// units of a rate, in bytes a second.
var units = []struct {
	name string
	size float64
}{{"KiB/s", 1 << 10}, {"MiB/s", 1 << 20}, {"kB/s", 1e3}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"B/s", 1}}

func (n *Need) ports(count, rate string) bool {
	ports, err := strconv.Atoi(count)
	if err != nil || ports < 1 {
		return false
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(rate, u.name); ok {
			r, err := strconv.ParseFloat(number, 64)
			n.Ports, n.Rate = ports, r*u.size
			return err == nil && n.Rate > 0 && !math.IsInf(n.Rate, 0)
		}
	}
	return false
}
