package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
)

// way is an engine with a mode.
type way struct {
	Engine Engine
	Mode   Mode
}

func (w way) String() string { return fmt.Sprintf("%s-%s", w.Engine, w.Mode) }

// ways are those that run an http.Handler here.
func ways(t testing.TB, modes ...Mode) []way {
	all := []way{{Std, Goroutine}}
	for _, e := range []Engine{Epoll, Uring} {
		if err := Available(e); err != nil {
			t.Logf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			continue
		}
		all = append(all, way{e, Goroutine}, way{e, Coroutine})
	}
	if len(modes) > 0 {
		all = slices.DeleteFunc(all, func(w way) bool { return !slices.Contains(modes, w.Mode) })
	}
	return all
}

// start serves on a free port until the test ends, which checks that the end was orderly.
func start(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	if cfg.Headroom == 0 {
		cfg.Headroom = -1 // tests measure the heap
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve gives %v, want ErrClosed", err)
		}
	})
	return s, ln.Addr().String()
}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "Hello, %s!", r.URL.Path)
}

func TestHello(t *testing.T) {
	for _, way := range ways(t) {
		t.Run(way.String(), func(t *testing.T) {
			s, addr := start(t, Config{Handler: http.HandlerFunc(hello), Engine: way.Engine, Mode: way.Mode})
			c := client(t)
			for i := range 20 {
				r, err := c.Get(fmt.Sprintf("http://%s/%d", addr, i))
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(r.Body)
				r.Body.Close()
				if want := fmt.Sprintf("Hello, /%d!", i); err != nil || string(b) != want {
					t.Errorf("the answer is %q, %v, want %q", b, err, want)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if n := s.Stats().Requests; n != 20 {
				t.Errorf("%d requests are counted, want 20", n)
			}
		})
	}
}

func client(t testing.TB) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}
