package prefork

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
)

// program is what workers run: the file that lay at the path when it was chosen, so that a restart
// after a crash does not bring in one that lies there since, half copied perhaps.
type program struct {
	path string
	pin  *os.File // nil: path itself
}

// choose pins what lies at the path now.
func choose(cfg *Config) (*program, error) {
	p := &program{path: cfg.Path}
	if cfg.Attr != nil && (cfg.Attr.Chroot != "" || cfg.Attr.Credential != nil) {
		return p, nil // a worker could not open it by /proc
	}
	f, err := sys.OpenOrdinary(cfg.Path, os.O_RDONLY, 0) // a pipe in its place keeps nobody waiting
	if err != nil {
		return nil, fmt.Errorf("prefork: the program of the workers: %w", err)
	}
	p.pin = f
	p.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	if _, err := os.Stat(p.path); err != nil { // no /proc
		p.path = cfg.Path
	}
	return p, nil
}

func (p *program) close() {
	if p != nil && p.pin != nil {
		_ = p.pin.Close()
	}
}

// child is a worker as its master sees it.
type child struct {
	slot  int
	pid   int
	since time.Time
	proc  *os.Process
	link  *wire
	count atomic.Pointer[Count] // as it last told

	ready chan struct{} // closed when it says so
	gone  chan struct{} // closed when it has ended, and what it left behind, and the master has seen to that
	err   error         // how; valid once gone
	takes bool          // accepts from what is lent; valid once ready, then Master.mu
	asked bool          // to end; Master.mu

	// How many of the slot's kills for memory (quota.kills) cannot be this worker's: those before
	// its start, and those after which it has answered; and after how many it was last asked.
	// Master.mu.
	survived, asks int

	killed  atomic.Bool // by kill
	adopted bool        // from the program that was the master before
}

// start starts cmd on some CPUs; none are all.
func (m *Master) start(cmd *exec.Cmd, cpus rt.CPUs) error {
	return m.starter.Do(func() error {
		if len(cpus) == 0 {
			return cmd.Start()
		}
		undo, err := rt.Pin(cpus) // what a thread starts has its affinity
		if err != nil {
			return err
		}
		err = cmd.Start()
		if undoErr := undo(); err == nil {
			err = undoErr
		}
		return err
	})
}

// launch starts a worker.
func (m *Master) launch(slot int, p *program) (*child, error) {
	ours, theirs, err := sys.PacketPair()
	if err != nil {
		return nil, fmt.Errorf("prefork: %w", err)
	}
	defer theirs.Close()
	link, err := newWire(ours)
	if err != nil {
		return nil, err
	}
	files := m.sockets.slots[slot]
	cmd := &exec.Cmd{
		Path: p.path, Args: os.Args, Dir: m.cfg.Dir, Stdout: os.Stdout, Stderr: os.Stderr,
		Env:         environment(&m.cfg, slot, len(files), m.quota.environment()...),
		ExtraFiles:  append(append([]*os.File(nil), files...), theirs),
		SysProcAttr: &syscall.SysProcAttr{},
	}
	if m.cfg.Attr != nil {
		*cmd.SysProcAttr = *m.cfg.Attr
	}
	// Ends a worker that has not come to Run. Later obey does that, with all that the worker has
	// started, which a SIGKILL would leave behind.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, 0 // what it leaves behind is found by its group
	var cpus rt.CPUs
	if len(m.cfg.CPUs) > 0 {
		cpus = m.cfg.CPUs[slot%len(m.cfg.CPUs)]
	}
	kills, _ := m.quota.kills(slot)
	release, err := m.quota.enter(cmd.SysProcAttr, slot)
	if err == nil {
		err = m.start(cmd, cpus)
		release()
	}
	if err == nil {
		if err = m.quota.put(cmd.Process.Pid, slot); err != nil { // else it would work without bounds
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	if err != nil {
		_ = link.conn.Close()
		return nil, fmt.Errorf("prefork: worker %d: %w", slot, m.cfg.named(err))
	}
	return m.watch(&child{
		slot: slot, pid: cmd.Process.Pid, since: time.Now(), proc: cmd.Process, link: link, survived: kills,
	}, Count{}), nil
}

// watch hears what a worker tells, and waits for its end. The caller holds mu.
func (m *Master) watch(c *child, count Count) *child {
	c.ready, c.gone = make(chan struct{}), make(chan struct{})
	c.count.Store(&count)
	m.all[c] = struct{}{}
	told := make(chan struct{})
	go c.listen(told, c.adopted, m)
	m.running.Go(func() {
		c.await(told)
		m.ended(c)
	})
	return c
}

// listen hears what the worker tells (ready: it has told that it is), until it has no more to say.
func (c *child) listen(told chan<- struct{}, ready bool, m *Master) {
	defer close(told)
	for {
		p, fds, err := c.link.receive()
		closeAll(fds) // a worker has nothing to pass
		if err != nil && !errors.Is(err, errLostFDs) {
			return
		}
		if p.Count != nil {
			c.count.Store(p.Count)
		}
		if p.Kills > 0 {
			m.survivor(c, p.Kills)
		}
		if p.Ready && !ready {
			ready, c.takes = true, p.Takes
			close(c.ready)
		}
		if p.Refuse && ready {
			m.refused(c, p.Slot)
		}
	}
}

// await waits until the worker has ended. Until it is reaped its number, which is its group's, too,
// is nobody else's: so what it has started is killed before.
func (c *child) await(told <-chan struct{}) {
	if sys.AwaitEnd(c.pid) == nil { // else it was reaped before this process became the master
		_ = sys.KillGroup(c.pid) // an error: nobody is left
	}
	state, err := c.proc.Wait()
	if c.err = err; err == nil && !state.Success() {
		c.err = &exec.ExitError{ProcessState: state}
	}
	sys.ReapGroup(c.pid) // its orphans are ours, as a subreaper
	_ = c.link.conn.SetReadDeadline(time.Now().Add(time.Second))
	<-told // the last count; something that left the group may hold the other end, hence the deadline
	_ = c.link.conn.Close()
	if c.err == nil {
		c.err = fmt.Errorf("it returned, with exit status 0")
	}
}

// kill ends the worker at once, with what it has started.
func (c *child) kill() {
	select {
	case <-c.gone:
	default:
		c.killed.Store(true)
		_ = c.proc.Kill() // by its pidfd: never somebody else who has its number now
	}
}

// String is "worker 3 (pid 4711)".
func (c *child) String() string {
	return "worker " + strconv.Itoa(c.slot) + " (pid " + strconv.Itoa(c.pid) + ")"
}
