package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/ring"
	"github.com/tallywheel/tallywheel/rt"
)

// asParent makes a process of this test binary one that starts a cell, and prints the cell's
// number.
const asParent = "TALLYWHEEL_TEST_PARENT"

func TestMain(m *testing.M) {
	Main()
	if os.Getenv(asParent) == "" {
		testenv.NoLeaks(m)
	}
	c, err := Start(context.Background(),
		Config{Task: does.With(os.Getenv(asParent)), Period: time.Millisecond, Runaway: time.Hour})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for c.Stats().Cycles < 3 { // its third step is under way, or over
		time.Sleep(time.Millisecond)
	}
	fmt.Println("cell", c.PID())
	<-c.Done()
	os.Exit(2)
}

var sink []byte

// does is a task that does what its argument says, in its third period.
var does = Register("does", func(c *Self, what string) (Step, error) {
	switch what {
	case "fails at set-up":
		return nil, errors.New("no such device")
	case "panics at set-up":
		panic("no wheel")
	case "loses its rights": // as a user without capabilities
		if err := syscall.Setreuid(-1, 65534); err != nil && os.Geteuid() == 0 {
			return nil, err
		}
	case "starts a goroutine that blocks":
		go func() {
			for {
				time.Sleep(time.Millisecond)
				ts := syscall.NsecToTimespec(int64(20 * time.Millisecond))
				_ = syscall.Nanosleep(&ts, nil) // the thread waits; the scheduler gives its place to another one
			}
		}()
	}
	return func(t Tick) error {
		if t.N < 2 {
			return nil
		}
		switch what {
		case "fails":
			return errors.New("the device has gone")
		case "ends":
			return ErrStop
		case "panics":
			panic("no tooth left")
		case "follows nil":
			var none *int
			*none = 1
		case "blocks":
			select {}
		case "sleeps":
			time.Sleep(time.Hour)
		case "computes":
			for i := uint64(0); ; i++ {
				if i == 1<<63 {
					break
				}
			}
		case "allocates":
			sink = make([]byte, 100)
		case "exits":
			os.Exit(7)
		}
		return nil
	}, nil
})

// TestKeepsTime: a cell runs its periods, each release a period behind the one before, and
// allocates nothing.
func TestKeepsTime(t *testing.T) {
	c, err := Start(t.Context(),
		Config{
			Task: echoes.With(3), Period: 2 * time.Millisecond, Count: 100, In: &ipc.RingConfig{},
			Out: &ipc.RingConfig{Slot: 40},
		})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	from, err := c.Out.Receiver()
	if err != nil {
		t.Fatal(err)
	}
	to, err := c.In.Producer()
	if err != nil {
		t.Fatal(err)
	}
	space, err := to.Space(8)
	if err != nil {
		t.Fatal(err)
	}
	ring.Uint64(space, 0).Store(7)
	to.Publish(8)
	var before Tick
	heard := uint64(0)
	for n := range uint64(100) {
		b := make([]byte, 40)
		if _, err := from.Receive(b, time.Minute); err != nil {
			t.Fatalf("tick %d: %v", n, err)
		}
		at := func(i int) uint64 { return ring.Uint64(b, 8*i).Load() }
		tick := Tick{at(0), time.Duration(at(1)), time.Duration(at(2)), at(3)}
		if tick.N != n || tick.Woke < tick.Release {
			t.Fatalf("tick %d is %+v", n, tick)
		}
		if n > 0 && tick.Release != before.Release+time.Duration(1+tick.Missed)*2*time.Millisecond {
			t.Fatalf("%+v behind %+v", tick, before)
		}
		before = tick
		heard = max(heard, at(4))
	}
	s, err := c.Wait()
	if err != nil || s.Cycles != 100 || s.Latency.Count != 100 || s.Allocs != 0 || s.AllocBytes != 0 || s.Moves != 0 {
		t.Errorf("%+v: %v", s, err)
	}
	if heard != 7*3 {
		t.Errorf("it was sent 7, which it makes 3 times as much, and says %d", heard)
	}
	if l := s.Latency; l.Min > l.Quantile(0.5) || l.Quantile(0.5) > l.Quantile(0.99) || l.Quantile(0.99) > l.Max ||
		l.Mean < l.Min || l.Mean > l.Max {
		t.Errorf("latencies %+v", l)
	}
	t.Logf("lacking %q; %+v", c.Lacking(), s)
}

// echoes sends each tick through its ring, and what it was sent, so many times.
var echoes = Register("echoes", func(c *Self, times uint64) (Step, error) {
	out, err := c.Out.Sender()
	in, inErr := c.In.Consumer()
	b, heard := make([]byte, 40), uint64(0)
	return func(t Tick) error {
		if v, err := in.View(8); err == nil && len(v) >= 8 {
			heard = times * ring.Uint64(v, 0).Load()
			in.Release(8)
		}
		for i, v := range [...]uint64{t.N, uint64(t.Release), uint64(t.Woke), t.Missed, heard} {
			ring.Uint64(b, 8*i).Store(v)
		}
		return out.Send(b, 0)
	}, errors.Join(err, inErr)
})

// TestBadTasks: whatever a task does wrong ends the cell, with an error that says what it was.
func TestBadTasks(t *testing.T) {
	for what, want := range map[string]string{
		"fails at set-up":  "cell does: the set-up: no such device",
		"panics at set-up": "cell does: the set-up: it panicked: no wheel",
		"fails":            "cell does: the device has gone",
		"panics":           "cell does: it panicked: no tooth left",
		"follows nil":      "cell does: it panicked: runtime error: invalid memory address",
		"blocks":           "cell does: a step has not come back for 200ms (ten times Config.Runaway)",
		"sleeps":           "cell does: a step has not come back for 200ms",
		"exits":            "cell does: it ended by itself: exit status 7",
		"allocates":        "objects, ", // and Strict forbids it
		"computes":         " within a step",
		"ends":             "",
		"nothing":          "",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			runaway := time.Minute // a machine that stands still must not end what is right
			if what == "blocks" || what == "sleeps" || what == "computes" {
				runaway = 20 * time.Millisecond
			}
			s, err := Run(t.Context(),
				Config{Task: does.With(what), Period: time.Millisecond, Count: 1000, Runaway: runaway, Strict: true})
			switch {
			case want == "" && err != nil:
				t.Error(err)
			case want == "" && what == "ends" && s.Cycles != 3:
				t.Errorf("%d cycles", s.Cycles)
			case what == "computes": // no real-time thread: the parent's patience ends it
				if err == nil || !strings.Contains(err.Error(), "not come back") {
					t.Error(err)
				}
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%v; want %q", err, want)
			}
			if strings.Contains(what, "panics") && !strings.Contains(err.Error(), "cell_linux_test.go:") {
				t.Errorf("no place: %v", err)
			}
		})
	}
}

// TestAllocationsAreCounted, where they are allowed.
func TestAllocationsAreCounted(t *testing.T) {
	s, err := Run(t.Context(), Config{Task: does.With("allocates"), Period: time.Millisecond, Count: 52})
	if err != nil || s.Allocs != 50 || s.AllocBytes != 50*112 { // 112 is the size of its class
		t.Errorf("50 allocations of 100 bytes are %d of %d: %v", s.Allocs, s.AllocBytes, err)
	}
}

// TestRunawayIsKilledByTheKernel: a real-time thread that computes without an end.
func TestRunawayIsKilledByTheKernel(t *testing.T) {
	mayFIFO(t)
	began := time.Now()
	_, err := Run(t.Context(),
		Config{Task: does.With("computes"), Period: time.Millisecond, Priority: 1, Runaway: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(),
		"killed it within a step: the kernel, if that has computed for 50ms") {
		if err != nil && strings.Contains(err.Error(), "not come back") {
			t.Skipf("SKIPPED: the kernel has let it run for %v: RLIMIT_RTTIME counts by ticks; try a machine that does less", time.Since(began))
		}
		t.Error(err)
	}
}

func mayFIFO(t *testing.T) {
	t.Helper()
	if err := rt.TryScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 1}); err != nil {
		t.Skipf("SKIPPED: %v; run as root, or raise RLIMIT_RTPRIO", err)
	}
}

// TestClasses: the thread that keeps time is in the class that was asked for, alone, on its CPU.
func TestClasses(t *testing.T) {
	mayFIFO(t)
	all, err := rt.Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	one := all[len(all)-1:]
	for _, cfg := range []Config{
		{Priority: 3, CPU: one},
		{Budget: 100 * time.Microsecond},
	} {
		cfg.Task, cfg.Period = does.With("nothing"), 5*time.Millisecond
		c, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if l := c.Lacking(); strings.Contains(strings.Join(l, "\n"), "scheduling ") {
			if cfg.Budget == 0 {
				t.Errorf("lacking %q", l)
			}
			t.Logf("not allowed here: %q", l)
			_ = c.Close()
			continue
		}
		if n := keepers(t, c.PID()); n != 1 {
			t.Errorf("%d threads of a real-time class", n)
		}
		want := (order{Period: cfg.Period, Priority: cfg.Priority, Budget: cfg.Budget}).scheduling()
		if s, err := rt.GetScheduling(c.TID()); err != nil || s.Policy != want.Policy || s.Priority != want.Priority ||
			s.Runtime != want.Runtime {
			t.Errorf("it is in %v, want %v: %v", s, want, err)
		}
		if cpus, _ := rt.Affinity(c.TID()); cfg.CPU != nil && cpus.String() != one.String() {
			t.Errorf("it may run on %v, want %v", cpus, one)
		}
		if s, err := c.Stop(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutRights: it runs all the same, and says what is missing and how to get it.
func TestWithoutRights(t *testing.T) {
	c, err := Start(t.Context(),
		Config{Task: does.With("loses its rights"), Period: time.Millisecond, Priority: 80, Count: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Wait()
	if err != nil || s.Cycles != 20 {
		t.Errorf("%d cycles: %v", s.Cycles, err)
	}
	if os.Geteuid() != 0 && rt.TryScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 80}) == nil {
		t.Skip("SKIPPED: this user may have a real-time priority and cannot give that away; run it as another one, or as root")
	}
	lacking := strings.Join(c.Lacking(), "\n")
	for _, want := range []string{"scheduling fifo 80: ", "CAP_SYS_NICE"} {
		if !strings.Contains(lacking, want) {
			t.Errorf("lacking %q, and not a word of %q", lacking, want)
		}
	}
}

// TestAllThreadsInARealTimeClass is refused.
func TestAllThreadsInARealTimeClass(t *testing.T) {
	mayFIFO(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asParent+"=nothing")
	var out testenv.Buffer
	cmd.Stdout = &out
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 1}); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if err == nil || !strings.Contains(out.String(), "this program runs in fifo 1 with all of its threads: ") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestParentDies: a cell whose parent was killed ends, also one whose step does not.
func TestParentDies(t *testing.T) {
	for _, what := range []string{"nothing", "blocks", "computes"} {
		t.Run(what, func(t *testing.T) { parentDies(t, what) })
	}
}

func parentDies(t *testing.T, what string) {
	t.Setenv(asParent, what)
	p := testenv.Start(t, os.Args[0])
	var pid int
	testenv.Until(t, time.Minute, "a cell", func() bool {
		n, _ := fmt.Sscanf(p.Out.String(), "cell %d\n", &pid)
		return n == 1
	})
	cell, err := ipc.OpenProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer cell.Close()
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-cell.Done():
	case <-time.After(time.Minute):
		t.Error("it goes on")
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestSignalStorm: signals to the process do not stop a cell, and those that a terminal sends do
// not end it: the parent does.
func TestSignalStorm(t *testing.T) {
	c, err := Start(t.Context(), Config{Task: does.With("nothing"), Period: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 500 {
		for _, s := range []syscall.Signal{
			syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGURG,
			syscall.SIGWINCH, syscall.SIGUSR1,
		} {
			if err := syscall.Kill(c.PID(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := c.Stats().Cycles
	testenv.Until(t, time.Minute, "more cycles", func() bool { return c.Stats().Cycles > before+10 })
	if s, err := c.Stop(); err != nil || s.Allocs != 0 {
		t.Errorf("%+v: %v", s, err)
	}
}

// TestGoroutineThatBlocks: Go's scheduler gives the place of a goroutine that blocks in a call to
// another thread, which may be the one that has the cell's from then on: it is made what the one
// before was, and time goes on.
func TestGoroutineThatBlocks(t *testing.T) {
	c, err := Start(t.Context(),
		Config{Task: does.With("starts a goroutine that blocks"), Period: time.Millisecond, Priority: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testenv.Until(t, time.Minute, "another thread keeps time", func() bool { return c.Stats().Moves > 0 })
	before := c.Stats().Cycles
	testenv.Until(t, time.Minute, "more cycles", func() bool { return c.Stats().Cycles > before+10 })
	if c.Lacking() == nil {
		testenv.Until(t, time.Minute, "one thread in SCHED_FIFO", func() bool { return keepers(t, c.PID()) == 1 })
	}
	if s, err := c.Stop(); err != nil {
		t.Errorf("%+v: %v", s, err)
	}
}

// keepers counts the threads of a process that are in a real-time class.
func keepers(t *testing.T, pid int) (n int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if s, err := rt.GetScheduling(tid); err == nil && s.Policy != rt.Other {
			n++
		}
	}
	return n
}

// TestEnds: by the context, by Stop, and by Close; also a cell of long periods, which sleeps.
func TestEnds(t *testing.T) {
	for _, period := range []time.Duration{time.Millisecond, time.Hour} {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := Start(ctx, Config{Task: does.With("nothing"), Period: period})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := c.Wait(); err != nil {
			t.Error(err)
		}
		first := c.Stats()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if s := c.Stats(); s.Cycles != first.Cycles || c.Close() != nil {
			t.Errorf("%+v, then %+v", first, s)
		}
		if c, err = Start(t.Context(), Config{Task: does.With("nothing"), Period: period}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadConfigs(t *testing.T) {
	good := Config{Task: does.With("nothing"), Period: time.Millisecond}
	for want, spoil := range map[string]func(*Config){
		"no Task":                 func(c *Config) { c.Task = Task{} },
		"Period 0s: want":         func(c *Config) { c.Period = 0 },
		"Period 1ns: want":        func(c *Config) { c.Period = 1 },
		"Period -1s: want":        func(c *Config) { c.Period = -time.Second },
		"Period 8760h0m0s: want":  func(c *Config) { c.Period = 365 * 24 * time.Hour },
		"Priority 100: want":      func(c *Config) { c.Priority = 100 },
		"Priority -1: want":       func(c *Config) { c.Priority = -1 },
		"Budget 2ms: want":        func(c *Config) { c.Budget = 2 * time.Millisecond },
		"Budget 1ns: want":        func(c *Config) { c.Budget = 1 },
		"Budget and Priority":     func(c *Config) { c.Budget, c.Priority = time.Millisecond, 1 },
		"Budget and CPU":          func(c *Config) { c.Budget, c.CPU = time.Millisecond, rt.CPUs{0} },
		"Runaway 2h0m0s: want":    func(c *Config) { c.Runaway = 2 * time.Hour },
		"CPUs \"999\"":            func(c *Config) { c.CPU = rt.CPUs{999} },
		"the argument of task":    func(c *Config) { c.Task = never.With(make(chan int)) },
		"slots of -1 bytes":       func(c *Config) { c.In = &ipc.RingConfig{Slot: -1} },
		"has no task \"missing\"": func(c *Config) { c.Task = Task{name: "missing", arg: []byte("1")} },
	} {
		cfg := good
		spoil(&cfg)
		c, err := Start(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if err == nil {
			_ = c.Close()
		}
	}
	mained = false
	defer func() { mained = true }()
	if _, err := Start(t.Context(), good); !errors.Is(err, ErrNoMain) {
		t.Errorf("without Main: %v", err)
	}
}

// never has an argument that no JSON carries.
var never = Register("never", func(*Self, chan int) (Step, error) { return nil, nil })

func TestNameIsTaken(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two tasks of one name")
		}
	}()
	Register("never", func(*Self, int) (Step, error) { return nil, nil })
}
