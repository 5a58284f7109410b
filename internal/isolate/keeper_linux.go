package isolate

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/ipc"
)

// Keeping is what a keeper does.
type Keeping struct {
	Program string   // that reader and recorder run
	Args    []string // of both, without the name
	Log     *slog.Logger
	Notify  func(state string) // tells a supervisor, as sd_notify(3)
}

// Bounds of starting again. A process that did its work is started at once, but for crashes in a
// row; one that did not get so far waits, longer and longer.
const (
	firstWait  = 50 * time.Millisecond
	longWait   = 5 * time.Second
	crashes    = 20               // … within crashTime are too many to start again at once
	crashTime  = 10 * time.Second // …
	stopTries  = 3                // how often a recorder that crashes while it stops is started again
	calm       = time.Second      // behind the last start, the keeper gives back what starting took
	readerEnds = 10 * time.Second // how long a reader may take to end
)

// keeper is the process. Its main loop owns the children's lives; what lies on the shelf, and what
// is sent, is under mu.
type keeper struct {
	Keeping
	ended chan *child

	mu       sync.Mutex // held while messages are sent: for sendWithin at most
	shelf    []shelved
	children map[Role]*child
	stopping bool
	owed     syscall.Signal // the recorder is to be told once it is ready; 0: nothing
}

// shelved is an entry on the shelf. Its descriptors are bare: see receive.
type shelved struct {
	name string
	data json.RawMessage
	fds  []int
}

// child is one life of reader or recorder.
type child struct {
	Process
	cmd   *exec.Cmd
	conn  *ipc.Conn
	ready bool          // it has said that it does its work
	heard chan struct{} // closed once all that it has said is taken
}

// outcome is how a child has ended: by itself, with a code, or crashed, as where it could not even
// be started.
func (c *child) outcome() (code int, crashed bool, what string) {
	state := c.cmd.ProcessState
	if state == nil {
		return 1, true, "not started"
	}
	return state.ExitCode(), !state.Exited(), state.String()
}

// Run keeps a recorder and a reader until the recorder has ended in order, or could not begin, and
// returns its exit code. Signals are the process's: SIGTERM and SIGINT stop the recorder, SIGHUP is
// passed on to it.
func (cfg Keeping) Run(signals <-chan os.Signal) (code int) {
	k := &keeper{Keeping: cfg, ended: make(chan *child), children: map[Role]*child{}}
	k.start(Reader, nil)
	k.start(Recorder, nil)
	hasBegun, waits, tries := false, false, 0 // of the recorder: waits is that a timer starts it
	again := map[Role]*time.Timer{Reader: stoppedTimer(), Recorder: stoppedTimer()}
	pace := map[Role]*pace{Reader: {}, Recorder: {}}
	settled := time.NewTimer(calm)
	defer settled.Stop()
	for {
		select {
		case <-settled.C:
			shrink()
		case s := <-signals:
			if k.signal(s.(syscall.Signal)) && waits {
				again[Recorder].Reset(0) // it is told to stop once it is there
			}
		case <-again[Reader].C:
			k.start(Reader, k.child(Reader))
		case <-again[Recorder].C:
			waits = false
			k.start(Recorder, k.child(Recorder))
		case c := <-k.ended:
			if c.Role == Recorder {
				waits = true
				hasBegun = hasBegun || k.isReady(c)
				if code, over := k.isOver(c, hasBegun, &tries); over {
					return k.finish(code)
				}
			}
			wait := pace[c.Role].next(time.Now(), k.isReady(c))
			_, _, what := c.outcome()
			k.Log.Error("a process of the recorder has ended, and is started again", "role", c.Role, "state", what, "in", wait)
			k.tellProcesses()
			again[c.Role].Reset(wait)
			settled.Reset(wait + calm)
		}
	}
}

// isOver says whether the end of a recorder is that of all, and with which code. It is where the
// recorder ended by itself with 0, or before one had begun, or as it was asked to, and where it had
// said that all is done. tries counts its crashes while it stops.
func (k *keeper) isOver(c *child, hasBegun bool, tries *int) (code int, over bool) {
	code, crashed, what := c.outcome()
	return k.isOverBy(code, crashed, what, hasBegun, tries)
}

func (k *keeper) isOverBy(end int, crashed bool, what string, hasBegun bool, tries *int) (code int, over bool) {
	code = end
	stops := k.stops()
	if stops {
		*tries++
	}
	over = k.has(EndEntry) || !crashed && (code == 0 || !hasBegun || stops) || stops && *tries > stopTries
	if over && crashed {
		k.Log.Error("the recorder was killed while it stopped, and is not started again", "state", what)
		code = 1
	}
	return code, over
}

// pace is how fast the process of a role is started again.
type pace struct {
	recent []time.Time // ends, within crashTime
	failed int         // ends in a row before it was ready, or of too many
}

func (p *pace) next(now time.Time, ready bool) time.Duration {
	p.recent = append(slices.DeleteFunc(p.recent, func(t time.Time) bool { return now.Sub(t) > crashTime }), now)
	if ready && len(p.recent) < crashes {
		p.failed = 0
		return 0
	}
	p.failed++
	return min(firstWait<<min(p.failed-1, 10), longWait)
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// signal does what a signal asks for, and reports whether that is to stop. A recorder that is not
// ready yet hears of it once it is: it might not hear signals yet.
func (k *keeper) signal(s syscall.Signal) (stops bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s != syscall.SIGHUP {
		if k.stopping {
			return true
		}
		k.stopping, s = true, syscall.SIGTERM
		k.Notify("STOPPING=1")
	}
	if c := k.children[Recorder]; c.PID != 0 && c.ready {
		_ = c.cmd.Process.Signal(s)
	} else {
		k.owed = s
	}
	return k.stopping
}

// start begins a life of a child, in the place of another.
func (k *keeper) start(role Role, before *child) {
	c := &child{Process: Process{Role: role, Since: time.Now()}, heard: make(chan struct{})}
	var died int64
	if before != nil {
		c.Restarts, died = before.Restarts+1, before.Since.UnixNano()
	}
	conn, theirs, err := ipc.Pair(linkConfig)
	if err == nil {
		c.cmd = exec.Command(k.Program, k.Args...)
		c.cmd.Args[0] = "tallywheel: " + string(role)
		c.cmd.Env = append(os.Environ(), RoleVariable+"="+string(role), "NOTIFY_SOCKET=")
		c.cmd.Stdout, c.cmd.Stderr, c.cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{theirs}
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for the keeper alone
		err = c.cmd.Start()
		_ = theirs.Close()
	}
	if err != nil { // no memory, no descriptors: this passes, or the keeper ends by its supervisor
		k.Log.Error("a process of the recorder cannot be started", "role", role, "error", err)
		c.cmd = &exec.Cmd{}
		c.Since = time.Now()
		k.set(c)
		go func() { k.ended <- c }()
		return
	}
	c.conn, c.PID = conn, c.cmd.Process.Pid
	k.give(c, died)
	go k.listen(c, conn)
	go func() {
		_ = c.cmd.Wait() // by its pidfd, as package os does it
		select {
		case <-c.heard: // what it had put counts, also right before its end
		case <-time.After(sendWithin): // somebody else has its end of the link: nobody should
		}
		k.mu.Lock()
		c.PID, c.Since = 0, time.Now()
		_ = c.conn.Close()
		c.conn = nil
		k.mu.Unlock()
		k.ended <- c
	}()
}

// give makes a child the one of its role, and tells it all that is on the shelf.
func (k *keeper) give(c *child, died int64) {
	k.mu.Lock()
	k.children[c.Role] = c
	var err error
	for _, e := range k.shelf {
		if err == nil {
			err = send(c.conn, message{Op: opPut, Name: e.name, Data: e.data}, e.fds)
		}
	}
	if err == nil {
		err = send(c.conn, message{Op: opReady, Died: died}, nil)
	}
	k.mu.Unlock()
	k.broken(c, err)
	k.tellProcesses()
}

// broken kills a child that does not take what it is sent.
func (k *keeper) broken(c *child, err error) {
	if err != nil {
		k.Log.Error("a process of the recorder does not listen, and is killed", "role", c.Role, "error", err)
		_ = c.cmd.Process.Kill()
	}
}

// listen takes what a child says, until it has ended.
func (k *keeper) listen(c *child, conn *ipc.Conn) {
	defer close(c.heard)
	for {
		m, fds, err := receive(conn)
		if err != nil {
			return // the end, or what no child of ours says
		}
		k.mu.Lock()
		var other *child
		switch m.Op {
		case opPut, opDrop:
			k.place(m, fds)
			for role, o := range k.children {
				if role != c.Role && o.conn != nil {
					other = o
				}
			}
			if other != nil {
				err = send(other.conn, m, fds)
			}
		case opReady:
			if c.ready = true; c.Role == Recorder {
				k.Notify("READY=1")
				if k.stopping {
					k.owed = syscall.SIGTERM // also of one that was killed since
				}
				if k.owed != 0 {
					_ = c.cmd.Process.Signal(k.owed)
				}
				k.owed = 0
			}
		}
		k.mu.Unlock()
		if other != nil {
			k.broken(other, err)
		}
	}
}

// place puts an entry on the shelf, or takes it off. mu is held.
func (k *keeper) place(m message, fds []int) {
	i := slices.IndexFunc(k.shelf, func(e shelved) bool { return e.name == m.Name })
	if i >= 0 {
		Entry{FDs: k.shelf[i].fds}.CloseFDs()
	}
	e := shelved{m.Name, m.Data, fds}
	switch {
	case m.Op == opDrop && i >= 0:
		k.shelf = slices.Delete(k.shelf, i, i+1)
	case m.Op == opDrop:
	case i >= 0:
		k.shelf[i] = e
	default:
		k.shelf = append(k.shelf, e)
	}
}

// tellProcesses tells both children how the three are.
func (k *keeper) tellProcesses() {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := []Process{{Role: Keeper, PID: os.Getpid(), Since: begun}}
	for _, role := range []Role{Reader, Recorder} {
		if c := k.children[role]; c != nil {
			all = append(all, c.Process)
		}
	}
	b, err := json.Marshal(all)
	for _, c := range k.children {
		if err == nil && c.conn != nil {
			_ = send(c.conn, message{Op: opProcesses, Data: b}, nil) // one that does not listen shows by its entries
		}
	}
}

// begun is when this process did.
var begun = time.Now()

func (k *keeper) set(c *child) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.children[c.Role] = c
}

func (k *keeper) child(role Role) *child {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.children[role]
}

func (k *keeper) isReady(c *child) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.ready
}

func (k *keeper) stops() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopping
}

func (k *keeper) has(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.shelf, func(e shelved) bool { return e.name == name })
}

// finish ends the reader, which sees the end of its link, and returns the exit code.
func (k *keeper) finish(code int) int {
	k.mu.Lock()
	c := k.children[Reader]
	conn := c.conn
	if conn != nil {
		_ = conn.Close()
	}
	k.mu.Unlock()
	if conn == nil {
		return code
	}
	late := time.NewTimer(readerEnds)
	defer late.Stop()
	select {
	case <-k.ended:
	case <-late.C:
		k.Log.Error("the reader does not end, and is killed", "pid", c.PID)
		_ = c.cmd.Process.Kill()
	}
	return code
}
