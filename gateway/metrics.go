package gateway

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/internal/hist"
)

// metrics serves the books, the log and the server in the form of Prometheus.
func (g *Gateway) metrics(more ...prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(append(more, &exporter{g})...)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// exporter reads everything at the moment it is asked; nothing is counted twice.
type exporter struct{ g *Gateway }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tallywheel_"+name, help, labels, nil)
}

var (
	descBytes    = desc("bytes_total", "Bytes by what became of them: read, framed, resync, and quarantined of these.", "source", "kind")
	descPartial  = desc("partial_bytes", "Bytes held and not classified yet.", "source")
	descFrames   = desc("frames_total", "Frames by what they are: ok, corrupt, unique, duplicate, reordered, stored, durable.", "source", "kind")
	descMissing  = desc("missing_frames", "Frame numbers not seen, by whether damaged bytes came instead; a late frame takes one back.", "source", "how")
	descDropped  = desc("dropped_frames_total", "Valid frames given up, by cause.", "source", "cause")
	descInFlight = desc("in_flight_frames", "Valid frames held and not stored yet.", "source")
	descLine     = desc("line_errors_total", "Errors that the driver counted, by kind.", "source", "kind")
	descOutages  = desc("outages_total", "Times the source could not be read.", "source")
	descUp       = desc("source_up", "Whether the source is open.", "source")
	descLatency  = desc("store_latency_seconds", "Time from read to stored.", "source")
	descBalanced = desc("balanced", "Whether every equation of every sheet holds.")
	descSync     = desc("log_sync_seconds", "Time of a commit with its sync.")
	descLog      = desc("log_sequence", "Last record of the log: stored, durable, and the first one kept.", "position")
	descLogBytes = desc("log_bytes", "Size of the log's segments.")
	descFree     = desc("disk_free_bytes", "Space left on the disk of the log.")
	descFull     = desc("disk_full", "Whether the log waits for space.")
	descFailed   = desc("log_failed", "Whether the log has failed.")
	descChains   = desc("log_chains_total", "Batches written as chains of linked operations: written, whole, taken up again.", "kind")
	descChainErr = desc("log_chain_errors_total", "Chains that failed, by the number of the error.", "errno")
)

// Describe implements prometheus.Collector: the set depends on the sources.
func (*exporter) Describe(c chan<- *prometheus.Desc) { c <- descBalanced }

// Collect implements prometheus.Collector.
func (e *exporter) Collect(c chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := func(d *prometheus.Desc, on bool, labels ...string) {
		v := 0.0
		if on {
			v = 1
		}
		gauge(d, v, labels...)
	}
	histogram := func(d *prometheus.Desc, h *hist.Histogram, labels ...string) {
		n, sum, buckets := h.Cumulative()
		c <- prometheus.MustNewConstHistogram(d, n, sum, buckets, labels...)
	}
	sheet := e.g.Sheet()
	flag(descBalanced, sheet.Balanced)
	for _, p := range sheet.Ports {
		counter(descBytes, p.Bytes.Read, p.ID, "read")
		counter(descBytes, p.Bytes.Framed, p.ID, "framed")
		counter(descBytes, p.Bytes.Resync, p.ID, "resync")
		counter(descBytes, p.Bytes.Quarantined, p.ID, "quarantined")
		gauge(descPartial, float64(p.Bytes.Partial), p.ID)
		f := p.Frames
		for kind, n := range map[string]uint64{
			"ok": f.OK, "corrupt": f.Corrupt, "unique": f.Unique, "duplicate": f.Duplicate, "reordered": f.Reordered,
			"stored": f.Stored, "durable": f.Durable,
		} {
			counter(descFrames, n, p.ID, kind)
		}
		gauge(descMissing, float64(f.MissingCorrupt), p.ID, "corrupt")
		gauge(descMissing, float64(f.MissingUnseen), p.ID, "unseen")
		gauge(descInFlight, float64(f.InFlight), p.ID)
		for cause, n := range f.Dropped {
			counter(descDropped, n, p.ID, cause)
		}
		counter(descOutages, p.OutageCount, p.ID)
		flag(descUp, p.State == stateOpen || p.State == stateBlocked, p.ID)
		if k := p.Kernel; k != nil {
			for kind, n := range map[string]*uint64{
				"overrun": k.Overrun, "buffer_overrun": k.BufferOverrun, "framing": k.Framing, "parity": k.Parity, "break": k.Break,
			} {
				if n != nil {
					counter(descLine, *n, p.ID, kind)
				}
			}
		}
	}
	for _, p := range e.g.snapshot() {
		histogram(descLatency, p.lane.lat, p.lane.cfg.ID)
	}
	histogram(descSync, e.g.syncs)
	if e.g.cfg.Log.Linked {
		collectChains(e.g.chains.Counts(), counter)
	}
	l := e.g.logSample()
	gauge(descLog, float64(l.First), "first")
	gauge(descLog, float64(l.Stored), "stored")
	gauge(descLog, float64(l.Durable), "durable")
	gauge(descLogBytes, float64(l.Bytes))
	gauge(descFree, float64(l.DiskFree))
	flag(descFull, l.Full)
	flag(descFailed, l.Error != "")
}

func collectChains(c asyncfile.ChainCounts, counter func(*prometheus.Desc, uint64, ...string)) {
	counter(descChains, c.Chains, "written")
	counter(descChains, c.Whole, "whole")
	counter(descChains, c.Breaks, "taken up again")
	for e, n := range c.Errors {
		counter(descChainErr, n, strconv.Itoa(int(e)))
	}
}
