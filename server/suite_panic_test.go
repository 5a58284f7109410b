package server_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestSuitePanic panics at several points of an answer: what was not sent yet is not sent, the
// connection ends, the log says why, and other connections go on.
func TestSuitePanic(t *testing.T) {
	length := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "full")
	}
	part := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "8")
		_, _ = io.WriteString(w, "half")
	}
	flushed := func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "sent")
		flush(w)
	}
	long := func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("x", 3000)) }
	cases := []struct {
		name string // with the method, if it is not GET
		h    func(http.ResponseWriter)
		want string // that is there; "" is nothing at all
		not  string
	}{
		{"at once", func(http.ResponseWriter) {}, "", ""},
		{"after WriteHeader", func(w http.ResponseWriter) { w.WriteHeader(200) }, "", ""},
		{"after a Write", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hi") }, "", ""},
		{"after a Write with Content-Length", length, "", ""},
		{"after a part of Content-Length", part, "", ""},
		{"after a Flush", flushed, "4\r\nsent\r\n", "0\r\n"},
		{"after a Write after the last Flush", func(w http.ResponseWriter) {
			flushed(w)
			_, _ = io.WriteString(w, "unsent")
		}, "4\r\nsent\r\n", "unsent"},
		{"after a Write of a part after the last Flush", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "sent")
			flush(w)
			_, _ = io.WriteString(w, "unsent")
		}, "\r\n\r\nsent", "unsent"},
		{"after more than is held back", long, "xxxxxxxx", "\r\n0\r\n"},
		{"after a large part of Content-Length", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "5000")
			long(w)
		}, "Content-Length: 5000\r\n", ""},
		{"HEAD after more than is held back", long, "HTTP/1.1 200 OK\r\n", "xxx"},
		{"HEAD after a Flush", flushed, "HTTP/1.1 200 OK\r\n", "sent"},
		{"HEAD after a Write", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hi") }, "", ""},
	}
	values := map[string]any{"ordered": "as ordered", "abort": http.ErrAbortHandler, "nil": nil}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, nil)
		other := s.dial(t)
		for _, c := range cases {
			for kind, value := range values {
				t.Run(c.name+" "+kind, func(t *testing.T) {
					s.set(func(w http.ResponseWriter, _ *http.Request) { c.h(w); panic(value) })
					conn := s.dial(t)
					method := "GET"
					if strings.HasPrefix(c.name, "HEAD") {
						method = "HEAD"
					}
					conn.send(method + " / HTTP/1.1\nHost: a\n\n")
					got := conn.rest(t)
					if c.want == "" && got != "" || !strings.Contains(got, c.want) ||
						c.not != "" && strings.Contains(got, c.not) {
						t.Errorf("the client got %q, want %q", got, c.want)
					}
				})
			}
		}
		log := s.log.String()
		if !strings.Contains(log, "as ordered") || !strings.Contains(log, "suite_panic_test.go") {
			t.Errorf("the log lacks the panic with its stack: %.300s", log)
		}
		if strings.Contains(log, "abort Handler") {
			t.Errorf("the log tells of http.ErrAbortHandler: %.300s", log)
		}
		s.set(say("well"))
		other.stays(t)
	})
}

// TestSuitePanicAfterAnswers panics in the last of many pipelined requests: those before get their
// answers.
func TestSuitePanicAfterAnswers(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic(http.ErrAbortHandler)
			}
			say("well")(w, r)
		})
		c := s.dial(t)
		c.send(strings.Repeat("GET / HTTP/1.1\nHost: a\n\n", 5) + "GET /panic HTTP/1.1\nHost: a\n\n")
		if got := c.rest(t); strings.Count(got, "well") != 5 {
			t.Errorf("the client got %d of 5 answers", strings.Count(got, "well"))
		}
	})
}

// TestSuitePanicWithBody panics while a body is on its way: the connection ends, and the body is no
// request.
func TestSuitePanicWithBody(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			_, _ = r.Body.Read(make([]byte, 1))
			panic(http.ErrAbortHandler)
		})
		c := s.dial(t)
		c.send("POST / HTTP/1.1\nHost: a\nContent-Length: 100\n\nGET / HTTP/1.1\nHost: a\n\n")
		_ = c.CloseWrite() // net/http waits for the rest
		if got := c.rest(t); got != "" {
			t.Errorf("the client got %q", got)
		}
	})
}

// TestSuiteGoexit ends the handler's goroutine: the connection ends, and others are served on.
func TestSuiteGoexit(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/exit" {
				runtime.Goexit()
			}
			say("well")(w, r)
		})
		for range 3 {
			if got := s.exits(t); got != "" {
				t.Errorf("the client got %q", got)
			}
			if t.Failed() {
				return
			}
		}
		if r := s.get(t, "/"); r.body != "well" {
			t.Errorf("another client got %v", r)
		}
	})
}

func (s *site) exits(t testing.TB) string {
	c := s.dial(t)
	c.send("GET /exit HTTP/1.1\nHost: a\n\n")
	return c.rest(t)
}
