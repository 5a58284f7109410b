package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// foreign are the cases of other people's parsers, put in our own words: llhttp (test/request),
// httparse (src/lib.rs, tests/uri.rs) and picohttpparser (test.c), with what we answer to each, and
// those by which proxies are led astray. A line break stands for CR LF. want has for each answer
// its status, and behind a slash the length of the body that the handler got.
//
// mark says who answers otherwise: s is net/http, which repairs what we refuse, or leaves a broken
// body to the handler (go doc ./server); i is mode inline, which looks no further into a target and
// answers it by 200.
var foreign = []struct{ mark, name, send, want string }{
	// request lines
	{"", "shortest", "GET / HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "1.0 without fields", "GET / HTTP/1.0\n\n", "200/0"},
	{"", "1.1 without fields", "GET / HTTP/1.1\n\n", "400"},
	{"", "query with a question mark", "GET /test.cgi?foo=bar?baz HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "query and fragment", "GET /forums/1/topics/2375?page=1#posts-17408 HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "two slashes and a query", "GET //?a HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "UTF-8 in the path", "GET /\xce\xb4\xc2\xb6/\xce\xb4t/pope?q=1#narf HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "bytes beyond ASCII that are no UTF-8", "GET /\xa0 HTTP/1.0\nh: c\xa2y\n\n", "200/0"},
	{"", "absolute form", "GET http://a.example:1234/x HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "absolute form with an underscore", "GET http://host_name/ HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "absolute form without a path", "GET http://a.example?q=search HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "absolute form with a user", "GET http://a%12:b!&*$@a.example:1234/toto HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "IPv6 as host", "GET http://[2a00:1450::1]:80/ HTTP/1.1\nHost: a\n\n", "200/0"},
	{
		"", "other methods",
		"PATCH /f HTTP/1.1\nHost: a\nContent-Length: 3\n\nabcREPORT /r HTTP/1.1\nHost: a\n\nM-SEARCH * HTTP/1.1\nHost: a\n\nPURGE /p HTTP/1.1\nHost: a\n\nUNLINK /u HTTP/1.1\nHost: a\n\n", "200/3 200/0 200/0 200/0 200/0",
	},
	{"", "method of odd token characters", "!#$%&'*+-.^_`|~ / HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "method in lower case", "get / HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "CONNECT", "CONNECT home0.example:443 HTTP/1.0\nUser-agent: x\n\n", "200/0"},
	{"", "NUL in the method", "G\x00T / HTTP/1.0\n\n", "400"},
	{"", "tab in the method", "G\tT / HTTP/1.0\n\n", "400"},
	{"", "colon in front of the method", ":GET / HTTP/1.0\n\n", "400"},
	{"", "bracket in the method", "GE[T / HTTP/1.1\nHost: a\n\n", "400"},
	{"", "only a method", "GET\n\n", "400"},
	{"", "no target", "GET HTTP/1.1\nHost: a\n\n", "400"},
	{"", "empty target", "GET  HTTP/1.1\nHost: a\n\n", "400"},
	{"", "space in front of the method", " GET / HTTP/1.1\nHost: a\n\n", "400"},
	{"", "two spaces behind the method", "GET  / HTTP/1.1\nHost: a\n\n", "400"},
	{"", "two spaces behind the target", "GET /  HTTP/1.1\nHost: a\n\n", "400"},
	{"", "space in the target", "GET /a b HTTP/1.1\nHost: a\n\n", "400"},
	{"", "tab behind the method", "GET\t/ HTTP/1.1\nHost: a\n\n", "400"},
	{"", "form feed in the target", "GET /foo\x0cbar HTTP/1.1\nHost: a\n\n", "400"},
	{"", "DEL in the target", "GET /\x7fhello HTTP/1.0\n\n", "400"},
	{"i", "target that is no path", "GET example.com/ HTTP/1.1\nHost: a\n\n", "400"},
	{"i", "escape that is none", "GET /%zz HTTP/1.1\nHost: a\n\n", "400"},
	{"", "no version", "GET /\nHost: a\n\n", "400"},
	{"", "space behind the version", "GET / HTTP/1.1 \nHost: a\n\n", "400"},
	{"", "version in lower case", "GET / http/1.1\nHost: a\n\n", "400"},
	{"", "another protocol", "GET /music HTTPER/1.1\nHost: a\n\n", "400"},
	{"", "one of the same length", "GET /music ICE/1.0\nHost: a\n\n", "400"},
	{"", "HTP", "GET / HTP/1.1\nHost: a\n\n", "400"},
	{"", "two digits in front", "GET / HTTP/01.1\nHost: a\n\n", "400"},
	{"", "eleven", "GET / HTTP/11.1\nHost: a\n\n", "400"},
	{"", "two digits behind", "GET / HTTP/1.01\nHost: a\n\n", "400"},
	{"", "a letter behind", "GET / HTTP/1.1A\nHost: a\n\n", "400"},
	{"", "a letter for a digit", "GET / HTTP/1.A\nHost: a\n\n", "400"},
	{"", "version 0.9", "GET / HTTP/0.9\n\n", "505"},
	{"", "version 2", "GET /test HTTP/2.0\nHost: a\n\n", "505"},
	{"", "version 3", "GET / HTTP/3.0\nHost: a\n\n", "505"},
	{"s", "one empty line in front", "\nGET /test HTTP/1.1\nHost: a\n\n", "200/0"},

	// fields
	{"", "twenty fields", "GET / HTTP/1.1\nHost: a\n" + fields(20) + "\n", "200/0"},
	{"", "a name and a value of nothing but signs", "GET /x HTTP/1.1\nHost: a\naaaaaaaaaaaaa:++++++++++\n\n", "200/0"},
	{"", "no space behind the colon", "GET / HTTP/1.1\nHost:a\nLine1:abc\n\n", "200/0"},
	{"", "white space around a value", "GET / HTTP/1.1\nHost: a\nX: \t b\t \t \n\n", "200/0"},
	{"", "empty values", "GET / HTTP/1.1\nHost: a\nA:\nB: \nC:\t\n\n", "200/0"},
	{"", "a value of quotes, and of escapes that are none", "GET / HTTP/1.1\nHost: a\nA: \"a\\\"b\\\n\n", "200/0"},
	{"", "a value in UTF-8", "GET / HTTP/1.1\nHost: a\nUser-Agent: \xe3\x81\xb2\xe3/1.0\n\n", "200/0"},
	{"", "a name that begins with a digit", "GET / HTTP/1.1\nHost: a\n1-a: b\n\n", "200/0"},
	{"", "a name of bar and tilde", "GET / HTTP/1.0\n|~: 1\n\n", "200/0"},
	{"", "a value that looks like an answer", "GET / HTTP/1.1\nHost: a\nX: HTTP/1.1 200 OK\n\n", "200/0"},
	{"", "a brace in a name", "GET / HTTP/1.0\n{: 1\n\n", "400"},
	{"", "an at in a name", "GET / HTTP/1.1\nHost: a\nFo@: Failure\n\n", "400"},
	{"", "a control character in a name", "GET / HTTP/1.1\nHost: a\nFoo\x01\x1btest: Bar\n\n", "400"},
	{"", "NUL in a name", "GET / HTTP/1.0\na\x00b: c\n\n", "400"},
	{"", "an empty name", "GET / HTTP/1.1\nHost: a\n: value\n\n", "400"},
	{"", "a space in a name", "GET / HTTP/1.1\nHost: a\nFoo Bar: x\n\n", "400"},
	{"", "a space behind a name", "GET / HTTP/1.1\nHost: a\nFoo : x\n\n", "400"},
	{"", "a tab behind a name", "GET / HTTP/1.1\nHost: a\nFoo\t: x\n\n", "400"},
	{"", "a line without a colon", "GET / HTTP/1.1\nHost: a\nFailure\n\n", "400"},
	{"", "a name beyond ASCII", "GET / HTTP/1.1\nHost: a\nF\xc3\xb6: x\n\n", "400"},
	{"", "NUL in a value", "GET / HTTP/1.0\nab: c\x00d\n\n", "400"},
	{"", "escape in a value", "GET / HTTP/1.0\nab: c\x1b\n\n", "400"},
	{"", "DEL in a value", "GET / HTTP/1.1\nHost: a\nX: a\x7fb\n\n", "400"},
	{"s", "a CR in a value", "GET / HTTP/1.1\nHost: a\nFoo: 1\rBar: 2\n\n", "400"},
	{"s", "a line that ends with LF", "GET / HTTP/1.1\nHost: a\nFoo: 1\\LBar: 2\n\n", "400"},
	{"s", "a request line that ends with LF", "GET / HTTP/1.1\\LHost: a\n\n", "400"},
	{"s", "a head of nothing but LF", "GET / HTTP/1.1\\LHost: a\\L\\L", "400"},
	{"s", "two CR in front of a LF", "GET / HTTP/1.1\nHost: a\nFoo: 1\r\n\n", "400"},
	{"s", "a folded value", "GET / HTTP/1.1\nHost: a\nLine1:   abc\n\tdef\n ghi\n\n", "400"},
	{"s", "a folded line of nothing", "GET / HTTP/1.1\nHost: a\nLine1:\n \n\n", "400"},
	{"", "the first field is folded", "GET / HTTP/1.1\n Host: a\n\n", "400"},
	{"", "two hosts", "GET / HTTP/1.1\nHost: a\nHost: a\n\n", "400"},

	// what becomes of the connection
	{"", "close", "GET / HTTP/1.1\nHost: a\nConnection: close\n\nGET / HTTP/1.1\nHost: a\n\n", "200/0"},
	{
		"", "close among others",
		"GET / HTTP/1.1\nHost: a\nConnection: keep-alive, close\n\nGET / HTTP/1.1\nHost: a\n\n",
		"200/0",
	},
	{"", "close in capitals", "GET / HTTP/1.1\nHost: a\nConnection: CLOSE\n\nGET / HTTP/1.1\nHost: a\n\n", "200/0"},
	{
		"", "a word that begins as close does",
		"GET / HTTP/1.1\nHost: a\nConnection: closed\n\nGET / HTTP/1.1\nHost: a\n\n", "200/0 200/0",
	},
	{"", "1.0 ends", "GET / HTTP/1.0\n\nGET / HTTP/1.0\n\n", "200/0"},
	{"", "1.0 stays", "GET / HTTP/1.0\nConnection: keep-alive\n\nGET / HTTP/1.0\n\n", "200/0 200/0"},
	{
		"", "an upgrade that nobody takes", "GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: WebSocket\n\n",
		"200/0",
	},
	{
		"", "pipelined",
		"GET /1 HTTP/1.1\nHost: a\n\nPOST /2 HTTP/1.1\nHost: a\nContent-Length: 2\n\nabGET /3 HTTP/1.1\nHost: a\n\n",
		"200/0 200/2 200/0",
	},
	{"", "a bad one behind a good one", "GET /1 HTTP/1.1\nHost: a\n\nGET /2 HTTP/9.1\nHost: a\n\n", "200/0 505"},

	// bodies of known length
	{"", "a length in odd letters", "GET /x HTTP/1.0\nconTENT-Length: 5\n\nHELLO", "200/5"},
	{
		"", "a length with white space around it",
		"POST / HTTP/1.1\nHost: a\nContent-Length:  \t42 \n\n" + strings.Repeat("x", 42), "200/42",
	},
	{"", "a length of nothing", "POST / HTTP/1.1\nHost: a\nContent-Length:\n\n", "400"},
	{"", "a length of two numbers", "POST / HTTP/1.1\nHost: a\nContent-Length: 4 2\n\n", "400"},
	{"", "a length of two numbers and a comma", "POST / HTTP/1.1\nHost: a\nContent-Length: 3, 3\n\nabc", "400"},
	{"", "a length and something behind it", "POST / HTTP/1.1\nHost: a\nContent-Length: 42 Hello\n\n", "400"},
	{"", "a length with a sign", "POST / HTTP/1.1\nHost: a\nContent-Length: +3\n\nabc", "400"},
	{"", "a length below nothing", "POST / HTTP/1.1\nHost: a\nContent-Length: -3\n\nabc", "400"},
	{"", "a length with a point", "POST / HTTP/1.1\nHost: a\nContent-Length: 3.0\n\nabc", "400"},
	{"", "a length in hexadecimal digits", "POST / HTTP/1.1\nHost: a\nContent-Length: 0x3\n\nabc", "400"},
	{"", "a length with an underscore", "POST / HTTP/1.1\nHost: a\nContent-Length: 1_0\n\n0123456789", "400"},
	{
		"", "a length beyond 64 bits", "POST / HTTP/1.1\nHost: a\nContent-Length: 1000000000000000000000000000\n\n",
		"400",
	},
	{"", "two lengths", "POST / HTTP/1.1\nHost: a\nContent-Length: 5\nContent-Length: 6\n\nHELLO!", "400"},
	{"s", "two equal lengths", "POST / HTTP/1.1\nHost: a\nContent-Length: 5\nContent-Length: 5\n\nHELLO", "400"},

	// bodies in chunks
	{"", "one chunk", chunked + "1e\nall your base are belong to us\n0\n\n", "200/30"},
	{"", "two chunks", chunked + "5\nhello\n6\n world\n0\n\n", "200/11"},
	{"", "zeros in front, and as the last size", chunked + "005\nhello\n000\n\n", "200/5"},
	{"", "size in capitals", chunked + "1E\nall your base are belong to us\n0\n\n", "200/30"},
	{"", "chunked in capitals", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: CHUNKED\n\n1\na\n0\n\n", "200/1"},
	{"", "trailer", chunked + "5\nhello\n6\n world\n0\nVary: *\nContent-Type: text/plain\n\n", "200/11"},
	{
		"", "extensions", chunked +
			"5;ilovew3;whattheluck=aretheseparametersfor\nhello\n6;blahblah;blah\n world\n0\n\n",
		"200/11",
	},
	{"", "an extension in quotes", chunked + "5;ilovew3=\"I \\\"love\\\"; \\\\ext\"\nhello\n0\n\n", "200/5"},
	{"s", "an extension with spaces around", chunked + "5 ; a = b\nhello\n0\n\n", "200/5"},
	{"", "chunks and the next request", chunked + "1\na\n0\n\nGET / HTTP/1.1\nHost: a\n\n", "200/1 200/0"},
	{"s", "no size", chunked + "\nhello\n0\n\n", "400"},
	{"s", "a size that is none", chunked + "x\nhello\n0\n\n", "400"},
	{"s", "a size below nothing", chunked + "-5\nhello\n0\n\n", "400"},
	{"s", "a size with 0x", chunked + "0x5\nhello\n0\n\n", "400"},
	{"s", "a space in front of a size", chunked + " 5\nhello\n0\n\n", "400"},
	{"s", "a space behind a size", chunked + "5 \nhello\n0\n\n", "400"},
	{"s", "a size beyond 64 bits", chunked + "fffffffffffffffff\nhello\n0\n\n", "400"},
	{"s", "a size of 16 digits that is too large", chunked + "8000000000000000\nhello\n0\n\n", "400"},
	{"s", "more than was said", chunked + "5\nhello!\n0\n\n", "400"},
	{"s", "less than was said", chunked + "5\nhell\n0\n\n", "400"},
	{"s", "no line end behind a chunk", chunked + "5\nhello0\n\n", "400"},
	{"s", "a size that ends with LF", chunked + "5\\Lhello\n0\n\n", "400"},
	{"s", "a chunk that ends with LF", chunked + "5\nhello\\L0\n\n", "400"},
	{"s", "a CR in an extension", chunked + "5;a\r=b\nhello\n0\n\n", "400"},
	{"s", "an extension without a name", chunked + "5;\nhello\n0\n\n", "400"},
	{"s", "an extension whose quotes do not end", chunked + "5;a=\"b\nhello\n0\n\n", "400"},
	{"s", "a trailer without a colon", chunked + "0\nVary\n\n", "400"},
	{"s", "a trailer with a space in its name", chunked + "0\nVa ry: x\n\n", "400"},
	{"s", "a trailer line that ends with LF", chunked + "0\nVary: x\\L\n", "400"},

	// who reads it another way is led astray
	{
		"s", "the length says less",
		"POST / HTTP/1.1\nHost: a\nContent-Length: 3\nTransfer-Encoding: chunked\n\n8\nSMUGGLED\n0\n\n", "400",
	},
	{
		"s", "the chunks say less",
		"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nContent-Length: 47\n\n0\n\nGET /smuggled HTTP/1.1\nHost: a\n\n", "400",
	},
	{"", "a coding and chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip, chunked\n\n0\n\n", "501"},
	{"", "chunked and a coding", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked, deflate\n\n0\n\n", "501"},
	{
		"", "chunked twice",
		"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n",
		"501",
	},
	{"s", "identity", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: identity\nContent-Length: 5\n\nWorld", "400"},
	{
		"", "a word that begins as chunked does", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunkedabcd\n\n0\n\n",
		"501",
	},
	{"s", "chunked in 1.0", "POST / HTTP/1.0\nTransfer-Encoding: chunked\n\n0\n\n", "400"},
	{
		"s", "a coding on a folded line",
		"POST / HTTP/1.1\nHost: a\nContent-Length: 5\nTransfer-Encoding:\n chunked\n\n0\n\n", "400",
	},
	{"", "a host in the target, and another", "GET http://b/ HTTP/1.1\nHost: a\n\n", "200/0"},
	{"", "a host with a space", "GET / HTTP/1.1\nHost: a b\n\n", "400"},
	{
		"", "a body that is a request",
		"POST / HTTP/1.1\nHost: a\nContent-Length: 37\n\nGET /smuggled HTTP/1.1\nHost: victim\n\n", "200/37",
	},

	// what is cut: the client has ended its side
	{"", "half a request line", "GET / HT", "400"},
	{"", "no end of the head", "GET / HTTP/1.0\nfoo: bar\n", "400"},
	{"", "half of the last line end", "GET / HTTP/1.0\n\r", "400"},
	{"", "nothing", "", ""},
}

// chunked begins a request whose body comes in chunks.
const chunked = "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n"

func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "F%d: x\n", i)
	}
	return b.String()
}

// TestForeignRequests sends each of them, on a connection whose sending side is then ended, in one
// piece and in two.
func TestForeignRequests(t *testing.T) {
	in(t, append(places(t, server.Goroutine, server.Coroutine), places(t, server.Inline)[1:]...),
		func(t *testing.T, p place) {
			var s *site
			if p.Mode == server.Inline {
				s = openLean(t, p, func(w *server.LeanResponse, r *server.LeanRequest) { fmt.Fprint(w, len(r.Body())) })
			} else {
				s = open(t, p, func(w http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					fmt.Fprint(w, n)
				})
			}
			for _, c := range foreign {
				if p.std() && c.mark == "s" {
					continue
				}
				want := c.want
				if p.Mode == server.Inline && c.mark == "i" {
					want = "200/0"
				}
				raw := strings.ReplaceAll(strings.ReplaceAll(c.send, "\n", "\r\n"), `\L`, "\n")
				for _, cut := range []int{len(raw), len(raw) / 3, len(raw) * 7 / 8} {
					conn := s.dial(t)
					_, _ = io.WriteString(conn, raw[:cut])
					_, _ = io.WriteString(conn, raw[cut:])
					_ = conn.CloseWrite()
					var got []string
					for {
						r, err := readReply(conn.r, "GET")
						if err != nil {
							break
						}
						one := fmt.Sprint(r.status())
						if r.status() == http.StatusOK {
							one += "/" + r.body
						}
						got = append(got, one)
					}
					if all := strings.Join(got, " "); all != want {
						t.Errorf("%s: %q in pieces of %d and %d bytes: the answers are %q, want %q", c.name, raw, cut,
							len(raw)-cut, all, want)
					}
					conn.Close()
				}
			}
		})
}
