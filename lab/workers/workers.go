// Package workers is servers of several processes as contestants.
package workers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/servers"
	"github.com/tallywheel/tallywheel/prefork"
	"github.com/tallywheel/tallywheel/rt"
)

// Prefork serves by net/http in several processes, by package prefork. What a request costs is the
// parameter work: hello, or as the experiments on processes have it cpu, alloc, mutex or io.
type Prefork struct {
	Workers int
	Procs   int  // GOMAXPROCS of each; 0: one for each CPU
	Pin     bool // each has a CPU of its own
}

// Serves is the contestant.
func (p Prefork) Serves(t *contestant.Turn) error {
	addr, err := t.Address()
	if err != nil {
		return err
	}
	h, err := burdenOf(t.Text("work"))
	if err != nil {
		return err
	}
	cpus, err := rt.Affinity(0)
	if err != nil {
		return err
	}
	cfg := prefork.Config{
		Listen: []string{addr}, Workers: p.Workers, Procs: p.Procs, BackOff: time.Millisecond, Intensity: 1000,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if cfg.Procs == 0 {
		cfg.Procs = len(cpus)
	}
	if p.Pin {
		for _, c := range cpus {
			cfg.CPUs = append(cfg.CPUs, rt.CPUs{c})
		}
	}
	return prefork.Run(context.Background(), cfg, func(w *prefork.Worker) error {
		return w.Serve(&http.Server{Handler: w.Handler(h)})
	})
}

// Work of a request, so that a CPU answers some ten thousand a second.
const (
	burdenLoops  = 20_000                // of cpu, each about 1 ns
	burdenAllocs = 200                   // of alloc, of 512 bytes
	burdenWait   = 2 * time.Millisecond  // of io
	burdenLocked = 10 * time.Microsecond // of mutex: how long the lock is held, at least
)

// burdens are what a request may cost: it computes (cpu), allocates (alloc), works under a lock
// that all requests of the process want (mutex), or waits for another (io).
var burdens = map[string]func(mu *sync.Mutex) uint64{
	"hello": func(*sync.Mutex) uint64 { return 1 },
	"cpu":   func(*sync.Mutex) uint64 { return contestant.Spin(burdenLoops) },
	"alloc": func(*sync.Mutex) uint64 {
		kept := make([]*[512]byte, burdenAllocs)
		for i := range kept {
			kept[i] = new([512]byte)
			kept[i][i&511] = byte(i)
		}
		return uint64(len(kept))
	},
	"mutex": func(mu *sync.Mutex) uint64 {
		mu.Lock()
		defer mu.Unlock()
		sum := contestant.Spin(100) // once at least: others may have the CPU when the lock is had
		for began := time.Now(); time.Since(began) < burdenLocked; {
			sum |= contestant.Spin(100)
		}
		return sum
	},
	"io": func(*sync.Mutex) uint64 {
		time.Sleep(burdenWait)
		return 1
	},
}

func burdenOf(work string) (http.Handler, error) {
	f, ok := burdens[cmp.Or(work, "hello")]
	if !ok {
		return nil, fmt.Errorf("no work %q; there are %s", work, strings.Join(slices.Sorted(maps.Keys(burdens)), ", "))
	}
	hello := []byte(contestant.Hello)
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if f(&mu) == 0 {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		servers.Answer(w, hello)
	}), nil
}

// Plain is what one writes first: so many workers that open sockets of their own by SO_REUSEPORT.
// At SIGHUP each is replaced: a new one starts, and once it serves the old one is told to shut
// down, which net/http does in good order.
func Plain(count int) contestant.Work {
	return func(t *contestant.Turn) error { return plainWorkers(t, count) }
}

func plainWorkers(t *contestant.Turn, count int) error {
	addr, err := t.Address()
	if err != nil {
		return err
	}
	if os.Getenv(plainVariable) != "" {
		return plainWorker(addr)
	}
	workers := make([]*plain, count)
	for i := range workers {
		if workers[i], err = startPlain(); err != nil {
			return err
		}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	ended := make(chan *plain)
	for _, w := range workers {
		go w.await(ended)
	}
	for {
		select {
		case <-hup:
			for i, old := range workers {
				fresh, err := startPlain()
				if err != nil {
					return err
				}
				go fresh.await(ended)
				workers[i] = fresh
				_ = old.cmd.Process.Signal(syscall.SIGTERM)
			}
		case gone := <-ended:
			for i, w := range workers {
				if w != gone {
					continue // it was replaced
				}
				if workers[i], err = startPlain(); err != nil {
					return err
				}
				go workers[i].await(ended)
			}
		}
	}
}

const plainVariable = "TALLYWHEEL_LAB_PLAIN"

// plain is a worker as its parent sees it.
type plain struct{ cmd *exec.Cmd }

func (p *plain) await(ended chan<- *plain) {
	_ = p.cmd.Wait()
	ended <- p
}

// startPlain starts a worker and waits until it serves.
func startPlain() (*plain, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(exe, os.Args[1:]...)
	c.Env = append(os.Environ(), plainVariable+"=1", "GOMAXPROCS=1")
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := sys.Start(c.Start); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("a worker says %q: %w", line, err), c.Process.Kill())
	}
	return &plain{c}, nil
}

func plainWorker(addr string) error {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = sys.ReusePort(int(fd)) }), err)
	}}
	ln, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	h, err := burdenOf("hello")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h}
	closed := make(chan error, 1)
	go func() {
		<-term
		closed <- s.Shutdown(context.Background())
	}()
	if _, err := io.WriteString(os.Stdout, strconv.Itoa(os.Getpid())+"\n"); err != nil {
		return err
	}
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed
}
