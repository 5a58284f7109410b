package loadgen

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteK6 writes the result line by line as k6 1 prints the metrics at the end of a test, without
// colours, for people and programs who read that: https://github.com/grafana/k6. Metrics that are
// not measured (how long a connection is made, and the parts of a request's time) are left out. A
// connection is a user (vus), and a request an iteration.
func (r *Result) WriteK6(w io.Writer) error {
	var b strings.Builder
	e, l, seconds := r.ends(), r.LatencyUs, max(r.Drained, 1e-9)
	failed := e.statuses + e.timeouts + e.broken
	all := r.Requests + r.Late + failed
	percent := math.Trunc(1e4*float64(failed)/float64(max(all, 1))) / 100
	requests := []string{strconv.FormatUint(all, 10), k6Number(float64(all)/seconds) + "/s"}
	vus := strconv.Itoa(r.Connections)
	users := []string{vus, "min=" + vus, "max=" + vus}
	k6Metrics{
		{title: "HTTP"},
		{"http_req_duration", []string{fmt.Sprintf("avg=%s min=%s med=%s max=%s p(90)=%s p(95)=%s",
			k6Time(l.Mean), k6Time(float64(l.Min)), k6Time(float64(l.P50)), k6Time(float64(l.Max)),
			k6Time(float64(l.P90)), k6Time(float64(l.P95)))}},
		{"http_req_failed", []string{fmt.Sprintf("%.2f%%", percent), fmt.Sprintf("%d out of %d", failed, all)}},
		{"http_reqs", requests},
		{title: "EXECUTION"},
		{"iterations", requests},
		{"vus", users},
		{"vus_max", users},
		{title: "NETWORK"},
		{"data_received", []string{k6Bytes(float64(r.Bytes)), k6Bytes(float64(r.Bytes)/seconds) + "/s"}},
		{"data_sent", []string{k6Bytes(float64(r.Sent)), k6Bytes(float64(r.Sent)/seconds) + "/s"}},
	}.write(&b)
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// k6Metrics are metrics and, without values, the titles above them.
type k6Metrics []struct {
	title  string
	values []string
}

// write has each column of values as wide as the longest in it. A metric of one value alone, whose
// parts have names, is in no column; the end of a line is not filled up.
func (all k6Metrics) write(b *strings.Builder) {
	var widths [3]int
	for _, m := range all {
		for i, v := range m.values {
			if len(m.values) > 1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(v))
			}
		}
	}
	fmt.Fprintf(b, "\n  █ TOTAL RESULTS \n")
	for _, m := range all {
		if len(m.values) == 0 {
			fmt.Fprintf(b, "\n    %s\n", m.title)
			continue
		}
		fmt.Fprintf(b, "    %s%s: %s", m.title, strings.Repeat(".", 72-len(m.title)), m.values[0])
		for i, v := range m.values[1:] {
			fmt.Fprintf(b, "%*s %s", widths[i]-utf8.RuneCountInString(m.values[i]), "", v)
		}
		b.WriteString("\n")
	}
}

// k6Number has at most six decimals.
func k6Number(n float64) string {
	return strconv.FormatFloat(math.Round(n*1e6)/1e6, 'f', -1, 64)
}

// k6Time is a time, given in microseconds: two decimals, cut off, and no zeros at their end.
func k6Time(us float64) string {
	cut := func(n float64) string { return strconv.FormatFloat(math.Trunc(n*100)/100, 'f', -1, 64) }
	seconds := us / 1e6
	switch minutes := int(seconds / 60); {
	case us == 0:
		return "0s"
	case us < 1000:
		return cut(us) + "µs"
	case us < 1e6:
		return cut(us/1000) + "ms"
	case minutes < 1:
		return cut(seconds) + "s"
	case minutes < 60:
		return fmt.Sprintf("%dm%ds", minutes, int(seconds)%60)
	default:
		return fmt.Sprintf("%dh%dm%ds", minutes/60, minutes%60, int(seconds)%60)
	}
}

// k6Bytes has steps of 1,000.
func k6Bytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; n >= 1000 && i < len(units)-1; i++ {
		n /= 1000
	}
	if n = math.Round(n*10) / 10; i > 0 && n < 10 {
		return fmt.Sprintf("%.1f %s", n, units[i])
	}
	return fmt.Sprintf("%.0f %s", n, units[i])
}
