package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

const patience = time.Minute // for what must happen; nothing is timed

func each(t *testing.T, f func(t *testing.T, w way)) { eachOf(t, ways(t), f) }

func eachOf(t *testing.T, ways []way, f func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			f(t, w)
		})
	}
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func TestWebSocketEcho(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.CloseNow()
			for {
				kind, b, err := c.Read(r.Context())
				if err != nil {
					return
				}
				if err := c.Write(r.Context(), kind, b); err != nil {
					t.Error(err)
					return
				}
			}
		})
		_, addr := start(t, Config{Handler: h, Engine: w.Engine, Mode: w.Mode})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				c, _, err := websocket.Dial(ctx, "ws://"+addr, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.CloseNow()
				c.SetReadLimit(1 << 20)
				for i := range 50 {
					out := bytes.Repeat([]byte{byte(i)}, i*i*10)
					if err := c.Write(ctx, websocket.MessageBinary, out); err != nil {
						t.Error(err)
						return
					}
					_, in, err := c.Read(ctx)
					if err != nil || !bytes.Equal(in, out) {
						t.Errorf("message %d: %d bytes came back of %d, %v", i, len(in), len(out), err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

func TestStreamAndContext(t *testing.T) {
	// a handler that waits for something else than the network is for goroutines
	eachOf(t, ways(t, Goroutine), func(t *testing.T, w way) {
		left := make(chan struct{})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := 0; ; i++ {
				fmt.Fprintf(w, "data: %d\n\n", i)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				if i == 2 {
					break
				}
			}
			after := make(chan struct{})
			stop := context.AfterFunc(r.Context(), func() { close(after) })
			defer stop()
			<-r.Context().Done()
			<-after
			close(left)
		})
		_, addr := start(t, Config{Handler: h, Engine: w.Engine, Mode: w.Mode})
		resp, err := client(t).Get("http://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			if lines.Scan(); lines.Text() != fmt.Sprintf("data: %d", i) {
				t.Errorf("event %d is %q", i, lines.Text())
			}
			lines.Scan()
		}
		resp.Body.Close() // the client leaves
		select {
		case <-left:
		case <-time.After(patience):
			t.Error("the handler was not told that the client has left")
		}
	})
}

func TestContextOfACoroutineEnds(t *testing.T) {
	for _, w := range ways(t) {
		if w.Mode != Coroutine {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			left := make(chan error, 1)
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body) // gives way; the client leaves meanwhile
				left <- errors.Join(err, r.Context().Err())
			})
			_, addr := start(t, Config{Handler: h, Engine: w.Engine, Mode: w.Mode})
			c := dial(t, addr)
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
			_ = c.SetLinger(0)
			c.Close()
			select {
			case err := <-left:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the handler ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("the handler was not woken")
			}
		})
	}
}

func TestTLSAndHTTP2(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	pool := x509.NewCertPool()
	pool.AddCert(certs.Certificate())
	each(t, func(t *testing.T, w way) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v %d", r.Proto, r.TLS != nil, len(b))
		})
		s, addr := start(t, Config{
			Handler: h, Engine: w.Engine, Mode: w.Mode,
			TLS: &tls.Config{Certificates: certs.TLS.Certificates},
		})
		for _, two := range []bool{false, true} {
			tr := &http.Transport{
				TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: "example.com"},
				ForceAttemptHTTP2: two,
			}
			c := &http.Client{Transport: tr, Timeout: patience}
			for i := range 5 {
				resp, err := c.Post("https://"+addr, "", bytes.NewReader(make([]byte, i*10_000)))
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := fmt.Sprintf("HTTP/1.1 true %d", i*10_000)
				if two {
					want = fmt.Sprintf("HTTP/2.0 true %d", i*10_000)
				}
				if string(b) != want {
					t.Errorf("the answer is %q, want %q", b, want)
				}
			}
			if !two {
				defer tr.CloseIdleConnections()
			} else {
				tr.CloseIdleConnections()
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil { // with an idle TLS connection
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// readAll reads until the server ends the connection.
func readAll(t testing.TB, c net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server did not end the connection")
	}
	return string(b)
}

func TestTimeouts(t *testing.T) {
	const short = 50 * time.Millisecond
	slow := "GET / HTTP/1.1\r\nHost: a\r\nX: "
	for name, c := range map[string]struct {
		cfg  Config
		send string
	}{
		"header":       {Config{ReadHeaderTimeout: short}, slow},
		"header first": {Config{ReadHeaderTimeout: short, IdleTimeout: short}, ""},
		"body":         {Config{ReadTimeout: short}, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"},
		"idle":         {Config{IdleTimeout: short}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	} {
		each(t, func(t *testing.T, w way) {
			cfg := c.cfg
			cfg.Engine, cfg.Mode, cfg.Handler = w.Engine, w.Mode, http.HandlerFunc(echo)
			_, addr := start(t, cfg)
			conn := dial(t, addr)
			_, _ = io.WriteString(conn, c.send)
			got := readAll(t, conn)
			if name == "idle" != strings.HasPrefix(got, "HTTP/1.1 200") && name != "body" {
				t.Errorf("%s: the server said %q", name, got)
			}
		})
	}
}

func TestWriteTimeoutAndBackPressure(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		ended := make(chan int64, 1)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var n int64
			for b := make([]byte, 32<<10); ; {
				k, err := w.Write(b)
				n += int64(k)
				if err != nil {
					break
				}
			}
			ended <- n
		})
		_, addr := start(t, Config{Handler: h, Engine: w.Engine, Mode: w.Mode, WriteTimeout: 300 * time.Millisecond})
		c := dial(t, addr)
		_ = c.SetReadBuffer(4 << 10)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // and never reads
		select {
		case n := <-ended:
			if n > 64<<20 {
				t.Errorf("a client that does not read was sent %d bytes", n)
			}
		case <-time.After(patience):
			t.Error("the handler was not ended")
		}
	})
}

func TestLimits(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		_, addr := start(t, Config{
			Handler: http.HandlerFunc(echo), Engine: w.Engine, Mode: w.Mode,
			MaxHeaderBytes: 5000, MaxBodyBytes: 100,
		})
		for send, want := range map[string]string{
			"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20_000) +
				"\r\n\r\n": "431",
			"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 4000) +
				"\r\nConnection: close\r\n\r\n": "200",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" +
				strings.Repeat("x", 101): "413",
			"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n" +
				strings.Repeat("x", 100): "200",
		} {
			c := dial(t, addr)
			_, _ = io.WriteString(c, send)
			if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
				t.Errorf("%.60q: the answer is %.80q, want %s", send, got, want)
			}
		}
		c := dial(t, addr)
		_, _ = io.WriteString(c,
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n80\r\n"+strings.Repeat("x", 128)+
				"\r\n0\r\n\r\n")
		_ = c.CloseWrite()
		if got := readAll(t, c); !strings.Contains(got, `"BodyErr":"an error"`) {
			t.Errorf("a chunked body beyond the limit gives %.300q", got)
		}
	})
}

func TestPanicEndsOneConnection(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic("as ordered")
			}
			hello(w, r)
		})
		_, addr := start(t, Config{Handler: h, Engine: w.Engine, Mode: w.Mode})
		other := dial(t, addr)
		for range 3 {
			c := dial(t, addr)
			fmt.Fprintf(c, "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n")
			if got := readAll(t, c); got != "" {
				t.Errorf("the answer to a panic is %q", got)
			}
		}
		fmt.Fprintf(other, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := readAll(t, other); !strings.HasSuffix(got, "Hello, /!") {
			t.Errorf("another connection got %q", got)
		}
	})
}

func TestMaxConns(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		s, addr := start(t, Config{Handler: http.HandlerFunc(hello), Engine: w.Engine, Mode: w.Mode, MaxConns: 3})
		var conns []*net.TCPConn
		for range 3 {
			c := dial(t, addr)
			fmt.Fprintf(c, "GET /one HTTP/1.1\r\nHost: a\r\n\r\n")
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		waits := dial(t, addr)
		fmt.Fprintf(waits, "GET /two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		_ = waits.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := waits.Read(make([]byte, 10)); err == nil {
			t.Errorf("beyond the limit %d bytes of an answer came", n)
		}
		if n := s.Stats().Open; n > 3 {
			t.Errorf("%d connections are open, want 3", n)
		}
		conns[1].Close()
		_ = waits.SetReadDeadline(time.Now().Add(patience))
		if got := readAll(t, waits); !strings.HasSuffix(got, "Hello, /two!") {
			t.Errorf("when there was room the answer was %q", got)
		}
	})
}

// TestShutdownLosesNothing shuts servers down under load: clients that send on until they are told
// to go get an answer to every request that they sent.
func TestShutdownLosesNothing(t *testing.T) {
	const clients = 64
	requests := 100_000
	if testing.Short() || raceEnabled {
		requests = 10_000
	}
	for _, w := range ways(t) {
		if w.Engine == Std {
			continue // net/http closes idle connections at once, and with them requests on the way
		}
		t.Run(w.String(), func(t *testing.T) {
			var failed, done, after, late atomic.Int64
			for done.Load() < int64(requests) {
				s, addr := start(t, Config{Handler: http.HandlerFunc(hello), Engine: w.Engine, Mode: w.Mode})
				var all sync.WaitGroup
				var sent, kept atomic.Int64 // kept: until when the server keeps who does not ask
				stop := int64(requests / 20)
				lost := func(c net.Conn, at time.Time, err error) { // a request that was sent by then
					if k := kept.Load(); k > 0 && at.UnixNano() >= k { // on a machine that stood still
						late.Add(1)
						return
					}
					t.Logf("%v: %v", c.LocalAddr(), err)
					failed.Add(1)
				}
				began := make(chan struct{})
				for range clients {
					all.Go(func() {
						c, err := net.Dial("tcp", addr)
						if errors.Is(err, syscall.ECONNREFUSED) && sent.Load() >= stop {
							return // it came too late
						} else if err != nil {
							t.Error(err)
							return
						}
						defer c.Close()
						_ = c.SetDeadline(time.Now().Add(patience))
						r := bufio.NewReader(c)
						for {
							if sent.Add(1) == stop {
								close(began)
							}
							_, err := io.WriteString(c, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
							at := time.Now()
							if err != nil {
								lost(c, at, err)
								return
							}
							resp, err := http.ReadResponse(r, nil)
							if err != nil {
								lost(c, at, err)
								return
							}
							b, err := io.ReadAll(resp.Body)
							if err != nil || string(b) != "Hello, /x!" {
								failed.Add(1)
								return
							}
							done.Add(1)
							if resp.Close {
								after.Add(1)
								return
							}
						}
					})
				}
				<-began
				kept.Store(time.Now().Add(loop.DuckFor).UnixNano())
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if err := s.Shutdown(ctx); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				cancel()
				all.Wait()
				if _, err := net.Dial("tcp", addr); err == nil {
					t.Error("a server that was shut down accepts connections")
				}
			}
			if failed.Load() > 0 {
				t.Errorf("%d of %d requests failed", failed.Load(), done.Load())
			}
			t.Logf("%d requests, %d failed, %d were sent too late; %d connections were told to close", done.Load(),
				failed.Load(), late.Load(), after.Load())
		})
	}
}

// echoConn sends back what comes.
func echoConn(_ context.Context, c net.Conn) {
	_, _ = io.Copy(c, c)
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
	}
}

func TestTCP(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		_, addr := start(t, Config{Conn: echoConn, Engine: w.Engine, Mode: w.Mode})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				c := dial(t, addr)
				out := make([]byte, 3<<20)
				rng := rand.New(rand.NewPCG(uint64(i), 0))
				for k := range out {
					out[k] = byte(rng.Uint32())
				}
				go func() {
					for rest := out; len(rest) > 0; {
						n := min(len(rest), 1+rng.IntN(100_000))
						if _, err := c.Write(rest[:n]); err != nil {
							t.Error(err)
							return
						}
						rest = rest[n:]
					}
					_ = c.CloseWrite()
				}()
				in, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(in, out) {
					t.Errorf("%d bytes came back of %d, %v", len(in), len(out), err)
				}
			})
		}
		all.Wait()
	})
}

func TestTCPDeadlinesAndAddresses(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		said := make(chan error, 1)
		h := func(_ context.Context, c net.Conn) {
			said <- func() error {
				if c.LocalAddr().String() == "" || c.RemoteAddr().(*net.TCPAddr).Port == 0 {
					return fmt.Errorf("addresses are %v and %v", c.LocalAddr(), c.RemoteAddr())
				}
				b := make([]byte, 10)
				for range 2 { // twice: a deadline that has passed stays
					_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
						return fmt.Errorf("Read gives %v, want a deadline", err)
					}
					if ne := net.Error(nil); !errors.As(c.SetReadDeadline(time.Time{}), &ne) && ne != nil {
						return ne
					}
				}
				_ = c.SetWriteDeadline(time.Now().Add(-time.Second))
				if _, err := c.Write(b); !errors.Is(err, os.ErrDeadlineExceeded) {
					return fmt.Errorf("Write gives %v, want a deadline", err)
				}
				_ = c.SetDeadline(time.Time{})
				if _, err := c.Write([]byte("now")); err != nil {
					return err
				}
				n, err := c.Read(b)
				if err != nil || string(b[:n]) != "yes" {
					return fmt.Errorf("Read gives %q, %v", b[:n], err)
				}
				if err := c.Close(); err != nil {
					return err
				}
				if _, err := c.Read(b); !errors.Is(err, net.ErrClosed) {
					return fmt.Errorf("Read after Close gives %v", err)
				}
				if _, err := c.Write(b); !errors.Is(err, net.ErrClosed) {
					return fmt.Errorf("Write after Close gives %v", err)
				}
				return nil
			}()
		}
		_, addr := start(t, Config{Conn: h, Engine: w.Engine, Mode: w.Mode})
		c := dial(t, addr)
		b := make([]byte, 3)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "now" {
			t.Errorf("%q, %v", b, err)
		}
		fmt.Fprint(c, "yes")
		if err := <-said; err != nil {
			t.Error(err)
		}
		readAll(t, c)
	})
}

func TestHijackNeedsItsMode(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			c, buf, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				http.Error(rw, err.Error(), http.StatusInternalServerError)
				return
			}
			defer c.Close()
			line, _ := buf.ReadString('\n')
			fmt.Fprintf(buf, "raw %s", line)
			_ = buf.Flush()
		})
		_, addr := start(t, Config{Handler: h, Engine: w.Engine, Mode: w.Mode})
		for head, taken := range map[string]bool{
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n":                 w.Mode == Goroutine,
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n": true,
			"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n":                              true,
		} {
			c := dial(t, addr)
			fmt.Fprintf(c, "%sthe rest\n", head)
			want := "raw the rest\n"
			if !taken {
				want = "HTTP/1.1 500"
			}
			if got := readAll(t, c); !strings.HasPrefix(got, want) {
				t.Errorf("%q: the answer is %q, want %q", head, got, want)
			}
		}
	})
}
