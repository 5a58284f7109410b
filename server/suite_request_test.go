package server_test

import (
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// describe answers with what it sees of a request.
func describe(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s uri=%q path=%q raw=%q query=%q host=%q len=%d te=%v close=%v body=%q %v",
		r.Method, r.Proto, r.RequestURI, r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.Host, r.ContentLength,
		r.TransferEncoding, r.Close, b, err != nil)
}

// TestSuiteRequests says which requests are understood, and as what. strict is our answer where
// doc.go says that we refuse what net/http repairs.
func TestSuiteRequests(t *testing.T) {
	const ok = 200
	cases := []struct {
		name, send string
		want       int
		strict     int
		body       string // a part of the answer
	}{
		{
			"plain", "GET /a/b?c=d HTTP/1.1\nHost: x\n\n", ok, 0,
			`uri="/a/b?c=d" path="/a/b" raw="" query="c=d" host="x" len=0`,
		},
		{"escaped path", "GET /a%2fb%20c HTTP/1.1\nHost: x\n\n", ok, 0, `path="/a/b c" raw="/a%2fb%20c"`},
		{"two slashes", "GET //a//b HTTP/1.1\nHost: x\n\n", ok, 0, `path="//a//b"`},
		{
			"absolute form", "GET http://other/p?q HTTP/1.1\nHost: x\n\n", ok, 0,
			`path="/p" raw="" query="q" host="other"`,
		},
		{"absolute form with a port", "GET http://other:81/p HTTP/1.1\nHost: x\n\n", ok, 0, `host="other:81"`},
		{
			"absolute form without a path", "GET http://other HTTP/1.1\nHost: x\n\n", ok, 0,
			`path="" raw="" query="" host="other"`,
		},
		{"absolute form of another scheme", "GET ftp://other/p HTTP/1.1\nHost: x\n\n", ok, 0, `host="other"`},
		{"star to a handler", "GET * HTTP/1.1\nHost: x\n\n", ok, 0, `uri="*" path="*"`},
		{"OPTIONS path", "OPTIONS /p HTTP/1.1\nHost: x\n\n", ok, 0, `OPTIONS HTTP/1.1 uri="/p"`},
		{"own method", "BREW /p HTTP/1.1\nHost: x\n\n", ok, 0, "BREW "},
		{"method in lower case", "get /p HTTP/1.1\nHost: x\n\n", ok, 0, "get "},
		{"semicolons", "GET /?a=1;b=2 HTTP/1.1\nHost: x\n\n", ok, 0, `query="a=1;b=2"`},
		{"fragment", "GET /a#b HTTP/1.1\nHost: x\n\n", ok, 0, `uri="/a#b" path="/a#b"`},
		{"bytes beyond ASCII", "GET /\xc3\xa4 HTTP/1.1\nHost: x\n\n", ok, 0, "path=\"/ä\""},
		{"question mark alone", "GET /? HTTP/1.1\nHost: x\n\n", ok, 0, `uri="/?" path="/"`},
		{"host with a port", "GET / HTTP/1.1\nHost: x:80\n\n", ok, 0, `host="x:80"`},
		{"host of IPv6", "GET / HTTP/1.1\nHost: [::1]:80\n\n", ok, 0, `host="[::1]:80"`},
		{"host empty", "GET / HTTP/1.1\nHost:\n\n", ok, 0, `host=""`},
		{"host with an underscore", "GET / HTTP/1.1\nHost: a_b\n\n", ok, 0, `host="a_b"`},
		{"field without a value", "GET / HTTP/1.1\nHost: x\nEmpty:\n\n", ok, 0, ""},
		{"field with tabs", "GET / HTTP/1.1\nHost: x\nF:\t a \t\n\n", ok, 0, ""},
		{"field beyond ASCII", "GET / HTTP/1.1\nHost: x\nF: \xff\xe4\n\n", ok, 0, ""},
		{"1.0 without a host", "GET / HTTP/1.0\n\n", ok, 0, `HTTP/1.0 uri="/"`},
		{"length 0", "POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\n", ok, 0, `len=0 te=[] close=false body=""`},
		{
			"length with zeros in front", "POST / HTTP/1.1\nHost: x\nContent-Length: 003\n\nabc", ok, 0,
			`len=3 te=[] close=false body="abc"`,
		},
		{"GET with a body", "GET / HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc", ok, 0, `body="abc"`},
		{
			"chunked", "POST / HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", ok, 0,
			`len=-1 te=[chunked] close=false body="abc" false`,
		},
		{
			"chunked in capitals", "POST / HTTP/1.1\nHost: x\nTransfer-Encoding: Chunked\n\n3\nabc\n0\n\n", ok, 0,
			`te=[chunked]`,
		},
		{
			"chunk extension", "POST / HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n3;a=b\nabc\n0;c\n\n", ok, 0,
			`body="abc" false`,
		},
		{
			"chunk sizes in capitals", "POST / HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\nA\n0123456789\n0\n\n",
			ok,
			0, `body="0123456789" false`,
		},
		{
			"CONNECT", "CONNECT a:443 HTTP/1.1\nHost: a:443\n\n", ok, 0,
			`CONNECT HTTP/1.1 uri="a:443" path="" raw="" query="" host="a:443"`,
		},
		{"CONNECT with a path", "CONNECT /rpc HTTP/1.1\nHost: a\n\n", ok, 0, `uri="/rpc" path="/rpc"`},

		{"no host", "GET / HTTP/1.1\n\n", 400, 0, "missing required Host header"},
		{"two hosts", "GET / HTTP/1.1\nHost: a\nHost: b\n\n", 400, 0, ""},
		{"host with a space", "GET / HTTP/1.1\nHost: a b\n\n", 400, 0, ""},
		{"host beyond ASCII", "GET / HTTP/1.1\nHost: \xff\n\n", 400, 0, ""},
		{"name with a space", "GET / HTTP/1.1\nHost: a\nfoo bar: x\n\n", 400, 0, ""},
		{"space before the colon", "GET / HTTP/1.1\nHost: a\nfoo : x\n\n", 400, 0, ""},
		{"no colon", "GET / HTTP/1.1\nHost: a\nfoo\n\n", 400, 0, ""},
		{"empty name", "GET / HTTP/1.1\nHost: a\n: x\n\n", 400, 0, ""},
		{"control character in a value", "GET / HTTP/1.1\nHost: a\nfoo: a\x01b\n\n", 400, 0, ""},
		{"NUL in a value", "GET / HTTP/1.1\nHost: a\nfoo: a\x00b\n\n", 400, 0, ""},
		{"NUL in a name", "GET / HTTP/1.1\nHost: a\nf\x00o: b\n\n", 400, 0, ""},
		{"first field begins with a space", "GET / HTTP/1.1\n Host: a\n\n", 400, 0, ""},
		{"method with a bracket", "GE(T / HTTP/1.1\nHost: a\n\n", 400, 0, ""},
		{"no method", " / HTTP/1.1\nHost: a\n\n", 400, 0, ""},
		{"no target", "GET HTTP/1.1\nHost: a\n\n", 400, 0, ""},
		{"target without a slash", "GET a HTTP/1.1\nHost: a\n\n", 400, 0, ""},
		{"bad escape", "GET /%zz HTTP/1.1\nHost: a\n\n", 400, 0, ""},
		{"no version", "GET /\nHost: a\n\n", 400, 0, ""},
		{"odd version", "GET / HTTP/1.x\nHost: a\n\n", 400, 0, ""},
		{"version 2", "GET / HTTP/2.0\nHost: a\n\n", 505, 0, ""},
		{"version 1.10", "GET / HTTP/1.10\nHost: a\n\n", 400, 0, ""},
		{"not HTTP", "hello\n\n", 400, 0, ""},
		{"a TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", 400, 0, ""},
		{"length that is none", "POST / HTTP/1.1\nHost: a\nContent-Length: x\n\n", 400, 0, ""},
		{"negative length", "POST / HTTP/1.1\nHost: a\nContent-Length: -1\n\n", 400, 0, ""},
		{"length with a plus", "POST / HTTP/1.1\nHost: a\nContent-Length: +3\n\nabc", 400, 0, ""},
		{"empty length", "POST / HTTP/1.1\nHost: a\nContent-Length:\n\n", 400, 0, ""},
		{"length too large", "POST / HTTP/1.1\nHost: a\nContent-Length: 99999999999999999999\n\n", 400, 0, ""},
		{"two different lengths", "POST / HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 4\n\nabcd", 400, 0, ""},
		{
			"unknown coding", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: fugazi\n\n", 501, 0,
			"Unsupported transfer encoding",
		},
		{
			"coding in front of chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip, chunked\n\n0\n\n", 501, 0,
			"",
		},
		{"coding identity", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: identity\n\n", 501, 0, ""},
		{
			"two codings", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n",
			501, 0, "",
		},
		{"unknown expectation", "POST / HTTP/1.1\nHost: a\nContent-Length: 1\nExpect: coffee\n\n", 417, 0, ""},
		{
			"unknown expectation before a known one",
			"POST / HTTP/1.1\nHost: a\nContent-Length: 1\nExpect: coffee\nExpect: 100-continue\n\n", 417, 0, "",
		},

		{
			"chunked beside a length",
			"POST / HTTP/1.1\nHost: a\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n",
			ok, 400, "",
		},
		{"two equal lengths", "POST / HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 3\n\nabc", ok, 400, ""},
		{"coding in 1.0", "POST / HTTP/1.0\nHost: a\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", ok, 400, ""},
		{"folded line", "GET / HTTP/1.1\nHost: a\nF: a\n b\n\n", ok, 400, ""},
		{"DEL in the target", "GET /\x7f HTTP/1.1\nHost: a\n\n", 400, 0, ""},
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, describe)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				want, part := c.want, c.body
				if !p.std() && c.strict != 0 {
					want, part = c.strict, ""
				}
				conn := s.dial(t)
				conn.send(c.send)
				_ = conn.CloseWrite()
				r := conn.reply(t, strings.SplitN(c.send, " ", 2)[0])
				if r.status() != want || !strings.Contains(r.body, part) {
					t.Errorf("the answer is %v, want %d with %s", r, want, part)
				}
				if want >= 400 && r.head.Get("Connection") != "close" {
					t.Errorf("a refusal must say that it closes: %v", r)
				}
			})
		}
	})
}

// TestSuiteRFC9112 asks for what RFC 9112 and RFC 3986 say where net/http is laxer or other: ours
// must hold to the RFC, std is not asked.
func TestSuiteRFC9112(t *testing.T) {
	cases := []struct {
		name, send string
		want       int
	}{
		{"one CRLF before the first request line (2.2)", "\nGET / HTTP/1.1\nHost: a\n\n", 200},
		{"one CRLF before a later request line (2.2)", "GET / HTTP/1.1\nHost: a\n\n\nGET / HTTP/1.1\nHost: a\n\n", 200},
		{"port of the host is no number", "GET / HTTP/1.1\nHost: a:bc\n\n", 400},
		{"bracket of the host is not closed", "GET / HTTP/1.1\nHost: [::1\n\n", 400},
		{"bad escape in the host", "GET / HTTP/1.1\nHost: a%zz\n\n", 400},
		{"absolute form without a host (RFC 9110, 4.2.1)", "GET http:/// HTTP/1.1\nHost: a\n\n", 400},
		{
			"chunk extension without a name (7.1.1)",
			"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3;\nabc\n0\n\n", 400,
		},
		{"bare CR in a value", "GET / HTTP/1.1\nHost: a\nF: a\rb\n\n", 400},
	}
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, describe)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				conn := s.dial(t)
				conn.send(c.send)
				_ = conn.CloseWrite()
				var last *reply
				for {
					r, err := readReply(conn.r, "GET")
					if err != nil {
						break
					}
					last = r
				}
				switch {
				case p.std():
					t.Logf("net/http answers %v", last)
				case last == nil || last.status() != c.want:
					t.Errorf("the answer is %v, want %d", last, c.want)
				}
			})
		}
	})
}

// TestSuiteBrokenChunks sends bodies whose framing is broken: the handler's read fails, and nothing
// that follows is taken for a request.
func TestSuiteBrokenChunks(t *testing.T) {
	const head = "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n"
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%q %v", b, err != nil)
		})
		for _, body := range []string{
			"x\nabc\n0\n\n", "-1\nabc\n0\n\n", "3\nabcX0\n\n", "3\nab\n0\n\n", "0x3\nabc\n0\n\n", "3 3\nabc\n0\n\n",
			"\n", "fffffffffffffffff\nabc",
		} {
			conn := s.dial(t)
			conn.send(head + body + "GET /smuggled HTTP/1.1\nHost: a\n\n")
			_ = conn.CloseWrite()
			got := conn.rest(t)
			if strings.Count(got, "HTTP/1.1 ") != 1 {
				t.Errorf("%q: not one answer came: %q", body, got)
			}
			if !strings.Contains(got, " true") && !strings.HasPrefix(got, "HTTP/1.1 400") {
				t.Errorf("%q: the handler read the body to its end: %q", body, got)
			}
		}
	})
}

// TestSuiteLimits says what is too large.
func TestSuiteLimits(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.Header)) },
			func(c *server.Config) { c.MaxHeaderBytes = 8 << 10 })
		fields := func(n int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "F%d: x\n", i)
			}
			return b.String()
		}
		for _, c := range []struct {
			name, send string
			want, ours int
		}{
			{"a long field", "GET / HTTP/1.1\nHost: a\nF: " + strings.Repeat("x", 7000) + "\n\n", 200, 200},
			{"too long a field", "GET / HTTP/1.1\nHost: a\nF: " + strings.Repeat("x", 20_000) + "\n\n", 431, 431},
			{"too long a line", "GET /" + strings.Repeat("x", 20_000) + " HTTP/1.1\nHost: a\n\n", 431, 431},
			{"a line without end", "GET /" + strings.Repeat("x", 40_000), 431, 431},
			{"many fields", "GET / HTTP/1.1\nHost: a\n" + fields(250) + "\n", 200, 200},
			{"too many fields", "GET / HTTP/1.1\nHost: a\n" + fields(600) + "\n", 200, 431}, // doc.go: at most 256
		} {
			want := c.ours
			if p.std() {
				want = c.want
			}
			conn := s.dial(t)
			conn.send(c.send)
			if r, err := readReply(conn.r, "GET"); err != nil || r.status() != want {
				t.Errorf("%s: the answer is %v, %v, want %d", c.name, r, err, want)
			}
		}
	})
}

// TestSuiteForms reads forms, files in parts, and text that looks like a query.
func TestSuiteForms(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			err := r.ParseMultipartForm(1 << 10)
			_ = r.ParseForm()
			fmt.Fprintf(w, "%q %q", r.FormValue("a"), r.FormValue("b"))
			if f, h, err := r.FormFile("file"); err == nil {
				b, _ := io.ReadAll(f)
				fmt.Fprintf(w, " %s %d", h.Filename, len(b))
			} else if err != http.ErrMissingFile && err != http.ErrNotMultipart {
				fmt.Fprintf(w, " %v", err)
			}
			_ = err
		})
		c := visitor(t)
		get := func(path, want string) {
			r, err := c.Get(s.url(path))
			if got := text(t, r, err); got != want {
				t.Errorf("%s gives %s, want %s", path, got, want)
			}
		}
		get("/?a=1&b=2", `"1" "2"`)
		get("/?a=1;b=2", `"" ""`)
		get("/?a=%20+&b=%zz", `"  " ""`)
		r, err := c.Post(s.url("/?a=query"), "application/x-www-form-urlencoded", strings.NewReader("a=form&b=%26"))
		if got := text(t, r, err); got != `"form" "&"` {
			t.Errorf("a form gives %s", got)
		}
		for _, size := range []int{10, 3 << 20} { // 3 MiB go to a file, which the server removes
			in, out := io.Pipe()
			m := multipart.NewWriter(out)
			go func() {
				_ = m.WriteField("a", "part")
				f, _ := m.CreateFormFile("file", "name.txt")
				_, _ = f.Write(make([]byte, size))
				_ = m.Close()
				out.Close()
			}()
			r, err := c.Post(s.url("/"), m.FormDataContentType(), in)
			if got, want := text(t, r, err), fmt.Sprintf(`"part" "" name.txt %d`, size); got != want {
				t.Errorf("a file of %d bytes gives %s, want %s", size, got, want)
			}
		}
	})
}

// TestSuiteOptionsStar is answered by the server, with or without a body.
func TestSuiteOptionsStar(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, say("the handler"))
		for _, send := range []string{
			"OPTIONS * HTTP/1.1\nHost: a\n\n",
			"OPTIONS * HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
		} {
			conn := s.dial(t)
			conn.send(send)
			if got := conn.reply(t, "OPTIONS").String(); got != "HTTP/1.1 200 OK; Content-Length: 0 | " {
				t.Errorf("%q: the answer is %s", send, got)
			}
			conn.stays(t)
		}
	})
}
