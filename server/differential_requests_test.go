package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// seen is what a handler saw of a request.
type seen struct {
	Method, Path, Query, URI, Host, Proto string
	Header                                http.Header
	Length                                int64
	Coding                                []string
	Body                                  string
	BodyErr                               string
	Trailer                               http.Header
	Close                                 bool
}

func echo(w http.ResponseWriter, r *http.Request) {
	s := seen{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, URI: r.RequestURI, Host: r.Host, Proto: r.Proto,
		Header: r.Header,
		Length: r.ContentLength, Coding: r.TransferEncoding, Close: r.Close,
	}
	b, err := io.ReadAll(r.Body)
	s.Body, s.Trailer = string(b), r.Trailer
	if err != nil {
		s.BodyErr = "an error"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

// answers is a handler that answers in every way that net/http knows.
func answers() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("/", echo)
	m.HandleFunc("/ignore", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "not read") })
	m.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(min(max(code, 200), 999))
		_, err := io.WriteString(w, "body of it")
		w.Header().Set("Late", fmt.Sprint(err))
	})
	m.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("/flush", func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "part %d\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	})
	m.HandleFunc("/size/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		b := bytes.Repeat([]byte("<p>0123456789\n"), n/14+1)[:min(n, 1<<20)]
		for len(b) > 0 {
			k := min(len(b), 777)
			_, _ = w.Write(b[:k])
			b = b[k:]
		}
	})
	m.HandleFunc("/length/{declared}/{written}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", r.PathValue("declared"))
		n, _ := strconv.Atoi(r.PathValue("written"))
		_, _ = w.Write(make([]byte, min(n, 9999)))
	})
	m.HandleFunc("/trailer", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum, Other")
		fmt.Fprint(w, "with a trailer")
		w.Header().Set("Sum", "42")
		w.Header().Set(http.TrailerPrefix+"Undeclared", "7")
	})
	m.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-After", "yes")
		fmt.Fprint(w, "final")
	})
	m.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Many"] = []string{"a", "b"}
		h.Set("X-Break", "one\r\nInjected: two")
		h["Bad Name"] = []string{"x"}
		h["Date"] = nil
		h["Content-Type"] = nil
		fmt.Fprint(w, "<html>")
	})
	m.HandleFunc("/close", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "bye")
	})
	m.HandleFunc("/identity", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "identity")
		fmt.Fprint(w, "to the end")
	})
	m.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method) // so that who reads the answer knows whether a body follows
		m.ServeHTTP(w, r)
	})
}

// written are requests for which a reason is known.
var written = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
	"GET /size/100 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET /size/5000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /size/5000 HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /silent HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\nGET /after HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n000\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nSum: 1\r\nOther: 2\r\n\r\n",
	"POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
	"POST /ignore HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nExpect: x\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, x\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: \r\nExpect: x\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: ,\r\nContent-Length: 5\r\n\r\nhello",
	"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
	"GET /status/204 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /status/304 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /status/404 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /status/599 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /flush HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /flush HTTP/1.0\r\n\r\n", "HEAD /flush HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /size/2048 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /size/2049 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /size/100000 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /size/1000000 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /size/100000 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	"GET /length/5/5 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /length/5/3 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /length/5/9 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /length/5000/5000 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /length/x/5 HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /length/5/5 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /trailer HTTP/1.1\r\nHost: a\r\n\r\n", "GET /trailer HTTP/1.0\r\n\r\n",
	"GET /hints HTTP/1.1\r\nHost: a\r\n\r\n", "GET /headers HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /close HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /identity HTTP/1.1\r\nHost: a\r\n\r\n", "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET http://other/path?q=1 HTTP/1.1\r\nHost: a\r\n\r\n", "GET //a/b?c?d#e HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%41%2f?x=%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a!b HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /x? HTTP/1.1\r\nHost: a\r\n\r\n", "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\r\n\r\n",
	"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", "GET / HTTP/11\r\nHost: a\r\n\r\n",
	"GET / http/1.1\r\nHost: a\r\n\r\n", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: caf\xc3\xa9\r\nY:\t z \t\r\nx: 2\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n", "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", "GET / HTTP/1.1\rHost: a\r\r",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nBad Trailer: x\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	"GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, close, bar\r\n\r\n",
	"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "",
	"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 6000) + "\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n",
	"GET /" + strings.Repeat("long", 3000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("z", 20000) +
		"GET /after HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("z", 300000) +
		"GET /after HTTP/1.1\r\nHost: a\r\n\r\n",
}

// generate makes a request out of parts of others, with a byte changed now and then.
func generate(rng *rand.Rand) []byte {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	var b bytes.Buffer
	for range 1 + rng.IntN(3) {
		if rng.IntN(3) == 0 {
			b.WriteString(written[rng.IntN(len(written)-4)])
			continue
		}
		b.WriteString(pick("GET", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "get", "M-SEARCH") + " ")
		b.WriteString(pick("/", "/size/300", "/flush", "/ignore", "/silent", "/a%20b?x=1&y", "/..//x", "http://h/x",
			"/status/404", "/close", "/trailer", "/length/3/3") + " ")
		b.WriteString(pick("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.3", "HTTP/3.0") + "\r\n")
		b.WriteString(pick("Host: a\r\n", "Host: a\r\n", "Host: a\r\n", "hOsT:b:80\r\n", "", "Host: \x80\r\n"))
		for range rng.IntN(4) {
			b.WriteString(pick("X-A", "x-a", "Accept", "Connection", "Cookie", "Via", "TE", "x_y", "X.Z", "Trailer",
				"Upgrade") + ":")
			b.WriteString(pick(" ", "", "\t") + pick("1", "close", "keep-alive", "a, b", "", "\xff", "x=y; z", "Sum"))
			b.WriteString("\r\n")
		}
		body := pick("", "hello", strings.Repeat("b", 100))
		switch rng.IntN(3) {
		case 0:
			fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		case 1:
			b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
			for len(body) > 0 {
				n := 1 + rng.IntN(len(body))
				fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
				body = body[n:]
			}
			b.WriteString("0\r\n" + pick("", "", "T: v\r\n") + "\r\n")
		default:
			b.WriteString("\r\n")
		}
	}
	raw := b.Bytes()
	if rng.IntN(2) == 0 && len(raw) > 0 {
		for range 1 + rng.IntN(2) {
			i := rng.IntN(len(raw))
			switch rng.IntN(3) {
			case 0:
				raw[i] = pick(" ", "\r", "\n", ":", "\x00", "0", "/", "\t", ",", "%")[0]
			case 1:
				raw = slices.Delete(raw, i, i+1)
			default:
				raw = slices.Insert(raw, i, raw[i])
			}
			if len(raw) == 0 {
				break
			}
		}
	}
	return raw
}

// leanEcho is a lean handler that says what it saw.
func leanEcho(w *LeanResponse, r *LeanRequest) {
	w.Header("X-Method", string(r.Method()))
	switch path := string(r.Path()); path {
	case "/status/204", "/status/304", "/status/404":
		code, _ := strconv.Atoi(path[len("/status/"):])
		w.Status(code)
		fmt.Fprint(w, "body of it")
	case "/large": // as much as an inline handler should
		_, _ = w.Write(make([]byte, 100_000))
	case "/size/1000000", "/size/100000":
		n, _ := strconv.Atoi(path[len("/size/"):])
		_, _ = w.Write(bytes.Repeat([]byte("0123456789"), n/10))
	case "/close":
		w.Close()
		_, _ = w.WriteString("bye")
	case "/headers":
		w.Header("X-Many", "a")
		w.Header("X-Many", "b")
		w.Header("X-Break", "one\r\nInjected: two")
		w.Header("Bad Name", "x")
		w.Header("Content-Length", "99")
	default:
		w.ContentType("text/plain")
		fmt.Fprintf(w, "%s %s %s %q %q", r.Method(), r.Target(), r.Host(), r.Header("x-a"), r.Body())
	}
}
