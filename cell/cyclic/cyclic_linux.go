// Package cyclic wakes up at the beginning of each period and does nothing else, in several styles:
// what cyclictest does in C. It measures how late each way to wait is.
//
// Every style keeps the same grid of releases, from the first one on, and counts by a
// [cell.Account]: the latency is the time from a release to the moment at which the goroutine has
// seen the clock. A release that has passed before the one before it was done with is missed.
//
// Linux only.
package cyclic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/uring"
)

// Style is a way to wait for the next period.
type Style string

// The styles.
const (
	Cell    Style = "cell"    // a process of package cell
	Raw     Style = "raw"     // clock_nanosleep of which Go's scheduler is not told
	Syscall Style = "syscall" // clock_nanosleep
	Timerfd Style = "timerfd" // a timerfd, through the poller of the runtime
	Uring   Style = "uring"   // a time-out of io_uring
	Ticker  Style = "ticker"  // time.Ticker
	Sleep   Style = "sleep"   // time.Sleep
)

// Styles lists them.
func Styles() []Style { return []Style{Cell, Raw, Syscall, Timerfd, Uring, Ticker, Sleep} }

// Config says what is measured.
type Config struct {
	Style    Style
	Interval time.Duration // cell.MinPeriod to cell.MaxPeriod
	Count    uint64        // periods; 0: until the context ends
	Priority int           // in SCHED_FIFO, of the one thread that waits; 0: none
	CPU      rt.CPUs       // where that thread runs; nil: anywhere

	Sample func(Sample) // told of each wake-up, in order; nil: nobody is
	Watch  func(Result) // told ten times a second how it is; nil: nobody is
}

// Sample is one wake-up. Times are those of rt.Now.
type Sample struct{ Release, Woke time.Duration }

// Result is what was measured.
type Result struct {
	cell.Stats
	TID         int      // of the thread that waited
	Priority    int      // that it had in SCHED_FIFO: 0 where Config.Priority could not be had
	Lacking     []string // what it should have had and could not
	LostSamples uint64   // that found no room, because Sample was too slow
}

const watchEvery = 100 * time.Millisecond

// Run measures until the count is reached or the context ends, which is no error.
func Run(ctx context.Context, cfg Config) (Result, error) {
	switch {
	case !slices.Contains(Styles(), cfg.Style):
		return Result{}, fmt.Errorf("%w: style %q", cell.ErrConfig, cfg.Style)
	case cfg.Interval < cell.MinPeriod || cfg.Interval > cell.MaxPeriod:
		return Result{}, fmt.Errorf("%w: an interval of %v: want %v to %v", cell.ErrConfig, cfg.Interval,
			cell.MinPeriod, cell.MaxPeriod)
	case cfg.Priority < 0 || cfg.Priority > 99:
		return Result{}, fmt.Errorf("%w: priority %d: want 1 to 99, or 0 for an ordinary thread", cell.ErrConfig,
			cfg.Priority)
	case cfg.Style == Cell:
		return inCell(ctx, cfg)
	}
	return here(ctx, cfg)
}

// Samples go through the ring from a cell as two words.
const (
	sampleSize = 16
	ringSize   = 1 << 20 // 65,536 samples: a minute at 1 ms
	drainEvery = 10 * time.Millisecond
)

// waker is the task of the cell. Its argument is whether samples are wanted.
var waker = cell.Register("cyclic", func(c *cell.Self, samples bool) (cell.Step, error) {
	if !samples {
		return func(cell.Tick) error { return nil }, nil
	}
	out, err := c.Out.Producer()
	lost := uint64(0) // told by the next sample that finds room
	return func(t cell.Tick) error {
		space, err := out.Space(sampleSize)
		if err != nil {
			return err
		}
		if len(space) < sampleSize {
			lost++
			return nil
		}
		binary.LittleEndian.PutUint64(space, uint64(t.Release))
		binary.LittleEndian.PutUint64(space[8:], uint64(t.Woke))
		out.Publish(sampleSize)
		return nil
	}, err
})

// inCell measures a cell.
func inCell(ctx context.Context, cfg Config) (r Result, err error) {
	c := cell.Config{
		Task: waker.With(cfg.Sample != nil), Period: cfg.Interval, Count: cfg.Count,
		Priority: cfg.Priority, CPU: cfg.CPU,
	}
	var samples *ipc.Consumer
	if cfg.Sample != nil {
		c.Out = &ipc.RingConfig{Name: "tallywheel-cyclic", Size: ringSize}
	}
	running, err := cell.Start(ctx, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	r.TID, r.Priority, r.Lacking = running.TID(), running.Priority(), running.Lacking()
	if cfg.Sample != nil {
		if samples, err = running.Out.Consumer(); err != nil {
			return r, err
		}
	}
	drain := time.NewTicker(drainEvery)
	defer drain.Stop()
	told, seen := time.Now(), uint64(0)
	for over := false; !over; {
		select {
		case <-running.Done():
			over = true
		case <-drain.C:
		}
		if samples != nil {
			n, err := deliver(samples, cfg.Sample)
			if seen += n; err != nil {
				return r, err
			}
		}
		if cfg.Watch != nil && time.Since(told) >= watchEvery {
			r.Stats = running.Stats()
			cfg.Watch(r)
			told = time.Now()
		}
	}
	r.Stats, err = running.Wait()
	if samples != nil {
		r.LostSamples = r.Cycles - seen
	}
	return r, err
}

// deliver takes what is in the ring.
func deliver(from *ipc.Consumer, to func(Sample)) (n uint64, err error) {
	for {
		view, err := from.View(sampleSize)
		if err != nil || len(view) < sampleSize {
			return n, err
		}
		s := Sample{
			time.Duration(binary.LittleEndian.Uint64(view)),
			time.Duration(binary.LittleEndian.Uint64(view[8:])),
		}
		from.Release(sampleSize)
		to(s)
		n++
	}
}

// here measures a thread of this process.
func here(ctx context.Context, cfg Config) (r Result, err error) {
	t := &thread{cfg: cfg, account: cell.NewAccount(cfg.Interval), tid: make(chan int, 1), done: make(chan error, 1)}
	if cfg.Sample != nil {
		t.samples = make(chan Sample, ringSize/sampleSize)
	}
	go t.run(ctx)
	drain := time.NewTicker(drainEvery)
	defer drain.Stop()
	told := time.Now()
	for over := false; !over; {
		select {
		case r.TID = <-t.tid:
			r.Priority, r.Lacking = t.priority, t.lacking
		case err = <-t.done:
			over = true
		case <-drain.C:
		}
		for n := len(t.samples); n > 0; n-- {
			cfg.Sample(<-t.samples)
		}
		if cfg.Watch != nil && r.TID != 0 && time.Since(told) >= watchEvery {
			r.Stats = t.account.Stats()
			cfg.Watch(r)
			told = time.Now()
		}
	}
	select {
	case r.TID = <-t.tid: // the end came as soon
	default:
	}
	r.Stats, r.LostSamples, r.Priority, r.Lacking = t.account.Stats(), t.lost, t.priority, t.lacking
	return r, err
}

// thread is one of this process that keeps time. What it leaves is read once done has been told.
type thread struct {
	cfg     Config
	account *cell.Account
	tid     chan int
	done    chan error
	samples chan Sample // looked at now and then, so that nobody is woken by one; nil: nobody wants them

	lacking  []string // with priority: read once tid has been told
	priority int
	lost     uint64
}

func (t *thread) run(ctx context.Context) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	err := t.prepare()
	if err == nil {
		t.tid <- sys.ThreadID()
		err = t.wait(ctx)
	}
	t.done <- err
}

// prepare makes the thread what was asked for, as far as that is allowed.
func (t *thread) prepare() error {
	if t.cfg.CPU != nil {
		if err := rt.SetAffinity(0, t.cfg.CPU); err != nil {
			return err
		}
	}
	errs := []error{rt.SetTimerSlack(1)}
	if t.cfg.Priority > 0 {
		errs = append(errs,
			rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: t.cfg.Priority, ResetOnFork: true}))
	}
	for _, err := range errs {
		if err != nil {
			t.lacking = append(t.lacking, err.Error())
		}
	}
	has, err := rt.GetScheduling(0)
	t.priority = has.Priority
	return err
}

// wait wakes up each period.
func (t *thread) wait(ctx context.Context) (err error) {
	release := rt.Now() + t.cfg.Interval
	until, end, err := waitBy(t.cfg.Style, release, t.cfg.Interval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for n := uint64(0); (t.cfg.Count == 0 || n < t.cfg.Count) && ctx.Err() == nil; n++ {
		woke, err := until(release)
		if err != nil {
			return err
		}
		t.account.Woke(release, woke)
		if t.samples != nil {
			select {
			case t.samples <- Sample{release, woke}:
			default:
				t.lost++
			}
		}
		release, _ = t.account.Next(release, rt.Now())
	}
	return nil
}

// waitBy prepares a style. until returns the clock right behind the wake-up.
func waitBy(style Style, first, every time.Duration) (until func(time.Duration) (time.Duration, error),
	end func() error, err error,
) {
	end = func() error { return nil }
	switch style {
	case Raw:
		until = sys.WakeAt
	case Syscall:
		until = func(at time.Duration) (time.Duration, error) {
			err := rt.SleepUntil(at)
			return rt.Now(), err
		}
	case Sleep:
		until = func(at time.Duration) (time.Duration, error) {
			time.Sleep(at - rt.Now())
			return rt.Now(), nil
		}
	case Ticker:
		t := time.NewTicker(every)
		until = func(at time.Duration) (now time.Duration, err error) {
			for now = 0; now < at; now = rt.Now() { // a tick that was missed may still lie there
				<-t.C
			}
			return now, nil
		}
		end = func() error { t.Stop(); return nil }
	case Timerfd:
		return waitByTimerfd(first, every)
	case Uring:
		return waitByRing()
	}
	return until, end, nil
}

func waitByTimerfd(first, every time.Duration) (until func(time.Duration) (time.Duration, error), end func() error,
	err error,
) {
	fd, err := sys.Timerfd(first, every)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	b := make([]byte, 8)
	return func(at time.Duration) (now time.Duration, err error) {
		for now < at && err == nil { // an expiration that was missed may still be told
			_, err = f.Read(b)
			now = rt.Now()
		}
		return now, err
	}, f.Close, nil
}

func waitByRing() (until func(time.Duration) (time.Duration, error), end func() error, err error) {
	ring, err := uring.New(uring.Config{Entries: 4, Locked: true})
	if err != nil {
		return nil, nil, err
	}
	op := new(uring.Op)
	return func(at time.Duration) (time.Duration, error) {
		op.TimeoutAt(uring.Monotonic, int64(at))
		if err := ring.Push(op); err != nil {
			return 0, err
		}
		if err := ring.Wait(1); err != nil {
			return 0, err
		}
		now := rt.Now()
		for ring.Next() != nil { // it says ETIME
		}
		return now, nil
	}, ring.Close, nil
}
