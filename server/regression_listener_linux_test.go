package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// allWays are the ways of every kind of handler, with a configuration that answers with the path.
func allWays(t *testing.T, f func(t *testing.T, w way, cfg server.Config)) {
	eachWay(t, httpWays(t), func(t *testing.T, w way) { f(t, w, httpConfig(w, hello, helloLean)) })
	t.Run("conn", func(t *testing.T) {
		eachWay(t, ways(t, ofConn), func(t *testing.T, w way) { f(t, w, server.Config{Conn: lineServer(func() {})}) })
	})
}

// cpu is what the process has used so far.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quiet polls until the process rests: nothing spins.
func quiet(t testing.TB) {
	t.Helper()
	const window = 50 * time.Millisecond
	var used time.Duration
	for end := time.Now().Add(soon); time.Now().Before(end); {
		before := cpu(t)
		time.Sleep(window)
		if used = cpu(t) - before; used < window/4 {
			return
		}
	}
	t.Errorf("the process does not come to rest: it uses %d %% of a CPU", 100*used/window)
}

// TestAListenerThatIsShutDownEndsServe: what ends a listener from outside ends Serve with an error
// that says so; nothing spins.
func TestAListenerThatIsShutDownEndsServe(t *testing.T) {
	allWays(t, func(t *testing.T, w way, cfg server.Config) {
		r := serve(t, w, cfg)
		newClient(t, r.addr).want(t, "/", "/")
		f, err := r.ln.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.Shutdown(int(f.Fd()), syscall.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-r.ended:
			if err == nil || errors.Is(err, server.ErrClosed) {
				t.Errorf("Serve gives %v, want an error that is not ErrClosed", err)
			}
		case <-time.After(soon):
			t.Error("Serve does not end")
		}
		quiet(t)
	})
}

// TestAListenerThatIsClosedEndsServe: the caller may close its listener. Serve then returns an
// error as net/http's does, nobody can connect any more, and those who are connected are served on.
func TestAListenerThatIsClosedEndsServe(t *testing.T) {
	allWays(t, func(t *testing.T, w way, cfg server.Config) {
		r := serve(t, w, cfg)
		c := newClient(t, r.addr)
		c.want(t, "/before", "/before")
		if err := r.ln.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-r.ended:
			if !errors.Is(err, net.ErrClosed) || errors.Is(err, server.ErrClosed) {
				t.Errorf("Serve gives %v, want net.ErrClosed", err)
			}
		case <-time.After(soon):
			t.Error("Serve does not end")
		}
		c.want(t, "/after", "/after")
		if c, err := net.Dial("tcp", r.addr); err == nil {
			t.Error("the server still listens")
			c.Close()
		}
		c.want(t, "/last", "/last")
		quiet(t)
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// TestWithoutDescriptorsTheServerWaits: when there are no descriptors for new connections, the log
// says so once or twice, nothing spins, and those who wait are served when there are descriptors
// again.
func TestWithoutDescriptorsTheServerWaits(t *testing.T) {
	eachWay(t, loops(ways(t, ofHTTP, server.Goroutine)), func(t *testing.T, w way) {
		if !inChild(t) {
			return
		}
		few(t, 200)
		r := serve(t, w, httpConfig(w, hello, helloLean))
		old := newClient(t, r.addr)
		old.want(t, "/", "/") // all that is needed once is there
		sockets := make([]int, 3)
		for i := range sockets {
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			sockets[i] = fd
		}
		free := starve()
		for _, fd := range sockets {
			to := &syscall.SockaddrInet4{Port: r.ln.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
			if err := syscall.Connect(fd, to); err != nil {
				t.Fatal(err)
			}
			if _, err := syscall.Write(fd,
				[]byte("GET /waits HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "a line in the log", func() bool { return len(r.log.all()) > 0 })
		const watched = 700 * time.Millisecond
		<-time.After(watched) // nothing is waited for: this long the log is watched
		if n := len(r.log.all()); n > 2 {
			t.Errorf("the log got %d lines, want one or two: %.300q", n, r.log.all())
		}
		quiet(t)
		old.want(t, "/old", "/old")
		free()
		for _, fd := range sockets {
			f := os.NewFile(uintptr(fd), "client")
			b, err := io.ReadAll(f)
			if err != nil || !strings.HasSuffix(string(b), "/waits") {
				t.Errorf("who waited got %q, %v", b, err)
			}
			f.Close()
		}
		newClient(t, r.addr).want(t, "/new", "/new")
	})
}

// few lets the process have n descriptors and no more. A ring looks at the limit when it begins to
// accept, so this comes first.
func few(t *testing.T, n uint64) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = min(n, limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// starve takes all descriptors that there are; free gives them back.
func starve() (free func()) {
	var taken []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	return func() {
		for _, fd := range taken {
			_ = syscall.Close(fd)
		}
	}
}

// openFiles counts the descriptors of the process.
func openFiles(t testing.TB) int {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(dir)
}

// TestMaxConnsIsNeverExceeded: at no time are more than MaxConns connections open, in what Stats
// says, in handlers and in descriptors, however many wait; and all that wait are served in the end.
func TestMaxConnsIsNeverExceeded(t *testing.T) {
	const most, clients = 3, 100
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("loops=%d", n), func(t *testing.T) {
			eachWay(t, ways(t, ofConn), func(t *testing.T, w way) {
				var inside, highest atomic.Int64
				r := serve(t, w, server.Config{MaxConns: most, Loops: n, Conn: func(_ context.Context, c net.Conn) {
					now := inside.Add(1)
					defer inside.Add(-1)
					for old := highest.Load(); now > old && !highest.CompareAndSwap(old, now); old = highest.Load() {
					}
					// package net splices between its own, by pipes
					_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
				}})
				echoOnce(t, r.addr)
				until(t, "the end of the first", func() bool { return r.Stats().Open == 0 })
				before := openFiles(t)
				conns := make([]*net.TCPConn, clients)
				for i := range conns {
					conns[i] = dial(t, r.addr)
					if _, err := conns[i].Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
				}
				worst, files := 0, 0
				look := func() {
					worst = max(worst, r.Stats().Open)
					files = max(files, openFiles(t)-before-clients)
				}
				for i, c := range conns {
					look()
					if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
						t.Fatalf("client %d: %v", i, err)
					}
					if i >= most {
						continue
					}
					for range 20 {
						look()
						runtime.Gosched()
					}
					if i == most-1 {
						for _, c := range conns[:most] { // now the others come in
							_ = c.CloseWrite()
						}
						for _, c := range conns[most:] {
							_ = c.CloseWrite()
						}
					}
				}
				if worst > most || files > most || highest.Load() > most {
					t.Errorf("Stats says %d open, %d descriptors are open, %d handlers ran at a time; want at most %d",
						worst, files, highest.Load(), most)
				}
			})
		})
	}
}
