package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/loadgen"
)

func newLoad() *cobra.Command {
	var cfg loadgen.Config
	var headers []string
	var body string
	var asJSON bool
	c := &cobra.Command{
		Use:   "load URL",
		Short: "send HTTP requests and measure the answers",
		Long: `Sends HTTP/1.1 requests. With --rate each request is due at its moment, whatever became of those before, and latency counts from that moment. Without,
every connection sends as soon as it is answered, which finds the most that the server can do and says little about latency.`,
		Example: "  tallywheel load http://127.0.0.1:7411/healthz --rate 5000 --for 30s --pid $(pidof tallywheel)",
		Args:    exactly(1, "a URL"),
		RunE: func(c *cobra.Command, args []string) error {
			cfg.URL, cfg.Header = args[0], http.Header{}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, ":")
				if !ok {
					return fmt.Errorf("%w: --header %q: want Name: value", errUsage, h)
				}
				cfg.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
			}
			cfg.Body = []byte(body)
			if path, ok := strings.CutPrefix(body, "@"); ok {
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				cfg.Body = b
			}
			r, err := loadgen.Run(c.Context(), cfg)
			if errors.Is(err, loadgen.ErrConfig) {
				return fmt.Errorf("%w: %w", errUsage, err)
			} else if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(c.OutOrStdout()).Encode(r)
			} else {
				err = printLoad(c.OutOrStdout(), r)
			}
			if err == nil && r.Requests == 0 {
				err = fmt.Errorf("no request was answered")
			}
			return err
		},
	}
	f := c.Flags()
	f.Float64Var(&cfg.Rate, "rate", 0, "requests a second; 0: as fast as answers come")
	f.IntVarP(&cfg.Connections, "connections", "c", 64, "connections")
	f.IntVar(&cfg.Pipeline, "pipeline", 1, "requests on a connection before the first answer, without --rate")
	addSpan(c, &cfg.Duration, "for", 10*time.Second, false, "how long")
	addSpan(c, &cfg.Warmup, "warmup", 0, true, "before that: sent and not counted")
	addSpan(c, &cfg.Timeout, "timeout", 10*time.Second, false, "for one answer")
	f.IntVar(&cfg.Threads, "threads", 0, "threads that send (default: one for each CPU, at most 4)")
	f.IntVar(&cfg.PID, "pid", 0, "process whose CPU time and memory are sampled each second")
	f.StringVarP(&cfg.Method, "method", "X", "GET", "method")
	f.StringArrayVarP(&headers, "header", "H", nil, "header field, Name: value")
	f.StringVarP(&body, "data", "d", "", "body of every request; @FILE takes it from a file")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

func printLoad(out io.Writer, r *loadgen.Result) error {
	loop := "closed loop"
	if r.Rate > 0 {
		loop = fmt.Sprintf("open loop, %.0f requests a second", r.Rate)
	}
	fmt.Fprintf(out, "%s, %d connections, %s\n", r.URL, r.Connections, loop)
	fmt.Fprintf(out, "%d answered in %.2f s: %.0f a second, %.1f MB received\n", r.Requests, r.Seconds, r.PerSec, float64(r.Bytes)/1e6)
	l := r.LatencyUs
	fmt.Fprintf(out, "latency, µs: mean %.0f, p50 %d, p90 %d, p99 %d, p99.9 %d, max %d\n", l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max)
	if r.AtLeast > 0 {
		fmt.Fprintf(out, "latency is at least that: %d requests were never answered, and count as long as they had waited\n", r.AtLeast)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(out, "%d requests were due and not sent: more connections are needed, or a quicker server\n", r.Unsent)
	}
	kinds := make([]string, 0, len(r.Errors))
	for k, n := range r.Errors {
		kinds = append(kinds, fmt.Sprintf("%s ×%d", k, n))
	}
	slices.Sort(kinds)
	if len(kinds) > 0 {
		fmt.Fprintf(out, "failed: %s\n", strings.Join(kinds, ", "))
	}
	if len(r.Samples) < 2 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "second\trequests\tp99 µs\tserver CPU %\tserver MB\t")
	for _, s := range r.Samples {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.0f\t%.1f\t\n", s.Second, s.Requests, s.P99Us, s.CPUPercent, float64(s.RSSBytes)/1e6)
	}
	return w.Flush()
}
