package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// Renewal is a change of processes while they record: others take the places of the recorder and,
// if that is asked for, of the reader, one after the other.
type Renewal struct {
	Upgrade bool   `json:"upgrade,omitempty"` // both, of the program that lies at Keeping.Next now
	Reader  bool   `json:"reader,omitempty"`
	Why     string `json:"why"`
}

func renewalOf(b json.RawMessage) (r Renewal, err error) { return r, json.Unmarshal(b, &r) }

// Bounds of a swap.
const (
	preparesIn = 10 * time.Second // how long a new process may take to prepare itself
	yieldsIn   = 10 * time.Second // … the old one, to bring away what it has in its hands, and to end
	recordsIn  = 2 * time.Second  // … and the new one from then on, to do its work: spools hold 4 s
)

// swap is a renewal that is under way. One process is replaced at a time:
//
//	prepares  the new one reads the configuration, and whatever else may be wrong. Until it says
//	          that it could begin, the old one goes on, and if it does not, that is all.
//	yields    the old one is told to end, as soon as it has nothing in its hands.
//	begins    its end was seen, and the new one has the shelf. If that does not do its work soon,
//	          it is killed, and the old program is started again, as behind any crash.
//
// At each moment one process at most is told what is on the shelf, and the one before it has ended:
// whoever is killed here, loses what is lost by a kill at any other time.
type swap struct {
	Renewal
	roles   []Role   // that are to be replaced: the first one is under way
	program *os.File // that they are to run; nil: each its own
	next    *child   // the new one; nil: it has ended too early
	step    step
	late    *time.Timer
	limit   patience
	asked   []*ipc.Conn // who waits for the outcome
}

// waits begins a step that may take so long, and waits for a process.
func (s *swap) waits(d time.Duration, pid int) {
	s.limit = patience{pid: pid, waited: sys.CPUWait(pid), spare: starvesIn}
	s.late.Reset(d)
}

type step int

const (
	prepares step = iota
	yields
	begins
)

var errStops = errors.New("the recorder stops")

// want notes that somebody asks for a renewal, and wakes the main loop.
func (k *keeper) want(r Renewal, from *ipc.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wish(r, from)
}

// wish is want with mu held. What several have asked for is done at once.
func (k *keeper) wish(r Renewal, from *ipc.Conn) {
	if w := k.wanted; w != nil {
		r.Upgrade, r.Reader = r.Upgrade || w.Upgrade, r.Reader || w.Reader
		if r.Why != w.Why {
			r.Why = w.Why + ", " + r.Why
		}
	}
	k.wanted = &r
	if from != nil {
		k.asking = append(k.asking, from)
	}
	k.wake()
}

// late is when the step that is under way has taken too long; nil: none is.
func (k *keeper) late() <-chan time.Time {
	if k.swap == nil {
		return nil
	}
	return k.swap.late.C
}

// replaces reports whether the process of a role is about to be replaced.
func (k *keeper) replaces(role Role) bool { return k.swap != nil && k.swap.roles[0] == role }

// look goes on with the swap as far as children allow, or begins one that is wanted.
func (k *keeper) look() {
	s := k.swap
	if s == nil {
		k.beginSwap()
		return
	}
	k.mu.Lock()
	prepared, ready := s.next != nil && s.next.prepared, s.next != nil && s.next.ready
	k.mu.Unlock()
	switch {
	case s.step == prepares && prepared:
		s.step = yields
		old := k.child(s.roles[0])
		s.waits(yieldsIn, k.pid(old))
		k.mu.Lock()
		err := error(syscall.ESRCH)
		if old.conn != nil {
			err = send(old.conn, message{Op: opYield}, nil)
		}
		k.mu.Unlock()
		k.broken(old, err) // one that has ended already is on its way to swapEnded
	case s.step == begins && ready:
		k.took(s)
	}
}

// beginSwap begins what is wanted.
func (k *keeper) beginSwap() {
	k.mu.Lock()
	if k.wanted == nil {
		k.mu.Unlock()
		return
	}
	s := &swap{Renewal: *k.wanted, asked: k.asking, roles: []Role{Recorder}, late: stoppedTimer()}
	k.wanted, k.asking = nil, nil
	k.mu.Unlock()
	if s.Reader || s.Upgrade {
		s.roles = append(s.roles, Reader)
	}
	k.swap = s
	if k.stops() {
		k.endSwap(errStops)
		return
	}
	if s.Upgrade {
		var err error // a pipe in its place must not keep the keeper waiting
		if s.program, err = sys.OpenOrdinary(k.Next, os.O_RDONLY, 0); err != nil {
			k.endSwap(err)
			return
		}
	}
	k.replace()
}

// replace starts the new process of the role that is next.
func (k *keeper) replace() {
	s := k.swap
	role := s.roles[0]
	old := k.child(role)
	if !k.isReady(old) || k.pid(old) == 0 {
		k.endSwap(fmt.Errorf("the %s does not do its work now: ask again once it does", role))
		return
	}
	program := s.program
	if program == nil {
		program = k.programs[role]
	}
	next, err := k.spawn(role, program, old, Beginning{Waits: true, Upgrade: s.Upgrade})
	if err != nil {
		k.endSwap(fmt.Errorf("the new %s cannot be started: %w; the old one goes on", role, err))
		return
	}
	s.next, s.step = next, prepares
	s.waits(preparesIn, k.pid(next))
}

func (k *keeper) pid(c *child) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.PID
}

// took is the end of a role's part: the new process does its work.
func (k *keeper) took(s *swap) {
	role := s.roles[0]
	k.Log.Info("a process of the recorder was replaced", "role", role, "why", s.Why, "pid", k.pid(s.next))
	if s.program != nil {
		before := k.programs[role]
		k.programs[role] = s.program
		k.release(before)
	}
	if s.next, s.roles = nil, s.roles[1:]; len(s.roles) > 0 {
		k.replace()
		return
	}
	var err error
	if s.Upgrade {
		err = k.handOver(s)
	}
	k.endSwap(err)
}

// release closes a program that no role runs any more.
func (k *keeper) release(program *os.File) {
	if program != nil && program != k.programs[Reader] && program != k.programs[Recorder] {
		_ = program.Close()
	}
}

// swapEnded takes a child's end that belongs to the swap.
func (k *keeper) swapEnded(c *child) (taken bool) {
	s := k.swap
	switch {
	case s == nil:
		return false
	// it has done its work, and what was its end is another matter
	case c == s.next && s.step == begins && k.isReady(c):
		k.took(s)
		return false
	case c == s.next:
		s.next = nil
		why := fmt.Errorf("the new %s has ended: %s", c.Role, c.why())
		switch s.step {
		case prepares:
			k.endSwap(fmt.Errorf("%w; the old one goes on", why))
		case yields: // the old one cannot be told to go on: it is started again once it has ended
			k.Log.Error("a new process has ended before the old one had", "role", c.Role, "state", c.why())
		case begins:
			k.goBack(c, why)
		}
		return true
	case c == k.child(s.roles[0]) && s.step == prepares:
		k.endSwap(fmt.Errorf("the old %s has ended meanwhile: %s", c.Role, c.why()))
		return false
	case c == k.child(s.roles[0]):
		if c.Role == Recorder && k.has(EndEntry) { // it was told to stop before
			return false
		}
		if _, crashed, what := c.outcome(); crashed {
			k.Log.Warn("a process that was to be replaced did not end in order: it goes on as behind any crash", "role",
				c.Role, "state", what)
		}
		if s.next == nil {
			k.goBack(c, fmt.Errorf("the new %s has ended", c.Role))
			return true
		}
		s.step = begins
		s.waits(recordsIn, k.pid(s.next))
		k.give(s.next, c)
		return true
	}
	return false
}

// why is how a child has ended, by its own words where it has said some.
func (c *child) why() string {
	_, _, what := c.outcome()
	if c.refused != "" {
		what = c.refused
	}
	return what
}

// tooLate ends a step that takes too long. Who is killed is on its way to swapEnded.
func (k *keeper) tooLate() {
	s := k.swap
	role := s.roles[0]
	if more := s.limit.more(sys.CPUWait(s.limit.pid)); more > 0 {
		k.Log.Warn("a process waits for a CPU, and has more time", "role", role, "pid", s.limit.pid, "more", more)
		s.late.Reset(more)
		return
	}
	switch s.step {
	case prepares:
		k.endSwap(fmt.Errorf("the new %s is not ready within %v; the old one goes on", role, preparesIn))
	case yields:
		k.Log.Warn("a process does not end to be replaced, and is killed", "role", role)
		_ = k.child(role).process.Kill()
	case begins:
		k.mu.Lock()
		s.next.refused = fmt.Sprintf("it does not do its work within %v", recordsIn)
		k.mu.Unlock()
		_ = s.next.process.Kill()
	}
}

// goBack starts the old program again, where a new process of it did not do its work. c has ended.
func (k *keeper) goBack(c *child, why error) {
	role := c.Role
	k.endSwap(fmt.Errorf("%w; the old program is started again", why))
	k.start(role, c, true)
}

// endSwap ends the swap, and tells whoever has asked for it. A new process that was not told to
// begin is killed.
func (k *keeper) endSwap(err error) {
	s := k.swap
	k.swap = nil
	s.late.Stop()
	if s.next != nil { // with what it has started, as a script does that stands for the program
		_ = s.next.process.Kill()
		_ = sys.KillGroup(k.pid(s.next))
	}
	k.release(s.program)
	result := ""
	if err != nil {
		result = strings.TrimSpace(err.Error())
		k.Log.Error("the processes of the recorder were not replaced", "why", s.Why, "error", result)
	}
	for _, c := range s.asked {
		answer(c, result)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.children[Recorder]; c != nil && c.ready && c.PID != 0 {
		k.payOwed(c)
	}
	if k.wanted != nil {
		k.wake()
	}
}

// giveUpSwap ends a swap because the recorder stops, as long as the old process can do that.
func (k *keeper) giveUpSwap() {
	if k.swap != nil && k.swap.step == prepares {
		k.endSwap(errStops)
	}
}
