package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// file makes a file that holds b.
func file(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.bin")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSuiteFileShrinks truncates a file while it is sent. The answer ends early and the connection
// with it, so that nobody takes what follows for the rest of the file; other connections go on.
func TestSuiteFileShrinks(t *testing.T) {
	const size, left = 32 << 20, 1 << 20
	want := bytes.Repeat(message(1<<20, 2), size>>20)
	everywhere(t, func(t *testing.T, p place) {
		path := file(t, want)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/file" {
				http.ServeFile(w, r, path)
			}
		})
		c := s.dial(t)
		c.send("GET /file HTTP/1.1\nHost: a\n\nGET /again HTTP/1.1\nHost: a\n\n")
		if _, err := c.r.Peek(1); err != nil { // it is being sent, and cannot all be under way
			t.Fatal(err)
		}
		if err := os.Truncate(path, left); err != nil {
			t.Fatal(err)
		}
		if got := s.get(t, "/other"); got.status() != 200 {
			t.Errorf("another connection gets %v", got)
		}
		r := c.reply(t, "GET")
		if r.status() != 200 || r.cut == nil || len(r.body) >= size {
			t.Errorf("%d bytes come of a file that was cut: %s, %v", len(r.body), r.line, r.cut)
		}
		if rest := c.rest(t); rest != "" {
			t.Errorf("after the cut comes %.100q", rest)
		}
	})
}

// TestSuiteFileGrows appends to a file while it is sent: the answer has the length that was
// promised.
func TestSuiteFileGrows(t *testing.T) {
	want := bytes.Repeat(message(1<<20, 3), 32)
	everywhere(t, func(t *testing.T, p place) {
		path := file(t, want)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) })
		c := s.dial(t)
		c.send("GET /file.bin HTTP/1.1\nHost: a\n\n")
		if _, err := c.r.Peek(1); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("this is new"); err != nil {
			t.Fatal(err)
		}
		if r := c.reply(t, "GET"); r.body != string(want) {
			t.Errorf("%d bytes come, want the %d that were promised", len(r.body), len(want))
		}
		c.stays(t)
	})
}

// TestSuiteCopyFrom copies to the ResponseWriter from what kernels can send without a copy: files
// at an offset and limited, pipes, and sockets; with a length, in chunks, after a first Write, and
// to clients of HTTP/1.0.
func TestSuiteCopyFrom(t *testing.T) {
	const size = 1 << 20
	data := message(size, 4)
	onGoroutines(t, func(t *testing.T, p place) {
		path := file(t, data)
		sources := map[string]func() io.Reader{
			"file": func() io.Reader { f, _ := os.Open(path); return f },
			"part": func() io.Reader {
				f, _ := os.Open(path)
				_, _ = f.Seek(1000, io.SeekStart)
				return io.LimitReader(f, size-2000)
			},
			"pipe": func() io.Reader {
				r, w, _ := os.Pipe()
				go func() { _, _ = w.Write(data); w.Close() }()
				return r
			},
			"socket": func() io.Reader { return feed(t, data) },
			"none":   func() io.Reader { f, _ := os.Open(os.DevNull); return f },
		}
		wants := map[string]string{
			"file": string(data), "part": string(data[1000 : size-1000]), "pipe": string(data),
			"socket": string(data),
		}
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			from, how := r.URL.Query().Get("from"), r.URL.Query().Get("how")
			want := wants[from]
			first := ""
			if strings.Contains(how, "write") {
				first = "first"
			}
			if strings.Contains(how, "length") {
				w.Header().Set("Content-Length", fmt.Sprint(len(first+want)))
			}
			_, _ = io.WriteString(w, first)
			if strings.Contains(how, "flush") {
				_ = http.NewResponseController(w).Flush()
			}
			src := sources[from]()
			n, err := io.Copy(w, src)
			if c, ok := src.(io.Closer); ok {
				c.Close()
			}
			if r.Method != "HEAD" && (err != nil || n != int64(len(want))) {
				t.Errorf("%s, %s: Copy gives %d, %v, want %d", from, how, n, err, len(want))
			}
		})
		for from := range sources {
			for _, how := range []string{"", "length", "write", "write+flush", "length+write+flush", "flush"} {
				want := wants[from]
				if strings.Contains(how, "write") {
					want = "first" + want
				}
				for _, version := range []string{"HTTP/1.1\nHost: a", "HTTP/1.0"} {
					r := s.ask(t, fmt.Sprintf("GET /?from=%s&how=%s %s\n\n", from, url.QueryEscape(how), version))
					if r.body != want || r.cut != nil {
						t.Errorf("%s, %s, %.8s: %d bytes come, want %d, %v", from, how, version, len(r.body), len(want),
							r.cut)
					}
				}
				c := s.dial(t)
				c.send(fmt.Sprintf("HEAD /?from=%s&how=%s HTTP/1.1\nHost: a\n\n", from, url.QueryEscape(how)))
				if r := c.reply(t, "HEAD"); r.status() != 200 {
					t.Errorf("%s, %s: HEAD gives %v", from, how, r)
				}
				c.send(fmt.Sprintf("GET /?from=%s&how=%s HTTP/1.1\nHost: a\n\n", from, url.QueryEscape(how)))
				if r := c.reply(t, "GET"); r.body != want {
					t.Errorf("%s, %s: after HEAD %d bytes come, want %d", from, how, len(r.body), len(want))
				}
			}
		}
	})
}

// feed gives a connection on which b comes.
func feed(t testing.TB, b []byte) io.Reader {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer ln.Close()
	go func() {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = c.Write(b)
		c.Close()
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Error(err)
		return nil
	}
	_ = c.SetReadDeadline(time.Now().Add(suitePatience))
	return c
}

// TestSuiteReverseProxy has a proxy of net/http on each engine, before another server of the same:
// bodies, trailers, an upgrade, and a client that leaves are handed on.
func TestSuiteReverseProxy(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		left := make(chan struct{}, 1)
		back := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/leave":
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				left <- struct{}{}
			case "/coder", "/gorilla":
				echoSocket(w, r)
			default:
				w.Header().Set("Trailer", "Sum")
				b, _ := io.ReadAll(r.Body)
				_, _ = w.Write(b)
				w.Header().Set("Sum", fmt.Sprint(len(b)))
			}
		})
		to, _ := url.Parse(back.url("/"))
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.Transport = tr
		front := open(t, p, proxy.ServeHTTP)
		c := visitor(t)
		for i, size := range []int{0, 1, 5000, 300_000, 2_000_000} {
			want := message(size, uint64(i))
			// with a length, and in chunks
			for _, body := range []io.Reader{bytes.NewReader(want), io.MultiReader(bytes.NewReader(want))} {
				resp, err := c.Post(front.url("/"), "text/plain", body)
				if got := text(t, resp, err); got != string(want) || resp.Trailer.Get("Sum") != fmt.Sprint(size) {
					t.Errorf("%d bytes come back of %d", len(got), size)
				}
			}
		}
		for _, k := range socketKinds {
			ws := dialGorilla(t, "ws://"+front.addr, k, nil)
			want := message(100_000, 9)
			if err := ws.WriteMessage(1, want); err != nil {
				t.Error(err)
			} else if _, got, err := ws.ReadMessage(); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v through a proxy: %d bytes come back, %v", k, len(got), err)
			}
			ws.Close()
		}
		gone := front.dial(t)
		gone.send("GET /leave HTTP/1.1\nHost: a\n\n")
		if _, err := gone.r.Peek(1); err != nil {
			t.Error(err)
		}
		gone.Close()
		take(t, left, "the context behind the proxy to end")
	})
}

// TestSuiteFileToSilentClient sends a file to a client that reads nothing: others are answered
// meanwhile, WriteTimeout ends the connection, and so does Close.
func TestSuiteFileToSilentClient(t *testing.T) {
	path := file(t, bytes.Repeat(message(1<<20, 5), 64))
	for _, ends := range []string{"answers", "times out", "closes"} {
		t.Run(ends, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p place) {
				limit := time.Hour
				if ends == "times out" {
					limit = 300 * time.Millisecond
				}
				over := make(chan struct{}, 100)
				s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/file" {
						_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
						http.ServeFile(w, r, path)
						over <- struct{}{}
					}
				})
				asked := 0
				inTime(t, limit, func() error {
					c := s.dial(t)
					c.send("GET /file HTTP/1.1\nHost: a\n\n")
					asked++
					_, err := c.r.Peek(1)
					return err
				})
				switch ends {
				case "answers":
					for range 20 {
						other := s.dial(t)
						other.send("GET / HTTP/1.1\nHost: a\n\n")
						if r, err := readReply(other.r, "GET"); err != nil {
							t.Fatalf("while a file is sent, others get %v, %v", r, err)
						}
						other.Close()
					}
					return
				case "closes":
					if !eventually(func() bool { return s.get(t, "/").status() == 200 }) {
						t.Error("others are not answered")
					}
					closed := make(chan error, 1)
					go func() { closed <- s.Close() }()
					take(t, closed, "Close to end while a file is sent")
				}
				for range asked {
					take(t, over, "the handler that sends the file to end")
				}
			})
		})
	}
}
