package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/ipc"
)

// child is one life of reader or recorder.
type child struct {
	Process
	process  *os.Process // nil: it could not be started
	state    *os.ProcessState
	conn     *ipc.Conn
	prepared bool          // it has said that it could begin
	refused  string        // … or why it cannot
	ready    bool          // it has said that it does its work
	heard    chan struct{} // closed once all that it has said is taken
	paused   chan struct{} // nil, or closed once nobody listens for now, as another keeper will
	form     int           // of what is handed over to a keeper of its program
	store    int           // … and of the store that this has
	leaves   bool          // it was told to end, so that another process goes on
}

// outcome is how a child has ended: by itself, with a code, or crashed, as where it could not even
// be started.
func (c *child) outcome() (code int, crashed bool, what string) {
	switch {
	case c.process == nil:
		return 1, true, "not started"
	case c.state == nil:
		return 1, true, "its end was not seen"
	}
	return c.state.ExitCode(), !c.state.Exited(), c.state.String()
}

// start begins a life of a child, in the place of another that has ended; nil: there was none. As
// before: with the configuration that was recorded with last, whatever the file says now.
func (k *keeper) start(role Role, before *child, asBefore bool) {
	c, err := k.spawn(role, k.programs[role], before, k.beginning(role, asBefore))
	if err != nil { // no memory, no descriptors: this passes, or the keeper ends by its supervisor
		k.Log.Error("a process of the recorder cannot be started", "role", role, "error", err)
		c.Since = time.Now()
		k.mu.Lock()
		k.children[role] = c
		k.mu.Unlock()
		go func() { k.ended <- c }()
		return
	}
	if before != nil {
		c.Restarts++
	}
	k.give(c, before)
}

// beginning is how a child is to begin that is the first of its role, or behind one that has ended.
func (k *keeper) beginning(role Role, asBefore bool) Beginning {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Beginning{
		AsBefore: asBefore, Stops: role == Recorder && k.stopping && !k.leaves, Quiet: k.ends[role].more > 0,
	}
}

// spawn starts a process of a role, and tells it what it needs to prepare itself. It is the one of
// its role once it is given the shelf.
func (k *keeper) spawn(role Role, program *os.File, before *child, b Beginning) (*child, error) {
	c := &child{Process: Process{Role: role, Since: time.Now()}, heard: make(chan struct{})}
	if before != nil {
		c.Restarts = before.Restarts
	}
	conn, theirs, err := ipc.Pair(linkConfig)
	if err != nil {
		return c, err
	}
	path := k.Program
	if program != nil { // of this process: a child that is about to run it moves its own descriptors
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), program.Fd())
	}
	cmd := exec.Command(path, k.Args...)
	cmd.Args[0] = "tallywheel: " + string(role)
	cmd.Env = append(os.Environ(), RoleVariable+"="+string(role), "NOTIFY_SOCKET=")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for the keeper alone
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = conn.Close()
		if p := (*os.PathError)(nil); program != nil && errors.As(err, &p) {
			p.Path = program.Name() // what people call it
		}
		return c, err
	}
	c.conn, c.process, c.PID = conn, cmd.Process, cmd.Process.Pid
	k.mu.Lock()
	err = k.tell(c, []string{StartEntry, APIEntry, ConfigEntry}, message{Op: opPrepare, Data: b.encode()})
	k.mu.Unlock()
	k.broken(c, err)
	k.follow(c)
	return c, nil
}

// follow takes what a child says, and its end.
func (k *keeper) follow(c *child) {
	conn := c.conn
	if conn != nil {
		go k.listen(c, conn)
	} else {
		close(c.heard) // nothing more is said
	}
	go func() {
		c.state, _ = c.process.Wait() // by its pidfd, as package os does it; an error: somebody has waited before
		c.hearOut(conn, sendWithin)
		k.mu.Lock()
		c.PID, c.Since = 0, time.Now()
		if c.conn != nil {
			_ = c.conn.Close()
			c.conn = nil
		}
		k.mu.Unlock()
		k.ended <- c
	}()
}

// hearOut waits until all is taken that a child has said which has ended: what it had put counts,
// also right before its end. That may take a while, as where the other child takes nothing. Where
// somebody else has its end of the link, as nobody should, nothing more can be said after patience.
func (c *child) hearOut(conn *ipc.Conn, patience time.Duration) {
	select {
	case <-c.heard:
		return
	case <-time.After(patience):
	}
	_ = conn.CloseRead() // what waits is taken, and then there is an end
	select {
	case <-c.heard:
	case <-time.After(hearWithin):
	}
}

// hearWithin is how long it may take to do what a child has said last: each message may wait for
// the other child for sendWithin, and that is killed then.
const hearWithin = 12 * sendWithin

// give makes a child the one of its role, and tells it all that is on the shelf. before has ended.
func (k *keeper) give(c, before *child) {
	var died int64
	if before != nil {
		died = before.Since.UnixNano()
	}
	k.mu.Lock()
	k.children[c.Role] = c
	k.mu.Unlock()
	k.tellProcesses() // before a reader reads: where this keeper ends, the recorder waits for the end of that
	k.mu.Lock()
	var err error
	if c.conn != nil { // else it has ended already
		err = k.tell(c, nil, message{Op: opReady, Died: died})
	}
	k.mu.Unlock()
	k.broken(c, err)
	k.tellProcesses() // the child itself
}

// tell sends a child the entries of those names, nil: all, and a word behind them. mu is held.
func (k *keeper) tell(c *child, names []string, last message) error {
	for _, e := range k.shelf {
		if names != nil && !slices.Contains(names, e.name) {
			continue
		}
		if err := sendTo(c, message{Op: opPut, Name: e.name, Data: e.data}, e.fds); err != nil {
			return err
		}
	}
	return sendTo(c, last, nil)
}

// broken kills a child that does not take what it is sent. One that has closed its link is at its
// end, of which follow is told.
func (k *keeper) broken(c *child, err error) {
	if err != nil && !isEnd(err) {
		k.Log.Error("a process of the recorder does not listen, and is killed", "role", c.Role, "error", err)
		_ = c.process.Kill()
	}
}

// listen takes what a child says, until it has ended.
func (k *keeper) listen(c *child, conn *ipc.Conn) {
	for {
		m, fds, err := receive(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			close(c.paused)
			return
		}
		isBare := errors.Is(err, ipc.ErrFiles)
		if err != nil && !isBare {
			k.deaf(c, err)
			close(c.heard)
			return
		}
		if isBare && !k.doesWithout(c, m) {
			close(c.heard)
			return
		}
		k.mu.Lock()
		other, err := k.hear(c, m, fds, isBare)
		k.mu.Unlock()
		if other != nil {
			k.broken(other, err)
		}
	}
}

// deaf ends a child that cannot be heard any more, unless it has ended: it would be a process of
// which nothing is kept.
func (k *keeper) deaf(c *child, err error) {
	if isEnd(err) || errors.Is(err, net.ErrClosed) {
		return
	}
	k.Log.Error("a process of the recorder cannot be heard, and is killed", "role", c.Role, "error", err)
	_ = c.process.Kill()
}

// doesWithout says whether the keeper goes on without the descriptors of a message, for it could
// open no more for takesWithin. It does not: what the child says behind that may rely on it, and
// what it had put before is where it was. So the child is killed, and the next one goes on from the
// shelf. But a recorder that stops is to come to its end, and says what of that nobody can read.
func (k *keeper) doesWithout(c *child, m message) bool {
	stops := k.stops()
	what := "and that process is killed"
	if stops {
		what = "and does not have it, for the recorder stops"
	}
	k.Log.Error("the keeper may open no more descriptors, and could not take what a process has put: raise the limit (ulimit -n, LimitNOFILE=)",
		"role", c.Role, "entry", m.Name, "so", what)
	if !stops {
		_ = c.process.Kill()
	}
	return stops
}

// hear does what a child says. What is for the other child was sent to it, or that failed. mu is
// held.
func (k *keeper) hear(c *child, m message, fds []int, isBare bool) (other *child, err error) {
	switch m.Op {
	case opPut, opDrop:
		if isBare {
			if fds = k.amend(m); fds == nil {
				return c, send(c.conn, message{Op: opUntaken, Name: m.Name}, nil)
			}
		} else {
			k.place(m, fds)
		}
		if m.Name == DoorEntry {
			k.openDoor(m.Data)
		}
		for role, o := range k.children {
			if role != c.Role && o.conn != nil {
				other = o
			}
		}
		if other != nil {
			err = sendTo(other, m, fds)
		}
	case opAccept:
		if c.conn == nil {
			return nil, nil // it has ended
		}
		answer, conn := k.accept(m.Name, m.As)
		return c, sendTo(c, answer, conn)
	case opWaits:
		if c.conn == nil {
			return nil, nil // it has ended
		}
		n, err := json.Marshal(k.waits(m.Name))
		if err == nil {
			err = send(c.conn, message{Op: opWaits, Name: m.Name, Data: n}, nil)
		}
		return c, err
	case opEcho:
		if c.conn == nil {
			return nil, nil // it has ended
		}
		return c, send(c.conn, message{Op: opEcho, Name: m.Name}, nil)
	case opPrepared:
		c.prepared, c.form, c.store = true, m.Form, m.Store
		k.wake()
	case opRefuse:
		c.refused = m.Name
	case opRenew:
		if r, err := renewalOf(m.Data); err == nil {
			k.wish(r, nil)
		}
	case opReady:
		c.ready = true
		k.wake()
		if c.Role == Recorder {
			k.begun = true
			k.Notify("READY=1")
			if k.stopping {
				k.owed = syscall.SIGTERM // also of one that was killed since
			}
			k.payOwed(c)
		} else if k.leaves {
			k.leaveOff()
		}
	}
	return other, err
}

// payOwed sends a recorder the signal that it is to get. mu is held.
func (k *keeper) payOwed(c *child) {
	if k.leaves {
		k.leaveOff()
	} else if k.owed != 0 {
		_ = c.process.Signal(k.owed)
	}
	k.owed = 0
}
