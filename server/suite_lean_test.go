package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// openLean serves a LeanHandler.
func openLean(t testing.TB, p place, h server.LeanHandler, tune ...func(*server.Config)) *site {
	return open(t, p, nil, append([]func(*server.Config){func(c *server.Config) { c.Handler, c.Lean = nil, h }},
		tune...)...)
}

// everyLean runs f on each engine with a LeanHandler: inline, and in the modes of other handlers.
func everyLean(t *testing.T, f func(t *testing.T, p place)) {
	in(t, places(t, server.Inline, server.Goroutine, server.Coroutine), f)
}

func leanly(w *server.LeanResponse, r *server.LeanRequest) {
	switch string(r.Path()) {
	case "/close":
		w.Close()
	case "/204":
		w.Status(204)
		return
	case "/304":
		w.Status(304)
		w.Header("ETag", "x")
	case "/fields":
		w.Header("A", "1")
		w.Header("A", "2\r\nInjected: x")
		w.Header("Bad Name", "x")
		w.Header("Content-Length", "999")
	case "/panic":
		panic("as ordered")
	case "/abort":
		_, _ = w.WriteString("half")
		panic(http.ErrAbortHandler)
	case "/exit":
		runtime.Goexit()
	}
	w.ContentType("text/plain")
	fmt.Fprintf(w, "%s %s %s %d", r.Method(), r.Target(), r.Host(), len(r.Body()))
}

// TestSuiteLeanAnswers says what a LeanHandler's calls become.
func TestSuiteLeanAnswers(t *testing.T) {
	const body = "HTTP/1.1 200 OK; Content-Length: %d; Content-Type: text/plain | "
	line := func(s string) string { return fmt.Sprintf(body, len(s)) + s }
	cases := []struct {
		name, send, want string
		kept             bool
	}{
		{"plain", "GET /a?b HTTP/1.1\nHost: h\n\n", line("GET /a?b h 0"), true},
		{
			"HEAD", "HEAD /a HTTP/1.1\nHost: h\n\n", "HTTP/1.1 200 OK; Content-Length: 11; Content-Type: text/plain | ",
			true,
		},
		{"body", "POST / HTTP/1.1\nHost: h\nContent-Length: 3\n\nabc", line("POST / h 3"), true},
		{
			"chunked", "POST / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n3\nabc\n4\ndefg\n0\n\n",
			line("POST / h 7"), true,
		},
		{"204", "GET /204 HTTP/1.1\nHost: h\n\n", "HTTP/1.1 204 No Content | ", true},
		{"304", "GET /304 HTTP/1.1\nHost: h\n\n", "HTTP/1.1 304 Not Modified; Etag: x | ", true},
		{
			"client closes", "GET / HTTP/1.1\nHost: h\nConnection: close\n\n",
			"HTTP/1.1 200 OK; Connection: close; Content-Length: 9; Content-Type: text/plain | GET / h 0", false,
		},
		{
			"handler closes", "GET /close HTTP/1.1\nHost: h\n\n",
			"HTTP/1.1 200 OK; Connection: close; Content-Length: 14; Content-Type: text/plain | GET /close h 0", false,
		},
		{
			"1.0", "GET / HTTP/1.0\nHost: h\n\n",
			"HTTP/1.0 200 OK; Content-Length: 9; Content-Type: text/plain | GET / h 0", false,
		},
		{
			"1.0 keep-alive", "GET / HTTP/1.0\nHost: h\nConnection: keep-alive\n\n",
			"HTTP/1.0 200 OK; Connection: keep-alive; Content-Length: 9; Content-Type: text/plain | GET / h 0", true,
		},
		{
			"fields", "GET /fields HTTP/1.1\nHost: h\n\n",
			"HTTP/1.1 200 OK; A: 1; A: 2  Injected: x; Content-Length: 15; Content-Type: text/plain | GET /fields h 0",
			true,
		},
	}
	everyLean(t, func(t *testing.T, p place) {
		s := openLean(t, p, leanly)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				conn := s.dial(t)
				conn.send(c.send)
				r := conn.reply(t, strings.Fields(c.send)[0])
				if got := r.String(); got != c.want {
					t.Errorf("the answer is\n%q, want\n%q", got, c.want)
				}
				if d, err := http.ParseTime(r.head.Get("Date")); err != nil || time.Since(d).Abs() > time.Minute {
					t.Errorf("Date is %q, %v", r.head.Get("Date"), err)
				}
				if c.kept {
					conn.stays(t)
				} else if rest := conn.rest(t); rest != "" {
					t.Errorf("after the answer came %q", rest)
				}
			})
		}
	})
}

// TestSuiteLeanRefuses answers what is no request.
func TestSuiteLeanRefuses(t *testing.T) {
	everyLean(t, func(t *testing.T, p place) {
		s := openLean(t, p, leanly, func(c *server.Config) { c.MaxBodyBytes, c.MaxHeaderBytes = 100, 4096 })
		for send, want := range map[string]int{
			"GET / HTTP/1.1\n\n": 400,
			"hello\n\n":          400,
			"GET / HTTP/1.1\nHost: a\nF: " + strings.Repeat("x", 20_000) +
				"\n\n": 431,
			"POST / HTTP/1.1\nHost: a\nContent-Length: 101\n\n" +
				strings.Repeat("x", 101): 413,
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n65\n" + strings.Repeat("x", 101) +
				"\n0\n\n": 413,
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\nx\n":            400,
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip\n\n":                  501,
			"POST / HTTP/1.1\nHost: a\nContent-Length: 3\nExpect: coffee\n\n":        417,
			"GET / HTTP/1.1\nHost: a:bc\n\n":                                         400,
			"GET / HTTP/1.1\nHost: [::1\n\n":                                         400,
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3;\nabc\n0\n\n": 400,
			"\nGET / HTTP/1.1\nHost: a\n\n":                                          200,
			"OPTIONS * HTTP/1.1\nHost: a\n\n":                                        200,
			"POST / HTTP/1.1\nHost: a\nConnection: close\nContent-Length: 100\n\n" +
				strings.Repeat("x", 100): 200,
			"POST / HTTP/1.1\nHost: a\nConnection: close\nTransfer-Encoding: chunked\n\n1\na\n0\nSome: trailer\n\n": 200,
			"GET / HTTP/1.1\nHost: a\nConnection: close\nF: " + strings.Repeat("x", 3000) +
				"\n\n": 200,
			"POST / HTTP/1.1\nHost: a\nConnection: close\nContent-Length: 3\nContent-Type: application/octet-stream\n\n\x00\x01\x02": 200,
		} {
			if p.std() && (strings.Contains(send, ":bc") || strings.Contains(send, "[::1") ||
				strings.Contains(send, "3;\n") || send[0] == '\n') {
				continue // ours are stricter, or laxer, by RFC 9112
			}
			c := s.dial(t)
			c.send(send)
			_ = c.CloseWrite()
			if r, err := readReply(c.r, "GET"); err != nil || r.status() != want {
				t.Errorf("%.80q: the answer is %v, %v, want %d", send, r, err, want)
			}
		}
	})
}

// TestSuiteLeanContinue sends 100 Continue to a client that waits with its body.
func TestSuiteLeanContinue(t *testing.T) {
	everyLean(t, func(t *testing.T, p place) {
		s := openLean(t, p, leanly)
		for _, c := range []struct{ field, body string }{
			{"Content-Length: 4", "body"}, {"Transfer-Encoding: chunked", "4\nbody\n0\n\n"},
		} {
			conn := s.dial(t)
			conn.send("POST / HTTP/1.1\nHost: a\nExpect: 100-continue\n" + c.field + "\n\n")
			if r := conn.reply(t, "POST"); r.status() != 100 {
				t.Fatalf("%s: the first answer is %v", c.field, r)
			}
			conn.send(c.body)
			if r := conn.reply(t, "POST"); r.body != "POST / a 4" {
				t.Errorf("%s: the answer is %v", c.field, r)
			}
			conn.stays(t)
		}
	})
}

// TestSuiteLeanPanics ends one connection, after the answers to what came before.
func TestSuiteLeanPanics(t *testing.T) {
	for _, path := range []string{"/panic", "/abort", "/exit"} {
		t.Run(path[1:], func(t *testing.T) {
			everyLean(t, func(t *testing.T, p place) {
				s := openLean(t, p, leanly)
				other := s.dial(t)
				c := s.dial(t)
				c.send(strings.Repeat("GET / HTTP/1.1\nHost: a\n\n", 5) + "GET " + path + " HTTP/1.1\nHost: a\n\n")
				got := c.rest(t)
				if n := strings.Count(got, "GET / a 0"); n != 5 || strings.Contains(got, "half") {
					t.Errorf("the client got %d of 5 answers: %.300q", n, got)
				}
				if path == "/panic" {
					s.log.await(t, "as ordered")
				}
				other.stays(t)
			})
		})
	}
}

// TestSuiteLeanPipeline sends many requests at once, with bodies, in pieces.
func TestSuiteLeanPipeline(t *testing.T) {
	everyLean(t, func(t *testing.T, p place) {
		s := openLean(t, p, leanly)
		var all bytes.Buffer
		const n = 100
		for i := range n {
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, i*7,
				strings.Repeat("x", i*7))
		}
		c := s.dial(t)
		go func() {
			for b := all.Bytes(); len(b) > 0; {
				k := min(len(b), 1+len(b)%997)
				_, _ = c.Write(b[:k])
				b = b[k:]
			}
		}()
		for i := range n {
			if r := c.reply(t, "POST"); r.body != fmt.Sprintf("POST /%d a %d", i, i*7) {
				t.Fatalf("answer %d is %v", i, r)
			}
		}
	})
}

// TestSuiteLeanBuffer keeps its handler's memory apart from the answers of others.
func TestSuiteLeanBuffer(t *testing.T) {
	everyLean(t, func(t *testing.T, p place) {
		page := make([]byte, 0, 1000)
		page = append(page, "the page"...)
		s := openLean(t, p, func(w *server.LeanResponse, r *server.LeanRequest) {
			if string(r.Path()) == "/page" {
				w.SetBuffer(page)
				return
			}
			_, _ = w.WriteString("a secret")
		})
		for _, path := range []string{"/page", "/secret", "/page", "/secret", "/page"} {
			want := map[string]string{"/page": "the page", "/secret": "a secret"}[path]
			if r := s.get(t, path); r.body != want {
				t.Errorf("%s: the answer is %q, want %q", path, r.body, want)
			}
		}
	})
}

// TestSuiteLeanTimeouts ends what takes too long, and nothing else.
func TestSuiteLeanTimeouts(t *testing.T) {
	const (
		short = 100 * time.Millisecond
		first = "GET / HTTP/1.1\nHost: a\n\n"
	)
	cases := []struct {
		name    string
		cfg     server.Config
		send    string
		answers int
		ends    bool
	}{
		{"idle, silent at first", server.Config{IdleTimeout: short}, "", 0, false},
		{"idle after a request", server.Config{IdleTimeout: short}, first, 1, true},
		{"header, silent at first", server.Config{ReadHeaderTimeout: short, IdleTimeout: time.Hour}, "", 0, true},
		{
			"header, half a head",
			server.Config{ReadHeaderTimeout: short, IdleTimeout: time.Hour},
			first + "GET / HT", 1,
			true,
		},
		{"header, silent after a request", server.Config{ReadHeaderTimeout: short}, first, 1, false},
		{
			"body in pieces with the header's limit",
			server.Config{ReadHeaderTimeout: short},
			"POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbo", 0, false,
		},
		{
			"body with a limit",
			server.Config{ReadTimeout: short},
			"POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbo", 0,
			true,
		},
	}
	everyLean(t, func(t *testing.T, p place) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := openLean(t, p, leanly, func(cfg *server.Config) {
					cfg.ReadTimeout, cfg.ReadHeaderTimeout, cfg.IdleTimeout = c.cfg.ReadTimeout,
						c.cfg.ReadHeaderTimeout, c.cfg.IdleTimeout
				})
				var conn *wire
				inTime(t, short, func() error {
					before := s.Stats().In
					conn = s.dial(t)
					head, tail, _ := strings.Cut(c.send, "\nContent") // in two pieces
					conn.send(head)
					if tail != "" {
						if !p.std() { // which does not count bytes
							eventually(func() bool { return s.Stats().In >= before+20 })
						}
						conn.send("\nContent" + tail)
					}
					for range c.answers {
						if _, err := readReply(conn.r, "GET"); err != nil {
							return err
						}
					}
					return nil
				})
				if !c.ends {
					_ = conn.SetReadDeadline(time.Now().Add(4 * short))
				}
				_, err := conn.r.Peek(1)
				open := err != nil && strings.Contains(err.Error(), "timeout")
				if open == c.ends {
					t.Errorf("is the connection open: %v (%v)", open, err)
				}
			})
		}
	})
}
