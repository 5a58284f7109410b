package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// TestSuiteExpect says who sends 100 Continue when.
func TestSuiteExpect(t *testing.T) {
	read := func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", b, err)
	}
	const head = "POST / HTTP/1.1\nHost: a\nContent-Length: 4\nExpect: 100-continue\n\n"
	cases := []struct {
		name, head, body string
		h                http.HandlerFunc
		first            string // the first status
		continues        bool
		kept             bool
		want             string
	}{
		{"read", head, "body", read, "100", true, true, "body <nil>"},
		{
			"read, in capitals", strings.Replace(head, "100-continue", "100-Continue", 1), "body", read, "100", true,
			true,
			"body <nil>",
		},
		{
			"read, chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n",
			"4\nbody\n0\n\n", read, "100", true, true, "body <nil>",
		},
		{"not read", head, "", say("no"), "200", false, false, "no"},
		{"refused", head, "", func(w http.ResponseWriter,
			_ *http.Request,
		) {
			http.Error(w, "no", http.StatusUnauthorized)
		}, "401", false, false, "no\n"},
		{
			"the handler says it", head, "body",
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(100); read(w, r) }, "100", true, true,
			"body <nil>",
		},
		{"no body", "GET / HTTP/1.1\nHost: a\nExpect: 100-continue\n\n", "", read, "200", false, true, " <nil>"},
		{
			"length 0", "POST / HTTP/1.1\nHost: a\nContent-Length: 0\nExpect: 100-continue\n\n", "", read, "200", false,
			true, " <nil>",
		},
		{
			"1.0", "POST / HTTP/1.0\nContent-Length: 4\nExpect: 100-continue\n\nbody", "", read, "200", false, false,
			"body <nil>",
		},
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, nil)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				s.set(c.h)
				conn := s.dial(t)
				conn.send(c.head)
				r := conn.reply(t, "POST")
				if !strings.Contains(r.line, " "+c.first+" ") {
					t.Fatalf("the first answer is %v, want %s", r, c.first)
				}
				if c.continues {
					conn.send(c.body)
					r = conn.reply(t, "POST")
				}
				if r.body != c.want {
					t.Errorf("the answer is %v, want %q", r, c.want)
				}
				if told := r.head.Get("Connection") == "close"; told == c.kept && r.line[:8] != "HTTP/1.0" {
					t.Errorf("the answer is %v, but is the connection to be kept: %v", r, c.kept)
				}
				if c.kept {
					conn.stays(t)
					return
				}
				_ = conn.CloseWrite() // net/http waits for a body that the client may still send
				if rest := conn.rest(t); rest != "" {
					t.Errorf("after the answer came %q", rest)
				}
			})
		}
	})
}

// TestSuiteLateContinue begins the answer before it reads a body that the client holds back: there
// is no 100 Continue in the middle of the answer.
func TestSuiteLateContinue(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			_, _ = io.WriteString(w, "begun")
			flush(w)
			_, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, " ended")
		})
		c := s.dial(t)
		c.send("POST / HTTP/1.1\nHost: a\nContent-Length: 4\nExpect: 100-continue\n\n")
		for c.r.Buffered() == 0 {
			if _, err := c.r.Peek(1); err != nil {
				t.Fatal(err)
			}
		}
		c.send("body")
		got := c.rest(t)
		if strings.Contains(got, "100 Continue") || !strings.Contains(got, "begun") ||
			!strings.Contains(got, " ended") {
			t.Errorf("the answer is %q", got)
		}
	})
}

// TestSuiteUnreadBodies says what becomes of a body that the handler leaves.
func TestSuiteUnreadBodies(t *testing.T) {
	chunked := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n%x\n%s\n0\n\n", n,
			strings.Repeat("x", n))
	}
	length := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\nHost: a\nContent-Length: %d\n\n%s", n, strings.Repeat("x", n))
	}
	partly := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 10))
		say("ok")(w, r)
	}
	closed := func(w http.ResponseWriter, r *http.Request) {
		r.Body.Close()
		if _, err := r.Body.Read(make([]byte, 1)); r.ContentLength != 0 && !errors.Is(err, http.ErrBodyReadAfterClose) {
			panic(fmt.Sprint(err))
		}
		say("ok")(w, r)
	}
	none := func(w http.ResponseWriter, r *http.Request) { r.Body = nil; say("ok")(w, r) }
	flushes := func(w http.ResponseWriter, r *http.Request) { say("ok")(w, r); flush(w) }
	cases := []struct {
		name, send string
		h          http.HandlerFunc
		kept       bool
	}{
		{"small", length(100), say("ok"), true},
		{"small chunked", chunked(100), say("ok"), true},
		{"200 KiB", length(200 << 10), say("ok"), true},
		{"200 KiB chunked", chunked(200 << 10), say("ok"), true},
		{"1 MiB", length(1 << 20), say("ok"), false},
		{"1 MiB chunked", chunked(1 << 20), say("ok"), false},
		{"small, read in part", length(100), partly, true},
		{"200 KiB chunked, read in part", chunked(200 << 10), partly, true},
		{"1 MiB, read in part", length(1 << 20), partly, false},
		{"small, closed", length(100), closed, true},
		{"1 MiB, closed", length(1 << 20), closed, false},
		{"small, body set to nil", length(100), none, true},
		{"small, flushed", length(100), flushes, true},
		{"1 MiB chunked, flushed", chunked(1 << 20), flushes, false},
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, nil)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				s.set(c.h)
				conn := s.dial(t)
				go conn.send(c.send)
				r := conn.reply(t, "POST")
				if r.body != "ok" || (r.head.Get("Connection") == "close") == c.kept {
					t.Errorf("the answer is %v, but is the connection to be kept: %v", r, c.kept)
				}
				if c.kept {
					conn.stays(t)
				} else if rest := conn.rest(t); rest != "" {
					t.Errorf("after the answer came %.100q", rest)
				}
			})
		}
	})
}

// TestSuiteBodyAfterHandler reads a body after the handler has returned: the bytes of the next
// request are not among what comes.
func TestSuiteBodyAfterHandler(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		bodies := make(chan io.ReadCloser, 2)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			bodies <- r.Body
			say("ok")(w, r)
		})
		c := s.dial(t)
		c.send("POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody")
		c.reply(t, "POST")
		old := take(t, bodies, "the request")
		if n, err := old.Read(make([]byte, 10)); n != 0 || err == nil {
			t.Errorf("the body gives %d bytes, %v after the handler", n, err)
		}
		c.stays(t)
		if n, err := old.Read(make([]byte, 10)); n != 0 || err == nil {
			t.Errorf("the body gives %d bytes, %v after the next request", n, err)
		}
		if err := old.Close(); err != nil {
			t.Errorf("Close after the handler: %v", err)
		}
	})
}

// TestSuiteReaderLeftBehind: a goroutine that still waits for the body when the handler returns
// does not keep the answer: it hears of the end. By net/http it does, but for some requests that
// close.
func TestSuiteReaderLeftBehind(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		if p.std() {
			return
		}
		for _, fields := range []string{"Connection: close\n", ""} {
			for _, length := range []string{"Content-Length: 100000\n", "Transfer-Encoding: chunked\n"} {
				reads, failed := make(chan struct{}), make(chan error, 1)
				s := open(t, p, func(_ http.ResponseWriter, r *http.Request) {
					go func() {
						b := make([]byte, 10)
						n, err := r.Body.Read(b) // what has come
						close(reads)
						for err == nil && n > 0 {
							n, err = r.Body.Read(b)
						}
						failed <- err
					}()
					<-reads
				})
				c := s.dial(t)
				c.send("POST / HTTP/1.1\nHost: a\n" + fields + length + "\n4\nab")
				if r := c.reply(t, "POST"); r.status() != 200 {
					t.Errorf("%s%s: the answer is %v", fields, length, r)
				}
				if err := take(t, failed, "the reader"); err == nil {
					t.Errorf("%s%s: the reader got an end that it could not know of", fields, length)
				}
				c.rest(t)
			}
		}
	})
}

// TestSuiteWriteAfterHandler writes after the handler has returned: nothing of it reaches the
// client. Engine std is left out: net/http's writers are used again, and must not be touched by
// then.
func TestSuiteWriteAfterHandler(t *testing.T) {
	ours := slices.DeleteFunc(places(t, server.Goroutine), func(p place) bool { return p.Engine == server.Std })
	in(t, ours, func(t *testing.T, p place) {
		writers := make(chan http.ResponseWriter, 2)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			writers <- w
			say("ok")(w, r)
			if r.URL.Path == "/flushed" {
				flush(w)
			}
		})
		for _, path := range []string{"/flushed", "/"} {
			c := s.dial(t)
			c.send("GET " + path + " HTTP/1.1\nHost: a\n\n")
			c.reply(t, "GET")
			old := take(t, writers, "the request")
			_, _ = old.Write(bytes.Repeat([]byte("late"), 2000))
			flush(old)
			c.send("GET / HTTP/1.1\nHost: a\nConnection: close\n\n")
			if got := c.rest(t); strings.Contains(got, "late") || !strings.HasPrefix(got, "HTTP/1.1 200 OK") {
				t.Errorf("%s: what was written late is in the next answer: %.200q", path, got)
			}
		}
	})
}

// TestSuiteFullDuplex reads the body while it answers, piece by piece.
func TestSuiteFullDuplex(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(200)
			flush(w)
			b := make([]byte, 100)
			for {
				n, err := r.Body.Read(b)
				_, _ = w.Write(bytes.ToUpper(b[:n]))
				flush(w)
				if err != nil {
					return
				}
			}
		})
		in, out := io.Pipe()
		req, _ := http.NewRequest("POST", s.url("/"), in)
		r, err := visitor(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b := make([]byte, 5)
		for i := range 20 {
			fmt.Fprintf(out, "ab%03d", i)
			if _, err := io.ReadFull(r.Body, b); err != nil || string(b) != fmt.Sprintf("AB%03d", i) {
				t.Fatalf("piece %d came back as %q, %v", i, b, err)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(r.Body); len(rest) > 0 || err != nil {
			t.Errorf("at the end came %q, %v", rest, err)
		}
	})
}

// TestSuiteReadAfterWrite reads on after the answer has begun, without full duplex: the server may
// have thrown the rest of the body away, but then it says so. A body must not seem to have ended in
// its middle.
func TestSuiteReadAfterWrite(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const size = 100_000
		said := make(chan string, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.ReadFull(r.Body, make([]byte, 1000))
			_, _ = w.Write(make([]byte, 5000))
			flush(w)
			if err == nil {
				var m int64
				m, err = io.Copy(io.Discard, r.Body)
				n += int(m)
			}
			if n < size && err == nil {
				said <- fmt.Sprintf("the body ended well after %d of %d bytes", n, size)
				return
			}
			said <- ""
		})
		for _, send := range []string{
			fmt.Sprintf("POST / HTTP/1.1\nHost: a\nContent-Length: %d\n\n%s", size, strings.Repeat("x", size)),
			fmt.Sprintf("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n%x\n%s\n0\n\n", size,
				strings.Repeat("x", size)),
		} {
			c := s.dial(t)
			go c.send(send)
			if got := take(t, said, "the end of the handler"); got != "" {
				t.Error(got)
			}
		}
	})
}

// TestSuiteTwoGoroutines reads the body on one goroutine and answers on another.
func TestSuiteTwoGoroutines(t *testing.T) {
	onGoroutines(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			in := make(chan int)
			go func() {
				n, _ := io.Copy(io.Discard, r.Body)
				in <- int(n)
			}()
			for range 100 {
				_, _ = w.Write(make([]byte, 10_000))
			}
			fmt.Fprint(w, <-in)
		})
		for range 3 {
			r, err := visitor(t).Post(s.url("/"), "", bytes.NewReader(make([]byte, 1_000_000)))
			if got := text(t, r, err); len(got) != 1_000_007 || !strings.HasSuffix(got, "1000000") {
				t.Errorf("%d bytes came back", len(got))
			}
		}
	})
}

// TestSuiteRequestTrailers hands the trailers of a request over when its body has been read.
func TestSuiteRequestTrailers(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%v %v", r.Header["Trailer"], r.Trailer)
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, " %v", r.Trailer)
		})
		for _, c := range []struct{ field, trailer, want string }{
			{"Trailer: A, b\n", "A: 1\nb: 2\n", "[] map[A:[] B:[]] map[A:[1] B:[2]]"},
			{"", "A: 1\n", "[] map[] map[A:[1]]"},
			{"Trailer: A\n", "", "[] map[A:[]] map[A:[]]"},
		} {
			r := s.ask(t, "POST / HTTP/1.1\nHost: a\n"+c.field+"Transfer-Encoding: chunked\n\n4\nbody\n0\n"+c.trailer+
				"\n")
			if r.body != c.want {
				t.Errorf("%q: the handler saw %s, want %s", c.field, r.body, c.want)
			}
		}
	})
}

// TestSuiteBrokenBody leaves in the middle of a body.
func TestSuiteBrokenBody(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		said := make(chan error, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			_, again := r.Body.Read(make([]byte, 1))
			if again == nil {
				err = errors.New("no error the second time")
			}
			said <- err
		})
		for _, send := range []string{
			"POST / HTTP/1.1\nHost: a\nContent-Length: 10\n\nhalf",
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n4\nhalf\n",
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n10\nhalf",
		} {
			c := s.dial(t)
			c.send(send)
			_ = c.CloseWrite()
			if err := take(t, said, "the end of the body"); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q: the handler reads %v, want unexpected EOF", send, err)
			}
		}
	})
}

// TestSuiteMaxBytes bounds bodies by http.MaxBytesReader, http.MaxBytesHandler and the
// configuration.
func TestSuiteMaxBytes(t *testing.T) {
	read := func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			http.Error(w, fmt.Sprintf("more than %d", large.Limit), http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprint(w, len(b), err)
	}
	handlers := map[string]http.HandlerFunc{
		"reader": func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 100)
			read(w, r)
		},
		"handler": http.MaxBytesHandler(http.HandlerFunc(read), 100).ServeHTTP,
	}
	everywhere(t, func(t *testing.T, p place) {
		for name, h := range handlers {
			s := open(t, p, h)
			for _, c := range []struct {
				send string
				want string
			}{
				{"POST / HTTP/1.1\nHost: a\nContent-Length: 100\n\n" + strings.Repeat("x", 100), "100 <nil>"},
				{"POST / HTTP/1.1\nHost: a\nContent-Length: 101\n\n" + strings.Repeat("x", 101), "more than 100\n"},
				{
					"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n65\n" + strings.Repeat("x", 101) +
						"\n0\n\n",
					"more than 100\n",
				},
			} {
				conn := s.dial(t)
				conn.send(c.send)
				r := conn.reply(t, "POST")
				if r.body != c.want {
					t.Errorf("%s: %.60q: the answer is %v, want %q", name, c.send, r, c.want)
				}
				if p.std() || r.status() == 200 { // doc.go: ours keeps the connection where little is left
					if closes := r.head.Get("Connection") == "close"; closes != (r.status() != 200) {
						t.Errorf("%s: %.60q: the answer is %v", name, c.send, r)
					}
				}
			}
		}
		s := open(t, p, read, func(c *server.Config) { c.MaxBodyBytes = 100 })
		if r := s.ask(t, "POST / HTTP/1.1\nHost: a\nContent-Length: 101\n\n"+
			strings.Repeat("x", 101)); r.status() != 413 {
			t.Errorf("a body beyond MaxBodyBytes gives %v", r)
		}
	})
}

// TestSuiteStringWriters counts what is written as what is said to be written.
func TestSuiteStringWriters(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			for _, size := range []int{0, 1, 100, 3000, 100_000} {
				if n, err := io.WriteString(w, strings.Repeat("s", size)); n != size || err != nil {
					t.Errorf("WriteString of %d gives %d, %v", size, n, err)
				}
				if n, err := w.Write(bytes.Repeat([]byte("b"), size)); n != size || err != nil {
					t.Errorf("Write of %d gives %d, %v", size, n, err)
				}
			}
		})
		if r := s.get(t, "/"); len(r.body) != 2*103_101 {
			t.Errorf("%d bytes came", len(r.body))
		}
	})
}
