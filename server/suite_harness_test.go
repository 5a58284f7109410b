package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// The suite states what handlers and clients may expect of a server of package net/http, and asks
// it of each engine in each mode. It uses the public API only. Engine std runs every test too: it
// is net/http itself, so a test that fails there expects the wrong thing.

// suitePatience is the time for what must happen. Nothing waits for it but a test that fails.
const suitePatience = time.Minute

// place is an engine with a mode.
type place struct {
	Engine server.Engine
	Mode   server.Mode
}

func (p place) String() string { return string(p.Engine) + "-" + string(p.Mode) }

func (p place) std() bool { return p.Engine == server.Std }

// places are those that run an http.Handler here.
func places(t testing.TB, modes ...server.Mode) []place {
	all := []place{{server.Std, server.Goroutine}}
	for _, e := range []server.Engine{server.Epoll, server.Uring} {
		if err := server.Available(e); err != nil {
			t.Logf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			continue
		}
		for _, m := range modes {
			all = append(all, place{e, m})
		}
	}
	return all
}

// everywhere runs f on each engine in modes goroutine and coroutine.
func everywhere(t *testing.T, f func(t *testing.T, p place)) {
	in(t, places(t, server.Goroutine, server.Coroutine), f)
}

// onGoroutines is everywhere for handlers that wait for something else than their connection.
func onGoroutines(t *testing.T, f func(t *testing.T, p place)) {
	in(t, places(t, server.Goroutine), f)
}

func in(t *testing.T, all []place, f func(t *testing.T, p place)) {
	t.Parallel()
	for _, p := range all {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

// journalLines is the log of a server.
type journalLines struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (j *journalLines) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journalLines) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// await waits until the log holds text.
func (j *journalLines) await(t testing.TB, text string) {
	t.Helper()
	if !eventually(func() bool { return strings.Contains(j.String(), text) }) {
		t.Errorf("the log lacks %q: %.1500s", text, j.String())
	}
}

// eventually polls until is holds.
func eventually(is func() bool) bool {
	for end := time.Now().Add(suitePatience); !is(); {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// inTime calls try until it took less than limit, a time-out of the server: one that takes longer,
// on a machine that stands still, may be ended by that, and says nothing.
func inTime(t testing.TB, limit time.Duration, try func() error) {
	t.Helper()
	for end := time.Now().Add(suitePatience); ; {
		began := time.Now()
		err := try()
		switch took := time.Since(began); {
		case took < limit && err == nil:
			return
		case took < limit:
			t.Fatal(err)
		case time.Now().After(end):
			t.Fatalf("it took %v, not less than %v, each time: %v", took, limit, err)
		}
	}
}

// site is a server that runs, with a handler that can be changed between requests.
type site struct {
	*server.Server
	addr    string
	log     *journalLines
	ended   chan error
	handler atomic.Pointer[http.HandlerFunc]
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*s.handler.Load())(w, r) }

func (s *site) set(h http.HandlerFunc) { s.handler.Store(&h) }

func (s *site) url(path string) string { return "http://" + s.addr + path }

// open serves h until the test ends, and then checks that the end was orderly.
func open(t testing.TB, p place, h http.HandlerFunc, tune ...func(*server.Config)) *site {
	t.Helper()
	s := &site{log: &journalLines{}, ended: make(chan error, 1)}
	s.set(h)
	cfg := server.Config{
		Handler: s, Engine: p.Engine, Mode: p.Mode, Loops: 1,
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	for _, f := range tune {
		f(&cfg)
	}
	var err error
	cfg.Headroom = -1 // tests measure the heap
	if s.Server, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	go func() { s.ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		if err := take(t, closed, "Close"); err != nil {
			t.Errorf("Close: %v", err)
		}
		if t.Failed() {
			return // as it may, after what was found
		}
		if err := take(t, s.ended, "the end of Serve"); !errors.Is(err, server.ErrClosed) {
			t.Errorf("Serve gives %v, want ErrClosed", err)
		}
	})
	return s
}

// wire is a client that sees every byte.
type wire struct {
	*net.TCPConn
	r *bufio.Reader
}

func (s *site) dial(t testing.TB) *wire {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(suitePatience))
	return &wire{c.(*net.TCPConn), bufio.NewReader(c)}
}

// send writes text; \n stands for CR LF.
func (w *wire) send(text string) { _, _ = io.WriteString(w, strings.ReplaceAll(text, "\n", "\r\n")) }

// reply reads one answer to a request of that method.
func (w *wire) reply(t testing.TB, method string) *reply {
	t.Helper()
	r, err := readReply(w.r, method)
	if err != nil {
		t.Fatalf("no answer: %v (%v)", err, r)
	}
	return r
}

// rest reads until the server ends the connection.
func (w *wire) rest(t testing.TB) string {
	t.Helper()
	b, err := io.ReadAll(w.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server did not end the connection, after %.200q", b)
	}
	return string(b)
}

// stays checks that the connection can be used on.
func (w *wire) stays(t testing.TB) {
	t.Helper()
	w.send("GET /again HTTP/1.1\nHost: a\n\n")
	if r, err := readReply(w.r, "GET"); err != nil {
		t.Errorf("the connection was not kept: %v, %v", err, r)
	}
}

// reply is an answer as it came.
type reply struct {
	line    string
	head    textproto.MIMEHeader
	body    string
	chunks  []int // sizes, if it came in chunks
	trailer textproto.MIMEHeader
	cut     error // the body ended early
}

// String shows all but Date: "200 OK; Key: value; …: body".
func (r *reply) String() string {
	if r == nil {
		return "nothing"
	}
	var b strings.Builder
	b.WriteString(r.line)
	write := func(h textproto.MIMEHeader, mark string) {
		var keys []string
		for k := range h {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			for _, v := range h[k] {
				if k != "Date" {
					fmt.Fprintf(&b, "; %s%s: %s", mark, k, v)
				}
			}
		}
	}
	write(r.head, "")
	fmt.Fprintf(&b, " | %s", r.body)
	write(r.trailer, "~")
	if r.cut != nil {
		b.WriteString(" <cut>")
	}
	return b.String()
}

func (r *reply) status() int {
	n, _ := strconv.Atoi(strings.SplitN(r.line+"  ", " ", 3)[1])
	return n
}

func readReply(br *bufio.Reader, method string) (*reply, error) {
	tp := textproto.NewReader(br)
	r := &reply{}
	var err error
	if r.line, err = tp.ReadLine(); err != nil {
		return r, err
	}
	if r.head, err = tp.ReadMIMEHeader(); err != nil {
		return r, err
	}
	code := r.status()
	if method == "HEAD" || code < 200 || code == 204 || code == 304 {
		return r, nil
	}
	switch length := r.head.Get("Content-Length"); {
	case r.head.Get("Transfer-Encoding") == "chunked":
		r.cut = r.readChunks(br, tp)
	case length != "":
		n, _ := strconv.Atoi(length)
		b := make([]byte, n)
		n, r.cut = io.ReadFull(br, b)
		r.body = string(b[:n])
	default:
		var b []byte
		b, err = io.ReadAll(br)
		r.body = string(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.cut = err
		}
	}
	return r, nil
}

func (r *reply) readChunks(br *bufio.Reader, tp *textproto.Reader) error {
	for {
		line, err := tp.ReadLine()
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(line, 16, 32)
		if err != nil {
			return err
		}
		if n == 0 {
			r.trailer, err = tp.ReadMIMEHeader()
			return err
		}
		b := make([]byte, n+2)
		m, err := io.ReadFull(br, b)
		r.body += string(b[:min(m, int(n))])
		if err != nil {
			return err
		}
		r.chunks = append(r.chunks, int(n))
	}
}

// ask sends text, and reads one answer to it.
func (s *site) ask(t testing.TB, text string) *reply {
	t.Helper()
	c := s.dial(t)
	c.send(text)
	return c.reply(t, strings.SplitN(text, " ", 2)[0])
}

// get fetches a path on a connection of its own.
func (s *site) get(t testing.TB, path string) *reply {
	t.Helper()
	return s.ask(t, "GET "+path+" HTTP/1.1\nHost: a\nConnection: close\n\n")
}

// visitor is a client of package net/http that leaves no connection behind.
func visitor(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: suitePatience}
}

// text reads an answer of a visitor.
func text(t testing.TB, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("the body ends with %v", err)
	}
	return string(b)
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), suitePatience)
	t.Cleanup(cancel)
	return ctx
}

func say(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}
