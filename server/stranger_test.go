package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestWhoLeavesAtOnceIsNoticed: the end of a client's side comes right behind its request. The
// request's context ends all the same, or its handler would stay for good.
func TestWhoLeavesAtOnceIsNoticed(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP, server.Goroutine)), func(t *testing.T, w way) {
		var began, ended atomic.Int64
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began.Add(1)
			<-r.Context().Done()
			ended.Add(1)
		})})
		const clients = 60
		for i := range clients {
			c := dial(t, r.addr)
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if i%2 == 0 {
				c.Close()
			} else {
				_ = c.CloseWrite()
			}
		}
		until(t, "all handlers", func() bool { return ended.Load() == clients && began.Load() == clients })
		until(t, "no connection", func() bool { return r.Stats().Open == 0 || w.Engine == server.Std })
	})
}

// TestABodyReadElsewhereIsAnError: httputil.ReverseProxy and http.TimeoutHandler read the body on
// another goroutine, which a coroutine's connection cannot wait on. That is an error for them, and
// was the end of the process.
func TestABodyReadElsewhereIsAnError(t *testing.T) {
	if !inChild(t) {
		return
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, len(b))
	}))
	defer backend.Close()
	to, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = transport
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	found := make(chan error, 1)
	mux := http.NewServeMux()
	mux.Handle("/proxy", proxy)
	mux.Handle("/timeout", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		found <- err
	}), time.Minute, ""))
	eachWay(t, ways(t, ofHTTP, server.Coroutine), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: mux})
		for _, path := range []string{"/proxy", "/timeout"} {
			c := dial(t, r.addr)
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n%s", path,
				strings.Repeat("x", 50000))
			if path == "/timeout" {
				if err := <-found; !errors.Is(err, server.ErrElsewhere) {
					t.Errorf("%s: the body's reader got %v", path, err)
				}
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || path == "/proxy" && res.StatusCode != http.StatusBadGateway {
				t.Errorf("%s: %v, %v", path, res, err)
			}
			c.Close()
		}
		res, err := (&http.Client{Transport: transport}).Get("http://" + r.addr + "/other")
		if err != nil || res.StatusCode != http.StatusNotFound {
			t.Fatalf("afterwards: %v, %v", res, err)
		}
		res.Body.Close()
	})
}

// TestAHeaderIsTheHandlersOwn: a handler that keeps the header of its answer, as a cache does,
// finds in it what it has put there, and nothing of another client.
func TestAHeaderIsTheHandlersOwn(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine, server.Coroutine), func(t *testing.T, w way) {
		var mu sync.Mutex
		var kept []http.Header
		r := serve(t, w, server.Config{
			Loops: 1,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/page" {
					w.Header().Set("X-Page", "front")
					mu.Lock()
					kept = append(kept, w.Header())
					mu.Unlock()
					return
				}
				w.Header().Set("Set-Cookie", "SECRET of "+r.URL.RawQuery)
			}),
		})
		for i := range 40 {
			for _, path := range []string{"/page", "/login?bob"} {
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
				res, err := client.Get("http://" + r.addr + path)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				client.CloseIdleConnections()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, h := range kept {
			if len(h) != 1 || h.Get("X-Page") != "front" {
				t.Fatalf("a page's header became %v", h)
			}
		}
	})
}

// TestFramingIsNoTrailer: names that say how a body is framed may not be announced as trailers.
func TestFramingIsNoTrailer(t *testing.T) {
	eachWay(t, ways(t, ofHTTP, server.Goroutine, server.Coroutine), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(hello)})
		for name, want := range map[string]string{
			"Content-Length": "400", "transfer-encoding": "400", "X-Sum, Trailer": "400", "X-Sum": "200",
		} {
			c := dial(t, r.addr)
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: %s\r\n\r\n0\r\n\r\n",
				name)
			line, err := bufio.NewReader(c).ReadString('\n')
			if !strings.Contains(line, want) {
				t.Errorf("Trailer: %s: %q, %v; want %s", name, line, err, want)
			}
			c.Close()
		}
	})
}

// TestATypeIsGuessedOfTheFirstBytes, also where they come by two calls.
func TestATypeIsGuessedOfTheFirstBytes(t *testing.T) {
	binary := bytes.Repeat([]byte{0, 1, 2, 250}, 5000)
	eachWay(t, ways(t, ofHTTP, server.Goroutine, server.Coroutine), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "abc")
			if r.URL.Path == "/copy" {
				_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(binary)})
			} else {
				_, _ = w.Write(binary)
			}
		})})
		for _, path := range []string{"/copy", "/write"} {
			res, err := http.Get("http://" + r.addr + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if got := res.Header.Get("Content-Type"); got != "application/octet-stream" || err != nil ||
				len(body) != 3+len(binary) {
				t.Errorf("%s: %s, %d bytes, %v", path, got, len(body), err)
			}
			res.Body.Close()
		}
	})
}

// TestLeanHostOfATarget: a target in absolute form says which host is asked, with every engine.
func TestLeanHostOfATarget(t *testing.T) {
	eachWay(t, ways(t, ofLean, server.Inline), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Lean: func(w *server.LeanResponse,
			r *server.LeanRequest,
		) {
			_, _ = w.Write(r.Host())
		}})
		for target, want := range map[string]string{
			"/x?http://b/": "a", "http://b:80/x": "b:80", "http://b?c": "b",
			"/": "a",
		} {
			c := dial(t, r.addr)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", target)
			all, err := io.ReadAll(c)
			if !strings.HasSuffix(string(all), "\r\n\r\n"+want) {
				t.Errorf("%s: %q, %v; want %s", target, all, err, want)
			}
			c.Close()
		}
	})
}
