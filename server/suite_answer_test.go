package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func set(w http.ResponseWriter, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		w.Header().Add(pairs[i], pairs[i+1])
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

const (
	plain = "Content-Type: text/plain; charset=utf-8"
	html  = "Content-Type: text/html; charset=utf-8"
)

// TestSuiteAnswers says what a handler's calls become on the wire. @ stands for the status line of
// 200 and the type of plain text.
func TestSuiteAnswers(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := []struct {
		name    string
		request string // "" is a plain GET
		h       http.HandlerFunc
		want    string
	}{
		// lengths
		{"nothing", "", func(http.ResponseWriter, *http.Request) {}, "HTTP/1.1 200 OK; Content-Length: 0 | "},
		{"short", "", say("hi"), "HTTP/1.1 200 OK; Content-Length: 2; " + plain + " | hi"},
		{
			"two writes", "", func(w http.ResponseWriter, r *http.Request) { say("hi")(w, r); say("ho")(w, r) },
			"HTTP/1.1 200 OK; Content-Length: 4; " + plain + " | hiho",
		},
		{"long", "", say(long), "HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | " + long},
		{"declared", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "5000")
			say(long)(w, r)
		}, "HTTP/1.1 200 OK; Content-Length: 5000; " + plain + " | " + long},
		{"declared too short", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "3")
			_, err := io.WriteString(w, "abc")
			_, err2 := io.WriteString(w, "d")
			if err != nil || !errors.Is(err2, http.ErrContentLength) {
				panic(fmt.Sprint(err, err2))
			}
		}, "HTTP/1.1 200 OK; Content-Length: 3; " + plain + " | abc"},
		{"declared too long", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "9")
			say("abc")(w, r)
		}, "HTTP/1.1 200 OK; Content-Length: 9; " + plain + " | abc <cut>"},
		{"declared as no number", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "many")
			say("abc")(w, r)
		}, "HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | abc"},
		{"declared negative", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "-1")
			say("abc")(w, r)
		}, "HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | abc"},
		{"switched off", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Length"] = nil
			say("abc")(w, r)
		}, "HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | abc"},
		{
			"flushed", "", func(w http.ResponseWriter, r *http.Request) { say("abc")(w, r); flush(w) },
			"HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | abc",
		},
		{
			"flushed before anything", "", func(w http.ResponseWriter, r *http.Request) { flush(w); say("abc")(w, r) },
			"HTTP/1.1 200 OK; Transfer-Encoding: chunked | abc",
		},
		{
			"empty write", "", func(w http.ResponseWriter, r *http.Request) { say("")(w, r) },
			"HTTP/1.1 200 OK; Content-Length: 0 | ",
		},
		{"1.0 long", "GET / HTTP/1.0\n\n", say(long), "HTTP/1.0 200 OK; " + plain + " | " + long},

		// header fields
		{"after WriteHeader", "", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			set(w, "Late", "x")
		}, "HTTP/1.1 201 Created; Content-Length: 0 | "},
		{"after a small Write", "", func(w http.ResponseWriter, r *http.Request) {
			say("hi")(w, r)
			set(w, "Late", "x")
		}, "HTTP/1.1 200 OK; Content-Length: 2; " + plain + " | hi"},
		{"map kept aside", "", func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			w.WriteHeader(200)
			h.Set("Late", "x")
		}, "HTTP/1.1 200 OK; Content-Length: 0 | "},
		{"two WriteHeaders", "", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(500)
		}, "HTTP/1.1 404 Not Found; Content-Length: 0 | "},
		{
			"line breaks", "", func(w http.ResponseWriter,
				r *http.Request,
			) {
				set(w, "A", "x\r\nInjected: y", "B", " z\n ")
			},
			"HTTP/1.1 200 OK; A: x  Injected: y; B: z; Content-Length: 0 | ",
		},
		{"bad names", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Bad Name"] = []string{"x"}
			w.Header()["A:b"] = []string{"x"}
			w.Header()[""] = []string{"x"}
		}, "HTTP/1.1 200 OK; Content-Length: 0 | "},
		{
			"several values", "", func(w http.ResponseWriter, r *http.Request) { set(w, "A", "1", "A", "2") },
			"HTTP/1.1 200 OK; A: 1; A: 2; Content-Length: 0 | ",
		},
		{
			"empty value", "", func(w http.ResponseWriter, r *http.Request) { set(w, "A", "") },
			"HTTP/1.1 200 OK; A: ; Content-Length: 0 | ",
		},
		{
			"unknown status", "", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(799) },
			"HTTP/1.1 799 status code 799; Content-Length: 0 | ",
		},

		// types
		{"sniffed", "", say("<html>"), "HTTP/1.1 200 OK; Content-Length: 6; " + html + " | <html>"},
		{
			"sniffed over two writes", "",
			func(w http.ResponseWriter, r *http.Request) { say("<ht")(w, r); say("ml>")(w, r) },
			"HTTP/1.1 200 OK; Content-Length: 6; " + html + " | <html>",
		},
		{"no type wanted", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Content-Length: 2 | hi"},
		{"empty type", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Type", "")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Content-Length: 2; Content-Type:  | hi"},
		{"encoded is not sniffed", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Encoding", "gzip")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Content-Encoding: gzip; Content-Length: 2 | hi"},
		{"empty encoding is sniffed", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Encoding", "")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Content-Encoding: ; Content-Length: 2; " + plain + " | hi"},

		// answers without a body
		{"204", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "3", "Content-Type", "a/b")
			w.WriteHeader(204)
			if _, err := w.Write([]byte("abc")); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(fmt.Sprint(err))
			}
		}, "HTTP/1.1 204 No Content; Content-Type: a/b | "},
		{"304", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "3", "Content-Type", "a/b", "ETag", "x")
			w.WriteHeader(304)
			if _, err := w.Write([]byte("abc")); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(fmt.Sprint(err))
			}
		}, "HTTP/1.1 304 Not Modified; Etag: x | "},
		{"HEAD", "HEAD / HTTP/1.1\nHost: a\n\n", say("hi"), "HTTP/1.1 200 OK; Content-Length: 2; " + plain + " | "},
		{"HEAD long", "HEAD / HTTP/1.1\nHost: a\n\n", say(long), "HTTP/1.1 200 OK; " + plain + " | "},
		{
			"HEAD without a write", "HEAD / HTTP/1.1\nHost: a\n\n", func(http.ResponseWriter, *http.Request) {},
			"HTTP/1.1 200 OK | ",
		},
		{
			"HEAD declared", "HEAD / HTTP/1.1\nHost: a\n\n",
			func(w http.ResponseWriter, r *http.Request) { set(w, "Content-Length", "77") },
			"HTTP/1.1 200 OK; Content-Length: 77 | ",
		},
		{"HEAD declared and written", "HEAD / HTTP/1.1\nHost: a\n\n", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "2")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Content-Length: 2; " + plain + " | "},
		{
			"HEAD flushed", "HEAD / HTTP/1.1\nHost: a\n\n",
			func(w http.ResponseWriter, r *http.Request) { say("hi")(w, r); flush(w) },
			"HTTP/1.1 200 OK; " + plain + " | ",
		},
		{"HEAD in chunks", "HEAD / HTTP/1.1\nHost: a\n\n", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "chunked")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK | "},

		// transfer encodings that handlers set
		{"chunked", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "chunked")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Transfer-Encoding: chunked | hi"},
		{"chunked beside a length", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "chunked", "Content-Length", "2")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Transfer-Encoding: chunked | hi"},
		{"identity", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "identity")
			flush(w)
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Connection: close | hi"},
		{"identity beside a length", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "identity", "Content-Length", "2")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; Content-Length: 2 | hi"},
		{"1.0 chunked", "GET / HTTP/1.0\n\n", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "chunked")
			say("hi")(w, r)
		}, "HTTP/1.0 200 OK | hi"},
		{"204 chunked", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Transfer-Encoding", "chunked")
			w.WriteHeader(204)
		}, "HTTP/1.1 204 No Content | "},

		// trailers
		{"declared trailer", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Trailer", "A, B", "Trailer", "C")
			say("hi")(w, r)
			set(w, "A", "1", "B", "2", "B", "3", "Other", "no")
		}, "HTTP/1.1 200 OK; " + plain +
			"; Trailer: A, B; Trailer: C; Transfer-Encoding: chunked | hi; ~A: 1; ~B: 2; ~B: 3"},
		{"declared trailer, flushed", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Trailer", "a")
			flush(w)
			say("hi")(w, r)
			set(w, "A", "1")
		}, "HTTP/1.1 200 OK; Trailer: a; Transfer-Encoding: chunked | hi; ~A: 1"},
		{"undeclared trailer", "", func(w http.ResponseWriter, r *http.Request) {
			say("hi")(w, r)
			flush(w)
			set(w, http.TrailerPrefix+"A", "1")
		}, "HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | hi; ~A: 1"},
		{"undeclared trailer set early", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, http.TrailerPrefix+"A", "1")
			say("hi")(w, r)
		}, "HTTP/1.1 200 OK; " + plain + "; Transfer-Encoding: chunked | hi; ~A: 1"},
		{"trailers that may not be", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Trailer", "Content-Length, Transfer-Encoding, Trailer, A")
			say("hi")(w, r)
			set(w, "A", "1\r\nInjected: x", "Content-Length", "7")
		}, "HTTP/1.1 200 OK; " + plain +
			"; Trailer: Content-Length, Transfer-Encoding, Trailer, A; Transfer-Encoding: chunked | hi; ~A: 1  Injected: x"},
		{"trailer beside a length", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Trailer", "A", "Content-Length", "2")
			say("hi")(w, r)
			set(w, "A", "1")
		}, "HTTP/1.1 200 OK; Content-Length: 2; " + plain + "; Trailer: A | hi"},

		// helpers of net/http
		{"http.Error", "", func(w http.ResponseWriter, r *http.Request) {
			set(w, "Content-Length", "999")
			http.Error(w, "no", 500)
		}, "HTTP/1.1 500 Internal Server Error; Content-Length: 3; " + plain +
			"; X-Content-Type-Options: nosniff | no\n"},
		{
			"redirect", "GET /a/b HTTP/1.1\nHost: a\n\n",
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "../c?d", http.StatusFound) },
			"HTTP/1.1 302 Found; Content-Length: 27; " + html +
				"; Location: /c?d | <a href=\"/c?d\">Found</a>.\n\n",
		},
		{
			"redirect of a POST", "POST /a/b HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/c", http.StatusSeeOther) },
			"HTTP/1.1 303 See Other; Content-Length: 0; Location: /c | ",
		},
		{
			"not found", "", http.NotFound,
			"HTTP/1.1 404 Not Found; Content-Length: 19; " + plain +
				"; X-Content-Type-Options: nosniff | 404 page not found\n",
		},
		{
			"strip prefix", "GET /a/b HTTP/1.1\nHost: a\n\n",
			http.StripPrefix("/a",
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })).ServeHTTP,
			"HTTP/1.1 200 OK; Content-Length: 2; " + plain + " | /b",
		},
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, nil)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				s.set(c.h)
				request := c.request
				if request == "" {
					request = "GET / HTTP/1.1\nHost: a\n\n"
				}
				conn := s.dial(t)
				conn.send(request)
				_ = conn.CloseWrite()
				r := conn.reply(t, strings.Fields(request)[0])
				if got := r.String(); got != c.want {
					t.Errorf("the answer is\n%.300q, want\n%.300q", got, c.want)
				}
				if d, err := http.ParseTime(r.head.Get("Date")); err != nil || time.Since(d).Abs() > time.Minute {
					t.Errorf("Date is %q, %v", r.head.Get("Date"), err)
				}
				if rest := conn.rest(t); rest != "" {
					t.Errorf("after the answer came %q", rest)
				}
			})
		}
	})
}

// TestSuiteForeignCoding leaves a body to a handler that says that it encodes it itself: what it
// set goes out, and the client can tell where the body ends.
func TestSuiteForeignCoding(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, _ *http.Request) {
			set(w, "Transfer-Encoding", "gzip")
			_, _ = io.WriteString(w, "bytes in gzip")
		})
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\nConnection: close\n\n")
		got := c.rest(t)
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		for _, field := range []string{"Transfer-Encoding: gzip", "Transfer-Encoding: chunked"} {
			if !strings.Contains(head+"\r\n", field+"\r\n") {
				t.Errorf("the head lacks %q: %q", field, head)
			}
		}
		if body != "d\r\nbytes in gzip\r\n0\r\n\r\n" {
			t.Errorf("the body is %q", body)
		}
	})
}

// TestSuiteOwnDate leaves Date to the handler.
func TestSuiteOwnDate(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = map[string][]string{"/none": nil, "/own": {"today"}}[r.URL.Path]
		})
		for path, want := range map[string]string{"/none": "[]", "/own": "[today]"} {
			if r := s.get(t, path); fmt.Sprint(r.head["Date"]) != want {
				t.Errorf("%s: Date is %v, want %v", path, r.head["Date"], want)
			}
		}
	})
}

// TestSuiteChunks looks at chunks: what a handler writes byte by byte after a Flush must not become
// a chunk for each byte.
func TestSuiteChunks(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			flush(w)
			for range 1000 {
				_, _ = w.Write([]byte("x"))
			}
			if r.URL.Path == "/twice" {
				flush(w)
				for range 1000 {
					_, _ = io.WriteString(w, "y")
				}
			}
		})
		for path, want := range map[string]int{"/once": 1, "/twice": 2} {
			if r := s.get(t, path); len(r.chunks) != want || len(r.body) != 1000*want {
				t.Errorf("%s: %d bytes came in %d chunks, want %d", path, len(r.body), len(r.chunks), want)
			}
		}
		s.set(func(w http.ResponseWriter, r *http.Request) { // never flushed, and too long for a length
			for range 10_000 {
				_, _ = w.Write([]byte("x"))
			}
		})
		if r := s.get(t, "/"); len(r.chunks) > 10 || len(r.body) != 10_000 {
			t.Errorf("%d bytes came in %d chunks, want at most 10", len(r.body), len(r.chunks))
		}
	})
}

// TestSuiteInformational sends answers of 1xx before the last one.
func TestSuiteInformational(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			set(w, "Link", "</a>", "Content-Length", "2")
			w.WriteHeader(http.StatusEarlyHints)
			set(w, "Link", "</b>")
			w.WriteHeader(http.StatusProcessing)
			_, _ = io.WriteString(w, "hi")
		})
		c := s.dial(t)
		c.send("GET / HTTP/1.1\nHost: a\n\n")
		for i, want := range []string{
			"HTTP/1.1 103 Early Hints; Link: </a> | ",
			"HTTP/1.1 102 Processing; Link: </a>; Link: </b> | ",
			"HTTP/1.1 200 OK; Content-Length: 2; " + plain + "; Link: </a>; Link: </b> | hi",
		} {
			if got := c.reply(t, "GET").String(); got != want {
				t.Errorf("answer %d is %q, want %q", i, got, want)
			}
		}
		c.stays(t)
	})
}

// TestSuiteBadStatus panics on a status that is none.
func TestSuiteBadStatus(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			for _, code := range []int{0, 99, 1000, -1} {
				func() {
					defer func() { // the words are those that people look for
						if got, want := recover(), fmt.Sprintf("invalid WriteHeader code %v", code); got != want {
							t.Errorf("WriteHeader(%d) panics with %v, want %q", code, got, want)
						}
					}()
					w.WriteHeader(code)
				}()
			}
			w.WriteHeader(200)
		})
		if r := s.get(t, "/"); r.status() != 200 {
			t.Errorf("the answer is %v", r)
		}
	})
}

// TestSuiteSuperfluousWriteHeader names the line of the handler in the log.
func TestSuiteSuperfluousWriteHeader(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.WriteHeader(500)
		})
		s.get(t, "/")
		for _, part := range []string{"superfluous", "suite_answer_test.go:"} {
			if log := s.log.String(); !strings.Contains(log, part) {
				t.Errorf("the log lacks %q: %s", part, log)
			}
		}
	})
}

// TestSuiteWriterInterfaces says what a ResponseWriter can do beside being one.
func TestSuiteWriterInterfaces(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			for name, ok := range map[string]bool{
				"http.Flusher":    is[http.Flusher](w),
				"http.Hijacker":   is[http.Hijacker](w),
				"io.ReaderFrom":   is[io.ReaderFrom](w),
				"io.StringWriter": is[io.StringWriter](w),
			} {
				if !ok {
					t.Errorf("the ResponseWriter is no %s", name)
				}
			}
			if is[http.Pusher](w) {
				t.Error("the ResponseWriter of HTTP/1 is an http.Pusher")
			}
		})
		s.get(t, "/")
	})
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// TestSuiteReadFrom copies from readers of all kinds; a Read that fails is told.
func TestSuiteReadFrom(t *testing.T) {
	broken := errors.New("broken")
	everywhere(t, func(t *testing.T, p place) {
		for _, size := range []int{0, 1, 600, 2048, 2049, 5000, 100_000} {
			data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/declared" {
					set(w, "Content-Length", fmt.Sprint(size))
				}
				n, err := io.Copy(w, struct{ io.Reader }{bytes.NewReader(data)})
				if n != int64(size) || err != nil {
					t.Errorf("%d of %d bytes were copied, %v", n, size, err)
				}
				n, err = io.Copy(w, io.MultiReader(strings.NewReader(""), failing{broken}))
				if n != 0 || !errors.Is(err, broken) {
					t.Errorf("a reader that fails gives %d, %v", n, err)
				}
			})
			for _, path := range []string{"/", "/declared"} {
				if r := s.get(t, path); r.body != string(data) || r.cut != nil {
					t.Errorf("%s: %d bytes came of %d, %v", path, len(r.body), size, r.cut)
				}
			}
		}
	})
}

type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
