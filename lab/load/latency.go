package load

import (
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/loadgen"
)

// latencies adds the figures of so many latencies, from 90 % on without those percentiles that have
// fewer than five values beyond them, as contestants leave them out: they would be accidents.
func latencies(m lab.Metrics, l loadgen.Latency, n uint64) {
	m["latency_us_p50"], m["latency_us_p90"], m["latency_us_max"] = float64(l.P50), float64(l.P90), float64(l.Max)
	const beyond = 5
	if n >= beyond*100 {
		m["latency_us_p99"] = float64(l.P99)
	}
	if n >= beyond*1000 {
		m["latency_us_p999"] = float64(l.P999)
	}
}
