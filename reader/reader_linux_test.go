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

	"github.com/tallywheel/tallywheel/internal/testenv"
)

func TestMain(m *testing.M) { testenv.NoLeaks(m) }

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

// keeper keeps its bytes through the first silence.
type keeper struct {
	*collector
	told []time.Duration // since the bytes came
	came int64
}

func (k *keeper) Arrived(view []byte, fresh int, at int64) (int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.came = at
	return 0, true
}

func (k *keeper) Silent(view []byte, at int64) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, time.Duration(at-k.came))
	k.cond.Broadcast()
	if len(k.told) < 2 {
		return 0
	}
	return len(view)
}

// Bytes that are kept through a silence are asked for once more, after the patience, and not in
// between.
func TestPatience(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		fd, w := pipe(t)
		k := &keeper{collector: newCollector()}
		h, err := r.Add(Port{FD: fd, Handler: k, Silence: 2 * time.Millisecond, Patience: 60 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("kept"); err != nil {
			t.Fatal(err)
		}
		k.until(func() bool { return len(k.told) >= 2 })
		h.Remove()
		if len(k.told) != 2 || k.told[0] < 2*time.Millisecond || k.told[1] < 60*time.Millisecond {
			t.Errorf("Silent was called after %v", k.told)
		}
		w.Close()
		syscall.Close(fd)
	})
}

// A port that finishes is read to the end of what its descriptor holds, through a pause too, and
// then given back.
func TestFinishReadsWhatIsThere(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		for _, pauses := range []int{0, 1} {
			fd, w := pipe(t)
			const n = 60_000 // a pipe holds 65536, more than a burst of small reads
			if _, err := w.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			c := newCollector()
			c.pauses = pauses
			h, err := r.Add(Port{FD: fd, Handler: c, Hold: 4096})
			if err != nil {
				t.Fatal(err)
			}
			h.Finish()
			for !c.over() {
				h.Resume()
				runtime.Gosched()
			}
			h.Remove() // of a port that has ended
			if len(c.got) != n || !errors.Is(c.err, ErrRemoved) {
				t.Errorf("pauses %d: %d bytes of %d, ended by %v", pauses, len(c.got), n, c.err)
			}
			w.Close()
			syscall.Close(fd)
		}
	})
}

func (c *collector) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
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
	fd, w, c := collectBeside(t, r)
	w.Close()
	c.until(func() bool { return c.ended })
	syscall.Close(fd)
}

// collectBeside has a reader read a pipe, and collects garbage after each byte: it hangs if the
// reader's thread cannot be stopped.
func collectBeside(t *testing.T, r Reader) (fd int, w *os.File, c *collector) {
	t.Helper()
	fd, w = pipe(t)
	c = newCollector()
	if _, err := r.Add(Port{FD: fd, Handler: c}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 50; n++ {
		if _, err := w.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		c.until(func() bool { return len(c.got) == n })
		runtime.GC()
	}
	return fd, w, c
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

// The clock is set while bytes are held: that is no silence, nor does it make one longer.
func TestClockThatIsSetIsNoSilence(t *testing.T) {
	c := newCollector()
	c.atLeast = 10
	f, err := newFeed(Port{FD: -1, Handler: c, Silence: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.ring.Close()
	five := func(_ int, b []byte) (int, syscall.Errno) { return copy(b, "12345"), 0 }
	const hour = int64(time.Hour)
	if _, err := f.pull(five, moment{wall: 5 * hour, steady: time.Second}); err != nil {
		t.Fatal(err)
	}
	if left := f.silence(moment{
		wall:   6 * hour,
		steady: time.Second + 4*time.Millisecond,
	}); left != 6*time.Millisecond || c.silent > 0 {
		t.Errorf("set an hour ahead: %d silences, the next in %v; want it in 6 ms", c.silent, left)
	}
	if f.silence(moment{wall: 4 * hour, steady: time.Second + 10*time.Millisecond}); c.silent != 1 {
		t.Errorf("set an hour back: %d silences after one", c.silent)
	}
}

// A reader that is late, or was paused, finds bytes behind a pause that was long enough: nobody
// knows when they came, so they are read first.
func TestBytesThatWaitAreNoSilence(t *testing.T) {
	fd, w := pipe(t)
	defer syscall.Close(fd)
	defer w.Close()
	c := newCollector()
	c.atLeast = 20
	f, err := newFeed(Port{FD: fd, Handler: c, Silence: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.ring.Close()
	for i, word := range []string{"first", "other"} {
		if _, err := w.WriteString(word); err != nil {
			t.Fatal(err)
		}
		at := moment{steady: time.Duration(1+i) * time.Second}
		if left := f.silence(at); i > 0 && left != lookAgain || c.silent > 0 {
			t.Errorf("%d silences beside %d bytes to be read, the next look in %v", c.silent, len(word), left)
		}
		if _, err := f.pull(plainRead, at); err != nil {
			t.Fatal(err)
		}
	}
	if f.silence(moment{steady: 3 * time.Second}); c.silent != 1 || string(c.got) != "firstother" {
		t.Errorf("%d silences behind %q", c.silent, c.got)
	}
}

// What an earlier reading held comes first: a pause ends it, what follows is behind it, and a
// handler that takes no more is asked again.
func TestBefore(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		for _, pauses := range []int{0, 1} {
			fd, w := pipe(t)
			c := newCollector()
			c.atLeast, c.pauses = 5, pauses
			h, err := r.Add(Port{FD: fd, Handler: c, Silence: time.Millisecond, Before: []byte("four")})
			if err != nil {
				t.Fatal(err)
			}
			h.Resume()
			c.until(func() bool { return c.silent == 1 })
			h.Resume()
			if _, err := w.WriteString("more"); err != nil {
				t.Fatal(err)
			}
			w.Close()
			c.until(func() bool { h.Resume(); return c.ended })
			if c.err != io.EOF || string(c.got) != "fourmore" {
				t.Errorf("pauses %d: %q, %v", pauses, c.got, c.err)
			}
			syscall.Close(fd)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pool is a sink that has room for so many bytes.
type pool struct {
	mu   sync.Mutex
	got  []byte
	room int
	last time.Time
	told int
}

func (p *pool) Read(_ time.Time, fd int, read func(int, []byte) (int, syscall.Errno)) (n int, errno syscall.Errno, more,
	full bool,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.room == 0 {
		return 0, 0, false, true
	}
	b := make([]byte, min(p.room, 100))
	n, errno = read(fd, b)
	if errno == 0 {
		p.got, p.room = append(p.got, b[:n]...), p.room-n
	}
	return n, errno, n == len(b), false
}

func (p *pool) Last() (time.Time, int) { return p.last, p.told }

// clocked notes when what arrived was read.
type clocked struct {
	*watched
	at chan int64
}

func (c clocked) Arrived(view []byte, fresh int, at int64) (int, bool) {
	c.at <- at
	return len(view), true
}

// Datagrams that wait together are read at one look at the clock, and can still be told apart by
// their times: a log that has many frames of a datagram has no other border.
func TestDatagramsHaveTimesOfTheirOwn(t *testing.T) {
	each(t, func(t *testing.T, r Reader) {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fds[0])
		defer syscall.Close(fds[1])
		for i := range burst / 2 {
			if _, err := syscall.Write(fds[1], []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		c := clocked{&watched{closed: make(chan error, 1)}, make(chan int64, burst)}
		h, err := r.Add(Port{FD: fds[0], Handler: c, Messages: true})
		if err != nil {
			t.Fatal(err)
		}
		var last int64
		for i := range burst / 2 {
			if at := <-c.at; at <= last {
				t.Errorf("datagram %d was read at %d, and the one before it at %d", i, at, last)
			} else {
				last = at
			}
		}
		h.Remove()
		<-c.closed
	})
}

// watched counts the calls of a handler that is shown nothing.
type watched struct {
	mu      sync.Mutex
	fresh   int
	silents int
	closed  chan error
}

func (w *watched) Arrived(view []byte, fresh int, _ int64) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if view != nil {
		panic("a view of what is in a sink")
	}
	w.fresh += fresh
	return 0, true
}

func (w *watched) Silent([]byte, int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silents++
	return 0
}

func (w *watched) Closed(_ []byte, _ int64, err error) { w.closed <- err }

// TestSink reads into memory of somebody else, by each strategy: it pauses where there is no room,
// tells each pause, and goes on with those of an earlier reading.
func TestSink(t *testing.T) {
	for _, strategy := range []Strategy{Ring, Blocking, Polling} {
		r, err := New(Config{Strategy: strategy})
		if err != nil {
			t.Fatal(err)
		}
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fd := int(from.Fd()) // makes it one that blocks
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		p, w := &pool{room: 1000}, &watched{closed: make(chan error, 1)}
		h, err := r.Add(Port{
			FD: fd, Handler: w, Into: p, Silence: 5 * time.Millisecond,
			Patience: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("0123456789"), 300)
		if _, err := to.Write(sent); err != nil {
			t.Fatal(err)
		}
		has := func(n int) func() bool {
			return func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.got) == n }
		}
		testenv.Until(t, time.Minute, "the sink is full", has(1000))
		p.mu.Lock()
		p.room = 10000
		p.mu.Unlock()
		testenv.Until(t, time.Minute, "the rest is read", func() bool { h.Resume(); return has(3000)() })
		testenv.Until(t, time.Minute, "two pauses are told",
			func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.silents == 2 })
		_ = to.Close()
		if err := <-w.closed; err != io.EOF || !bytes.Equal(p.got, sent) || w.fresh != len(sent) {
			t.Errorf("%s: closed by %v, %d bytes, %d told", strategy, err, len(p.got), w.fresh)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		_ = from.Close()
	}
	f, err := newFeed(Port{
		FD: -1, Into: &pool{last: time.Now().Add(-time.Second), told: 1}, Handler: &watched{},
		Silence: time.Millisecond, Patience: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if f.silence(clock()); f.told != 2 || f.Handler.(*watched).silents != 1 {
		t.Errorf("an earlier reading had told one of two pauses, and %d are told now", f.Handler.(*watched).silents)
	}
}
