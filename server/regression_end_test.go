package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// childEnv names the test that a child process runs.
const childEnv = "TALLYWHEEL_SERVER_CHILD"

// inChild runs the test in a process of its own, where it may end, or starve of descriptors,
// without harm to others. It reports whether this is that process.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*soon)
	defer cancel()
	parts := strings.Split(t.Name(), "/")
	for i := range parts {
		parts[i] = "^" + parts[i] + "$"
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", strings.Join(parts, "/"), "-test.timeout",
		(2 * soon).String())
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%.2000s", err, out)
	}
	return false
}

// want checks that the log got n lines, and that they say what they must.
func (j *journal) want(t *testing.T, n int, word string) {
	t.Helper()
	until(t, "the log", func() bool { return len(j.all()) >= n })
	all := j.all()
	if len(all) != n {
		t.Errorf("the log has %d lines, want %d: %.1000q", len(all), n, all)
	}
	for _, line := range all {
		if !strings.Contains(line, word) {
			t.Errorf("the log says %q, want %s in it", line, word)
		}
	}
}

// TestGoexitEndsOneConnection: a handler that ends its goroutine ends its connection, and nothing
// else; the log says so once.
func TestGoexitEndsOneConnection(t *testing.T) {
	check := func(t *testing.T, w way, cfg server.Config) {
		r := serve(t, w, cfg)
		other := newClient(t, r.addr)
		other.want(t, "/before", "/before")
		const times = 3
		for i := range times {
			c := newClient(t, r.addr)
			c.want(t, "/first", "/first")
			_, _ = io.WriteString(c, "GET /exit HTTP/1.1\r\nHost: a\r\n\r\n")
			if got := ended(t, c); len(got) > 0 {
				t.Errorf("the answer to Goexit is %q", got)
			}
			other.want(t, fmt.Sprint("/", i), fmt.Sprint("/", i))
			newClient(t, r.addr).want(t, "/new", "/new")
			if t.Failed() {
				return // each further wait would be in vain, too
			}
		}
		if w.Engine != server.Std { // net/http says nothing
			r.log.want(t, times, "")
		}
	}
	t.Run("http", func(t *testing.T) {
		eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
			check(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/exit" {
					runtime.Goexit()
				}
				_, _ = io.WriteString(w, r.URL.Path)
			})})
		})
	})
	t.Run("lean", func(t *testing.T) {
		eachWay(t, ways(t, ofLean), func(t *testing.T, w way) {
			check(t, w, server.Config{Lean: func(w *server.LeanResponse, r *server.LeanRequest) {
				if string(r.Path()) == "/exit" {
					runtime.Goexit()
				}
				_, _ = w.Write(r.Path())
			}})
		})
	})
	t.Run("conn", func(t *testing.T) {
		eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
			check(t, w, server.Config{Conn: lineServer(func() { runtime.Goexit() })})
		})
	})
}

// lineServer answers the requests of a client by a ConnHandler, and calls leave for /exit.
func lineServer(leave func()) server.ConnHandler {
	return func(_ context.Context, c net.Conn) {
		var got []byte
		for b := make([]byte, 500); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			got = append(got, b[:n]...)
			head, rest, whole := bytes.Cut(got, []byte("\r\n\r\n"))
			if !whole {
				continue
			}
			path := strings.Fields(string(head))[1]
			if path == "/exit" {
				leave()
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
			got = append([]byte(nil), rest...)
		}
	}
}

// TestPanicOfAConnHandlerEndsOneConnection: a ConnHandler that panics ends its connection; the
// process and the others go on, and the log says so once.
func TestPanicOfAConnHandlerEndsOneConnection(t *testing.T) {
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		if !inChild(t) {
			return
		}
		r := serve(t, w, server.Config{Conn: lineServer(func() { panic("as ordered") })})
		other := newClient(t, r.addr)
		other.want(t, "/before", "/before")
		for i := range 3 {
			c := newClient(t, r.addr)
			_, _ = io.WriteString(c, "GET /exit HTTP/1.1\r\nHost: a\r\n\r\n")
			if got := ended(t, c); len(got) > 0 {
				t.Errorf("the answer to a panic is %q", got)
			}
			other.want(t, "/after", "/after")
			newClient(t, r.addr).want(t, "/new", "/new")
			r.log.want(t, i+1, "as ordered")
		}
	})
}

// helloLean is hello for a LeanHandler.
func helloLean(w *server.LeanResponse, r *server.LeanRequest) { _, _ = w.Write(r.Path()) }

// hello answers with the path.
func hello(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }

// httpConfig is a configuration for a way, with the same handler as an http.Handler or, in mode
// inline, a LeanHandler.
func httpConfig(w way, h http.HandlerFunc, lean server.LeanHandler) server.Config {
	if w.Mode == server.Inline {
		return server.Config{Lean: lean}
	}
	return server.Config{Handler: h}
}

// httpWays are the ways of http.Handler, and inline.
func httpWays(t *testing.T) []way {
	return append(ways(t, ofHTTP), ways(t, ofLean, server.Inline)...)
}

// outlast waits until a time-out that began later than this call has ended a connection that says
// begin and no more.
func outlast(t *testing.T, addr, begin string) {
	t.Helper()
	c := dial(t, addr)
	_, _ = io.WriteString(c, begin)
	ended(t, c)
}

// TestASlowReaderGetsAllAnswers: requests that have come whole are answered, however long their
// client takes to read the answers before: the time-outs are for what is still to come.
func TestASlowReaderGetsAllAnswers(t *testing.T) {
	const requests, size = 100, 100_000
	page := strings.Repeat("x", size)
	eachWay(t, httpWays(t), func(t *testing.T, w way) {
		cfg := httpConfig(w, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, page) },
			func(w *server.LeanResponse, _ *server.LeanRequest) { _, _ = w.WriteString(page) })
		cfg.ReadTimeout = 100 * time.Millisecond
		r := serve(t, w, cfg)
		c := newClient(t, r.addr)
		if _, err := io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", requests)); err != nil {
			t.Fatal(err)
		}
		outlast(t, r.addr, "")
		outlast(t, r.addr, "GET / HT")
		for i := range requests {
			if got, err := c.answer("GET"); err != nil || got != page {
				t.Errorf("answer %d of %d: %d bytes, %v", i, requests, len(got), err)
				return
			}
		}
	})
}

// TestReadHeaderTimeoutIsForTheHeader: the time for the header is over with the header, also when
// it came in pieces: the body has its own.
func TestReadHeaderTimeoutIsForTheHeader(t *testing.T) {
	for _, head := range []string{
		"POST /body HTTP/1.1\r\nHo|st: a\r\nContent-Length: 5\r\n\r\n|12345",
		"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n|12|345",
		"POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chu|nked\r\n\r\n|5\r\n12345\r\n0\r\n\r\n",
	} {
		eachWay(t, httpWays(t), func(t *testing.T, w way) {
			cfg := httpConfig(w, func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %v", b, err)
			}, func(w *server.LeanResponse, r *server.LeanRequest) { fmt.Fprintf(w, "%s <nil>", r.Body()) })
			cfg.ReadHeaderTimeout, cfg.IdleTimeout = 100*time.Millisecond, time.Hour
			r := serve(t, w, cfg)
			c, probe := newClient(t, r.addr), newClient(t, r.addr)
			parts := strings.Split(head, "|")
			for i, p := range parts {
				if i == len(parts)-1 {
					outlast(t, r.addr, "GET / HT")
				}
				if _, err := io.WriteString(c, p); err != nil {
					t.Fatal(err)
				}
				if _, err := probe.get("/"); err != nil { // the loop has seen the piece
					t.Fatal(err)
				}
			}
			if got, err := c.answer("POST"); err != nil || got != "12345 <nil>" {
				t.Errorf("the answer is %q, %v", got, err)
			}
		})
	}
}

// TestAnswersBeforeAPanicAreSent: a panic takes no answer from the requests before it.
func TestAnswersBeforeAPanicAreSent(t *testing.T) {
	const good = 5
	for name, leave := range map[string]func(){
		"panic": func() { panic("as ordered") },
		"abort": func() { panic(http.ErrAbortHandler) },
		"exit":  runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, httpWays(t), func(t *testing.T, w way) {
				r := serve(t, w, httpConfig(w, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/leave" {
						leave()
					}
					hello(w, r)
				}, func(w *server.LeanResponse, r *server.LeanRequest) {
					if string(r.Path()) == "/leave" {
						leave()
					}
					helloLean(w, r)
				}))
				c := newClient(t, r.addr)
				var out []byte
				for i := range good {
					out = fmt.Appendf(out, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
				}
				if _, err := c.Write(append(out, "GET /leave HTTP/1.1\r\nHost: a\r\n\r\n"...)); err != nil {
					t.Fatal(err)
				}
				for i := range good {
					if got, err := c.answer("GET"); err != nil || got != fmt.Sprint("/", i) {
						t.Errorf("answer %d is %q, %v", i, got, err)
						return
					}
				}
				if got, err := c.answer("GET"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("after the answers came %q, %v", got, err)
				}
			})
		})
	}
}

// TestShutdownDespiteAByte: a byte or two behind an answer are no request that Shutdown waits for:
// neither of a client that still reads the answer nor of one that has it.
func TestShutdownDespiteAByte(t *testing.T) {
	page := strings.Repeat("x", 8<<20) // more than sockets hold
	eachWay(t, httpWays(t), func(t *testing.T, w way) {
		t.Parallel() // each waits for its moment
		r := serve(t, w, httpConfig(w, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, _ = io.WriteString(w, page)
			}
		}, func(w *server.LeanResponse, r *server.LeanRequest) {
			if string(r.Path()) == "/large" {
				_, _ = w.WriteString(page)
			}
		}))
		waits, reads := newClient(t, r.addr), newClient(t, r.addr)
		_, _ = io.WriteString(waits, "GET / HTTP/1.1\r\nHost: a\r\n\r\nG")
		if got, err := waits.answer("GET"); err != nil || got != "" {
			t.Errorf("the answer is %q, %v", got, err)
		}
		_, _ = io.WriteString(reads, "GET /large HTTP/1.1\r\nHost: a\r\n\r\nG")
		if _, err := reads.in.Peek(1); err != nil { // what the answer says of its connection is decided
			t.Errorf("the large answer: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), soon/4)
		defer cancel()
		down := make(chan error, 1)
		go func() { down <- r.Shutdown(ctx) }()
		take(t, r.ended, "the begin of the end")
		if got := ended(t, waits); len(got) > 0 {
			t.Errorf("behind the answer came %q", got)
		}
		if got, err := reads.answer("GET"); err != nil || got != page {
			t.Errorf("of the answer came %d bytes, %v", len(got), err)
		}
		if err := take(t, down, "the end of Shutdown"); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if got := ended(t, reads); len(got) > 0 {
			t.Errorf("behind the large answer came %q", got)
		}
	})
}
