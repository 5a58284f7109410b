// Package prom gives the figures of a server to Prometheus. It is apart from package server, so
// that who serves without Prometheus does not link it.
package prom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallywheel/tallywheel/server"
)

var names []string

// Metrics lists the names of the metrics that a server can have.
func Metrics() []string { return slices.Clone(names) }

// metric describes one figure of a server.
func metric(name, help string, labels ...string) *prometheus.Desc {
	names = append(names, "tallywheel_server_"+name)
	return prometheus.NewDesc("tallywheel_server_"+name, help, append(labels, "engine", "mode"), nil)
}

var (
	metricOpen     = metric("connections", "Connections that are open.")
	metricAccepted = metric("connections_total", "Connections accepted.")
	metricRequests = metric("requests_total", "Requests answered.")
	metricLatency  = metric("request_seconds",
		"Time from a whole head to the answer's being handed over; event streams are not counted.")
	metricBytes = metric("bytes_total", "Bytes of the sockets: in, out. Not with engine std.", "direction")
	metricCalls = metric("system_calls_total",
		"System calls of the loops to wait, submit, receive and send. Not with engine std.")
	metricSubmitted = metric("sqe_submitted_total", "Entries that the rings took. Engine uring.")
	metricReaped    = metric("cqe_reaped_total", "Completions seen. Engine uring.")
	metricStarved   = metric("receive_starved_total",
		"Receives that found no buffer and were tried again. Engine uring.")
	metricDropped = metric("dropped_total",
		"Connections that were closed unserved, because they could not be watched or their loop was gone.")
	metricStalls = metric("stalls_total",
		"Times that a handler held its loop, and all connections of it, for more than a second. Modes coroutine and inline.")
	metricMapped   = metric("mapped_bytes", "Bytes of buffers outside Go's heap. Engine uring.")
	metricOverflow = metric("cq_overflow_total",
		"Times that a completion queue was full and the kernel kept completions aside. Engine uring.")
)

// collector reads a server's figures at the moment it is asked.
type collector struct{ s *server.Server }

// Collector gives the server's figures to Prometheus. Every series has the labels engine and mode.
//
// A registry takes one server: another one has the same series, and is refused. Where a process has
// several, give each a label of its own:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"server": "api"}, registry).MustRegister(prom.Collector(s))
func Collector(s *server.Server) prometheus.Collector { return collector{s} }

// Describe implements prometheus.Collector.
func (collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		metricOpen, metricAccepted, metricRequests, metricLatency, metricBytes, metricCalls, metricSubmitted,
		metricReaped, metricStarved, metricDropped, metricStalls, metricMapped, metricOverflow,
	} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (k collector) Collect(c chan<- prometheus.Metric) {
	st := k.s.Stats()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, kind, v, append(labels, string(st.Engine), string(st.Mode))...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		send(d, prometheus.CounterValue, float64(v), labels...)
	}
	send(metricOpen, prometheus.GaugeValue, float64(st.Open))
	counter(metricAccepted, st.Accepted)
	counter(metricRequests, st.Requests)
	n, sum, buckets := k.s.Latency()
	c <- prometheus.MustNewConstHistogram(metricLatency, n, sum, buckets, string(st.Engine), string(st.Mode))
	if st.Engine == server.Std {
		return
	}
	counter(metricBytes, st.In, "in")
	counter(metricBytes, st.Out, "out")
	counter(metricCalls, st.Calls)
	counter(metricDropped, st.Dropped)
	counter(metricStalls, st.Stalls)
	if st.Engine == server.Uring {
		counter(metricSubmitted, st.Submitted)
		counter(metricReaped, st.Completed)
		counter(metricStarved, st.Starved)
		counter(metricOverflow, st.Overflows)
		send(metricMapped, prometheus.GaugeValue, float64(st.Mapped))
	}
}
