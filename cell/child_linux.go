package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/rt"
)

// child is the process of a cell. Its main goroutine, locked to a thread, keeps time; another one
// waits for the parent's end, and a third looks once a second what was allocated. All three run on
// that thread: GOMAXPROCS is 1, so no other thread ever runs a goroutine, and the others run while
// the first one yields.
type child struct {
	conn    *ipc.Conn
	order   order
	account *Account
	self    Self

	thread    rt.Thread       // that keeps time
	usage     sys.ThreadUsage // of the end of the set-up
	usageAt   time.Duration   // when it was looked at last
	yieldedAt time.Duration

	mu            sync.Mutex       // for keepHouse; the main goroutine takes it before and behind the loop only
	before, after runtime.MemStats // of the end of the set-up, and of the end
	keeping       bool             // between the two
}

const (
	orderWithin = 30 * time.Second // from the start to the order
	houseEvery  = time.Second      // between looks at what was allocated, and at the thread's faults
	endWithin   = 2 * time.Second  // for the loop to end once the parent has gone
	stackLimit  = 8 << 10          // bytes of a stack in a report

	// Go's scheduler asks a goroutine to yield that has run for 10 ms. A sleep in a raw call is
	// running, for it. The cell yields by itself after less: yieldAfter, one sleep, and a step.
	yieldAfter = 4 * time.Millisecond
	longSleep  = 5 * time.Millisecond
)

// become is the whole life of a cell.
func become() int {
	// the main thread, which lives as long as the process
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // the parent says when it is over
	conn, err := ipc.Inherit(os.NewFile(linkFD, "cell"), linkConfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cell: this process was started as a cell, by nobody:", err)
		return 1
	}
	c := &child{conn: conn}
	r := report{Over: true}
	if err := c.live(); err != nil && !errors.Is(err, ErrStop) {
		r.Error = err.Error()
	}
	if err := c.tell(r); err != nil {
		return 1
	}
	return 0
}

// tell sends a report.
func (c *child) tell(r report) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = c.conn.Send(ipc.Message{Data: b})
	}
	return err
}

// live sets the cell up and keeps time until it is over.
func (c *child) live() error {
	if err := c.receive(); err != nil {
		return err
	}
	setUp, known := kinds[c.order.Task]
	if !known {
		return fmt.Errorf("this program has no task %q: Register it from a variable of a package", c.order.Task)
	}
	if err := allAreOrdinary(); err != nil {
		return err
	}
	var step Step
	err := try(func() (err error) {
		step, err = setUp(&c.self, c.order.Arg)
		return err
	})
	if err != nil {
		return fmt.Errorf("the set-up: %w", err)
	}
	lacking, err := c.prepare()
	if err != nil {
		return err
	}
	has, err := rt.GetScheduling(0)
	if err != nil {
		return err
	}
	if err := c.tell(report{Ready: true, Lacking: lacking, Priority: has.Priority}); err != nil {
		return err
	}
	return try(func() error { return c.keepTime(step) })
}

// try makes an error of a panic, with the place.
func try(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = fmt.Errorf("it panicked: %v\n%s", v, stack[:min(len(stack), stackLimit)])
		}
	}()
	return do()
}

// receive takes the order, the page and the rings.
func (c *child) receive() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(orderWithin)); err != nil {
		return err
	}
	m, err := c.conn.Receive()
	if err == nil {
		err = errors.Join(json.Unmarshal(m.Data, &c.order), c.conn.SetReadDeadline(time.Time{}))
	}
	if err != nil {
		return err
	}
	if err := c.dieWithParent(); err != nil {
		return err
	}
	c.self.Period = c.order.Period
	for _, f := range m.Files {
		switch f.Name {
		case "page":
			c.account, err = openAccount(f.File, c.order.Period)
		case "in":
			c.self.In, err = ipc.Open(f.File, *c.order.In)
		case "out":
			c.self.Out, err = ipc.Open(f.File, *c.order.Out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if c.account == nil {
		return errors.New("an order without a page")
	}
	return nil
}

// dieWithParent has the kernel kill this process when its parent dies: a step may be one that never
// ends. The calling thread is the main one.
func (c *child) dieWithParent() error {
	if err := sys.DieWithParent(); err != nil {
		return err
	}
	if os.Getppid() != c.order.Parent { // it died before
		return errors.New("the process that has started it has ended")
	}
	return nil
}

// openAccount maps the page that the parent has made. It closes f.
func openAccount(f *os.File, period time.Duration) (*Account, error) {
	defer f.Close()
	mem, err := sys.MapFile(f, pageSize, true)
	if err != nil {
		return nil, err
	}
	return &Account{mem: mem, period: period}, nil
}

// allAreOrdinary refuses a process whose threads have all inherited a real-time class.
func allAreOrdinary() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		s, err := rt.GetScheduling(tid)
		if err == nil && (s.Policy == rt.FIFO || s.Policy == rt.RR || s.Policy == rt.Deadline) {
			return fmt.Errorf("this program runs in %v with all of its threads: one that does not end would keep Go's own from running; "+
				"start it as an ordinary program (without chrt, CPUSchedulingPolicy=), and let Config.Priority set the cell's thread alone", s)
		}
	}
	return nil
}

// prepare makes this process one that keeps time, and says what could not be had.
func (c *child) prepare() (lacking []string, err error) {
	if err := c.dieWithParent(); err != nil { // again: a set-up that gave rights away has undone it
		return nil, err
	}
	runtime.GOMAXPROCS(1)
	growStack()
	runtime.GC()
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(math.MaxInt64)
	lack := func(err error) {
		if err != nil {
			lacking = append(lacking, err.Error())
		}
	}
	lack(rt.LockMemory())
	if err := sys.PopulateMemory(); err != nil {
		lack(fmt.Errorf("mapping memory ahead: %w; Linux 5.14 has it, and without it what is touched first is a page fault", err))
	}
	lack(sys.SetLimit(sys.LimitRealTimeRun, uint64(c.order.Runaway.Microseconds())))
	c.thread.Moved = func() { _, _ = c.prepareThread() } // what is missing was said before
	c.thread.Begin()
	missing, err := c.prepareThread()
	if err != nil {
		return nil, err
	}
	lacking = append(lacking, missing...)
	ready := make(chan struct{})
	go c.keepHouse(ready)
	go c.endWithParent()
	<-ready
	return lacking, nil
}

// prepareThread makes this thread the one that keeps time.
func (c *child) prepareThread() (lacking []string, err error) {
	if c.order.CPU != nil {
		if err := rt.SetAffinity(0, c.order.CPU); err != nil {
			return nil, err
		}
	}
	c.account.store(atThread, uint64(sys.ThreadID()))
	errs := []error{rt.SetTimerSlack(1), sys.BlockSignals()}
	if s := c.order.scheduling(); s != (rt.Scheduling{}) {
		errs = append(errs, rt.SetScheduling(s))
	}
	for _, err := range errs {
		if err != nil {
			lacking = append(lacking, err.Error())
		}
	}
	return lacking, nil
}

// growStack makes the stack of this goroutine as large as steps should need, and touches it.
//
//go:noinline
func growStack() byte {
	var room [128 << 10]byte
	for i := 0; i < len(room); i += 4 << 10 {
		room[i] = 1
	}
	return room[len(room)-1]
}

// endWithParent ends the cell when its parent has closed the connection. One whose parent has died
// is killed by the kernel.
func (c *child) endWithParent() {
	_, _ = c.conn.Receive() // it says nothing more
	c.account.store(atStop, 1)
	time.Sleep(endWithin) // the process ends before that, if its loop sees it
	os.Exit(1)
}

// keepHouse looks at what was allocated. It allocates nothing itself.
func (c *child) keepHouse(ready chan<- struct{}) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"},
		{Name: "/gc/heap/tiny/allocs:objects"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	tick := time.NewTicker(houseEvery)
	close(ready)
	for range tick.C {
		c.mu.Lock()
		if c.keeping {
			metrics.Read(samples)
			c.noteAllocs(samples[0].Value.Uint64()+samples[1].Value.Uint64(), samples[2].Value.Uint64())
		}
		c.mu.Unlock()
	}
}

// noteAllocs notes what was allocated since the end of the set-up, of what was at all.
func (c *child) noteAllocs(objects, bytes uint64) {
	c.account.store(atAllocs, objects-c.before.Mallocs)
	c.account.store(atAllocBytes, bytes-c.before.TotalAlloc)
}

// errAllocated is what ends a strict cell.
func (c *child) errAllocated() error {
	return fmt.Errorf("the task has allocated memory behind its set-up: %d objects, %d bytes, and Strict forbids it; allocate in the set-up, and use that again",
		c.account.load(atAllocs), c.account.load(atAllocBytes))
}

// keepTime is the loop. Its thread runs it, and nothing else.
func (c *child) keepTime(step Step) (err error) {
	for range 3 { // what they do for the first time takes longer
		c.yield()
		_, _ = sys.WakeAt(0)
	}
	c.account.store(atYield, 0)
	c.mu.Lock()
	runtime.ReadMemStats(&c.before)
	c.keeping = true
	c.mu.Unlock()
	c.usage = sys.UsageOfThread()
	defer c.lastLook(&err)
	release := sys.Monotonic() + c.order.Period
	missed := uint64(0)
	for n := uint64(0); c.order.Count == 0 || n < c.order.Count; n++ {
		woke, err := c.await(release)
		if err != nil {
			return err
		}
		c.account.Woke(release, woke)
		c.account.store(atBegan, uint64(woke))
		if err := step(Tick{n, release, woke, missed}); err != nil {
			return err
		}
		ended := sys.Monotonic()
		c.account.store(atBegan, 0)
		if took := uint64(ended - woke); took > c.account.load(atStep) {
			c.account.store(atStep, took)
		}
		release, missed = c.account.Next(release, ended)
		c.look(ended)
		if c.order.Strict && c.account.load(atAllocs) > 0 {
			return c.errAllocated()
		}
	}
	return nil
}

// await sleeps until a release and returns when it woke.
func (c *child) await(release time.Duration) (woke time.Duration, err error) {
	for now := sys.Monotonic(); ; {
		if c.account.load(atStop) != 0 {
			return 0, ErrStop
		}
		if now-c.yieldedAt > yieldAfter {
			c.yield()
		}
		if release-now <= longSleep {
			return sys.WakeAt(release)
		}
		if now, err = sys.WakeAt(now + longSleep); err != nil {
			return 0, err
		}
	}
}

// yield lets Go's scheduler run what waits for it.
func (c *child) yield() {
	began := sys.Monotonic()
	if c.thread.Yield() {
		c.account.add(atMoves, 1)
		c.usage = sys.UsageOfThread()
	}
	c.yieldedAt = sys.Monotonic()
	if took := uint64(c.yieldedAt - began); took > c.account.load(atYield) {
		c.account.store(atYield, took)
	}
}

// look notes once in a while what the kernel has counted of this thread.
func (c *child) look(now time.Duration) {
	if now-c.usageAt > houseEvery {
		c.usageAt = now
		c.noteUsage()
	}
}

func (c *child) noteUsage() {
	u := sys.UsageOfThread()
	c.account.store(atMinor, u.MinorFaults-c.usage.MinorFaults)
	c.account.store(atMajor, u.MajorFaults-c.usage.MajorFaults)
	c.account.store(atSwitches, u.Involuntary-c.usage.Involuntary)
}

// lastLook notes at the end what was counted, exactly.
func (c *child) lastLook(err *error) {
	c.noteUsage()
	c.account.store(atBegan, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeping = false
	runtime.ReadMemStats(&c.after)
	c.noteAllocs(c.after.Mallocs, c.after.TotalAlloc)
	if c.order.Strict && c.account.load(atAllocs) > 0 && (*err == nil || errors.Is(*err, ErrStop)) {
		*err = c.errAllocated()
	}
}
