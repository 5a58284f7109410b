package server_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

var parsersFolder = flag.String("parsers", "", "take the tests of the parsers whose clones are in that folder")

// parserCase is a request of a test of somebody's parser, and what that makes of it: so many whole
// requests, and then nothing, or the end: it refuses what comes, or asks for more.
type parserCase struct {
	name, raw string
	whole     int
	end       string // "", "refused" or "more"
}

// parsersDiffer is what those tests want otherwise than a server of HTTP/1.1 has it, or we do on
// purpose, by the requests in which it shows.
var parsersDiffer = []struct {
	why  string
	like *regexp.Regexp
}{
	{"every request has a Host", regexp.MustCompile(`(?s)^(PUT /url|POST /aaa) HTTP/1\.1.*\r\nPUT /(url|bbb) HTTP/1\.1`)},
	{
		"what comes behind the last request is not looked at",
		regexp.MustCompile(`(?s)^PUT /url HTTP/1\.0|Connection: close.*GET / `),
	},
	{"what comes behind an upgrade that nobody took is a request", regexp.MustCompile(`\r\nUpgrade: `)},
	{"any token is a method", regexp.MustCompile(`^(ANNOUNCE|MKCOLA|PRI) .* HTTP/1`)},
	{"it is no HTTP, or HTTP/0.9", regexp.MustCompile(`^(SOURCE|OPTIONS|ANNOUNCE) .* (ICE|RTSP)/|^GET /\r\n`)},
	{"the only coding is chunked", regexp.MustCompile(`Transfer-Encoding: deflate`)},
	{"bytes beyond ASCII may stand in a target", regexp.MustCompile(`^GET /\x{3b4}`)},
	{"a line ends with CR LF", regexp.MustCompile(`[^\r]\n`)},
	{"one empty line may come in front, and no more", regexp.MustCompile(`^\r\n\r\n|^\n`)},
	{"no value is folded", regexp.MustCompile(`\r\n[ \t]`)},
	{"one space stands before the target, and one behind it", regexp.MustCompile(`^GET  +/  +HTTP`)},
	{"but inline, a target is a path or a URL", regexp.MustCompile(`^GET [^/* ]\S* HTTP`)},
	{"but inline, a % begins an escape", regexp.MustCompile(`^GET \S*%([^0-9a-fA-F]|.[^0-9a-fA-F])`)},
}

// httpParsers read the cases of a parser from its clone, which has its name.
var httpParsers = map[string]func(*testing.T) []parserCase{
	"llhttp":         llhttpCases,   // github.com/nodejs/llhttp
	"httparse":       httparseCases, // github.com/seanmonstar/httparse
	"picohttpparser": picoCases,     // github.com/h2o/picohttpparser
}

// TestForeignParsers sends the requests in the tests of llhttp, httparse and picohttpparser as they
// are to net/http and to each engine in each mode, and tells how many are answered as those tests
// want it. Of the others each must be one that parsersDiffer explains. What our own answer is in
// each of their cases is in TestForeignRequests.
func TestForeignParsers(t *testing.T) {
	if *parsersFolder == "" {
		t.Skip("SKIPPED: other people's tests; clone their parsers (see httpParsers) into a folder and say -parsers FOLDER")
	}
	for name, read := range httpParsers {
		cases := read(t)
		for _, p := range append(places(t, server.Goroutine, server.Coroutine), places(t, server.Inline)[1:]...) {
			s, good, why := parsersSite(t, p), 0, map[string]int{}
			for _, c := range cases {
				got, ok := c.ask(t, s)
				if ok {
					good++
					continue
				}
				reason := c.differs()
				if why[reason]++; reason == "" && !p.std() {
					t.Errorf("%s, %s, %s: the answers to %.300q are %v, want %d and then: %q", p, name, c.name, c.raw, got,
						c.whole, c.end)
				}
			}
			t.Logf("%s, %s: %d of %d; why not: %v", name, p, good, len(cases), why)
		}
	}
}

// parsersSite answers a request with 200, and one whose body is broken with 400.
func parsersSite(t *testing.T, p place) *site {
	if p.Mode == server.Inline {
		return openLean(t, p, func(*server.LeanResponse, *server.LeanRequest) {})
	}
	return open(t, p, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
}

// differs says why a case may be answered otherwise than its test wants; "": it may not.
func (c *parserCase) differs() string {
	for _, d := range parsersDiffer {
		if d.like.MatchString(c.raw) {
			return d.why
		}
	}
	return ""
}

// ask sends a case on a connection whose sending side is then ended, and reports the status of each
// answer, and whether they are as the case wants them.
func (c *parserCase) ask(t *testing.T, s *site) (got []int, ok bool) {
	conn := s.dial(t)
	defer conn.Close()
	_, _ = io.WriteString(conn, withHost(c.raw))
	_ = conn.CloseWrite()
	for {
		r, err := readReply(conn.r, strings.TrimLeft(strings.SplitN(c.raw, " ", 2)[0], "\r\n"))
		if err != nil {
			break
		}
		got = append(got, r.status())
	}
	if len(got) < c.whole {
		return got, false
	}
	for _, status := range got[:c.whole] {
		if status >= 400 {
			return got, false
		}
	}
	rest := got[c.whole:]
	switch c.end {
	case "refused":
		return got, len(rest) > 0 && rest[0] >= 400
	case "more":
		return got, len(rest) == 0 || rest[0] == 400
	default:
		return got, len(rest) == 0
	}
}

// withHost gives a request in HTTP/1.1 a Host where it has none: parsers do not ask for it.
func withHost(raw string) string {
	line, rest, found := strings.Cut(raw, "\n")
	if line == "\r" || line == "" {
		return line + "\n" + withHost(rest)
	}
	bare := strings.TrimSuffix(line, "\r")
	if !found || !strings.HasSuffix(bare, "HTTP/1.1") || strings.Contains(strings.ToLower(raw), "\nhost:") {
		return raw
	}
	return line + "\nHost: a" + line[len(bare):] + "\n" + rest
}

// parserFile is a file of a clone.
func parserFile(t *testing.T, name string) string {
	return contents(t, filepath.Join(*parsersFolder, name))
}

// llhttpCases are those of test/request that have no lenient mode, and no pause; test/md-test.ts
// says how they are read.
func llhttpCases(t *testing.T) (all []parserCase) {
	files, err := filepath.Glob(filepath.Join(*parsersFolder, "llhttp/test/request/*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of llhttp: %v; clone it into %s", err, *parsersFolder)
	}
	one := regexp.MustCompile(`(?s)<!-- meta=\{ ?"type": ?"request" ?(?:, +"noScan": true ?)?\} -->\s+` +
		"```http\n(.*?)```\n.*?```log\n(.*?)```")
	number := regexp.MustCompile(`\\(x[0-9a-fA-F]+|[0-7]{1,3})`)
	pause := regexp.MustCompile(`error code=2[123] `)
	for _, f := range files {
		for i, m := range one.FindAllStringSubmatch(contents(t, f), -1) {
			raw := strings.TrimSuffix(m[1], "\n")
			raw = strings.NewReplacer("\\\n", "", "\n", "\r\n").Replace(raw)
			raw = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\f`, "\f").Replace(raw)
			raw = number.ReplaceAllStringFunc(raw, func(s string) string {
				base := 8
				if s[1] == 'x' {
					s, base = s[1:], 16
				}
				n, _ := strconv.ParseUint(s[1:], base, 16)
				return string(rune(n))
			})
			c := parserCase{name: fmt.Sprintf("%s %d", filepath.Base(f), i+1), raw: raw}
			c.whole = strings.Count(m[2], " message complete")
			begun := strings.Count(m[2], " message begin")
			switch {
			case strings.Contains(m[2], "error code=") && !pause.MatchString(m[2]):
				c.end = "refused"
			case begun > c.whole:
				c.end = "more"
			}
			all = append(all, c)
		}
	}
	return all
}

// httparseCases are those of its macro req.
func httparseCases(t *testing.T) (all []parserCase) {
	one := regexp.MustCompile(`req! \{\s*(?://.*\s*)*(\w+),\s*b"((?:[^"\\]|\\.)*)",\s*(Ok|Err)?`)
	for _, f := range []string{"httparse/src/lib.rs", "httparse/tests/uri.rs"} {
		for _, m := range one.FindAllStringSubmatch(parserFile(t, f), -1) {
			all = append(all, parserCase{
				name: m[1], raw: unescaped(m[2]), whole: map[string]int{"": 1}[m[3]],
				end: map[string]string{"Ok": "more", "Err": "refused"}[m[3]],
			})
		}
	}
	return all
}

// picoCases are those of its test_request.
func picoCases(t *testing.T) (all []parserCase) {
	src, _, _ := strings.Cut(parserFile(t, "picohttpparser/test.c"), "static void test_response")
	one := regexp.MustCompile(`(?m)^    PARSE\("((?:[^"\\]|\\.)*)", .*?(0|-1|-2),\s*"(.*)"\);`)
	for _, m := range one.FindAllStringSubmatch(src, -1) {
		all = append(all, parserCase{
			name: m[3], raw: unescaped(m[1]), whole: map[string]int{"0": 1}[m[2]],
			end: map[string]string{"-2": "more", "-1": "refused"}[m[2]],
		})
	}
	return all
}

// unescaped is a literal of Rust or C.
func unescaped(s string) string {
	return regexp.MustCompile(`\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)`).ReplaceAllStringFunc(s, func(e string) string {
		if c, ok := map[byte]string{'r': "\r", 'n': "\n", 't': "\t"}[e[1]]; ok {
			return c
		}
		base, digits := 8, e[1:]
		if e[1] == 'x' {
			base, digits = 16, e[2:]
		}
		n, err := strconv.ParseUint(digits, base, 8)
		if err != nil {
			return e[1:]
		}
		return string([]byte{byte(n)})
	})
}
