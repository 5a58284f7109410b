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
	line := func(name, value string) {
		fmt.Fprintf(&b, "    %s%s: %s\n", name, strings.Repeat(".", 72-len(name)), value)
	}
	total := func(value string, rate string) string {
		return value + strings.Repeat(" ", max(0, 7-utf8.RuneCountInString(value))) + rate
	}
	requests := total(strconv.FormatUint(all, 10), k6Number(float64(all)/seconds)+"/s")
	vus := strconv.Itoa(r.Connections)
	fmt.Fprintf(&b, "\n  █ TOTAL RESULTS \n\n    HTTP\n")
	line("http_req_duration", fmt.Sprintf("avg=%s min=%s med=%s max=%s p(90)=%s p(95)=%s",
		k6Time(l.Mean), k6Time(float64(l.Min)), k6Time(float64(l.P50)), k6Time(float64(l.Max)), k6Time(float64(l.P90)),
		k6Time(float64(l.P95))))
	percent := math.Trunc(1e4*float64(failed)/float64(max(all, 1))) / 100
	line("http_req_failed", total(fmt.Sprintf("%.2f%%", percent), fmt.Sprintf("%d out of %d", failed, all)))
	line("http_reqs", requests)
	fmt.Fprintf(&b, "\n    EXECUTION\n")
	line("iterations", requests)
	line("vus", total(vus, fmt.Sprintf("min=%s max=%[1]s", vus)))
	line("vus_max", total(vus, fmt.Sprintf("min=%s max=%[1]s", vus)))
	fmt.Fprintf(&b, "\n    NETWORK\n")
	line("data_received", total(k6Bytes(float64(r.Bytes)), k6Bytes(float64(r.Bytes)/seconds)+"/s"))
	line("data_sent", total(k6Bytes(float64(r.Sent)), k6Bytes(float64(r.Sent)/seconds)+"/s"))
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
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
