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
