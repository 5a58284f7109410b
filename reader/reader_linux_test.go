package reader

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector keeps what it is shown, being done with odd parts of it, and pausing now and then.
type collector struct {
	mu      sync.Mutex
	cond    *sync.Cond
	got     []byte
	held    int
	calls   int
	pauses  int // pause at every pauses-th call
	silent  int
	err     error
	ended   bool
	atLeast int
}

func newCollector() *collector {
	c := &collector{}
	c.cond = sync.NewCond(&c.mu)
	return c
}

func (c *collector) Arrived(view []byte, fresh int, _ int64) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if len(view) != c.held+fresh {
		panic("the view is not what was held and what came")
	}
	done := max(0, len(view)-c.atLeast)
	c.got = append(c.got, view[:done]...)
	c.held = len(view) - done
	c.cond.Broadcast()
	return done, c.pauses == 0 || fresh == 0 || c.calls%c.pauses != 0
}

func (c *collector) Silent(view []byte, _ int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent++
	c.got = append(c.got, view...)
	c.held = 0
	c.cond.Broadcast()
	return len(view)
}

func (c *collector) Closed(view []byte, _ int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, view...)
	c.err, c.ended = err, true
	c.cond.Broadcast()
}

// until waits for a condition; what is to happen is said by the caller's test.
func (c *collector) until(ok func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !ok() {
		c.cond.Wait()
	}
}

// pipe returns a descriptor to read that does not block, and a writer.
func pipe(t *testing.T) (fd int, w *os.File) {
	t.Helper()
	p := make([]int, 2)
	if err := syscall.Pipe2(p, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(p[0], true); err != nil {
		t.Fatal(err)
	}
	return p[0], os.NewFile(uintptr(p[1]), "pipe")
}

var configs = map[string]Config{
	"ring latency":    {},
	"ring throughput": {Mode: Throughput, Tick: time.Millisecond},
	"ring hybrid":     {Mode: Hybrid},
	"blocking":        {Strategy: Blocking},
	"polling":         {Strategy: Polling, Tick: time.Millisecond, Readers: 2},
}

func each(t *testing.T, f func(t *testing.T, r Reader)) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			before := runtime.GOMAXPROCS(0)
			r, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			f(t, r)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if now := runtime.GOMAXPROCS(0); now != before {
				t.Errorf("GOMAXPROCS is %d after Close, was %d", now, before)
			}
		})
	}
}

func TestBytesComeInOrderToTheEnd(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		const ports, size = 5, 300_000
		var all sync.WaitGroup
		for p := range ports {
			fd, w := pipe(t)
			c := newCollector()
			c.atLeast = 100 * p // bytes that the handler keeps holding
			if p%2 == 1 {
				c.pauses = 7
			}
			h, err := r.Add(Port{FD: fd, Handler: c})
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			for i := range want {
				want[i] = byte(rng.Uint32())
			}
			all.Go(func() {
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 1+rng.IntN(5000))
					if _, err := w.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
					h.Resume()
				}
				w.Close()
				for ended := false; !ended; { // a pause after the last write needs its Resume, too
					h.Resume()
					c.mu.Lock()
					ended = c.ended
					c.mu.Unlock()
					runtime.Gosched()
				}
				if !errors.Is(c.err, io.EOF) || !bytes.Equal(c.got, want) {
					t.Errorf("port %d: %d bytes, ended by %v; want %d and EOF", p, len(c.got), c.err, size)
				}
				syscall.Close(fd)
			})
		}
		all.Wait()
	})
}

func TestSilence(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		fd, w := pipe(t)
		c := newCollector()
		c.atLeast = 1 << 20 // done with nothing before a pause
		h, err := r.Add(Port{FD: fd, Handler: c, Silence: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 3; n++ {
			if _, err := w.WriteString("chunk"); err != nil {
				t.Fatal(err)
			}
			c.until(func() bool { return len(c.got) == 5*n })
		}
		if c.silent != 3 {
			t.Errorf("Silent was called %d times for 3 chunks", c.silent)
		}
		h.Remove()
		if !errors.Is(c.err, ErrRemoved) {
			t.Errorf("ended by %v, want ErrRemoved", c.err)
		}
		w.Close()
		syscall.Close(fd)
	})
}

func TestCloseEndsPorts(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		fd, w := pipe(t)
		defer syscall.Close(fd)
		defer w.Close()
		c := newCollector()
		if _, err := r.Add(Port{FD: fd, Handler: c}); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(c.err, ErrRemoved) {
			t.Errorf("ended by %v, want ErrRemoved", c.err)
		}
		if _, err := r.Add(Port{FD: fd, Handler: c}); err == nil {
			t.Error("a closed reader takes another port")
		}
	})
}

// A thread in raw system calls must not keep the garbage collector from stopping the world.
func TestCollectorRunsBesideTheThread(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd, w := pipe(t)
	c := newCollector()
	if _, err := r.Add(Port{FD: fd, Handler: c}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 50; n++ {
		if _, err := w.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		c.until(func() bool { return len(c.got) == n })
		runtime.GC() // the test hangs here if the thread cannot be stopped
	}
	w.Close()
	c.until(func() bool { return c.ended })
	syscall.Close(fd)
}

func TestBadConfigs(t *testing.T) {
	for _, cfg := range []Config{
		{Strategy: "magic"}, {Mode: "slow"}, {Tick: time.Hour}, {Readers: -1}, {Spin: -1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) gives no error", cfg)
		}
	}
}
