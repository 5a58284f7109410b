package probe

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/loadgen"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/server"
	"github.com/tallywheel/tallywheel/uring"
)

// allowed skips a test where the machine refuses the probe; any other failure is ours.
func allowed(t *testing.T, err error) {
	t.Helper()
	_, btf := os.Stat("/sys/kernel/btf/vmlinux")
	switch {
	case btf != nil, errors.Is(err, os.ErrPermission), errors.Is(err, os.ErrNotExist),
		errors.Is(err, ebpf.ErrNotSupported):
		t.Skipf("SKIPPED: %v; run as root, outside of a container, on a kernel with BTF", errors.Join(btf, err))
	case err != nil:
		t.Fatal(err)
	}
}

func begin(t *testing.T, k Kind, o Options) *Probe {
	t.Helper()
	p, err := Start(k, o)
	allowed(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func read(t *testing.T, p *Probe) Report {
	t.Helper()
	r, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCountCalls counts those of this process, of which it knows how many there are, and of one
// that it starts.
func TestCountCalls(t *testing.T) {
	// the first time Go starts something else, to see what the kernel can do
	if err := exec.Command("sh", "-c", "exit").Run(); err != nil {
		t.Fatal(err)
	}
	result, err := CountCalls(os.Getpid())
	allowed(t, err)
	const times = 10_000
	for range times {
		_ = os.Getppid()
	}
	if err := exec.Command("sh", "-c", "exit").Run(); err != nil {
		t.Error(err)
	}
	n, err := result()
	if err != nil {
		t.Fatal(err)
	}
	if got := n[sys.CallName(syscall.SYS_GETPPID)]; got < times || got > times+10 { // a shell asks, too
		t.Errorf("%d calls of getppid, want %d", got, times)
	}
	if n["exit_group"] != 1 {
		t.Errorf("%d processes ended, want the one that was started", n["exit_group"])
	}
}

// What the probe counts of a ring is what the ring has counted, to the last request.
func TestCountsAgreeWithTheRing(t *testing.T) {
	if err := uring.Probe().Has(uring.Rings); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	p := begin(t, Uring, Options{PID: os.Getpid(), Sample: 1})
	ring, err := uring.New(uring.Config{Entries: 64})
	if err != nil {
		t.Fatal(err)
	}
	ops := make([]uring.Op, 64)
	const batches = 500
	for range batches {
		for i := range ops {
			if err := ring.Push(ops[i].Nop()); err != nil {
				t.Fatal(err)
			}
		}
		if err := ring.Wait(len(ops)); err != nil {
			t.Fatal(err)
		}
		for op := ring.Next(); op != nil; op = ring.Next() {
		}
	}
	s := ring.Stats()
	r := read(t, p)
	if r.Submitted != s.Submitted || r.Completed != s.Completed || s.Submitted != batches*64 {
		t.Errorf("the probe saw %d and %d, the ring counted %d and %d", r.Submitted, r.Completed, s.Submitted,
			s.Completed)
	}
	if len(r.Latency) != 1 || r.Latency[0].Op != uring.OpNop.String() || r.Latency[0].Count != s.Completed ||
		r.Latency[0].SumNs == 0 {
		t.Errorf("latency %+v, want all of %d", r.Latency, s.Completed)
	}
	if q := r.Latency[0].Quantile(0.5); q <= 0 || q > time.Second {
		t.Errorf("the median of nops is %v", q)
	}
	if err := ring.Close(); err != nil {
		t.Error(err)
	}
}

// TestSamples: of a ring's requests as many are timed as were asked for, be they many at a time or
// one after the other, in the same place of the ring. Of the latter all were, or none.
func TestSamples(t *testing.T) {
	if err := uring.Probe().Has(uring.Rings); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	for _, sample := range []int{64, 1024} {
		for _, depth := range []int{1, 32} {
			p := begin(t, Uring, Options{PID: os.Getpid(), Sample: sample})
			ring, err := uring.New(uring.Config{Entries: 32})
			if err != nil {
				t.Fatal(err)
			}
			ops := make([]uring.Op, depth)
			const requests = 32 << 10
			for range requests / depth {
				for i := range ops {
					if err := ring.Push(ops[i].Nop()); err != nil {
						t.Fatal(err)
					}
				}
				if err := ring.Wait(depth); err != nil {
					t.Fatal(err)
				}
				for op := ring.Next(); op != nil; op = ring.Next() {
				}
			}
			r := read(t, p)
			if r.Completed != requests || len(r.Latency) != 1 {
				t.Fatalf("%+v, want %d", r, requests)
			}
			if n, want := r.Latency[0].Count, uint64(requests/sample); n < want/2 || n > 2*want {
				t.Errorf("one in %d, %d at a time: %d of %d are timed, want %d", sample, depth, n, requests, want)
			} else {
				t.Logf("one in %d, %d at a time: %d of %d are timed", sample, depth, n, requests)
			}
			if err := ring.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNoMoreTimedThanCounted: a report of what goes on meanwhile is of one moment, as far as it
// can be told.
func TestNoMoreTimedThanCounted(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			p := begin(t, k, Options{PID: os.Getpid(), Sample: 1})
			ctx, end := context.WithCancel(context.Background())
			var busy sync.WaitGroup
			defer busy.Wait()
			defer end()
			for range 2 {
				busy.Go(func() { work(ctx, t, k) })
			}
			seen, giveUp := 0, time.Now().Add(10*time.Second) // the work may wait for a CPU before it begins
			for seen < 20 && time.Now().Before(giveUp) {
				r := read(t, p)
				if len(r.Latency) == 0 {
					continue
				}
				seen++
				h := r.Latency[0]
				if n := h.Count; n > r.Completed || k == Sched && n != r.Completed || k == Uring && n > h.Submitted {
					t.Fatalf("%d of %d are timed, %d submitted", n, r.Completed, h.Submitted)
				}
			}
			if r := read(t, p); r.Completed == 0 || len(r.Latency) == 0 {
				t.Errorf("%+v: nothing was seen", r)
			}
		})
	}
}

// work makes what a probe counts, until the context ends.
func work(ctx context.Context, t *testing.T, k Kind) {
	if k == Uring {
		ring, err := uring.New(uring.Config{Entries: 8})
		if err != nil {
			t.Error(err)
			return
		}
		defer ring.Close()
		for ctx.Err() == nil {
			var op uring.Op
			if err := errors.Join(ring.Push(op.Nop()), ring.Wait(1)); err != nil {
				t.Error(err)
				return
			}
			ring.Next()
		}
		return
	}
	here, there, err := pair()
	if err != nil {
		t.Error(err)
		return
	}
	defer here.Close()
	defer there.Close()
	go func() { _, _ = io.Copy(there, there) }()
	for b := make([]byte, 1); ctx.Err() == nil; {
		if _, err := here.Write(b); err != nil {
			t.Error(err)
			return
		}
		if _, err := io.ReadFull(here, b); err != nil {
			t.Error(err)
			return
		}
	}
}

// pair is a TCP connection within this process.
func pair() (here, there net.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if here, err = net.Dial("tcp", ln.Addr().String()); err != nil { // the kernel has it before it is accepted
		return nil, nil, err
	}
	there, err = ln.Accept()
	return here, there, err
}

// Under a load, the probe's counts are those of the server's rings.
func TestCountsAgreeWithTheServer(t *testing.T) {
	if err := server.Available(server.Uring); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	p := begin(t, Uring, Options{PID: os.Getpid()})
	s, err := server.New(server.Config{
		Engine: server.Uring, Mode: server.Coroutine, Loops: 2, Log: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	load, err := loadgen.Run(context.Background(),
		loadgen.Config{
			URL: "http://" + ln.Addr().String() + "/", Connections: 20, Timeout: time.Minute,
			Duration: 300 * time.Millisecond,
		})
	if err != nil || load.Failed() > 0 {
		t.Fatalf("%+v, %v", load, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	st, r := s.Stats(), read(t, p)
	// Closing a ring cancels what is in flight, by one more operation, after the server has
	// counted.
	if d := int64(r.Submitted) - int64(st.Submitted); d < 0 || d > 4 {
		t.Errorf("the probe saw %d requests, the rings took %d", r.Submitted, st.Submitted)
	}
	if d := int64(r.Completed) - int64(st.Completed); d < 0 || d > 40 {
		t.Errorf("the probe saw %d completions, the rings %d", r.Completed, st.Completed)
	}
	if err := testutil.CollectAndCompare(p, strings.NewReader(""), "tallywheel_probe_nothing"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(p, "tallywheel_probe_seconds"); n == 0 {
		t.Error("there are no histograms for Prometheus")
	}
}

func TestNetAndSched(t *testing.T) {
	for _, k := range []Kind{Net, Sched} {
		p := begin(t, k, Options{PID: os.Getpid(), Sample: 1})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		const rounds = 200
		for range rounds {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		ln.Close()
		r := read(t, p)
		timed := r.Completed // the times are read after the counts
		if k == Net {
			// who reads at the moment of an arrival may be before the event of it: that read has
			// waited for nothing
			timed /= 2
		}
		if least := uint64(rounds); k == Net && r.Completed < least || r.Completed == 0 || len(r.Latency) != 1 ||
			r.Latency[0].Count < timed {
			t.Errorf("%s: %+v after %d round trips", k, r, rounds)
		}
	}
}

// A probe that was closed says so, in place of the kernel's "bad file descriptor".
func TestReadAfterClose(t *testing.T) {
	p := &Probe{kind: Sched}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.Read(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// TestReadBesideClose: a table that is read has not been closed meanwhile. It was asked by the
// number of its descriptor, which was closed, or another file's.
func TestReadBesideClose(t *testing.T) {
	for range 3 {
		for _, k := range Kinds() {
			p, err := Start(k, Options{PID: os.Getpid()})
			allowed(t, err)
			f, err := Follow(os.Getpid())
			allowed(t, err)
			var readers sync.WaitGroup
			begun := make(chan struct{}, 3)
			until := func(read func() error) {
				readers.Go(func() {
					for err := error(nil); !errors.Is(err, os.ErrClosed); {
						if err = read(); err != nil && !errors.Is(err, os.ErrClosed) {
							t.Errorf("%s: %v", k, err)
							err = os.ErrClosed
						}
						select {
						case begun <- struct{}{}:
						default:
						}
					}
				})
			}
			until(func() error { _, err := p.Read(); return err })
			until(func() error {
				r := prometheus.NewPedanticRegistry()
				r.MustRegister(p)
				_, err := r.Gather()
				return err
			})
			until(func() error { _, err := f.Paths(); return err })
			for range cap(begun) {
				<-begun
			}
			if err := errors.Join(p.Close(), f.Close()); err != nil {
				t.Error(err)
			}
			readers.Wait()
		}
	}
}

// What was closed, and what was never started, says so.
func TestClosedAndZero(t *testing.T) {
	var zero Follower
	if _, err := zero.Paths(); err == nil || !strings.Contains(err.Error(), "not started") {
		t.Error(err)
	}
	if err := zero.Close(); err != nil {
		t.Error(err)
	}
	if _, err := zero.Paths(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	f, err := Follow(syscall.Gettid())
	allowed(t, err)
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Paths(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	result, err := CountCalls(os.Getpid())
	allowed(t, err)
	if _, err := result(); err != nil {
		t.Error(err)
	}
	if _, err := result(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// A probe that nobody has started counts nothing, and says so: it ended the program.
func TestReadBeforeStart(t *testing.T) {
	var p Probe
	if _, err := p.Read(); err == nil || !strings.Contains(err.Error(), "not started") {
		t.Error(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(&p)
	if _, err := r.Gather(); err == nil {
		t.Error("its metrics are no error")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, o := range []Options{{PID: -1}, {Sample: 3}, {Sample: 4096}} {
		if _, err := Start(Uring, o); err == nil {
			t.Errorf("%+v is no error", o)
		}
	}
	if _, err := Start(Sched, Options{Sample: 2}); !errors.Is(err, ErrOptions) {
		t.Errorf("a sample of threads: %v", err)
	}
	if _, err := Start("tea", Options{}); err == nil {
		t.Error("an unknown kind is no error")
	}
}

// TestFollow: each time that a thread sleeps it is woken by a timer, in an interrupt, and runs
// again, in this order.
func TestFollow(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := uint64(rt.Now()) // Go may wake this thread, too, from when it is followed until it is asked
	f, err := Follow(syscall.Gettid())
	allowed(t, err)
	defer f.Close()
	const rounds = 100
	slept := 0 // a moment may have passed before the kernel is asked to wait for it
	for range rounds {
		before := gaveUpCPU(t)
		if err := rt.SleepUntil(rt.Now() + 100*time.Microsecond); err != nil {
			t.Fatal(err)
		}
		if gaveUpCPU(t) > before {
			slept++
		}
	}
	all, err := f.Paths()
	ended := uint64(rt.Now())
	if err != nil || len(all) < slept || slept < rounds/2 {
		t.Fatalf("%d paths of %d sleeps, %d tries: %v", len(all), slept, rounds, err)
	}
	timed, interrupted := 0, 0
	for i, p := range all {
		if p.Woken > p.Runs || p.Woken < began || p.Runs > ended || i > 0 && p.Woken < all[i-1].Runs {
			t.Errorf("%d: %+v, between %d and %d", i, p, began, ended)
		}
		if p.Interrupted > p.Expired {
			t.Errorf("%d: %+v: the timer was handled before its interrupt", i, p)
		}
		if p.Expired >= began && p.Expired <= p.Woken && p.Woken-p.Expired < uint64(100*time.Microsecond) {
			timed++
			if p.Interrupted >= began && p.Expired-p.Interrupted < uint64(100*time.Microsecond) {
				interrupted++
			}
		}
	}
	if timed < rounds/2 {
		t.Errorf("a timer expired just before %d of %d wake-ups", timed, len(all))
	}
	if interrupted < timed/2 {
		t.Errorf("an interrupt began just before %d of %d timers", interrupted, timed)
	}
}

// gaveUpCPU is how often this thread has given its CPU up by itself.
func gaveUpCPU(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(1, &u); err != nil { // RUSAGE_THREAD
		t.Fatal(err)
	}
	return int64(u.Nvcsw)
}

// TestFollowNobody: what is no thread, and what is not there, is an error; a number beyond 32 bits
// is not taken for what is left of it.
func TestFollowNobody(t *testing.T) {
	for _, thread := range []int{0, -1, math.MinInt} {
		if _, err := Follow(thread); !errors.Is(err, ErrOptions) {
			t.Errorf("%d: %v", thread, err)
		}
	}
	absent := []int{1<<22 + 1, math.MaxInt} // the kernel's PID_MAX_LIMIT is 1<<22
	if beyond := int64(os.Getpid()) + 1<<32; beyond <= math.MaxInt {
		absent = append(absent, int(beyond))
	}
	for _, thread := range absent {
		if _, err := Follow(thread); err == nil || !strings.Contains(err.Error(), "there is no thread") {
			t.Errorf("%d: %v", thread, err)
		}
	}
}

// TestNoProcess: only Start takes 0 for all processes.
func TestNoProcess(t *testing.T) {
	for _, pid := range []int{0, -1} {
		if _, err := CountCalls(pid); !errors.Is(err, ErrOptions) {
			t.Errorf("CountCalls(%d): %v", pid, err)
		}
		if _, err := Rings(pid); !errors.Is(err, ErrOptions) {
			t.Errorf("Rings(%d): %v", pid, err)
		}
	}
}
