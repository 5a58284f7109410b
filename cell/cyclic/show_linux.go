package cyclic

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/cell"
)

// Line is a line as cyclictest prints it, in µs: thread, priority, interval, cycles; latencies.
func Line(cfg Config, r Result) string {
	us := time.Duration.Microseconds
	l := r.Latency
	return fmt.Sprintf("T:%2d (%5d) P:%2d I:%d C:%7d Min:%7d Act:%5d Avg:%5d Max:%8d",
		0, r.TID, r.Priority, us(cfg.Interval), r.Cycles, us(l.Min), us(l.Last), us(l.Mean), us(l.Max))
}

// rowsPerDecade is how many rows of a histogram make ten times the latency.
const rowsPerDecade = 10

// Row is a row of a histogram.
type Row struct {
	From  time.Duration // its lower bound
	Count uint64
}

// Rows is a histogram of latencies: a row for each tenth of a power of ten, from the least latency
// to the most.
func Rows(l cell.Latency) (all []Row) {
	counts := map[int]uint64{}
	first, last := math.MaxInt, math.MinInt
	for d, n := range l.Cells() {
		row := int(math.Floor(rowsPerDecade * math.Log10(float64(max(d, 1)))))
		counts[row] += n
		first, last = min(first, row), max(last, row)
	}
	for row := first; row <= last; row++ {
		from := math.Pow(10, float64(row)/rowsPerDecade)
		all = append(all, Row{time.Duration(math.Round(from)), counts[row]})
	}
	return all
}

// Histogram draws the rows of latencies, the fullest so many columns wide. A row begins with its
// lower bound, and with how many there were.
func Histogram(l cell.Latency, wide int) string {
	rows := Rows(l)
	most := uint64(0)
	for _, r := range rows {
		most = max(most, r.Count)
	}
	var b strings.Builder
	for _, r := range rows {
		bar := int(math.Ceil(float64(wide) * float64(r.Count) / float64(most)))
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(
			fmt.Sprintf("%11.2f µs %9d  %s", float64(r.From)/1e3, r.Count, strings.Repeat("▇", bar)), " "))
	}
	return b.String()
}
