package lab

import "fmt"

// Beside says of a figure of some contestants what it is, in a format and so many to a unit, and of
// all but the first whether it differs from that one's: "12.3", "8.1 (0.66×)", "12.1 (no difference
// above 4 %)". Advice that has figures of several contestants has them so: a reader compares them.
// It is false if one was not measured.
func (v View) Beside(cell Params, metric Metric, format string, unit float64, contestants ...*Contestant,
) (said []any, ok bool) {
	m, ok := v.Medians(cell, metric, contestants...)
	if !ok {
		return nil, false
	}
	for i, x := range m {
		text := fmt.Sprintf(format, x/unit)
		if i > 0 {
			r, _ := v.Ratio(contestants[i], contestants[0], cell, metric) // both were measured
			times := fmt.Sprintf("%.2f×", r.Median)
			text += " (" + r.Tell(times, times) + ")"
		}
		said = append(said, text)
	}
	return said, true
}

// LongestBeside is [View.Beside] of the longest latency of a round, in µs, and behind that the
// longest of all rounds, which one of them may have been disturbed to have.
func (v View) LongestBeside(cell Params, contestants ...*Contestant) (said []any, ok bool) {
	said, ok = v.Beside(cell, LatencyMax, "%.0f µs", 1, contestants...)
	if !ok {
		return nil, false
	}
	for i, c := range contestants {
		most, _ := v.Largest(c, cell, LatencyMax) // it was measured
		said[i] = fmt.Sprintf("%s at the median, %.0f in the worst", said[i], most)
	}
	return said, true
}
