package rtcyclic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// cyclictest is the program that all others are held to. It prints each latency, in ns: its
// histogram is of µs, which is too coarse to compare by. It leaves the machine as it is, as the
// others do: it would keep its CPUs from sleeping deeply.
func cyclictest() *lab.Contestant {
	t := lab.Tool("cyclictest", "apt install rt-tests").As("cyclictest")
	t.Note = "with --default-system"
	t.Command = func(_ *lab.Bench, cell lab.Params, length time.Duration) []string {
		every := time.Duration(cell.Int("interval_us")) * time.Microsecond
		return []string{
			"-m", fmt.Sprintf("-p%d", priority), "-t1", "-i", cell["interval_us"], "-l",
			fmt.Sprint(max(1, int(length/every))), "-N", "-v", "--default-system",
		}
	}
	t.Output = readCyclictest
	return t
}

// readCyclictest reads what cyclictest -v prints: a line for each wake-up, THREAD: CYCLE: LATENCY,
// among others.
func readCyclictest(out []byte, length time.Duration) (lab.Metrics, error) {
	var late []int64
	for line := range strings.Lines(string(out)) {
		f := strings.Split(line, ":")
		if len(f) != 3 {
			continue
		}
		thread, err := strconv.Atoi(strings.TrimSpace(f[0]))
		_, err2 := strconv.Atoi(strings.TrimSpace(f[1]))
		ns, err3 := strconv.ParseInt(strings.TrimSpace(f[2]), 10, 64)
		if errors.Join(err, err2, err3) == nil && thread == 0 {
			late = append(late, ns)
		}
	}
	if len(late) == 0 {
		return nil, errors.New("cyclictest has printed no latencies")
	}
	n := float64(len(late))
	m := lab.Metrics{
		"ops": n, "wall_s": length.Seconds(), "ops_per_s": n / length.Seconds(),
		"ns_per_op": length.Seconds() * 1e9 / n,
	}
	for _, v := range contestant.Latencies(late) {
		m[v.Metric] = v.V
	}
	return m, nil
}
