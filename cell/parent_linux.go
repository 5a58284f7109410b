package cell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// Cell is a cell as the process sees it that has started it. Its methods are safe for concurrent
// use.
type Cell struct {
	In, Out *ipc.Ring // the rings of Config, or nil: In is to be filled here, Out to be consumed

	cfg      Config
	cmd      *exec.Cmd
	conn     *ipc.Conn
	lacking  []string
	priority int
	ended    chan struct{} // closed once the process has been waited for; err is written before
	err      error

	mu      sync.Mutex // guards the mapping, which Close gives back
	account *Account
	last    Stats // once it is given back
	killed  error // why this process has killed it
}

const (
	setUpWithin = time.Minute            // from the start to the end of the set-up
	lookEvery   = 100 * time.Millisecond // whether a step comes back
	stopWithin  = 10 * time.Second       // for the end of a cell that is not within a step
)

// Start starts a cell and returns once it has been set up. It runs until its Count is reached, a
// step returns an error, [Cell.Stop] is called, or ctx ends. Close it in any case.
func Start(ctx context.Context, cfg Config) (*Cell, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if !mained {
		return nil, ErrNoMain
	}
	c := &Cell{cfg: cfg, ended: make(chan struct{})}
	reports, err := c.launch()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cell %s: %w", cfg.Task.name, err), c.release())
	}
	wait := time.NewTimer(setUpWithin)
	defer wait.Stop()
	var first report
	select {
	case first = <-reports:
	case <-c.ended: // a short one may have been set up before
		select {
		case first = <-reports:
		default:
		}
	case <-wait.C:
		c.kill(fmt.Errorf("its set-up has not ended within %v", setUpWithin))
	case <-ctx.Done():
		c.kill(ctx.Err())
	}
	if !first.Ready {
		<-c.ended
		return nil, errors.Join(cmp.Or(c.err, fmt.Errorf("cell %s: it ended before it was set up", cfg.Task.name)),
			c.release())
	}
	c.lacking, c.priority = first.Lacking, first.Priority
	go c.watch(ctx)
	return c, nil
}

// Run is Start, and waits for the end.
func Run(ctx context.Context, cfg Config) (Stats, error) {
	c, err := Start(ctx, cfg)
	if err != nil {
		return Stats{}, err
	}
	s, err := c.Wait()
	return s, errors.Join(err, c.Close())
}

// launch makes what both share, starts the process and tells it what it is. Its first report comes
// through the channel.
func (c *Cell) launch() (<-chan report, error) {
	page, err := c.share()
	if err != nil {
		return nil, err
	}
	files := []ipc.File{{Name: "page", File: page}}
	defer page.Close()
	if c.In != nil {
		files = append(files, ipc.File{Name: "in", File: c.In.File()})
	}
	if c.Out != nil {
		files = append(files, ipc.File{Name: "out", File: c.Out.File()})
	}
	conn, theirs, err := ipc.Pair(linkConfig)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c.conn = conn
	c.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: os.Args, Env: append(os.Environ(), variable+"=1"),
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs},
	}
	started := make(chan error)
	go c.parent(started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	reports := make(chan report, 2)
	heard := make(chan error, 1)
	go func() { heard <- c.hear(reports) }()
	go c.reap(heard)
	cfg := c.cfg
	b, err := json.Marshal(order{
		Parent: os.Getpid(),
		Task:   cfg.Task.name, Arg: cfg.Task.arg, Period: cfg.Period, Count: cfg.Count, Priority: cfg.Priority,
		Budget: cfg.Budget,
		CPU:    cfg.CPU, Strict: cfg.Strict, Runaway: cfg.Runaway, In: cfg.In, Out: cfg.Out,
	})
	if err == nil {
		err = conn.Send(ipc.Message{Data: b, Files: files})
	}
	if err != nil {
		c.kill(err)
		<-c.ended
		return nil, err
	}
	return reports, nil
}

// parent starts the process, on a thread of its own: one of no class that the caller has, and that
// lives until the cell has ended, for a cell is killed when the thread ends that has started it.
func (c *Cell) parent(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		<-c.ended
	}
}

// share makes the page, whose file the caller closes, and the rings.
func (c *Cell) share() (page *os.File, err error) {
	fd, err := sys.SealedMemory("tallywheel-cell", int64(pageSize))
	if err != nil {
		return nil, err
	}
	page = os.NewFile(uintptr(fd), "page")
	c.account = &Account{period: c.cfg.Period}
	if c.account.mem, err = sys.MapFile(page, pageSize, true); err == nil && c.cfg.In != nil {
		c.In, err = ipc.Create(*c.cfg.In)
	}
	if err == nil && c.cfg.Out != nil {
		c.Out, err = ipc.Create(*c.cfg.Out)
	}
	if err != nil {
		return nil, errors.Join(err, page.Close())
	}
	return page, nil
}

// hear passes reports on until the cell ends, and returns what it says was wrong.
func (c *Cell) hear(reports chan<- report) error {
	for {
		m, err := c.conn.Receive()
		if err != nil { // it has ended; how, its exit status says
			return nil
		}
		var r report
		if err := errors.Join(json.Unmarshal(m.Data, &r), m.Close()); err != nil {
			return err
		}
		switch {
		case r.Over && r.Error != "":
			return errors.New(r.Error)
		case r.Over:
			return nil
		}
		select {
		case reports <- r:
		default: // more than a cell ever sends
		}
	}
}

// reap waits for the process, and says why it has ended.
func (c *Cell) reap(heard <-chan error) {
	status := c.cmd.Wait()
	said := <-heard
	within := c.stepBegan() != 0
	c.mu.Lock()
	killed := c.killed
	c.mu.Unlock()
	err := cmp.Or(killed, said)
	if err == nil && status != nil {
		err = fmt.Errorf("it ended by itself: %w", status)
		var exit *exec.ExitError
		if errors.As(status, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && within {
			err = fmt.Errorf("somebody killed it within a step: the kernel, if that has computed for %v without a wait (Config.Runaway), or the machine had no memory left", c.cfg.Runaway)
		}
	}
	if err != nil {
		c.err = fmt.Errorf("cell %s: %w", c.cfg.Task.name, err)
	}
	_ = c.conn.Close()
	close(c.ended)
}

// watch is the watchdog: it ends the cell with ctx, and kills it if a step does not come back.
func (c *Cell) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	done := ctx.Done()
	for {
		select {
		case <-c.ended:
			return
		case <-done:
			c.askToEnd()
			done = nil
		case <-tick.C:
			began := c.stepBegan()
			if most := patience * c.cfg.Runaway; began != 0 && sys.Monotonic()-began > most {
				c.kill(fmt.Errorf("a step has not come back for %v (ten times Config.Runaway): it waits for something, or was not let run", most))
			}
		}
	}
}

// stepBegan is when the step that is under way began; 0: none is.
func (c *Cell) stepBegan() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account == nil {
		return 0
	}
	return time.Duration(c.account.load(atBegan))
}

// kill kills the process; the first reason is kept.
func (c *Cell) kill(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = cmp.Or(c.killed, why)
	_ = c.cmd.Process.Kill()
}

// askToEnd has the cell end before its next release, within a quarter of a second.
func (c *Cell) askToEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account != nil {
		c.account.store(atStop, 1)
	}
}

// PID is the number of the cell's process.
func (c *Cell) PID() int { return c.cmd.Process.Pid }

// TID is the number of the thread that keeps time; 0 once the cell is closed.
func (c *Cell) TID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account == nil {
		return 0
	}
	return int(c.account.load(atThread))
}

// Lacking says what the cell should have had and could not, each with how to get it; nothing: it
// has all.
func (c *Cell) Lacking() []string { return c.lacking }

// Priority is the cell's priority in SCHED_FIFO, as the kernel had it behind the set-up: 0 where
// [Config.Priority] could not be had.
func (c *Cell) Priority() int { return c.priority }

// Done is closed once the cell has ended.
func (c *Cell) Done() <-chan struct{} { return c.ended }

// Stats is what was counted so far.
func (c *Cell) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account == nil {
		return c.last
	}
	return c.account.Stats()
}

// Wait waits until the cell has ended, and returns what it has counted, and what was wrong.
func (c *Cell) Wait() (Stats, error) {
	<-c.ended
	return c.Stats(), c.err
}

// Stop ends the cell and waits for that, as Wait does.
func (c *Cell) Stop() (Stats, error) {
	c.askToEnd()
	late := time.NewTimer(stopWithin + patience*c.cfg.Runaway)
	defer late.Stop()
	select {
	case <-c.ended:
	case <-late.C:
		c.kill(errors.New("it did not end when it was asked to"))
	}
	return c.Wait()
}

// Close stops the cell, if it still runs, and releases its rings. What Stats says stays. What was
// wrong with the cell, Wait and Stop say.
func (c *Cell) Close() error {
	_, _ = c.Stop()
	return c.release()
}

// release gives back what share has made.
func (c *Cell) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	if c.account != nil {
		if c.account.mem != nil {
			c.last = c.account.Stats()
			errs = append(errs, sys.Unmap(c.account.mem))
		}
		c.account = nil
	}
	for _, r := range []*ipc.Ring{c.In, c.Out} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}
