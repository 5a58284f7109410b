package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallywheel/tallywheel/loadgen"
)

// loadFlags is what `load` is asked for.
type loadFlags struct {
	cfg      loadgen.Config
	headers  []string
	body     string
	insecure bool
	asJSON   bool
	format   loadFormat
	hold     time.Duration
	spread   int
}

func newLoad() *cobra.Command {
	var l loadFlags
	c := &cobra.Command{
		Use:   "load URL [URL...]",
		Short: "send HTTP requests and measure the answers",
		Long: `Sends HTTP/1.1 requests. With --rate each request is due at its moment, whatever became of those before, and latency counts from that moment. Without,
every connection sends as soon as it is answered, which finds the most that the server can do and says little about latency.
Several URLs of one server are asked in turn by each connection. With --think every connection is a user, who waits before each request.
With --hold up to millions of connections stay open, and each sends a request every so often; they share the addresses from that of the URL upward.
All answers must have status 200 then, and one length.`,
		Example: `  tallywheel load http://127.0.0.1:7411/healthz --rate 5000 --for 30s --pid $(pidof tallywheel)
  tallywheel load http://127.0.0.1:8080/ http://127.0.0.1:8080/product/123 -c 100 --think 1s-3s --warmup 5s --for 30s
  tallywheel load http://127.1.0.1:8080/ --hold 1m --spread 50 -c 100000 --for 1m`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%w: load: want a URL", errUsage)
			}
			return nil
		},
		RunE: l.run,
	}
	f, cfg := c.Flags(), &l.cfg
	f.Float64Var(&cfg.Rate, "rate", 0, "requests a second; 0: as fast as answers come")
	f.IntVarP(&cfg.Connections, "connections", "c", 64, "connections")
	f.IntVar(&cfg.Pipeline, "pipeline", 1, "requests on a connection before the first answer, without --rate")
	addSpan(c, &cfg.Duration, "for", 10*time.Second, false, "how long")
	addSpan(c, &cfg.Warmup, "warmup", 0, true, "before that: sent and not counted")
	addSpan(c, &cfg.Timeout, "timeout", 10*time.Second, false,
		"for one answer, and for a connection; when the time is over, answers are waited for until nothing comes for a second")
	f.Var(&parsed{kind: "duration", read: func(s string) (err error) {
		cfg.ThinkMin, cfg.ThinkMax, err = parseThink(s)
		return err
	}}, "think",
		"each connection is a user, who thinks so long before each request: 2s, or 1s-3s for any time between them; without --rate")
	addSpan(c, &l.hold, "hold", 0, true, "open all connections, and have each send a request that often")
	f.IntVar(&l.spread, "spread", 1, "with --hold: addresses that share the connections, some 2,000 each")
	f.BoolVar(&cfg.Close, "close", false, "a connection for each request, which the server is asked to close")
	f.IntVar(&cfg.Threads, "threads", 0,
		"threads that send, no more than connections (default: one for each CPU, at most 4)")
	f.BoolVar(&cfg.RealTime, "realtime", false,
		"threads that send run before all others (SCHED_FIFO), on a machine with a CPU to spare: latencies have less of its own delays")
	f.IntVar(&cfg.PID, "pid", 0, "process whose CPU time and memory are sampled each second")
	f.StringVarP(&cfg.Method, "method", "X", "GET", "method")
	f.StringArrayVarP(&l.headers, "header", "H", nil, "header field, Name: value")
	f.StringVarP(&l.body, "data", "d", "", "body of every request; @FILE takes it from a file, of 64 MiB at most")
	f.BoolVarP(&l.insecure, "insecure", "k", false, "https: take any certificate")
	addWord(c, &l.format, "format", loadText, []loadFormat{loadText, loadWrk, loadOha, loadK6, loadJSON},
		"how the result is printed, some as the program of that name does")
	f.BoolVar(&l.asJSON, "json", false, "print the result as JSON: --format json")
	c.MarkFlagsMutuallyExclusive("format", "json")
	completeLoad(c)
	return c
}

// maxBody bounds the body of a request that is taken from a file: each connection sends all of it.
const maxBody = 64 << 20

func bodyOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = fmt.Errorf("load: %s has more than %d MiB: a body that large is not sent", path, maxBody>>20)
	}
	return b, err
}

// completeLoad has the shell offer files only where one can stand.
func completeLoad(c *cobra.Command) {
	c.ValidArgsFunction = cobra.NoFileCompletions
	methods := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions,
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch f.Name {
		case "format", "data": // one has its words; the other may be a file
			return
		case "method":
			complete = cobra.FixedCompletions(methods, cobra.ShellCompDirectiveNoFileComp)
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // the flag is there, and has none yet
		}
	})
}

func (l *loadFlags) run(c *cobra.Command, urls []string) error {
	cfg := &l.cfg
	if l.asJSON {
		l.format = loadJSON
	}
	if l.hold > 0 {
		return l.runHold(c, urls)
	}
	if err := idle(c, "is for --hold", "spread"); err != nil {
		return err
	}
	if cfg.Connections == 0 || cfg.Pipeline == 0 {
		return fmt.Errorf("%w: load: 0 connections, or nothing pipelined: want 1 or more", errUsage)
	}
	cfg.Header = http.Header{}
	for _, h := range l.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return fmt.Errorf("%w: --header %q: want Name: value", errUsage, h)
		}
		cfg.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	cfg.Body = []byte(l.body)
	if path, ok := strings.CutPrefix(l.body, "@"); ok {
		b, err := bodyOf(path)
		if err != nil {
			return err
		}
		cfg.Body = b
	}
	if err := setURLs(cfg, urls); err != nil {
		return err
	}
	if l.insecure {
		if !strings.HasPrefix(strings.ToLower(cfg.URL), "https:") {
			return idle(c, "is of https", "insecure")
		}
		cfg.TLS = &tls.Config{InsecureSkipVerify: true} // the user has said so
	}
	r, err := loadgen.Run(c.Context(), *cfg)
	if errors.Is(err, loadgen.ErrConfig) {
		return fmt.Errorf("%w: %w", errUsage, err)
	} else if err != nil {
		return err
	}
	err = loadFormats[l.format](c.OutOrStdout(), r)
	switch {
	case err != nil:
	case r.Requests+r.Late == 0 && len(r.Statuses) > 0:
		err = errors.New("no request had a good answer: every status was 400 or above")
	case r.Requests+r.Late == 0 && r.Errors[loadgen.NotClosed] > 0:
		err = errors.New("the server closes no connection behind its answer, which counts with --close once it has")
	case r.Requests+r.Late == 0:
		err = errors.New("no request was answered")
	case r.Down == r.Connections:
		err = errors.New("the server has gone: no connection could be made again")
	}
	return err
}

// loadFormat is how a result is printed.
type loadFormat string

// Formats of a result.
const (
	loadText loadFormat = "text"
	loadWrk  loadFormat = "wrk"
	loadOha  loadFormat = "oha"
	loadK6   loadFormat = "k6"
	loadJSON loadFormat = "json"
)

var loadFormats = map[loadFormat]func(io.Writer, *loadgen.Result) error{
	loadText: printLoad,
	loadWrk:  func(w io.Writer, r *loadgen.Result) error { return r.WriteWrk(w) },
	loadOha:  func(w io.Writer, r *loadgen.Result) error { return r.WriteOha(w) },
	loadK6:   func(w io.Writer, r *loadgen.Result) error { return r.WriteK6(w) },
	loadJSON: func(w io.Writer, r *loadgen.Result) error { return json.NewEncoder(w).Encode(r) },
}

// setURLs makes an exchange of each URL if there are several, which must be of one server.
func setURLs(cfg *loadgen.Config, urls []string) error {
	cfg.URL = urls[0]
	if len(urls) == 1 {
		return nil
	}
	var first *url.URL
	for _, s := range urls {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "":
			return fmt.Errorf("%w: load: %q: want http://host:port/path, or https://", errUsage, s)
		case u.User != nil:
			return fmt.Errorf("%w: %s: a user in the URL is not sent: want a header Authorization", errUsage,
				u.Redacted())
		case first == nil:
			first = u
		case u.Scheme != first.Scheme || u.Host != first.Host:
			return fmt.Errorf("%w: %s and %s are not of one server", errUsage, first, u)
		}
		cfg.Exchanges = append(cfg.Exchanges, loadgen.Exchange{Path: u.RequestURI(), Body: cfg.Body})
	}
	cfg.Body = nil
	return nil
}

// parseThink reads 2s, or 1s-3s.
func parseThink(s string) (least, most time.Duration, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	least, err = time.ParseDuration(from)
	if err == nil {
		most, err = time.ParseDuration(to)
	}
	if err != nil || least < 0 || most < least || most == 0 {
		return 0, 0, errors.New("want a time above 0, as 2s, or two, as 1s-3s")
	}
	return least, most, nil
}

func printLoad(out io.Writer, r *loadgen.Result) error {
	loop := "closed loop"
	if r.Rate > 0 {
		loop = fmt.Sprintf("open loop, %s requests a second", strconv.FormatFloat(r.Rate, 'f', -1, 64))
	}
	urls := r.URL
	for i, path := range r.Paths {
		if i > 0 {
			urls += ", " + path
		}
	}
	fmt.Fprintf(out, "%s, %s, %s\n", urls, several(r.Connections, "connection"), loop)
	fmt.Fprintf(out, "%d answered in %.2f s: %.0f a second, %.1f MB received\n", r.Requests, r.Seconds, r.PerSec,
		float64(r.Bytes)/1e6)
	if r.Late > 0 {
		fmt.Fprintf(out, "%d more answered by %.2f s, when the time was over: in the latency, not in the rate\n", r.Late,
			r.Drained)
	}
	if r.Made > 0 {
		fmt.Fprintf(out, "%s made meanwhile\n", several(r.Made, "connection"))
	}
	l := r.LatencyUs
	fmt.Fprintf(out, "latency, µs: mean %.0f, p50 %d, p90 %d, p99 %d, p99.9 %d, max %d\n", l.Mean, l.P50, l.P90, l.P99,
		l.P999, l.Max)
	if r.AtLeast > 0 {
		fmt.Fprintf(out,
			"latency is at least that: %s had no good answer; each counts as long as it had waited\n",
			several(r.AtLeast, "request"))
	}
	if r.Unsent > 0 {
		fmt.Fprintf(out, "due and not sent: %s; more connections are needed, or a quicker server\n",
			several(r.Unsent, "request"))
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
	sampled := slices.ContainsFunc(r.Samples, func(s loadgen.Sample) bool { return s.RSSBytes > 0 })
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "second\trequests\tp99 µs\t")
	if sampled {
		fmt.Fprint(w, "server CPU %\tserver MB\t")
	}
	for _, s := range r.Samples {
		fmt.Fprintf(w, "\n%d\t%d\t%d\t", s.Second, s.Requests, s.P99Us)
		switch {
		case s.RSSBytes > 0:
			fmt.Fprintf(w, "%.0f\t%.1f\t", s.CPUPercent, float64(s.RSSBytes)/1e6)
		case sampled:
			fmt.Fprint(w, "-\t-\t")
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}
