package gateway

import (
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
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/server"
)

//go:embed web
var web embed.FS

// Server is the API and the page of a gateway.
type Server struct {
	g       *Gateway
	http    *server.Server
	metrics http.Handler
	addr    net.Addr
	done    chan error
	ctx     context.Context // of streams: ends with the server
	stop    context.CancelFunc
	token   [sha256.Size]byte
}

// Limits of the API.
const (
	maxPage         = 10_000
	defaultPage     = 100
	maxConns        = 4096
	headerTimeout   = 10 * time.Second
	keepAlivePeriod = 15 * time.Second
	writeTimeout    = 30 * time.Second // for one event of a stream: a client that takes longer is gone
)

// Serve begins to serve the API of g as its configuration says.
func (g *Gateway) Serve() (*Server, error) {
	c := g.cfg.API
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	s := &Server{g: g, addr: l.Addr(), done: make(chan error, 1), token: sha256.Sum256([]byte(c.Token))}
	s.ctx, s.stop = context.WithCancel(context.Background())
	cfg := server.Config{
		Handler: s.guard(s.routes()), ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute, MaxConns: maxConns,
		Engine: server.Engine(g.cfg.Server.Engine), Loops: g.cfg.Server.Loops, Log: g.slog,
	}
	if c.TLS.Cert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("api: %w", err), l.Close())
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if s.http, err = server.New(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("api: %w", err), l.Close())
	}
	s.metrics = g.metrics(s.http.Collector())
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// URL is where the page is.
func (s *Server) URL() string {
	scheme := "http"
	if s.g.cfg.API.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + s.addr.String() + "/"
}

// Err brings the error that ended the serving.
func (s *Server) Err() <-chan error { return s.done }

// Close ends streams and requests.
func (s *Server) Close() error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", s.health)
	m.HandleFunc("GET /api/v1/sheet", s.sheet)
	m.HandleFunc("GET /api/v1/ports", s.ports)
	m.HandleFunc("GET /api/v1/status", s.status)
	m.HandleFunc("GET /api/v1/records", s.records)
	m.HandleFunc("GET /api/v1/stream", s.endless(s.stream))
	m.HandleFunc("GET /api/v1/events", s.endless(s.events))
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { s.metrics.ServeHTTP(w, r) })
	files, _ := fs.Sub(web, "web") // the folder is there: it is embedded
	m.Handle("GET /", http.FileServerFS(files))
	return m
}

// endless is for answers that end only with the client or the server.
func (s *Server) endless(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		next(w, r.WithContext(ctx))
	}
}

// guard asks for the token, and refuses requests that a page of another site makes in a visitor's browser.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && r.URL.Path != "/" {
			fail(w, http.StatusForbidden, "requests from other sites are refused")
			return
		}
		if s.g.cfg.API.Token == "" {
			if host, _, err := net.SplitHostPort(r.Host); err == nil && !loopback(host) || err != nil && !loopback(r.Host) {
				fail(w, http.StatusForbidden, "this name is not of this machine") // a foreign name that points to loopback
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer { // a browser asks for a name and a password: the password is the token
			_, token, _ = r.BasicAuth()
		}
		sum := sha256.Sum256([]byte(token))
		if r.URL.Path != "/healthz" && subtle.ConstantTimeCompare(sum[:], s.token[:]) != 1 {
			h.Set("WWW-Authenticate", `Basic realm="tallywheel"`)
			fail(w, http.StatusUnauthorized, "want the token as Authorization: Bearer, or as the password")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func fail(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// health is 200 while frames can be recorded, else 503 with the reason.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	switch p := s.g.log.Position(); {
	case p.Err != nil:
		fail(w, http.StatusServiceUnavailable, p.Err.Error())
	case p.Full:
		fail(w, http.StatusServiceUnavailable, "the disk is full")
	default:
		answer(w, map[string]string{"status": "ok"})
	}
}

func (s *Server) sheet(w http.ResponseWriter, _ *http.Request) { answer(w, s.g.Sheet()) }

// PortInfo is what /api/v1/ports says of a source.
type PortInfo struct {
	ID       string            `json:"id"`
	State    string            `json:"state"`
	Kind     string            `json:"kind"` // serial, tcp or udp
	Address  string            `json:"address"`
	Device   string            `json:"device"` // what is open now
	Frame    string            `json:"frame"`
	Overflow string            `json:"overflow"`
	Settings map[string]string `json:"settings"` // optional settings and what the driver made of them
}

func (s *Server) ports(w http.ResponseWriter, _ *http.Request) {
	out := []PortInfo{}
	for _, p := range s.g.snapshot() {
		out = append(out, p.lane.info())
	}
	answer(w, map[string]any{"ports": out})
}

func (l *lane) info() PortInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := PortInfo{
		ID: l.cfg.ID, State: l.state, Frame: l.cfg.Frame.Kind, Overflow: l.cfg.Overflow, Device: l.path, Settings: l.accepted,
	}
	switch c := l.cfg; {
	case c.Serial != nil:
		i.Kind, i.Address = "serial", c.Serial.Port
	case c.TCP != nil:
		i.Kind, i.Address = "tcp", c.TCP.Listen+c.TCP.Dial
	default:
		i.Kind, i.Address = "udp", c.UDP.Listen
	}
	return i
}

// Status is the sheet with what the page shows beside it.
type Status struct {
	Verdict string `json:"verdict"`
	Good    bool   `json:"good"`
	Sheet   any    `json:"sheet"`
	Sample  Sample `json:"sample"`
}

func (s *Server) now() Status {
	sheet := s.g.Sheet()
	text, good := Verdict(sheet)
	sample, _ := s.g.history.last()
	return Status{text, good, sheet, sample}
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	samples, _ := s.g.history.all()
	answer(w, struct {
		Status
		History []Sample `json:"history"`
	}{s.now(), samples})
}

// query reads the parameters of a request for records.
func query(r *http.Request) (q Query, err error) {
	v := r.URL.Query()
	q = Query{Source: v.Get("source"), Limit: defaultPage, Quarantine: v.Get("quarantine") == "true"}
	if t := v.Get("limit"); t != "" {
		if q.Limit, err = strconv.Atoi(t); err != nil || q.Limit < 1 || q.Limit > maxPage {
			return q, fmt.Errorf("limit %q: want 1 to %d", t, maxPage)
		}
	}
	for _, name := range []string{"from_seq", "cursor"} {
		if t := v.Get(name); t != "" {
			if q.From, err = strconv.ParseUint(t, 10, 64); err != nil {
				return q, fmt.Errorf("%s %q: want a number", name, t)
			}
		}
	}
	for _, name := range []string{"from_time", "to_time"} {
		t := v.Get(name)
		if t == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, t)
		if err != nil {
			return q, fmt.Errorf("%s %q: want RFC 3339, as 2026-01-02T15:04:05Z", name, t)
		}
		if name == "from_time" {
			q.Since = at.UnixNano()
		} else {
			q.Until = at.UnixNano()
		}
	}
	return q, nil
}

func (s *Server) records(w http.ResponseWriter, r *http.Request) {
	q, err := query(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	reader := s.g.log.NewReader(q.From)
	defer reader.Close()
	page, err := q.Page(reader, s.g.streams)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, page)
}

// stream sends records as server-sent events as they are stored. A client that reads slowly falls behind in the log; it never
// holds up the recorder.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	q, err := query(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" { // a browser that connects again
		if n, err := strconv.ParseUint(id, 10, 64); err == nil {
			q.From = n + 1
		}
	}
	if q.From == 0 && q.Since == 0 {
		q.From = s.g.log.Position().Stored + 1
	}
	reader := s.g.log.NewReader(q.From)
	defer reader.Close()
	if q.Since > 0 && q.From <= 1 {
		if err := reader.SeekTime(q.Since); err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	e := newEvents(w)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		rec, err := reader.Next()
		var gap *seglog.GapError
		switch {
		case errors.As(err, &gap):
			err = e.send("gone", "", map[string]uint64{"from": gap.From, "to": gap.To})
		case err == io.EOF:
			if err = e.flush(); err == nil {
				err = e.wait(r.Context(), poll.C)
			}
		case err == nil:
			if out, ok := q.Match(s.g.streams, rec); ok {
				err = e.send("record", strconv.FormatUint(rec.Seq, 10), out)
			}
		}
		if err != nil || r.Context().Err() != nil {
			return
		}
	}
}

// events sends the status once a second.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	e := newEvents(w)
	for {
		if e.send("status", "", s.now()) != nil || e.flush() != nil {
			return
		}
		_, next := s.g.history.all()
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
	}
}

// eventWriter writes server-sent events (WHATWG HTML, section 9.2).
type eventWriter struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	last time.Time
}

func newEvents(w http.ResponseWriter) *eventWriter {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return &eventWriter{w: w, c: http.NewResponseController(w), last: time.Now()}
}

func (e *eventWriter) send(event, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := e.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if id != "" {
		if _, err := fmt.Fprintf(e.w, "id: %s\n", id); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", event, b)
	return err
}

func (e *eventWriter) flush() error { return e.c.Flush() }

// wait waits for the next look, and now and then says that the connection lives.
func (e *eventWriter) wait(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-tick:
	}
	if time.Since(e.last) < keepAlivePeriod {
		return nil
	}
	e.last = time.Now()
	if err := e.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(e.w, ": alive\n\n"); err != nil {
		return err
	}
	return e.flush()
}
