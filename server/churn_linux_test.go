package server

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

var churn = flag.Int("connections", 0, "of TestChurn, for each engine and mode; 0: as make test has them")

// allWays are ways and inline mode; its handler is leanEcho.
func allWays(t testing.TB) (all []way) {
	for _, w := range ways(t) {
		all = append(all, w)
		if w.Mode == Coroutine {
			all = append(all, way{w.Engine, Inline})
		}
	}
	return all
}

func (w way) config() Config {
	if w.Mode == Inline {
		return Config{Engine: w.Engine, Mode: w.Mode, Lean: leanEcho}
	}
	large := make([]byte, 1_000_000)
	h := answers()
	return Config{
		Engine: w.Engine, Mode: w.Mode,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, _ = w.Write(large)
				return
			}
			h.ServeHTTP(w, r)
		}),
	}
}

// TestChurn opens and closes connections in every rude way, while the garbage collector never
// rests, and then looks for what is left.
func TestChurn(t *testing.T) {
	for _, w := range allWays(t) {
		if w.Engine == Std {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(5))
			cfg := w.config()
			cfg.IdleTimeout, cfg.ReadTimeout, cfg.WriteTimeout = time.Second, time.Second, time.Second
			t.Run("what is opened once for all", func(t *testing.T) { start(t, cfg) })
			goroutines, fds := runtime.NumGoroutine(), openFiles(t)
			before := descriptors(t)
			s, addr := start(t, cfg)
			stop := make(chan struct{})
			var gc sync.WaitGroup
			gc.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						runtime.GC()
					}
				}
			})
			seed := testenv.Seed(t)
			connections := cmp.Or(*churn, testenv.Rounds(17_000, 4000))
			var left atomic.Int64
			left.Store(int64(connections))
			var all sync.WaitGroup
			for i := range 64 {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if err := rude(addr, rng); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v, %d connections are open", err, s.Stats().Open)
			}
			close(stop)
			gc.Wait()
			if st := s.Stats(); st.Open != 0 || st.Accepted < uint64(connections) {
				t.Errorf("%d connections are open; %d were accepted of %d", st.Open, st.Accepted, connections)
			}
			// Serve has returned; its caller may be there
			until(t, "goroutines", func() bool { return runtime.NumGoroutine() <= goroutines+1 })
			until(t, "descriptors", func() bool { return openFiles(t) <= fds })
			if t.Failed() {
				t.Logf("the descriptors before: %s", before)
			}
		})
	}
}

// until waits for what others bring about, and does not measure how long.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("%s are left: %d goroutines, %d descriptors: %s", what, runtime.NumGoroutine(), openFiles(t),
				descriptors(t))
			return
		}
	}
}

// descriptors says what each open descriptor is of.
func descriptors(t testing.TB) string {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range dir {
		target, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err == nil { // the folder's own is closed by now
			all = append(all, d.Name()+" "+target)
		}
	}
	return strings.Join(all, ", ")
}

func openFiles(t testing.TB) int {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(dir)
}

// rude is one connection of a client without manners.
func rude(addr string, rng *rand.Rand) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	tcp := c.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(patience))
	for range rng.IntN(4) {
		raw := []byte("GET /size/100000 HTTP/1.1\r\nHost: a\r\n\r\n")
		if rng.IntN(2) == 0 {
			raw = generate(rng)
		}
		cut := rng.IntN(len(raw) + 1)
		if _, err := c.Write(raw[:cut]); err != nil {
			return nil // the server has had enough: its right
		}
		switch rng.IntN(6) {
		case 0:
			_ = tcp.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			return nil
		case 1:
			_ = tcp.SetLinger(0) // a reset
			return nil
		case 2:
			return nil
		case 3:
			runtime.Gosched()
		}
		if _, err := c.Write(raw[cut:]); err != nil {
			return nil
		}
		if rng.IntN(2) == 0 {
			b := make([]byte, 1+rng.IntN(2000))
			if _, err := c.Read(b); err != nil {
				return nil
			}
		}
	}
	if rng.IntN(3) == 0 {
		_ = tcp.CloseWrite()
		_, err := io.Copy(io.Discard, c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the server holds a connection whose client has ended its side: %w", err)
		}
	}
	return nil
}

// TestSlowClientsAreBounded holds many requests that never become whole, and many answers that
// nobody takes.
func TestSlowClientsAreBounded(t *testing.T) {
	const clients = 200
	for _, w := range allWays(t) {
		if w.Engine == Std {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			s, addr := start(t, w.config())
			dial(t, addr).Close()
			until(t, "the server is there", func() bool { return s.Stats().Accepted == 1 && s.Stats().Open == 0 })
			held := func() int { return heap() + int(s.Stats().Mapped) }
			for name, c := range map[string]struct {
				send  string
				bound int // bytes for each connection
			}{
				"half a head":  {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 3000), 32 << 10},
				"nobody reads": {strings.Repeat("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", 4), 256 << 10},
				"half a body": {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
					strings.Repeat("x", 3000), 32 << 10},
				"nothing at all": {"", 16 << 10},
			} {
				before := held()
				var conns []net.Conn
				for range clients {
					conn := dial(t, addr)
					_, _ = io.WriteString(conn, c.send)
					conns = append(conns, conn)
				}
				probe := dial(t, addr) // what came before it on its loop has been looked at when it is answered
				for range 3 {
					fmt.Fprintf(probe, "HEAD /silent HTTP/1.1\r\nHost: a\r\n\r\n")
					if _, err := probe.Read(make([]byte, 1000)); err != nil {
						t.Fatal(err)
					}
				}
				if grown := held() - before; grown > clients*c.bound {
					t.Errorf("%s: %d bytes for each connection, want at most %d", name, grown/clients, c.bound)
				}
				for _, conn := range append(conns, probe) {
					conn.Close()
				}
				until(t, "the connections are gone", func() bool { return s.Stats().Open == 0 })
			}
		})
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
