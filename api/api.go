// Package api shows a running recorder over HTTP: its sheets, ports and records, a stream of
// records and one of its status as server-sent events, metrics for Prometheus, and the page.
//
// It only looks: whatever a client does, and however slowly it reads, the recorder waits for
// nobody, and the log and the sources keep the descriptors that they need. Without a token it
// answers only to names of this machine; with one, whoever asks must show it.
package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/server"
	"github.com/tallywheel/tallywheel/server/prom"
)

//go:embed web
var web embed.FS

// Server is the API and the page of a recorder.
type Server struct {
	rec     *recorder.Recorder
	tls     bool
	http    *server.Server
	metrics http.Handler
	addr    net.Addr
	done    chan error
	ctx     context.Context // of streams: ends with the server
	stop    context.CancelFunc
	seats   seats
	newest  newest
	open    bool // no token is asked for
	token   [sha256.Size]byte
}

// Time-outs of the API.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = time.Minute
	keepAlivePeriod = 15 * time.Second
)

// writeTimeout is for a short answer, and for each part of a long one: a client that takes longer
// is cut. Tests do not wait that long.
var writeTimeout = 30 * time.Second

// Listen binds the address of an API.
func Listen(c config.API) (net.Listener, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	return l, nil
}

// Serve begins to serve the API of a recorder as its configuration says. log is told of what the
// server does.
func Serve(rec *recorder.Recorder, log *slog.Logger) (*Server, error) {
	l, err := Listen(rec.Config().API)
	if err != nil {
		return nil, err
	}
	return ServeOn(rec, l, log)
}

// ServeOn is Serve on a listener, which it closes.
func ServeOn(rec *recorder.Recorder, l net.Listener, log *slog.Logger) (*Server, error) {
	all := rec.Config()
	c := all.API
	s := &Server{
		rec: rec, tls: c.TLS.Cert != "", addr: l.Addr(), done: make(chan error, 1), open: c.Token == "",
		token: sha256.Sum256([]byte(c.Token)),
		seats: seatsFor(rec),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	cfg := server.Config{
		Handler: s.guard(s.routes()), MaxConns: s.seats.conns,
		ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		Engine: server.Engine(all.Server.Engine), Loops: all.Server.Loops, Log: log,
		Headroom: -1, // memory is the recorder's
	}
	if s.tls {
		cert, _, err := c.TLS.Load()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("api: %w", err), l.Close())
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	var err error
	if s.http, err = server.New(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("api: %w", err), l.Close())
	}
	s.metrics = metrics(rec, prom.Collector(s.http))
	go func() { s.done <- s.http.Serve(l) }()
	go s.makeRoom(waitingAt(l))
	return s, nil
}

// URL is where the page is.
func (s *Server) URL() string {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	return scheme + "://" + s.addr.String() + "/"
}

// Err brings the error that ended the serving.
func (s *Server) Err() <-chan error { return s.done }

// Close ends streams and requests. Those have two seconds to end by themselves.
func (s *Server) Close() error { return s.CloseWithin(2 * time.Second) }

// CloseWithin is Close that waits for no longer than that.
func (s *Server) CloseWithin(d time.Duration) error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

// ackPath is where a request may have a body.
const ackPath = "/api/v1/ack"

// routes serves what there is. What there is not, and what is asked for by another method, is an
// error in JSON as any other. What is under /api refuses parameters that it does not know; the
// rest, which probes and scrapers ask for, passes over theirs.
func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	for _, r := range []struct {
		method, path string
		handler      http.HandlerFunc
	}{
		{http.MethodGet, "/healthz", s.health},
		{http.MethodGet, "/api/v1/sheet", bare(s.sheet)},
		{http.MethodGet, "/api/v1/ports", bare(s.ports)},
		{http.MethodGet, "/api/v1/status", bare(s.status)},
		{http.MethodGet, "/api/v1/losses", s.losses},
		{http.MethodGet, "/api/v1/starts", s.starts},
		{http.MethodPost, ackPath, s.withBody(bare(s.ack))},
		{http.MethodGet, "/api/v1/records", s.records},
		{http.MethodGet, "/api/v1/stream", s.endless(s.seats.streams, s.stream)},
		{http.MethodGet, "/api/v1/events", bare(s.endless(s.seats.watches, s.events))},
		{http.MethodGet, "/metrics", func(w http.ResponseWriter, r *http.Request) { s.metrics.ServeHTTP(w, r) }},
		{http.MethodGet, "/", page()},
	} {
		m.HandleFunc(r.path, only(r.method, r.handler))
	}
	for _, path := range []string{"/api", "/api/"} {
		m.HandleFunc(path, none)
	}
	return m
}

// none says that there is nothing at a path.
func none(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, fmt.Sprintf("there is no %s; docs/guide/api.md lists what there is", r.URL.Path))
}

// only refuses requests by another method than the one. Who may GET may ask for the HEAD.
func only(method string, next http.HandlerFunc) http.HandlerFunc {
	allowed := []string{method}
	if method == http.MethodGet {
		allowed = append(allowed, http.MethodHead)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(allowed, r.Method) {
			leaveBody(w, r)
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			fail(w, http.StatusMethodNotAllowed,
				fmt.Sprintf("%s %s: want %s", r.Method, r.URL.Path, strings.Join(allowed, " or ")))
			return
		}
		next(w, r)
	}
}

// page serves the page and its files.
func page() http.HandlerFunc {
	files, _ := fs.Sub(web, "web") // the folder is there: it is embedded
	all := http.FileServerFS(files)
	return func(w http.ResponseWriter, r *http.Request) {
		name := cmp.Or(strings.Trim(path.Clean(r.URL.Path), "/"), ".")
		// also of a path that is no UTF-8
		if _, err := fs.Stat(files, name); err != nil || name == "." && r.URL.Path != "/" {
			none(w, r)
			return
		}
		all.ServeHTTP(w, r)
	}
}

// endless is for answers that end only with the client or the server, and take one of the places.
func (s *Server) endless(p places, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // it would have no end, and nothing to show
			w.Header().Set("Content-Type", "text/event-stream")
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		select {
		case p <- struct{}{}:
			defer p.leave()
		default:
			busy(w, "too many event streams are open")
			return
		}
		next(w, r.WithContext(ctx))
	}
}

// bare is for what takes no parameters: one that is misspelt, or meant for something else, must not
// be passed over in silence.
func bare(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			fail(w, http.StatusBadRequest, fmt.Sprintf("%q: no parameters are known here", r.URL.RawQuery))
			return
		}
		next(w, r)
	}
}

// ownPages refuses requests that change something, made by a page that is not of the Host they are
// sent to: by Sec-Fetch-Site, or by Origin, which older browsers send, too. Programs that are no
// browser send neither.
var ownPages = http.NewCrossOriginProtection()

// guard asks for the token, and refuses requests that a page of another site makes in a visitor's
// browser.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		if s.crowded() {
			h.Set("Connection", "close")
		}
		if r.URL.Path != ackPath {
			leaveBody(w, r)
		}
		refuse := func(code int, text string) {
			leaveBody(w, r)
			fail(w, code, text)
		}
		site := r.Header.Get("Sec-Fetch-Site")
		if site == "cross-site" && r.URL.Path != "/" || ownPages.Check(r) != nil {
			refuse(http.StatusForbidden, "requests from other sites are refused")
			return
		}
		if s.open {
			host, _, err := net.SplitHostPort(r.Host)
			if err != nil { // no port
				host = strings.Trim(r.Host, "[]")
			}
			// a foreign name may point to loopback; who sends none, as HTTP/1.0, is no browser
			if r.Host != "" && !config.Loopback(host) {
				refuse(http.StatusForbidden,
					"this name is not of this machine: ask by 127.0.0.1 or localhost, or set api.token, with which any name will do")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") { // a browser asks for a name and a password: the password is the token
			_, token, _ = r.BasicAuth()
		}
		sum := sha256.Sum256([]byte(token))
		if r.URL.Path != "/healthz" && subtle.ConstantTimeCompare(sum[:], s.token[:]) != 1 {
			h.Set("WWW-Authenticate", `Basic realm="tallywheel"`)
			refuse(http.StatusUnauthorized, "want the token as Authorization: Bearer, or as the password")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func fail(w http.ResponseWriter, code int, text string) {
	head(w)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}

func answer(w http.ResponseWriter, v any) {
	head(w)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// head begins an answer in JSON.
func head(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
}

// health is 503 while the verdict is bad, else 200. It asks for no token, so it tells no more.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	v := s.rec.Sheet().Verdict
	if v.Level == ledger.Bad {
		fail(w, http.StatusServiceUnavailable, "the verdict is bad: /api/v1/status says why")
		return
	}
	answer(w, struct {
		Status string       `json:"status"`
		Level  ledger.Level `json:"level"`
	}{"ok", v.Level})
}

func (s *Server) sheet(w http.ResponseWriter, _ *http.Request) { answer(w, s.rec.Sheet()) }

func (s *Server) ports(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"ports": s.rec.Ports()})
}

// Status is the sheet with what the page shows beside it.
type Status struct {
	Verdict  string          `json:"verdict"` // one sentence
	Level    ledger.Level    `json:"level"`
	Good     bool            `json:"good"` // level is good
	LostWire ledger.Amount   `json:"lost_wire"`
	LostHere ledger.Amount   `json:"lost_here"`
	Damaged  ledger.Amount   `json:"damaged"`
	LastLoss ledger.Time     `json:"last_loss"` // null: nothing was lost or damaged
	Unknown  []string        `json:"unknown"`   // sources that cannot prove absence
	Reasons  []ledger.Reason `json:"reasons"`   // why it is not good, the worst first
	Since    ledger.Time     `json:"since"`     // what was before does not count
	Ack      *ledger.Ack     `json:"ack"`       // … because somebody said so; null: nobody has
	Past     *ledger.Past    `json:"past"`      // what earlier starts have lost since; null: nothing
	Sheet    ledger.Sheet    `json:"sheet"`
	Sample   recorder.Sample `json:"sample"`

	Processes []isolate.Process `json:"processes"` // who reads and records
}

func (s *Server) now() Status {
	sheet := s.rec.Sheet()
	sample, ok := s.rec.LastSample()
	if !ok { // in the first second the log is known, and no rate
		sample.Log = s.rec.LogNow()
	}
	v := sheet.Verdict
	status := Status{
		v.Text, v.Level, v.Level == ledger.Good, v.LostWire, v.LostHere, v.Damaged, v.LastLoss, v.Unknown, v.Reasons,
		v.Since, sheet.Ack, sheet.Past, sheet, sample, s.rec.Processes(),
	}
	status.Sheet.Verdict, status.Sheet.Ack, status.Sheet.Past = nil, nil, nil // they are beside it
	return status
}

// status is written sample by sample: of many ports the history is large.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	samples := s.rec.Samples()
	b, err := json.Marshal(s.now())
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	head(w)
	out := patiently(w)
	between := `,"history":[`
	_, err = out.Write(b[:len(b)-1])
	for _, sample := range samples {
		if err == nil {
			_, err = io.WriteString(out, between)
		}
		if err == nil {
			err = json.NewEncoder(out).Encode(sample)
		}
		between = ","
	}
	if err != nil {
		return // the client is gone
	}
	if len(samples) == 0 {
		_, _ = io.WriteString(out, between)
	}
	_, _ = io.WriteString(out, "]}\n")
}
