package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// At the end of an upgrade the keeper itself becomes the new program, by executing it: the process
// keeps its number, its children, and the descriptors that it marks for it; what it knows goes over
// in a file of memory. The children notice nothing but that their links are silent for some
// milliseconds, and what they say then waits in the socket. There is no way back from an execution:
// so both children are of that program before, and have told in which form it takes things over.

// handover is what a keeper leaves to the program that it executes. Descriptors keep their numbers.
type handover struct {
	Form     int            `json:"form"`
	Shelf    []handedEntry  `json:"shelf"`
	Children []handedChild  `json:"children"`
	Begun    bool           `json:"begun"`
	Owed     syscall.Signal `json:"owed"`
	Program  int            `json:"program"` // that is executed
	Why      string         `json:"why"`
	Asked    []int          `json:"asked"`  // who waits to hear that it went
	Wanted   *Renewal       `json:"wanted"` // the next renewal; nil: none
	Asking   []int          `json:"asking"` // … who waits for that
	Store    *handedStore   `json:"store,omitempty"`
}

type handedEntry struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
	FDs  []int           `json:"fds"`
}

type handedChild struct {
	Process
	Link int `json:"link"`
	Form int `json:"form"`
}

const (
	handoverForm     = 1                     // of handover: another one needs a stop and a start
	handoverVariable = "TALLYWHEEL_HANDOVER" // the descriptor of one, for this process alone
	maxHandover      = 256 << 20             // a bound of what is read; the shelf has some 1 KB a source
)

// heard are the signals of a keeper.
var heard = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2}

// handOver executes the program of an upgrade whose other parts are over. It returns only if that
// is not possible: the keeper stays what it is, and all goes on.
func (k *keeper) handOver(s *swap) error {
	if err := k.execute(s); err != nil {
		return fmt.Errorf("recorder and reader were replaced, the keeper stays what it is: %w", err)
	}
	return nil
}

func (k *keeper) execute(s *swap) error {
	k.mu.Lock()
	for _, role := range []Role{Reader, Recorder} {
		c, err := k.children[role], error(nil)
		switch {
		case c.PID == 0 || !c.ready:
			err = fmt.Errorf("the %s does not do its work now: ask again once it does", role)
		case k.stopping:
			err = errStops
		case c.form != handoverForm:
			err = fmt.Errorf("the new program takes over in form %d, this one hands over in form %d: stop and start when it suits", c.form, handoverForm)
		}
		if err != nil {
			k.mu.Unlock()
			return err
		}
	}
	if c := k.children[Recorder]; c.store != storeForm {
		k.giveUpStore(fmt.Errorf("the new program has it in form %d, this one in form %d", c.store, storeForm))
	}
	k.mu.Unlock()
	resume := k.pause()
	defer resume()
	k.mu.Lock() // until the end: nothing changes between what is written and what happens
	defer k.mu.Unlock()
	h, links, err := k.leave(s)
	defer Entry{FDs: links}.CloseFDs()
	if err != nil {
		return err
	}
	return h.execute(s.program, k.signals)
}

// pause has nobody listen to the children: what they say from now on waits in the sockets. resume
// ends that.
func (k *keeper) pause() (resume func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var silent []*child
	for _, c := range k.children {
		if c.conn != nil {
			c.paused = make(chan struct{})
			_ = c.conn.SetReadDeadline(time.Unix(1, 0))
			silent = append(silent, c)
		}
	}
	k.mu.Unlock() // who has heard something places it now
	for _, c := range silent {
		select {
		case <-c.paused:
		case <-c.heard:
		}
	}
	k.mu.Lock()
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, c := range silent {
			select {
			case <-c.heard:
			default:
				conn := c.conn
				if conn == nil { // its end was taken without waiting for more
					continue
				}
				_ = conn.SetReadDeadline(time.Time{})
				go k.listen(c, conn)
			}
		}
	}
}

// leave makes the handover. links are open until it is executed. mu is held.
func (k *keeper) leave(s *swap) (h *handover, links []int, err error) {
	h = &handover{
		Form: handoverForm, Begun: k.begun, Owed: k.owed, Program: int(s.program.Fd()), Why: s.Why,
		Wanted: k.wanted,
	}
	link := func(c *ipc.Conn) int {
		if c == nil {
			return -1
		}
		fd, dupErr := c.Dup()
		if err = errors.Join(err, dupErr); dupErr != nil {
			return -1
		}
		links = append(links, fd)
		return fd
	}
	for _, e := range k.shelf {
		h.Shelf = append(h.Shelf, handedEntry{e.name, e.data, e.fds})
	}
	if k.store != nil {
		fd, dupErr := sys.Dup(int(k.store.state.Fd()))
		if dupErr != nil {
			return h, links, dupErr
		}
		links = append(links, fd)
		h.Store = k.store.hand(fd)
	}
	for _, role := range []Role{Reader, Recorder} {
		c := k.children[role]
		h.Children = append(h.Children, handedChild{c.Process, link(c.conn), c.form})
	}
	for _, c := range s.asked {
		h.Asked = append(h.Asked, link(c))
	}
	for _, c := range k.asking {
		h.Asking = append(h.Asking, link(c))
	}
	return h, links, err
}

// fds are those that the program needs.
func (h *handover) fds() (all []int) {
	for _, e := range h.Shelf {
		all = append(all, e.FDs...)
	}
	for _, c := range h.Children {
		all = append(all, c.Link)
	}
	all = append(append(append(all, h.Program), h.Asked...), h.Asking...)
	if h.Store != nil {
		all = append(all, h.Store.State)
	}
	kept := all[:0]
	for _, fd := range all {
		if fd >= 0 {
			kept = append(kept, fd)
		}
	}
	return kept
}

// execute has this process run a program that takes the handover. Signals that were heard before go
// first.
//
// From then on until the new program hears signals, which takes milliseconds, SIGTERM and SIGINT
// end the process: at once, or as soon as Go begins, which unblocks what ends a program. Its
// children find that the keeper has gone, and stop, as was asked. A SIGHUP would do the same, and
// is ignored: see Run. SIGUSR2 waits, or is lost: an upgrade is under way.
func (h *handover) execute(program *os.File, signals chan os.Signal) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	fd, err := sys.SealedMemory("handover", int64(len(text)))
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	release, err := sys.HoldSignals(heard...)
	if err != nil {
		return err
	}
	defer release()
	signal.Ignore(syscall.SIGHUP)
	signal.Stop(signals) // all that was caught is in the channel then
	defer func() {
		for _, s := range heard {
			signal.Notify(signals, s)
		}
	}()
	if len(signals) > 0 {
		return errors.New("a signal has come, and is done first: ask again")
	}
	fds := append(h.fds(), fd)
	err = sys.KeepOnExec(fds, true)
	if err == nil {
		env := append(os.Environ(), handoverVariable+"="+strconv.Itoa(fd))
		err = os.NewSyscallError("execve", sys.Exec(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), os.Args, env))
	}
	return errors.Join(err, sys.KeepOnExec(fds, false))
}

// inherit is what this process is to take over; nil: nothing, it begins.
func inherit() (*handover, error) {
	text, ok := os.LookupEnv(handoverVariable)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(handoverVariable)
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= linkFD {
		return nil, fmt.Errorf("%s=%s: set by a keeper only; unset it", handoverVariable, text)
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxHandover))
	if err != nil {
		return nil, err
	}
	var h handover
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, err
	}
	if h.Form != handoverForm {
		return nil, fmt.Errorf("it is of form %d, and this program takes form %d", h.Form, handoverForm)
	}
	return &h, sys.KeepOnExec(h.fds(), false)
}

// takeOver goes on where the keeper before has left off.
func (k *keeper) takeOver(h *handover) {
	nameProcess()
	_ = sys.CloseFD(h.Program) // it is the one that this process runs
	k.begun, k.owed, k.wanted = h.Begun, h.Owed, h.Wanted
	var door json.RawMessage
	for _, e := range h.Shelf {
		k.shelf = append(k.shelf, shelved{e.Name, e.Data, e.FDs})
		if e.Name == DoorEntry {
			door = e.Data
		}
	}
	for _, one := range h.Children {
		k.adopt(one)
	}
	k.mu.Lock()
	k.takeHandedStore(h.Store)
	if door != nil {
		k.openDoor(door)
	}
	if k.wanted != nil {
		k.wake()
	}
	k.mu.Unlock()
	for _, fd := range h.Asking {
		if c, err := linkOf(fd); err == nil {
			k.asking = append(k.asking, c)
		}
	}
	k.Log.Info("the keeper runs the new program", "why", h.Why, "pid", os.Getpid())
	for _, fd := range h.Asked {
		if c, err := linkOf(fd); err == nil {
			answer(c, "")
		}
	}
	k.tellProcesses()
}

// adopt follows a child that the keeper before has started. One whose link is lost is killed: its
// end is that of any other.
func (k *keeper) adopt(one handedChild) {
	c := &child{
		Process: one.Process, prepared: true, ready: true, form: one.Form, store: storeForm,
		heard: make(chan struct{}),
	}
	c.process, _ = os.FindProcess(c.PID) // never nil: one that has ended says so when it is waited for
	k.children[c.Role] = c
	conn, err := linkOf(one.Link)
	if err != nil {
		k.Log.Error("a link was lost, and its process is killed", "role", c.Role, "error", err)
		_ = c.process.Kill()
	}
	c.conn = conn
	k.follow(c)
}

func linkOf(fd int) (*ipc.Conn, error) {
	if fd < 0 {
		return nil, os.ErrClosed
	}
	f := os.NewFile(uintptr(fd), "link")
	c, err := ipc.Inherit(f, linkConfig)
	if err != nil {
		_ = f.Close()
	}
	return c, err
}

// nameProcess gives this process the name of the program: executed by its descriptor, it has that
// one's number.
func nameProcess() { _ = os.WriteFile("/proc/self/comm", []byte("tallywheel"), 0o600) }
