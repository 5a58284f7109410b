package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// The tests of regression*_test.go hold a law each that was broken once. They use nothing of the
// package but what it exports, so that they hold for whatever is below.

// soon is for what must happen: tests wait for it and measure nothing.
const soon = time.Minute

// way is an engine with a mode.
type way struct {
	Engine server.Engine
	Mode   server.Mode
}

func (w way) String() string { return fmt.Sprintf("%s-%s", w.Engine, w.Mode) }

// kind is which of the three handlers a test has.
type kind int

const (
	ofHTTP kind = iota
	ofLean
	ofConn
)

// ways are those that run a kind of handler here, and for a mode only those of it.
func ways(t testing.TB, k kind, modes ...server.Mode) []way {
	all := []way{{server.Std, server.Goroutine}}
	for _, e := range []server.Engine{server.Epoll, server.Uring} {
		if err := server.Available(e); err != nil {
			t.Logf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			continue
		}
		all = append(all, way{e, server.Goroutine}, way{e, server.Coroutine})
		if k == ofLean {
			all = append(all, way{e, server.Inline})
		}
	}
	if len(modes) > 0 {
		all = slices.DeleteFunc(all, func(w way) bool { return !slices.Contains(modes, w.Mode) })
	}
	return all
}

// loops leaves out engine std, which is net/http: its habits are not ours to mend.
func loops(all []way) []way {
	return slices.DeleteFunc(all, func(w way) bool { return w.Engine == server.Std })
}

// eachWay runs f for every way, one after the other.
func eachWay(t *testing.T, ways []way, f func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) { f(t, w) })
	}
}

// running is a server that serves until its test ends.
type running struct {
	*server.Server
	addr  string
	ln    net.Listener
	ended chan error // gets what Serve returned
	log   *journal
}

// serve serves on a free port, by one loop where the test does not say otherwise. A server that
// cannot be closed fails the test.
func serve(t testing.TB, w way, cfg server.Config) *running {
	t.Helper()
	r := &running{ended: make(chan error, 1), log: &journal{}}
	cfg.Engine, cfg.Mode = w.Engine, w.Mode
	if cfg.Log == nil {
		cfg.Log = slog.New(r.log)
	}
	if cfg.Loops == 0 {
		cfg.Loops = 1
	}
	var err error
	cfg.Headroom = -1 // tests measure the heap
	if r.Server, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	if r.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	r.addr = r.ln.Addr().String()
	go func() { r.ended <- r.Serve(r.ln) }()
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- r.Close() }()
		select {
		case err := <-closed:
			if err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("Close: %v", err)
			}
		case <-time.After(soon):
			t.Error("Close does not return")
		}
	})
	return r
}

// journal is a log that keeps its lines.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(string) slog.Handler { return j }

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// dial connects, for at most as long as a test may wait.
func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(soon))
	return c.(*net.TCPConn)
}

// client is a connection that requests are sent on one by one.
type client struct {
	*net.TCPConn
	in *bufio.Reader
}

func newClient(t testing.TB, addr string) *client {
	c := dial(t, addr)
	return &client{c, bufio.NewReader(c)}
}

// get sends a request and returns the body of its answer.
func (c *client) get(path string) (string, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path); err != nil {
		return "", err
	}
	return c.answer("GET")
}

func (c *client) answer(method string) (string, error) {
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(b), err
}

// want gets a path and compares the answer.
func (c *client) want(t testing.TB, path, want string) {
	t.Helper()
	if got, err := c.get(path); err != nil || got != want {
		t.Errorf("%s: the answer is %.80q, %v, want %.80q", path, got, err, want)
	}
}

// until polls for what others bring about.
func until(t testing.TB, what string, ok func() bool) bool {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("in vain waited for: %s", what)
			return false
		}
	}
	return true
}

// take waits for what comes on a channel.
func take[T any](t testing.TB, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(soon):
		t.Fatalf("in vain waited for: %s", what)
	}
	return v
}

// stream is a connection's own endless content.
type stream struct{ block []byte }

func newStream(seed uint64) stream {
	s := stream{make([]byte, 1_000_003)} // a prime: nothing that is moved by a power of two fits
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(s.block)
	return s
}

// check reports whether b is what comes at off.
func (s stream) check(b []byte, off int) error {
	for i := 0; i < len(b); {
		at := (off + i) % len(s.block)
		n := min(len(b)-i, len(s.block)-at)
		if !bytes.Equal(b[i:i+n], s.block[at:at+n]) {
			return fmt.Errorf("wrong bytes between %d and %d", off+i, off+i+n)
		}
		i += n
	}
	return nil
}

// TestASlowClientGetsItsOwnBytes: what a handler reads from a connection came on it, in order and
// once, however often the handler has to wait for its client to read.
func TestASlowClientGetsItsOwnBytes(t *testing.T) {
	const clients, size = 8, 12 << 20
	eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Conn: func(_ context.Context, c net.Conn) {
			b := make([]byte, 1500)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
			}
		}})
		var all sync.WaitGroup
		for i := range clients {
			c, s := dial(t, r.addr), newStream(uint64(i))
			all.Go(func() {
				for off := 0; off < size; {
					at := off % len(s.block)
					n, err := c.Write(s.block[at:min(at+16<<10, len(s.block), at+size-off)])
					if err != nil {
						return // its reader says more
					}
					off += n
				}
			})
			all.Go(func() {
				defer c.Close()
				b := make([]byte, 64<<10)
				for off := 0; off < size; {
					n, err := c.Read(b)
					if err == nil {
						err = s.check(b[:n], off)
					}
					if err != nil {
						t.Errorf("client %d at %d: %v", i, off, err)
						return
					}
					off += n
					if i < clients/2 {
						time.Sleep(time.Millisecond) // it is slow, so that the handler has to wait for it
					}
				}
			})
		}
		all.Wait()
	})
}

// TestMixedTrafficGetsItsOwnAnswers: on one loop, requests with and without bodies, pipelined, by
// clients that read slowly, are each answered with their own content.
func TestMixedTrafficGetsItsOwnAnswers(t *testing.T) {
	const clients, rounds, batch, large = 8, 3, 16, 400_000
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		fmt.Fprintf(w, "%s %s\n", r.Method, r.URL.Path)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, strings.Repeat(r.URL.Path, large/len(r.URL.Path)))
		}
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r.Body}, make([]byte, 1500))
	})
	eachWay(t, loops(ways(t, ofHTTP)), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: h})
		var all sync.WaitGroup
		for i := range clients {
			c, rng := newClient(t, r.addr), rand.New(rand.NewPCG(1, uint64(i)))
			all.Go(func() {
				for round := range rounds {
					var out []byte
					var wants []string
					for k := range batch {
						path := fmt.Sprintf("/%d/%d/%d", i, round, k)
						if rng.IntN(3) == 0 {
							out = fmt.Appendf(out, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
							wants = append(wants, "GET "+path+"\n"+strings.Repeat(path, large/len(path)))
							continue
						}
						body := strings.Repeat(path, rng.IntN(60_000/len(path)))
						out = fmt.Appendf(out, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", path,
							len(body), body)
						wants = append(wants, "POST "+path+"\n"+body)
					}
					go func() { _, _ = c.Write(out) }() // its reader says what went wrong
					for _, want := range wants {
						if got, err := c.answer("GET"); err != nil || got != want {
							t.Errorf("the answer is %.60q (%d bytes), %v, want %.60q (%d bytes)", got, len(got), err,
								want, len(want))
							c.Close()
							return
						}
						if i < clients/2 {
							time.Sleep(time.Millisecond) // it is slow, so that handlers have to wait for it
						}
					}
				}
			})
		}
		all.Wait()
	})
}

// TestSetBufferTakesNothing: what a handler gives to SetBuffer stays the handler's: the server
// sends it and never writes into it.
func TestSetBufferTakesNothing(t *testing.T) {
	const text = "the cached page, which is for everybody to see\n"
	eachWay(t, ways(t, ofLean), func(t *testing.T, w way) {
		page := []byte(text)
		array := []byte("the first half|the second half is not the server's to write into")
		kept := string(array)
		r := serve(t, w, server.Config{Lean: func(w *server.LeanResponse, r *server.LeanRequest) {
			switch string(r.Path()) {
			case "/page":
				w.SetBuffer(page)
			case "/part":
				w.SetBuffer(array[:14])
				_, _ = w.WriteString(" and more")
			case "/own": // Buffer's memory is the server's
				w.SetBuffer(append(w.Buffer(), "own"...))
				_, _ = w.WriteString(" memory")
			default:
				_, _ = w.WriteString("SECRET of user " + string(r.Path()[1:]))
			}
		}})
		a, b := newClient(t, r.addr), newClient(t, r.addr)
		for i := range 20 {
			a.want(t, "/page", text)
			b.want(t, "/bob", "SECRET of user bob")
			b.want(t, "/own", "own memory")
			a.want(t, "/part", "the first half and more")
			b.want(t, fmt.Sprintf("/%d", i), fmt.Sprintf("SECRET of user %d", i))
			a.want(t, "/page", text)
		}
		if string(page) != text {
			t.Errorf("the handler's page is now %q", page)
		}
		if string(array) != kept {
			t.Errorf("the handler's array is now %q", array)
		}
	})
}

// ended reads until the server has ended a connection, and reports what came. A reset is an end,
// too.
func ended(t testing.TB, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server did not end the connection; so far it sent %.100q", b)
	}
	return b
}
