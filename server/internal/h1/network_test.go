package h1

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/http1"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/looptest"
)

var seeds = flag.Int("seeds", testenv.Rounds(40, 8), "seeds of each test with a network in memory")

func testConfig(h http.Handler) *Config {
	return &Config{
		Handler: h, MaxHeaderBytes: 64 << 10, MaxBodyBytes: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Server: &http.Server{},
		Date:   func(int64) []byte { return []byte("Thu, 01 Jan 1970 00:00:00 GMT") },
		Closes: func() bool { return false },
	}
}

// goTest and coTest are streams as package server has them.
type goTest struct{ *loop.GoConn }

func (g goTest) WaitInput() (bool, error)        { return true, g.GoConn.WaitInput() }
func (goTest) Count(int64, int, bool)            {}
func (goTest) Hijack() (net.Conn, []byte, error) { return nil, nil, errors.ErrUnsupported }

type coTest struct{ *loop.CoConn }

func (coTest) BodyRead()                         {}
func (coTest) Count(int64, int, bool)            {}
func (coTest) Hijack() (net.Conn, []byte, error) { return nil, nil, errors.ErrUnsupported }

type service struct{ sess *Session }

func (*service) Begin()                  {}
func (*service) Closed()                 {}
func (*service) Promoted(g *loop.GoConn) {}
func (s *service) Serve() loop.Verdict {
	if s.sess.Serve() == ErrIdle {
		return loop.Idle
	}
	return loop.Over
}

// echoHandler answers with what it was asked: who, how much, and the sum of the body. The path says
// how it behaves.
func echoHandler(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "early") { // answers before it has read
		fmt.Fprintf(w, "early %s\n", r.URL)
	}
	var body []byte
	switch {
	case strings.Contains(r.URL.Path, "unread"):
	case strings.Contains(r.URL.Path, "copy"): // by WriteTo
		var b bytes.Buffer
		_, _ = io.Copy(&b, r.Body)
		body = b.Bytes()
	default:
		body, _ = io.ReadAll(r.Body)
	}
	if strings.Contains(r.URL.Path, "file") {
		sendPage(w)
		return
	}
	if strings.Contains(r.URL.Path, "length") {
		w.Header().Set("Content-Length", "30000")
		_, _ = w.Write(bytes.Repeat([]byte(r.URL.Path[:1]), 30_000))
		return
	}
	fmt.Fprintf(w, "%s %s %d %08x\n", r.Method, r.URL, len(body), crc32.ChecksumIEEE(body))
	if strings.Contains(r.URL.Path, "flush") {
		for i := range 3 {
			_ = http.NewResponseController(w).Flush()
			fmt.Fprintf(w, "%s %d\n", r.URL, i)
		}
	}
	if strings.Contains(r.URL.Path, "large") {
		_, _ = w.Write(bytes.Repeat([]byte(r.URL.Path), 3_000))
	}
	if strings.Contains(r.URL.Path, "panic") {
		panic(http.ErrAbortHandler)
	}
}

// sendPage answers with a file.
func sendPage(w http.ResponseWriter) {
	f, err := os.Open(pageFile)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	w.Header()["Content-Type"] = plainText
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	_, _ = io.Copy(w, f) // an error is the client's leaving
}

type leanEcho struct{}

func (leanEcho) Answer(head []byte, h *http1.Head, body []byte, a *Answer) {
	target := string(h.Target.Of(head))
	a.AppendString(fmt.Sprintf("%s %s %d %08x\n", h.Method.Of(head), target, len(body), crc32.ChecksumIEEE(body)))
	if strings.Contains(target, "large") {
		a.Append(bytes.Repeat([]byte(target), 3_000))
	}
	if strings.Contains(target, "static") {
		a.Static = page
	}
	if strings.Contains(target, "panic") {
		panic(http.ErrAbortHandler)
	}
	a.Close = strings.Contains(target, "close")
}

var (
	page     = bytes.Repeat([]byte("static page "), 2_000)
	pageFile string // page, as a file
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "h1")
	if err == nil {
		pageFile = filepath.Join(dir, "page")
		err = os.WriteFile(pageFile, page, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// script is what client i sends: some requests, one behind the other.
func script(rng *rand.Rand, i int) (b []byte) {
	for n := range 1 + rng.IntN(12) {
		kind := []string{"", "flush", "large", "early", "unread", "length", "static", "copy", "file"}[rng.IntN(9)]
		if rng.IntN(25) == 0 {
			kind = []string{"panic", "close"}[rng.IntN(2)]
		}
		target := fmt.Sprintf("/%d/%d/%s", i, n, kind)
		size := rng.IntN(1 + rng.IntN(12_000))
		if rng.IntN(6) == 0 {
			size = rng.IntN(150_000)
		}
		body := bytes.Repeat([]byte{byte('a' + n)}, size)
		switch rng.IntN(4) {
		case 0, 1:
			b = fmt.Appendf(b, "GET %s HTTP/1.1\r\nHost: a\r\nX-Pad: %s\r\n\r\n", target,
				strings.Repeat("p", rng.IntN(1+rng.IntN(6_000))))
		case 2:
			b = fmt.Appendf(b, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
		case 3:
			b = fmt.Appendf(b, "PUT %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", target)
			for len(body) > 0 {
				k := 1 + rng.IntN(len(body))
				b = fmt.Appendf(b, "%x;x=y\r\n%s\r\n", k, body[:k])
				body = body[k:]
			}
			b = append(b, "0\r\n\r\n"...)
		}
	}
	return b
}

// apps are the ways to serve: what makes an App, and the network it needs.
var apps = map[string]func(*Config) looptest.Config{
	"inline": func(cfg *Config) looptest.Config {
		var t *Tools
		return looptest.Config{OnLoop: true, NewApp: func(c *loop.Conn) loop.App {
			if t == nil {
				t = &Tools{Config: cfg, Handler: leanEcho{}, Budget: &Budget{Limit: 1 << 30}}
			}
			return NewInline(c, t)
		}}
	},
	"coroutine": func(cfg *Config) looptest.Config {
		return looptest.Config{OnLoop: true, NewApp: func(c *loop.Conn) loop.App {
			g := loop.NewCoConn(c)
			sess := NewSession(cfg, coTest{g})
			sess.Coroutine = true
			g.Serve(&service{sess})
			return g
		}}
	},
	"goroutine":               func(cfg *Config) looptest.Config { return onGoroutines(cfg, false) },
	"goroutine that receives": func(cfg *Config) looptest.Config { return onGoroutines(cfg, true) },
}

func onGoroutines(cfg *Config, aside bool) looptest.Config {
	return looptest.Config{Aside: aside, NewApp: func(c *loop.Conn) loop.App {
		return loop.NewGoConn(c, func(g *loop.GoConn) { _ = NewSession(cfg, goTest{g}).Serve() })
	}}
}

// run serves the scripts, and returns what each client got.
func run(t testing.TB, app string, seed uint64, gentle bool, scripts [][]byte, ends []looptest.End) [][]byte {
	t.Helper()
	cfg := apps[app](testConfig(http.HandlerFunc(echoHandler)))
	cfg.Seed, cfg.Gentle = seed, gentle
	var clients []*looptest.Client
	for i, s := range scripts {
		c := &looptest.Client{Send: s}
		if !gentle {
			c.End = ends[i]
		}
		clients = append(clients, c)
	}
	if err := looptest.Run(cfg, clients); err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	for _, c := range clients {
		got = append(got, c.Got)
	}
	return got
}

// TestAnyNetwork: however what clients send is cut and mixed, and however slowly they read, each
// gets the answers that it would have got alone on a network that delivers everything whole; who
// resets gets the beginning of that.
func TestAnyNetwork(t *testing.T) {
	for app := range apps {
		t.Run(app, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(*seeds) {
				if anyNetwork(t, app, seed); t.Failed() {
					return
				}
			}
		})
	}
}

func anyNetwork(t testing.TB, app string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	var scripts, want [][]byte
	var ends []looptest.End
	for i := range 1 + rng.IntN(4) {
		s := script(rng, i)
		scripts = append(scripts, s)
		want = append(want, run(t, app, seed, true, [][]byte{s}, nil)[0])
		ends = append(ends, looptest.HalfClose)
		if rng.IntN(5) == 0 {
			ends[i] = looptest.Reset
		}
	}
	for i, got := range run(t, app, seed, false, scripts, ends) {
		if ends[i] == looptest.HalfClose && !bytes.Equal(got, want[i]) || !bytes.HasPrefix(want[i], got) {
			at := 0
			for at < min(len(got), len(want[i])) && got[at] == want[i][at] {
				at++
			}
			t.Errorf("seed %d, client %d: %d bytes came, want %d; they differ from byte %d: %.80q, want %.80q",
				seed, i, len(got), len(want[i]), at, got[at:], want[i][at:])
		}
	}
}

// TestLargeBodiesComeToTheirPlace: of a large body the driver receives the beginning, and the
// session the rest, without a copy between; also where it is one of two chunks.
func TestLargeBodiesComeToTheirPlace(t *testing.T) {
	const size = 200_000
	body := strings.Repeat("0123456789", size/10)
	length := fmt.Sprintf("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, body)
	chunked := fmt.Sprintf("POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n",
		size-5, body[5:], 5, body[:5])
	for app, send := range map[string]string{"inline": length + length, "coroutine": length + chunked} {
		net := apps[app](testConfig(http.HandlerFunc(echoHandler)))
		net.Seed, net.Gentle = 1, true
		client := &looptest.Client{Send: []byte(send)}
		if err := looptest.Run(net, []*looptest.Client{client}); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(client.Got, []byte(" 200 OK\r\n")); n != 2 {
			t.Errorf("%s: %d answers of 200, want 2: %.300q", app, n, client.Got)
		}
		if client.Lent > 40_000 {
			t.Errorf("%s: the driver received %d bytes of %d, want little more than the heads", app, client.Lent,
				len(send))
		}
	}
}

// FuzzAnyNetwork lets the fuzzer choose seeds.
func FuzzAnyNetwork(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for app := range apps {
			anyNetwork(t, app, seed)
		}
	})
}

// withoutReason cuts the reason of a refusal off: what is wrong with a request may be seen at
// another place first.
func withoutReason(b []byte) []byte {
	if i := bytes.LastIndex(b, []byte("Connection: close\r\n\r\n4")); i >= 0 {
		return b[:i]
	}
	return b
}

// FuzzInline sends any bytes, cut by a seed, to an inline session beside the same whole.
func FuzzInline(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), uint64(1))
	f.Add([]byte("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /"),
		uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		if bytes.Contains(bytes.ToLower(b), []byte("100-continue")) {
			return // depends on what has come
		}
		want := run(t, "inline", seed, true, [][]byte{b}, nil)[0]
		got := run(t, "inline", seed, false, [][]byte{b}, []looptest.End{looptest.HalfClose})[0]
		if !bytes.Equal(withoutReason(got), withoutReason(want)) {
			t.Errorf("%q gives %q when it comes in pieces, want %q", b, got, want)
		}
	})
}
