package probe

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	metricLatency = prometheus.NewDesc("tallywheel_probe_seconds",
		"Latency seen in the kernel: uring from submission to completion, of a sample, without multishot requests; net from arrival to read; sched from wake-up to running.", []string{"probe", "op"}, nil)
	metricMultishot = prometheus.NewDesc("tallywheel_probe_multishot_seconds",
		"Completions of multishot io_uring requests, of a sample: from when the file became ready to completion.", []string{"op"}, nil)
	metricSegment = prometheus.NewDesc("tallywheel_probe_segment_seconds",
		"Segments of io_uring requests, of a sample: submit to queue, queue to complete, submit to complete, complete to reaped; of multishot ones ready to complete.", []string{"op", "multishot", "segment"}, nil)
	metricSubmitted = prometheus.NewDesc("tallywheel_probe_sqe_total",
		"io_uring requests that the kernel was seen to take.", []string{"op", "multishot"}, nil)
	metricCompleted = prometheus.NewDesc("tallywheel_probe_events_total", "Completions, reads or wake-ups seen.",
		[]string{"probe"}, nil)
)

// Metrics lists the names of the metrics that a probe can have.
func Metrics() []string {
	return []string{
		"tallywheel_probe_seconds", "tallywheel_probe_multishot_seconds", "tallywheel_probe_segment_seconds",
		"tallywheel_probe_sqe_total", "tallywheel_probe_events_total",
	}
}

// Describe implements prometheus.Collector.
func (*Probe) Describe(c chan<- *prometheus.Desc) {
	c <- metricLatency
	c <- metricMultishot
	c <- metricSegment
	c <- metricSubmitted
	c <- metricCompleted
}

// Buckets of the metric: those from 1 µs to 1 s.
const firstBucket, lastBucket = 10, 30

// Collect implements prometheus.Collector.
func (p *Probe) Collect(c chan<- prometheus.Metric) {
	r, err := p.Read()
	if err != nil {
		c <- prometheus.NewInvalidMetric(metricLatency, err)
		return
	}
	c <- prometheus.MustNewConstMetric(metricCompleted, prometheus.CounterValue, float64(r.Completed), string(r.Kind))
	for _, h := range r.Latency {
		multishot := strconv.FormatBool(h.Multishot)
		if h.Multishot {
			c <- h.metric(metricMultishot, h.Op)
		} else {
			c <- h.metric(metricLatency, string(r.Kind), h.Op)
		}
		for _, part := range h.Segments {
			c <- part.metric(metricSegment, h.Op, multishot, part.Name)
		}
		if r.Kind == Uring {
			c <- prometheus.MustNewConstMetric(metricSubmitted, prometheus.CounterValue, float64(h.Submitted), h.Op,
				multishot)
		}
	}
}

// metric is a histogram with the buckets of the metric.
func (h Histogram) metric(d *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := map[float64]uint64{}
	below := uint64(0)
	for i, n := range h.Log2Ns {
		if below += n; i >= firstBucket && i < lastBucket {
			buckets[math.Ldexp(1, i+1)/1e9] = below
		}
	}
	return prometheus.MustNewConstHistogram(d, h.Count, float64(h.SumNs)/1e9, buckets, labels...)
}
