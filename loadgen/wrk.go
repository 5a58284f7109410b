package loadgen

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// WriteWrk writes the result line by line as wrk 4.2 prints one with --latency, for programs that
// read that: https://github.com/wg/wrk.
func (r *Result) WriteWrk(w io.Writer) error {
	var b strings.Builder
	l, s := r.LatencyUs, r.more
	fmt.Fprintf(&b, "Running %s test @ %s\n", wrkTime(math.Round(r.Seconds)*1e6, 0), r.URL)
	fmt.Fprintf(&b, "  %d threads and %d connections\n", s.threads, r.Connections)
	fmt.Fprintf(&b, "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n")
	fmt.Fprintf(&b, "    Latency %s %s %s %8.2f%%\n", wide(wrkTime(l.Mean, 2)), wide(wrkTime(l.StdDev, 2)),
		wide(wrkTime(float64(l.Max), 2)), s.within())
	fmt.Fprintf(&b, "    Req/Sec %s %s %s %8.2f%%\n", wide(wrkCount(s.rate.mean)), wide(wrkCount(s.rate.stdev)),
		wide(wrkCount(s.rate.max)), s.rate.within)
	fmt.Fprintf(&b, "  Latency Distribution\n")
	for _, q := range []struct {
		percent int
		us      int64
	}{{50, l.P50}, {75, l.P75}, {90, l.P90}, {99, l.P99}} {
		fmt.Fprintf(&b, "%7d%% %s\n", q.percent, wide(wrkTime(float64(q.us), 2)))
	}
	e := r.ends()
	fmt.Fprintf(&b, "  %d requests in %s, %sB read\n", r.Requests+e.statuses, wrkTime(r.Seconds*1e6, 2),
		wrkBytes(float64(r.Bytes)))
	if read := e.broken + e.unasked; read+e.timeouts+e.connects > 0 {
		fmt.Fprintf(&b, "  Socket errors: connect %d, read %d, write 0, timeout %d\n", e.connects, read, e.timeouts)
	}
	if e.statuses > 0 {
		fmt.Fprintf(&b, "  Non-2xx or 3xx responses: %d\n", e.statuses)
	}
	fmt.Fprintf(&b, "Requests/sec: %9.2f\n", float64(r.Requests+e.statuses)/max(r.Seconds, 1e-9))
	fmt.Fprintf(&b, "Transfer/sec: %8sB\n", wrkBytes(float64(r.Bytes)/max(r.Seconds, 1e-9)))
	_, err := io.WriteString(w, b.String())
	return err
}

func wide(s string) string { return fmt.Sprintf("%8s", s) }

// wrkTime is a time, given in microseconds.
func wrkTime(us float64, digits int) string {
	for _, u := range []struct {
		us   float64
		name string
	}{{3600e6, "h"}, {60e6, "m"}, {1e6, "s"}, {1e3, "ms"}} {
		if us >= u.us {
			return fmt.Sprintf("%.*f%s", digits, us/u.us, u.name)
		}
	}
	return fmt.Sprintf("%.*fus", digits, us)
}

func wrkCount(n float64) string {
	for _, u := range []struct {
		n    float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= u.n {
			return fmt.Sprintf("%.2f%s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.2f", n)
}

// wrkBytes is wrkCount with steps of 1024.
func wrkBytes(n float64) string {
	for _, u := range []struct {
		n    float64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.n {
			return fmt.Sprintf("%.2f%s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.2f", n)
}
