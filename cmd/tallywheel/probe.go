package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/probe"
)

func newProbe() *cobra.Command {
	var o probe.Options
	var length time.Duration
	var listen string
	var asJSON, rings bool
	c := &cobra.Command{
		Use:   "probe uring|net|sched",
		Short: "look into the kernel: latencies of io_uring, of sockets and of the scheduler",
		Long: `Counts in the kernel, by eBPF, and prints histograms:

  uring   io_uring requests from submission to completion, by operation, with --segments in segments; multishot ones, as
          receives that complete with each arrival, from each arrival to its completion; with --rings the rings that a
          process has
  net     sockets, from the arrival of data to its being read
  sched   threads, from being woken to running

It needs root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF. With --listen it serves the histograms to Prometheus meanwhile.`,
		Example: "  tallywheel probe uring --for 10s --pid $(pidof tallywheel)",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if rings {
				if err := idle(c, "is for what is counted, and --rings counts nothing", "segments", "sample", "for",
					"listen"); err != nil {
					return err
				}
				return printRings(c.OutOrStdout(), args[0], o.PID, asJSON)
			}
			p, err := probe.Start(probe.Kind(args[0]), o)
			if err != nil {
				return ofProbe(err)
			}
			defer func() { err = errors.Join(err, p.Close()) }()
			if listen != "" {
				stop, err := serveProbe(p, listen, c.ErrOrStderr())
				if err != nil {
					return err
				}
				defer stop()
			}
			end := time.NewTimer(length)
			defer end.Stop()
			select {
			case <-c.Context().Done():
			case <-end.C:
			case <-p.Ended():
				fmt.Fprintf(c.ErrOrStderr(), "process %d has ended: this is what was seen of it\n", o.PID)
			}
			r, err := p.Read()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(r)
			}
			return printProbe(c.OutOrStdout(), r)
		},
	}
	oneOf(c, probe.Kinds())
	f := c.Flags()
	addSpan(c, &length, "for", 10*time.Second, false, "how long")
	f.IntVar(&o.PID, "pid", 0, "process to look at, until it ends; 0: all")
	f.IntVar(&o.Sample, "sample", 0,
		"take the time of one request (uring) or one socket (net) in so many, a power of two; 0: 64 requests, 16 sockets; sched takes all")
	f.BoolVar(&o.Segments, "segments", false,
		"uring: also how long a request takes until it is put aside, from then until it is complete, and until its program can take it; each system call of the process costs more then")
	f.StringVar(&listen, "listen", "", "serve /metrics at this loopback address meanwhile, as 127.0.0.1:9400")
	f.BoolVar(&rings, "rings", false,
		"uring with --pid: list the rings of the process, their sizes and what they have, and end; it needs no rights but those to look at the process")
	f.BoolVar(&asJSON, "json", false, "print the counts as JSON")
	return c
}

// ofProbe makes options that no probe can have a wrong use.
func ofProbe(err error) error {
	if errors.Is(err, probe.ErrOptions) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}

// printRings lists the rings of a process.
func printRings(out io.Writer, kind string, pid int, asJSON bool) error {
	if probe.Kind(kind) != probe.Uring || pid == 0 {
		return fmt.Errorf("%w: --rings wants probe uring --pid N", errUsage)
	}
	all, err := probe.Rings(pid)
	if err != nil {
		return ofProbe(err)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(out, "process %d has no ring\n", pid)
		return err
	}
	for _, r := range all {
		if _, err := fmt.Fprintln(out, r); err != nil {
			return err
		}
	}
	return nil
}

// serveProbe serves the figures to Prometheus, on loopback only: there is no token.
func serveProbe(p *probe.Probe, addr string, talk io.Writer) (stop func(), err error) {
	if err := checkLoopback(addr, "127.0.0.1:9400"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: probeMetrics(p), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	fmt.Fprintf(talk, "metrics at http://%s/metrics\n", l.Addr())
	return func() { _ = s.Close() }, nil
}

// probeMetrics answers in the form that is asked for: OpenMetrics, else that of Prometheus.
func probeMetrics(p *probe.Probe) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(p)
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return m
}

func printProbe(out io.Writer, r probe.Report) error {
	switch r.Kind {
	case probe.Uring:
		fmt.Fprintf(out, "%d requests submitted, %d completions; times of one request in %d\n", r.Submitted,
			r.Completed, r.Sample)
	case probe.Net:
		fmt.Fprintf(out, "%d reads; times of one socket in %d\n", r.Completed, r.Sample)
	}
	if len(r.Latency) == 0 {
		_, err := fmt.Fprintln(out, "nothing was seen")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	submitted := func(any) string { return "" } // sockets and threads submit nothing
	if r.Kind == probe.Uring {
		submitted = func(n any) string { return fmt.Sprintf("%v\t", n) }
	}
	fmt.Fprintf(w, "operation\t%stimed\tmean\tp50 <\tp99 <\tp99.9 <\t\n", submitted("submitted"))
	for _, h := range r.Latency {
		fmt.Fprintf(w, "%s\t%s%d\t%v\t%v\t%v\t%v\t\n", operation(h), submitted(h.Submitted), h.Count, h.Mean(),
			h.Quantile(0.5), h.Quantile(0.99), h.Quantile(0.999))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printSegments(out, r); err != nil {
		return err
	}
	for _, h := range r.Latency {
		if h.Count == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", operation(h))
		most := uint64(0)
		for _, n := range h.Log2Ns {
			most = max(most, n)
		}
		for i, n := range h.Log2Ns {
			if n > 0 {
				fmt.Fprintf(out, "  %10v  %10d  %s\n", time.Duration(uint64(1)<<i), n,
					strings.Repeat("▇", int(1+39*n/most)))
			}
		}
	}
	return nil
}

// operation names what a histogram is of. Multishot requests are timed from another moment on.
func operation(h probe.Histogram) string {
	if h.Multishot {
		return h.Op + ", multishot"
	}
	return h.Op
}

// printSegments prints the segments of requests, if there are any.
func printSegments(out io.Writer, r probe.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	headed := false
	for _, h := range r.Latency {
		for _, s := range h.Segments {
			if !headed {
				fmt.Fprintf(w, "\noperation\tsegment\ttimed\tmean\tp50 <\tp99 <\n")
				headed = true
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%v\t%v\t%v\n", operation(h), s.Name, s.Count, s.Mean(), s.Quantile(0.5),
				s.Quantile(0.99))
		}
	}
	return w.Flush()
}
