package prefork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// A master is replaced in place: its process executes the new program. The process keeps its
// number, its children and the descriptors that are not closed on the way; what it knew goes over
// as an estate, in a file of memory. There is no way back from an execution, so the new program
// rehearses before.

// estate is what a master leaves to the program that replaces it. Descriptors keep their numbers.
type estate struct {
	Version int      `json:"version"`
	Listen  []string `json:"listen"` // as in the Config of who leaves it, which must stay so
	Own     []string `json:"own"`
	Workers int      `json:"workers"`
	Shared  bool     `json:"shared"`

	Sockets [][]int `json:"sockets"` // of each slot
	OwnFDs  []int   `json:"own_fds"`
	Program string  `json:"program"` // that serves now
	Pin     int     `json:"pin"`     // its descriptor; -1: none
	Groups  string  `json:"groups"`  // of the quota
	Slots   []place `json:"slots"`
}

// place is a slot.
type place struct {
	Restarts int   `json:"restarts"`
	Past     Count `json:"past"`
	PID      int   `json:"pid"` // of the worker; 0: none
	Link     int   `json:"link"`
	Since    int64 `json:"since"` // s
	Takes    bool  `json:"takes"`
	Count    Count `json:"count"` // as it last told
}

const (
	estateVersion  = 1
	estateVariable = "TALLYWHEEL_PREFORK_ESTATE" // the descriptor of the estate
	rehearsal      = "rehearsal:"                // before it: the process is to say whether it could take over, and end
	maxEstate      = 1 << 20
)

// write puts the estate into a file of memory.
func (e *estate) write() (*os.File, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	fd, err := sys.SealedMemory("estate", int64(len(text)))
	if err != nil {
		return nil, fmt.Errorf("prefork: %w", err)
	}
	f := os.NewFile(uintptr(fd), "estate")
	if _, err := f.WriteAt(text, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// inheritedEstate is what this process is to take over; nil: nothing.
func inheritedEstate(cfg *Config) (e *estate, rehearses bool, err error) {
	text, ok := os.LookupEnv(estateVariable)
	if !ok {
		return nil, false, nil
	}
	_ = os.Unsetenv(estateVariable)
	text, rehearses = strings.CutPrefix(text, rehearsal)
	fd, err := strconv.Atoi(text)
	if err != nil || fd < firstFD {
		return nil, rehearses, fmt.Errorf("prefork: %s=%s: set by a master only; unset it", estateVariable, text)
	}
	f := os.NewFile(uintptr(fd), "estate")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxEstate))
	if err != nil {
		return nil, rehearses, err
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, rehearses, fmt.Errorf("prefork: what the master before leaves: %w", err)
	}
	return e, rehearses, e.fits(cfg)
}

// fits reports whether a master with a configuration can take the estate over.
func (e *estate) fits(cfg *Config) error {
	switch {
	case e.Version != estateVersion:
		return fmt.Errorf("prefork: the master before leaves its state in version %d, this program knows %d; restart it", e.Version, estateVersion)
	case !slices.Equal(e.Listen, cfg.Listen) || !slices.Equal(e.Own, cfg.MasterListen):
		return fmt.Errorf("prefork: an upgrade keeps the addresses: they are %v and %v, not %v and %v; restart it",
			e.Listen, e.Own, cfg.Listen, cfg.MasterListen)
	case e.Workers != cfg.Workers || e.Shared != cfg.Shared:
		return fmt.Errorf("prefork: an upgrade keeps the workers: %d (shared %t), not %d (shared %t); restart it",
			e.Workers, e.Shared, cfg.Workers, cfg.Shared)
	}
	return nil
}

// head is the part of the estate that does not change while the master runs.
func (m *Master) head() *estate {
	return &estate{
		Version: estateVersion, Listen: m.cfg.Listen, Own: m.cfg.MasterListen, Workers: m.cfg.Workers,
		Shared: m.cfg.Shared,
	}
}

// rehearse has a program say whether it could take over: it runs up to Run with the arguments of
// this one.
func (m *Master) rehearse(ctx context.Context, p *program) error {
	f, err := m.head().write()
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.StartFor, fmt.Errorf("it did not within %v", m.cfg.StartFor))
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path)
	cmd.Args, cmd.Stderr, cmd.ExtraFiles = os.Args, os.Stderr, []*os.File{f}
	cmd.Env = append(bare(os.Environ()), estateVariable+"="+rehearsal+strconv.Itoa(firstFD))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	if err = m.start(cmd, nil); err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("prefork: the new program rehearses to be the master: %w", m.cfg.named(err))
	}
	return nil
}

// named has an error name the path of the program, not the descriptor that it is pinned by.
func (c *Config) named(err error) error {
	if c.Dir != "" && (c.Attr == nil || c.Attr.Chroot == "") { // else it is in there
		if _, lacks := os.Stat(c.Dir); lacks != nil {
			return fmt.Errorf("the folder that Dir names: %w", lacks)
		}
	}
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		p.Path = c.Path
	}
	return err
}

// Renew has the master become the program that its workers run, after an Upgrade. The process goes
// on, with its number, its sockets and its workers; the program begins anew and comes to Run, which
// takes them over and calls Config.Started. Nobody is turned away meanwhile. So it returns only
// with an error, after which all goes on as it was.
//
// Whatever else the process has open is closed, and its goroutines are gone. A signal to end that
// comes before those milliseconds ends the master as ever; one that comes in them ends master and
// workers at once. So whoever else hears SIGTERM or SIGINT in this process hears them no more,
// also after an error.
func (m *Master) Renew(ctx context.Context) error {
	if err := m.change(ctx); err != nil {
		return err
	}
	defer func() { <-m.changing }()
	defer m.goQuiet()()
	defer m.unhear()()
	m.mu.Lock() // until the end: no worker's end is missed between what is written and what happens
	defer m.mu.Unlock()
	if m.life.Err() != nil { // the program that comes would not know of it
		return fmt.Errorf("prefork: %w", errEnds)
	}
	for c := range m.all {
		if m.slots[c.slot].serving != c {
			return fmt.Errorf("prefork: %v has not ended yet; then the master can be renewed", c)
		}
		if c.adopted { // the kernel would kill it: its parent is a thread that this ends
			return fmt.Errorf("prefork: %v is older than the master; restart or upgrade the workers before it is renewed", c)
		}
	}
	e, fds, err := m.leave()
	if err != nil {
		return err
	}
	f, err := e.write()
	if err != nil {
		return err
	}
	defer f.Close()
	fds = append(fds, int(f.Fd()))
	env := append(bare(os.Environ()), estateVariable+"="+strconv.Itoa(int(f.Fd())))
	// on the thread whose children the workers are: it goes on, all others end
	err = m.starter.Do(func() error {
		syscall.ForkLock.RLock() // no other process gets what now stays open
		defer syscall.ForkLock.RUnlock()
		err := sys.KeepOnExec(fds, true)
		if err == nil {
			err = os.NewSyscallError("execve", sys.Exec(m.prog.path, os.Args, env))
		}
		return errors.Join(err, sys.KeepOnExec(fds, false))
	})
	return fmt.Errorf("prefork: the master goes on as it was: %w", err)
}

// goQuiet turns away who wants to change anything, and has the program answer who has asked the
// master. It returns what undoes that. The caller holds changing.
func (m *Master) goQuiet() (goOn func()) {
	m.mu.Lock()
	close(m.renew)
	m.mu.Unlock()
	var goesOn func()
	if m.cfg.Renewing != nil {
		goesOn = m.cfg.Renewing()
	}
	return func() {
		m.mu.Lock()
		m.renew = make(chan struct{})
		m.mu.Unlock()
		if goesOn != nil {
			goesOn()
		}
	}
}

// unhear has signals do what they do to any program, but for those that do not ask for an end,
// which are ignored until the new program hears them. It returns when those that came before are
// obeyed. hearAgain undoes that. The caller holds changing, so hear goes on meanwhile.
func (m *Master) unhear() (hearAgain func()) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2)
	signal.Stop(m.signals) // all that was caught is in there then
	signal.Reset(syscall.SIGTERM, syscall.SIGINT)
	obeyed := make(mark)
	m.signals <- obeyed
	<-obeyed
	return func() { signal.Notify(m.signals, heard...) }
}

// mark stands among signals. Master.hear closes it behind those before it.
type mark chan struct{}

// Signal implements os.Signal.
func (mark) Signal() {}

// String implements os.Signal.
func (mark) String() string { return "mark" }

// leave writes down what there is, and the descriptors that stay. The caller holds mu.
func (m *Master) leave() (e *estate, fds []int, err error) {
	e = m.head()
	keep := func(fd int) int {
		fds = append(fds, fd)
		return fd
	}
	for slot := range m.sockets.slots {
		e.Sockets = append(e.Sockets, m.sockets.fds(slot))
		fds = append(fds, e.Sockets[slot]...)
	}
	for _, f := range m.sockets.own {
		e.OwnFDs = append(e.OwnFDs, keep(int(f.Fd())))
	}
	e.Program, e.Pin, e.Groups = m.prog.path, -1, m.quota.groups
	if m.prog.pin != nil {
		e.Pin = keep(int(m.prog.pin.Fd()))
	}
	for _, s := range m.slots {
		p := place{Restarts: s.restarts, Past: s.past}
		if c := s.serving; c != nil {
			p.PID, p.Since, p.Takes, p.Count = c.pid, c.since.Unix(), c.takes, *c.count.Load()
			raw, rawErr := c.link.conn.SyscallConn()
			if rawErr == nil {
				rawErr = raw.Control(func(fd uintptr) { p.Link = keep(int(fd)) })
			}
			err = errors.Join(err, rawErr)
		}
		e.Slots = append(e.Slots, p)
	}
	slices.Sort(fds)
	return e, slices.Compact(fds), err // shared sockets are those of every slot
}

// take has this process be what the one before it was.
func (m *Master) take(e *estate) error {
	_ = os.WriteFile("/proc/self/comm", []byte(commOf(os.Args[0])), 0) // it is named for a descriptor
	m.sockets = e.takeSockets()
	m.prog = &program{path: e.Program}
	if e.Pin >= 0 {
		syscall.CloseOnExec(e.Pin)
		m.prog.pin = os.NewFile(uintptr(e.Pin), m.cfg.Path)
	}
	var err error
	m.quota, err = newQuota("/", &m.cfg, e.Groups)
	return err
}

func (e *estate) takeSockets() *sockets {
	s := &sockets{shared: e.Shared || len(e.Listen) == 0}
	files := map[int]*os.File{}
	file := func(fd int) *os.File {
		if files[fd] == nil {
			syscall.CloseOnExec(fd)
			files[fd] = os.NewFile(uintptr(fd), "socket "+strconv.Itoa(fd))
		}
		return files[fd]
	}
	for _, fds := range e.Sockets {
		var slot []*os.File
		for _, fd := range fds {
			slot = append(slot, file(fd))
		}
		s.slots = append(s.slots, slot)
	}
	for _, fd := range e.OwnFDs {
		s.own = append(s.own, file(fd))
	}
	return s
}

// adopt takes the workers over, and starts one where there is none. The caller holds changing.
func (m *Master) adopt(e *estate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range e.Slots {
		s := m.slots[i]
		s.restarts, s.past = p.Restarts, p.Past
		if p.PID == 0 {
			m.orphan(s, errors.New("the slot had no worker when the master was renewed"))
			continue
		}
		syscall.CloseOnExec(p.Link)
		link, err := newWire(os.NewFile(uintptr(p.Link), "wire"))
		if err != nil {
			return err
		}
		proc, err := os.FindProcess(p.PID)
		if err != nil {
			return fmt.Errorf("prefork: worker %d: %w", i, err)
		}
		kills, _ := m.quota.kills(i)
		c := m.watch(&child{
			survived: kills, slot: i, pid: p.PID, since: time.Unix(p.Since, 0), proc: proc, link: link, takes: p.Takes,
			adopted: true,
		}, p.Count)
		close(c.ready)
		s.serving = c
		_ = link.send(packet{Tell: true}) // an error: it has ended
	}
	return nil
}
