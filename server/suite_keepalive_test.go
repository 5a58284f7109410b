package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestSuiteKeepAlive says when a connection is kept, by version, header and what the handler does;
// and what the client is told.
func TestSuiteKeepAlive(t *testing.T) {
	length := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "hi")
	}
	flush := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hi")
		_ = http.NewResponseController(w).Flush()
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	conn := func(v string, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", v)
			h(w, r)
		}
	}
	cases := []struct {
		name, request string
		h             http.HandlerFunc
		kept          bool
		told          string // the field Connection
	}{
		{"1.1", "GET / HTTP/1.1\nHost: a\n\n", say("hi"), true, ""},
		{"1.1 with keep-alive", "GET / HTTP/1.1\nHost: a\nConnection: keep-alive\n\n", say("hi"), true, ""},
		{"1.1 with close", "GET / HTTP/1.1\nHost: a\nConnection: close\n\n", say("hi"), false, "close"},
		{"1.1 with Close", "GET / HTTP/1.1\nHost: a\nConnection: Close\n\n", say("hi"), false, "close"},
		{
			"1.1 with a list that holds close", "GET / HTTP/1.1\nHost: a\nConnection: foo, close\n\n", say("hi"), false,
			"close",
		},
		{"1.1 in chunks", "GET / HTTP/1.1\nHost: a\n\n", flush, true, ""},
		{"1.1 HEAD", "HEAD / HTTP/1.1\nHost: a\n\n", say("hi"), true, ""},
		{"1.1 handler says close", "GET / HTTP/1.1\nHost: a\n\n", conn("close", say("hi")), false, "close"},
		{
			"1.1 handler says keep-alive", "GET / HTTP/1.1\nHost: a\n\n", conn("keep-alive", say("hi")), true,
			"keep-alive",
		},
		{
			"1.1 client close, handler keep-alive", "GET / HTTP/1.1\nHost: a\nConnection: close\n\n",
			conn("keep-alive", say("hi")), false, "close",
		},
		{"1.1 204", "GET / HTTP/1.1\nHost: a\n\n", status(204), true, ""},
		{"1.1 304", "GET / HTTP/1.1\nHost: a\n\n", status(304), true, ""},
		{"1.1 500", "GET / HTTP/1.1\nHost: a\n\n", status(500), true, ""},
		{"1.0", "GET / HTTP/1.0\n\n", say("hi"), false, ""},
		{"1.0 with a length", "GET / HTTP/1.0\n\n", length, false, ""},
		{"1.0 keep-alive", "GET / HTTP/1.0\nConnection: keep-alive\n\n", say("hi"), true, "keep-alive"},
		{"1.0 Keep-Alive", "GET / HTTP/1.0\nConnection: Keep-Alive\n\n", say("hi"), true, "keep-alive"},
		{"1.0 keep-alive with a length", "GET / HTTP/1.0\nConnection: keep-alive\n\n", length, true, "keep-alive"},
		{"1.0 keep-alive, flushed", "GET / HTTP/1.0\nConnection: keep-alive\n\n", flush, false, ""},
		{"1.0 keep-alive HEAD", "HEAD / HTTP/1.0\nConnection: keep-alive\n\n", say("hi"), true, "keep-alive"},
		{"1.0 keep-alive 204", "GET / HTTP/1.0\nConnection: keep-alive\n\n", status(204), true, "keep-alive"},
		{"1.0 keep-alive 304", "GET / HTTP/1.0\nConnection: keep-alive\n\n", status(304), true, "keep-alive"},
		{"1.0 keep-alive 200 empty", "GET / HTTP/1.0\nConnection: keep-alive\n\n", status(200), true, "keep-alive"},
		{
			"1.0 keep-alive, handler close", "GET / HTTP/1.0\nConnection: keep-alive\n\n", conn("close", say("hi")),
			false,
			"close",
		},
		{
			"h2c upgrade is ignored",
			"GET / HTTP/1.1\nHost: a\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: x\n\n",
			say("hi"), true, "",
		},
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, nil)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				s.set(c.h)
				conn := s.dial(t)
				conn.send(c.request)
				r := conn.reply(t, strings.Fields(c.request)[0])
				if told := r.head.Get("Connection"); told != c.told {
					t.Errorf("Connection is %q, want %q: %v", told, c.told, r)
				}
				want := "HTTP/1.1 "
				if strings.Contains(c.request, "HTTP/1.0") {
					want = "HTTP/1.0 "
				}
				if !strings.HasPrefix(r.line, want) {
					t.Errorf("the status line is %q, want %s", r.line, want)
				}
				if c.kept {
					conn.stays(t)
				} else if rest := conn.rest(t); rest != "" {
					t.Errorf("after the last answer came %q", rest)
				}
			})
		}
	})
}

// TestSuitePipeline sends many requests at once: every answer comes, in order, whatever the
// handlers do in between.
func TestSuitePipeline(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, b)
			if strings.HasSuffix(r.URL.Path, "3") {
				_ = http.NewResponseController(w).Flush()
				_, _ = io.WriteString(w, " more")
			}
		})
		const n = 100
		c := s.dial(t)
		var all strings.Builder
		for i := range n {
			switch i % 3 {
			case 0:
				fmt.Fprintf(&all, "GET /%d HTTP/1.1\nHost: a\n\n", i)
			case 1:
				fmt.Fprintf(&all, "POST /%d HTTP/1.1\nHost: a\nContent-Length: 3\n\nabc", i)
			case 2:
				fmt.Fprintf(&all, "PUT /%d HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", i)
			}
		}
		c.send(all.String())
		for i := range n {
			want := []string{"GET /%d ", "POST /%d abc", "PUT /%d abc"}[i%3]
			want = fmt.Sprintf(want, i)
			if i%10 == 3 {
				want += " more"
			}
			if r := c.reply(t, "GET"); r.body != want {
				t.Fatalf("answer %d is %q, want %q", i, r.body, want)
			}
		}
	})
}

// TestSuiteClientEndsItsSide ends the client's side right after the request: the answer comes all
// the same.
func TestSuiteClientEndsItsSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s, %v", b, err)
		})
		for _, send := range []string{
			"GET / HTTP/1.1\nHost: a\n\n",
			"POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody",
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n",
		} {
			c := s.dial(t)
			c.send(send)
			_ = c.CloseWrite()
			want := "body, <nil>"
			if send[0] == 'G' {
				want = ", <nil>"
			}
			if r := c.reply(t, "GET"); r.body != want {
				t.Errorf("%q: the answer is %v, want %q", send, r, want)
			}
			if rest := c.rest(t); rest != "" {
				t.Errorf("%q: after the answer came %q", send, rest)
			}
		}
	})
}
