package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/prefork"
	"github.com/tallywheel/tallywheel/server"
)

const (
	defaultListen = "127.0.0.1:8080"
	defaultAdmin  = "127.0.0.1:7481"
)

// serving is what tallywheel serve is told.
type serving struct {
	prefork.Config
	engine server.Engine
	mode   server.Mode
	admin  string
	pauses chan pause // of administer
}

// pause is asked of administer: to answer who has asked, and no more until it is over. It closes
// quiet then, and on when it goes on.
type pause struct{ quiet, over, on chan struct{} }

func newServe() *cobra.Command {
	var s serving
	var listen string
	c := &cobra.Command{
		Use:   "serve DIR|echo|json",
		Short: "serve files, an echo or JSON by several processes on one port",
		Long: `Serves the files of a folder, the body of each request, or a line of JSON, by workers that share a port. SIGUSR2 or "serve upgrade" has new workers of
the program that lies here now take over, and the master become that program, SIGHUP restarts the workers one by one, SIGTERM drains them: no request is lost by any of these. "serve status"
shows a row for each worker. A folder named status or upgrade is ./status, ./upgrade.`,
		Example: "  tallywheel serve --listen 127.0.0.1:8080 --workers 2 /srv/www",
		Args:    exactly(1, "a folder, echo or json"),
		RunE: func(c *cobra.Command, args []string) error {
			s.Listen = []string{listen}
			return s.run(c.Context(), args[0])
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", defaultListen, "loopback address; a proxy before it can serve others")
	f.IntVar(&s.Workers, "workers", 0, "processes; 0: one for each CPU")
	addWord(c, &s.engine, "engine", server.Auto, []server.Engine{server.Auto, server.Uring, server.Epoll, server.Std},
		"what carries the connections")
	addWord(c, &s.mode, "mode", server.Goroutine, []server.Mode{server.Goroutine, server.Coroutine},
		"how a request is worked on")
	f.IntVar(&s.InFlight, "in-flight", 0, "requests that a worker works on at a time; 0: no limit")
	f.IntVar(&s.Queue, "queue", 0, "requests of a worker that wait beyond these; others get 503")
	f.StringVar(&s.admin, "admin", defaultAdmin, "loopback address of the master's status, metrics and upgrade; or off")
	c.AddCommand(newServeStatus(), newServeUpgrade())
	return c
}

// run is the master, and in each worker the worker: prefork tells them apart.
func (s *serving) run(ctx context.Context, what string) error {
	err := checkLoopback(s.Listen[0], defaultListen)
	if err == nil && s.admin != "off" {
		err = checkLoopback(s.admin, defaultAdmin)
	}
	if err == nil && s.admin == s.Listen[0] && !strings.HasSuffix(s.admin, ":0") {
		err = fmt.Errorf("%w: --admin and --listen are both %s: give one another address, or --admin off", errUsage, s.admin)
	}
	if err == nil && s.engine == server.Std && s.mode == server.Coroutine {
		err = fmt.Errorf("%w: --mode coroutine needs --engine uring or epoll: std has a goroutine for each connection", errUsage)
	}
	if err != nil {
		return err
	}
	content, err := contentOf(what)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// the status is told until the last worker has ended
	open, shut := context.WithCancel(context.WithoutCancel(ctx))
	defer shut()
	if s.admin != "off" {
		s.MasterListen, s.pauses = []string{s.admin}, make(chan pause)
		s.Renewing = func() func() { return s.pause(open) }
	}
	master := make(chan *prefork.Master, 1)
	s.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s.Started = func(m *prefork.Master) {
		if unhear(ctx) { // from here on the master alone hears what ends it, and knows whether it has
			cancel()
		}
		master <- m
	}
	failed := make(chan error, 1)
	go func() {
		select {
		case m := <-master:
			failed <- s.administer(open, m)
			shut()
			cancel()
		case <-open.Done():
			failed <- nil
		}
	}()
	err = prefork.Run(ctx, s.Config, func(w *prefork.Worker) error {
		srv, err := server.New(server.Config{
			Engine: s.engine, Mode: s.mode, Handler: w.Handler(content(w.Slot())), Loops: 1,
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		})
		if err != nil {
			return err
		}
		return w.Serve(srv)
	})
	shut()
	switch {
	case errors.Is(err, prefork.ErrConfig):
		err = fmt.Errorf("%w: %w", errUsage, err)
	case errors.Is(err, prefork.ErrMasterListen):
		err = fmt.Errorf("%w; --admin chooses another address, or off", err)
	}
	return errors.Join(err, <-failed)
}

// contentOf is what the worker of a slot answers.
func contentOf(what string) (func(slot int) http.Handler, error) {
	switch what {
	case "echo":
		return func(int) http.Handler { return http.HandlerFunc(echo) }, nil
	case "json":
		return func(slot int) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answerJSON(w, r, slot) })
		}, nil
	}
	root, err := os.OpenRoot(what) // no name and no link leads out of it
	if err != nil {
		if !errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%w; want a folder, echo or json", err)
		}
		return nil, err
	}
	files := http.FileServerFS(served{root})
	return func(int) http.Handler { return files }, nil
}

// served is what of a folder is given: files and folders. What waits for somebody else when it is
// opened or read, as a FIFO, would keep its request for ever.
type served struct{ root *os.Root }

func (s served) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errno := syscall.Errno(0); !errors.As(err, &errno) { // not the kernel's: it leads out of the folder
			err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
		}
		return nil, err
	}
	is, err := f.Stat()
	if err == nil && !is.Mode().IsRegular() && !is.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	if t := r.Header.Get("Content-Type"); t != "" {
		w.Header().Set("Content-Type", t)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
	}
	// HTTP/1: what is answered must not end what is still to come
	_ = http.NewResponseController(w).EnableFullDuplex()
	_, _ = io.Copy(w, r.Body) // who sends it hears of its own errors
}

func answerJSON(w http.ResponseWriter, r *http.Request, slot int) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"path": r.URL.Path, "worker": slot, "pid": os.Getpid()})
}

// pause has administer pause, until goOn is called.
func (s *serving) pause(ctx context.Context) (goOn func()) {
	p := pause{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	select {
	case s.pauses <- p:
	case <-ctx.Done():
		return nil
	}
	<-p.quiet
	return func() {
		close(p.over)
		<-p.on // before the master can end, and close its sockets
	}
}

// administer serves the master's figures until ctx ends.
func (s *serving) administer(ctx context.Context, m *prefork.Master) error {
	s.Log.Info("serving", "addresses", strings.Join(m.Addresses(), " "), "workers", len(m.Status()))
	if s.admin == "off" {
		<-ctx.Done()
		return nil
	}
	own, err := m.Listeners()
	for err == nil {
		s.Log.Info("status, metrics and upgrade", "url", "http://"+own[0].Addr().String())
		desk := openDesk(own[0], adminHandler(m, s.Log))
		select {
		case err := <-desk.ended:
			return err
		case <-ctx.Done():
			desk.close()
			return nil
		case p := <-s.pauses:
			desk.close()
			close(p.quiet)
			<-p.over
			own, err = m.Listeners()
			close(p.on)
		}
	}
	return err
}

// adminHandler answers only who names this machine (a foreign name may point to it), and no page of
// another site.
func adminHandler(m *prefork.Master, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(statusOf(m, time.Now()))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		writeServeMetrics(w, statusOf(m, time.Now()))
	})
	change := func(what string, f func(context.Context) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := f(context.WithoutCancel(r.Context()))
			if errors.Is(err, prefork.ErrRenewing) {
				w.Header().Set("Retry-After", "1")
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			if err != nil {
				log.Error(what+" failed", "error", err)
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
			log.Info(what + " done")
			_, _ = io.WriteString(w, "done\n")
		}
	}
	mux.HandleFunc("POST /upgrade", change("upgrade", func(ctx context.Context) error {
		err := m.Upgrade(ctx)
		if err == nil { // it pauses this server, which answers before; it comes back with an error only
			go func() { log.Error("renewal of the master failed", "error", m.Renew(ctx)) }()
		}
		return err
	}))
	mux.HandleFunc("POST /restart", change("restart", m.Restart))
	own := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !config.Loopback(host) {
			http.Error(w, "this name is not of this machine", http.StatusForbidden)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// workerRow is a slot in the status. Counts are of all workers that the slot has had.
type workerRow struct {
	Worker      int     `json:"worker"`
	PID         int     `json:"pid"` // 0: none; its connections wait, or are taken by another
	UpSeconds   float64 `json:"up_seconds"`
	Restarts    int     `json:"restarts"` // that nobody asked for
	Answered    uint64  `json:"answered"`
	Refused     uint64  `json:"refused"`
	InFlight    int64   `json:"in_flight"`
	Waiting     int64   `json:"waiting"`
	Connections int64   `json:"connections"`
	CPUSeconds  float64 `json:"cpu_seconds"` // of the process that serves now
	RSSBytes    int64   `json:"rss_bytes"`
}

func statusOf(m *prefork.Master, now time.Time) []workerRow {
	all := m.Status()
	rows := make([]workerRow, len(all))
	for i, st := range all {
		rows[i] = workerRow{
			Worker: st.Slot, PID: st.PID, Restarts: st.Restarts, Answered: st.Answered, Refused: st.Refused,
			InFlight: st.InFlight, Waiting: st.Waiting, Connections: st.Opened,
			CPUSeconds: st.CPU.Seconds(), RSSBytes: st.Resident,
		}
		if st.PID != 0 {
			rows[i].UpSeconds = now.Sub(st.Since).Seconds()
		}
	}
	return rows
}

// writeServeMetrics writes the text format of Prometheus. A figure stands once, for each worker;
// the sum over workers is the scraper's.
func writeServeMetrics(w io.Writer, rows []workerRow) {
	for _, k := range []struct {
		name, kind, help string
		value            func(workerRow) float64
	}{
		{"requests_total", "counter", "Requests answered.", func(r workerRow) float64 { return float64(r.Answered) }},
		{
			"refused_total", "counter", "Requests refused with 503.",
			func(r workerRow) float64 { return float64(r.Refused) },
		},
		{
			"restarts_total", "counter", "Workers started again after an end that nobody asked for.",
			func(r workerRow) float64 { return float64(r.Restarts) },
		},
		{
			"in_flight", "gauge", "Requests that are worked on.",
			func(r workerRow) float64 { return float64(r.InFlight) },
		},
		{
			"waiting", "gauge", "Requests that wait for a place.",
			func(r workerRow) float64 { return float64(r.Waiting) },
		},
		{
			"connections", "gauge", "Connections that are open.",
			func(r workerRow) float64 { return float64(r.Connections) },
		},
		{"up", "gauge", "1 if a worker serves the slot.", func(r workerRow) float64 { return float64(min(r.PID, 1)) }},
		{"resident_bytes", "gauge", "Memory of the worker.", func(r workerRow) float64 { return float64(r.RSSBytes) }},
	} {
		fmt.Fprintf(w, "# HELP tallywheel_serve_%s %s\n# TYPE tallywheel_serve_%s %s\n", k.name, k.help, k.name, k.kind)
		for _, r := range rows {
			fmt.Fprintf(w, "tallywheel_serve_%s{worker=\"%d\"} %g\n", k.name, r.Worker, k.value(r))
		}
	}
}

func newServeStatus() *cobra.Command {
	var admin string
	var once, asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "show the workers of a running serve, a row each, once a second",
		Args:  exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for last := []workerRow(nil); ; {
				rows, err := askStatus(c.Context(), admin)
				if err != nil {
					return err
				}
				if asJSON {
					err = json.NewEncoder(c.OutOrStdout()).Encode(rows)
				} else {
					err = printWorkers(c.OutOrStdout(), rows, last)
				}
				if err != nil || once {
					return err
				}
				last = rows
				select {
				case <-c.Context().Done():
					return nil
				case <-tick.C:
				}
			}
		},
	}
	f := c.Flags()
	f.StringVar(&admin, "admin", defaultAdmin, "the master's address")
	f.BoolVar(&once, "once", false, "show it once")
	f.BoolVar(&asJSON, "json", false, "a line of JSON each time")
	return c
}

// errUnderWay is in the error of askMaster while the master becomes another program.
var errUnderWay = errors.New("not now")

// upgradeTries is how often an upgrade is asked for again, a second later, while another one is
// under way.
const upgradeTries = 10

func newServeUpgrade() *cobra.Command {
	var admin string
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "have a running serve become the program that lies there now: new workers, then the master",
		Args:  exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := askMaster(c.Context(), http.MethodPost, admin, "/upgrade")
			for tries := 0; errors.Is(err, errUnderWay) && tries < upgradeTries; tries++ {
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case <-time.After(time.Second):
				}
				_, err = askMaster(c.Context(), http.MethodPost, admin, "/upgrade")
			}
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), "upgraded")
			}
			return err
		},
	}
	c.Flags().StringVar(&admin, "admin", defaultAdmin, "the master's address")
	return c
}

func askStatus(ctx context.Context, admin string) (rows []workerRow, err error) {
	b, err := askMaster(ctx, http.MethodGet, admin, "/status")
	if err == nil {
		err = json.Unmarshal(b, &rows)
	}
	return rows, err
}

// askMaster sends a request to a master. An upgrade may take as long as the workers need.
func askMaster(ctx context.Context, method, admin, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+admin+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: --admin %q: %w", errUsage, admin, err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w; is \"tallywheel serve --admin %s\" running?", err, admin)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(b)))
	}
	if answer.StatusCode == http.StatusServiceUnavailable {
		err = fmt.Errorf("%w: %w", errUnderWay, err)
	}
	return b, err
}

// printWorkers prints a table; last is what was printed a second ago, for the rates.
func printWorkers(out io.Writer, rows, last []workerRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w,
		"worker\tpid\tup\trestarts\tanswered\t/s\trefused\tin flight\twaiting\tconnections\tCPU %\tRSS MiB\t")
	for i, r := range rows {
		rate, cpu := "", ""
		if i < len(last) && r.PID == last[i].PID && r.UpSeconds > last[i].UpSeconds {
			d := r.UpSeconds - last[i].UpSeconds
			rate = fmt.Sprintf("%.0f", float64(r.Answered-last[i].Answered)/d)
			cpu = fmt.Sprintf("%.0f", 100*(r.CPUSeconds-last[i].CPUSeconds)/d)
		}
		up := (time.Duration(r.UpSeconds) * time.Second).String()
		if r.PID == 0 {
			up = "gone"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%s\t%.1f\t\n",
			r.Worker, r.PID, up, r.Restarts, r.Answered, rate, r.Refused, r.InFlight, r.Waiting, r.Connections, cpu,
			float64(r.RSSBytes)/(1<<20))
	}
	return w.Flush()
}
