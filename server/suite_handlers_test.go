package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSuiteMux serves by patterns of http.ServeMux.
func TestSuiteMux(t *testing.T) {
	m := http.NewServeMux()
	show := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %s", name, r.Pattern, r.PathValue("id"))
		}
	}
	for _, pattern := range []string{
		"/", "GET /items/{id}", "POST /items/{id}", "/dir/", "/files/{id...}",
		"own.example/", "/exact/{$}",
	} {
		m.HandleFunc(pattern, show("by"))
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, m.ServeHTTP)
		for _, c := range []struct{ method, target, host, want string }{
			{"GET", "/", "a", "by / "},
			{"GET", "/items/7", "a", "by GET /items/{id} 7"},
			{"GET", "/items/a%2Fb", "a", "by GET /items/{id} a/b"},
			{"POST", "/items/7", "a", "by POST /items/{id} 7"},
			{"PUT", "/items/7", "a", "by / "},
			{"GET", "/files/a/b", "a", "by /files/{id...} a/b"},
			{"GET", "/x", "own.example:80", "by own.example/ "},
			{"GET", "/exact/", "a", "by /exact/{$} "},
			{"GET", "/exact/x", "a", "by / "},
			{"GET", "/dir?a=b", "a", "307 /dir/?a=b"},
			{"GET", "/a/../b", "a", "307 /b"},
			{"GET", "//b", "a", "307 /b"},
		} {
			r := s.ask(t, fmt.Sprintf("%s %s HTTP/1.1\nHost: %s\nConnection: close\n\n", c.method, c.target, c.host))
			got := r.body
			if r.status() != 200 {
				got = fmt.Sprint(r.status(), " ", r.head.Get("Location"))
			}
			if got != c.want {
				t.Errorf("%s %s: the answer is %q, want %q: %v", c.method, c.target, got, c.want, r)
			}
		}
	})
}

// TestSuiteFiles serves files: whole, ranges, conditions, HEAD, by io.Copy.
func TestSuiteFiles(t *testing.T) {
	dir := t.TempDir()
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	name := filepath.Join(dir, "data.bin")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	copies := func(declared bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(name)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if declared {
				set(w, "Content-Length", fmt.Sprint(len(data)))
			}
			if n, err := io.Copy(w, f); n != int64(len(data)) || err != nil {
				t.Errorf("%d bytes were copied, %v", n, err)
			}
		}
	}
	tail := func(w http.ResponseWriter, _ *http.Request) { // written, flushed, copied, written
		f, err := os.Open(name)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		set(w, "Content-Length", "25")
		_, _ = io.WriteString(w, "first")
		flush(w)
		_, _ = f.Seek(10, io.SeekStart)
		_, _ = io.CopyN(w, f, 10)
		_, _ = io.WriteString(w, "then")
		_, _ = io.CopyN(w, f, 6)
	}
	m := http.NewServeMux()
	m.Handle("/dir/", http.StripPrefix("/dir/", http.FileServer(http.Dir(dir))))
	m.HandleFunc("/copy", copies(false))
	m.HandleFunc("/declared", copies(true))
	m.HandleFunc("/tail", tail)
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, m.ServeHTTP)
		for _, c := range []struct {
			path, fields string
			status       int
			body         string
			length       string
		}{
			{"/dir/data.bin", "", 200, string(data), fmt.Sprint(len(data))},
			{"/dir/data.bin", "Range: bytes=5-9\n", 206, "56789", "5"},
			{"/dir/data.bin", "Range: bytes=-3\n", 206, "def", "3"},
			{"/dir/data.bin", "Range: bytes=999999-\n", 416, "invalid range: failed to overlap\n", "33"},
			{"/dir/data.bin", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\n", 304, "", ""},
			{"/dir/none", "", 404, "404 page not found\n", "19"},
			{"/copy", "", 200, string(data), ""},
			{"/declared", "", 200, string(data), fmt.Sprint(len(data))},
			{"/tail", "", 200, "first" + "abcdef0123" + "then" + "456789", "25"},
		} {
			conn := s.dial(t)
			for range 2 { // the second time on the same connection
				conn.send("GET " + c.path + " HTTP/1.1\nHost: a\n" + c.fields + "\n")
				r := conn.reply(t, "GET")
				if r.status() != c.status || r.body != c.body || r.head.Get("Content-Length") != c.length ||
					r.cut != nil {
					t.Errorf("%s %s: the answer is %.200v with %d bytes, %v", c.path, c.fields, r, len(r.body), r.cut)
				}
			}
		}
		if r := s.ask(t,
			"HEAD /dir/data.bin HTTP/1.1\nHost: a\n\n"); r.head.Get("Content-Length") != fmt.Sprint(len(data)) {
			t.Errorf("the answer to HEAD is %v", r)
		}
	})
}

// inner is a server behind a proxy: it shows a request, streams, sends hints and trailers, and
// switches protocols.
func inner(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/switch":
			set(w, "Connection", "Upgrade", "Upgrade", "echo")
			w.WriteHeader(101)
			c, rw := hijackHandler(t, w)
			defer c.Close()
			line, _ := rw.ReadString('\n')
			fmt.Fprint(c, line)
		case "/hints":
			set(w, "Link", "</a>")
			w.WriteHeader(103)
			say("hinted")(w, r)
		case "/trailers":
			set(w, "Trailer", "A")
			b, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, len(b))
			flush(w)
			set(w, "A", "1", http.TrailerPrefix+"B", "2")
		case "/abort":
			say("half")(w, r)
			flush(w)
			panic(http.ErrAbortHandler)
		default:
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %d", r.Method, r.URL, len(b))
		}
	}
}

// tryProxy asks what lies behind a proxy.
func tryProxy(t *testing.T, front string) {
	c := visitor(t)
	r, err := c.Post(front+"/p?q=1", "", bytes.NewReader(make([]byte, 100_000)))
	if got := text(t, r, err); got != "POST /p?q=1 100000" {
		t.Errorf("the answer is %q", got)
	}
	r, err = c.Post(front+"/trailers", "", io.MultiReader(strings.NewReader("in "), strings.NewReader("chunks")))
	if got := text(t, r, err); got != "9" || r.Trailer.Get("A") != "1" || r.Trailer.Get("B") != "2" {
		t.Errorf("the answer is %q with trailers %v", got, r.Trailer)
	}
	hints := 0
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") == "</a>" {
				hints++
			}
			return nil
		},
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", front+"/hints", nil)
	r, err = c.Do(req)
	if got := text(t, r, err); got != "hinted" || hints != 1 {
		t.Errorf("the answer is %q after %d hints", got, hints)
	}
	req, _ = http.NewRequest("GET", front+"/switch", nil)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	// without a time-out, which would hide that the body can be written
	r, err = (&http.Client{Transport: c.Transport}).Do(req)
	if err != nil || r.StatusCode != 101 {
		t.Errorf("the answer to an upgrade is %v, %v", r, err)
		return
	}
	defer r.Body.Close()
	_, _ = io.WriteString(r.Body.(io.Writer), "hello\n")
	if b, err := io.ReadAll(r.Body); string(b) != "hello\n" || err != nil {
		t.Errorf("through the upgraded connection came %q, %v", b, err)
	}
	r, err = c.Get(front + "/abort")
	if err == nil {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err == nil {
			t.Errorf("an aborted answer ends well: %q", b)
		}
	}
}

// TestSuiteBehindProxy stands behind a httputil.ReverseProxy that net/http serves.
func TestSuiteBehindProxy(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, inner(t))
		back, _ := url.Parse(s.url("/"))
		front := httptest.NewServer(unlogged(httputil.NewSingleHostReverseProxy(back)))
		defer front.Close()
		tryProxy(t, front.URL)
	})
}

// TestSuiteAsProxy runs a httputil.ReverseProxy in front of net/http.
func TestSuiteAsProxy(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		back := httptest.NewServer(inner(t))
		defer back.Close()
		to, _ := url.Parse(back.URL)
		s := open(t, p, unlogged(httputil.NewSingleHostReverseProxy(to)).ServeHTTP)
		tryProxy(t, "http://"+s.addr)
	})
}

func unlogged(p *httputil.ReverseProxy) http.Handler {
	p.ErrorLog = nil
	p.Transport = &http.Transport{DisableKeepAlives: true}
	return p
}

// TestSuiteStreams sends events as they happen, and is told when the client has left: by Write, if
// Flush cannot say it.
func TestSuiteStreams(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for _, how := range []string{"http.Flusher", "http.ResponseController"} {
			left := make(chan error, 1)
			s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
				for end := time.Now().Add(suitePatience / 2); time.Now().Before(end); {
					if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
						left <- err
						return
					}
					if how == "http.Flusher" {
						w.(http.Flusher).Flush()
					} else if err := http.NewResponseController(w).Flush(); err != nil {
						left <- err
						return
					}
				}
				left <- nil
			})
			c := s.dial(t)
			c.send("GET / HTTP/1.1\nHost: a\n\n")
			if _, err := io.CopyN(io.Discard, c.r, 10_000); err != nil {
				t.Error(err)
			}
			c.Close()
			if err := take(t, left, "the end of the handler"); err == nil {
				t.Errorf("%s: Write and Flush go on although the client has left", how)
			}
		}
	})
}

// TestSuiteFailedWrite fails in the middle of a body, by a write deadline. The failure stays: later
// Writes and Flushes fail, too, and nothing of a next answer gets into the body.
func TestSuiteFailedWrite(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const size = 32 << 20
		said := make(chan string, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/next" {
				say("the next answer")(w, r)
				return
			}
			set(w, "Content-Length", fmt.Sprint(size+100))
			rc := http.NewResponseController(w)
			_ = rc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, err := w.Write(make([]byte, size))
			_ = rc.SetWriteDeadline(time.Time{})
			_, err2 := w.Write([]byte("late"))
			err3 := rc.Flush()
			_, err4 := w.Write([]byte("later"))
			said <- fmt.Sprint(err != nil, err2 != nil || err3 != nil, err4 != nil)
		})
		c := s.dial(t)
		c.send("GET /large HTTP/1.1\nHost: a\n\nGET /next HTTP/1.1\nHost: a\n\n")
		if got := take(t, said, "the end of the handler"); got != "true true true" {
			t.Errorf("did the first Write fail, the next with Flush, and one after: %s, want true true true", got)
		}
		got, _ := io.ReadAll(c.r)
		if bytes.Contains(got, []byte("late")) || bytes.Contains(got, []byte("the next answer")) {
			t.Errorf("something else is in the body: %.300q", got[bytes.LastIndexByte(got, 0)+1:])
		}
	})
}
