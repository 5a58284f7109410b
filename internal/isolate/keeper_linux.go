package isolate

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// Keeping is what a keeper does.
type Keeping struct {
	Program string   // that reader and recorder run
	Next    string   // where the program lies that they run from an upgrade on
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
	tellEach   = time.Minute      // how often the journal is told of ends, at most
)

// keeper is the process. Its main loop owns the children's lives, and the swap that is under way;
// what lies on the shelf, what is sent, and what others have asked for is under mu.
type keeper struct {
	Keeping
	signals chan os.Signal
	ended   chan *child
	news    chan struct{} // has a signal when a child has said something, or somebody asks for a renewal

	programs map[Role]*os.File // that the processes run since an upgrade; none: Program
	swap     *swap             // nil: none is under way
	ends     map[Role]*ends
	changed  chan struct{} // has a signal when the store may be full

	// held while messages are sent: for sendWithin each at most, as a child receives whatever it
	// does itself (see inbox), and for starvesIn more where it waits for a CPU
	mu       sync.Mutex
	shelf    []shelved
	children map[Role]*child
	begun    bool // a recorder was ready
	stopping bool
	owed     syscall.Signal // the recorder is to be told once it is ready; 0: nothing
	wanted   *Renewal       // nil: nobody has asked for one
	asking   []*ipc.Conn    // … who waits to hear what becomes of it
	door     *ipc.Listener  // by which one asks; nil: there is none
	doorAt   string         // a path at which that is tried again; "": nowhere
	store    *store         // has what is on the shelf, too; nil: nothing has
	leaves   bool           // it stops so that another process goes on with the store, if one comes
	leaving  time.Time      // since when the reader was told to; zero: it was not
}

// shelved is an entry on the shelf. Its descriptors are bare: see receive.
type shelved struct {
	name string
	data json.RawMessage
	fds  []int
}

func newKeeper(cfg Keeping) *keeper {
	return &keeper{
		Keeping: cfg, ended: make(chan *child), news: make(chan struct{}, 1), programs: map[Role]*os.File{},
		children: map[Role]*child{},
		ends:     map[Role]*ends{Reader: {}, Recorder: {}}, changed: make(chan struct{}, 1),
	}
}

// Run keeps a recorder and a reader until the recorder has ended in order, or could not begin, and
// returns its exit code. Signals are the process's: SIGTERM and SIGINT stop the recorder, SIGHUP is
// passed on to it, SIGUSR2 asks for an upgrade. They come by [signal.Notify].
func (cfg Keeping) Run(signals chan os.Signal) (code int) {
	k := newKeeper(cfg)
	k.signals = signals
	h, err := inherit()
	switch {
	case err != nil:
		k.Log.Error("what the keeper before has handed over cannot be taken: the recorder ends", "error", err)
		return 1
	case h != nil:
		k.takeOver(h)
		k.signal(syscall.SIGHUP) // for one that came while this program began: see execute
	default:
		if !k.takeStore() {
			k.beginStore()
		}
		k.start(Reader, nil, false)
		k.start(Recorder, nil, false)
	}
	waits, tries := false, 0 // of the recorder: waits is that a timer starts it
	again := map[Role]*time.Timer{Reader: stoppedTimer(), Recorder: stoppedTimer()}
	pace := map[Role]*pace{Reader: {}, Recorder: {}}
	settled, more := time.NewTimer(calm), stoppedTimer()
	defer settled.Stop()
	defer more.Stop()
	for {
		select {
		case <-settled.C:
			sys.Shrink()
		case s := <-signals:
			if k.signal(s.(syscall.Signal)) && waits {
				again[Recorder].Reset(0) // it is told to stop once it is there
			}
		case <-more.C:
			k.tellMore(time.Now(), more)
		case <-k.news:
			k.look()
		case <-k.late():
			k.tooLate()
		case <-again[Reader].C:
			if !k.isLeaving() {
				k.start(Reader, k.child(Reader), false)
			}
		case <-again[Recorder].C:
			waits = false
			k.startAgain()
		case c := <-k.ended:
			settled.Reset(calm)
			if k.swapEnded(c) || c != k.child(c.Role) {
				continue
			}
			if c.Role == Reader && k.readerLeft(c) {
				continue
			}
			if c.Role == Recorder {
				waits = true
				if code, over := k.isOver(c, &tries); over {
					k.tellMore(time.Now().Add(tellEach), more)
					return k.finish(code)
				}
			}
			wait := pace[c.Role].next(time.Now(), k.isReady(c))
			k.tellEnd(c, wait, more)
			k.tellProcesses()
			again[c.Role].Reset(wait)
			settled.Reset(wait + calm)
		}
	}
}

// startAgain starts a recorder behind one that has ended. Where that could not begin, though one
// before it had, this one begins with the configuration of then.
func (k *keeper) startAgain() {
	before := k.child(Recorder)
	k.mu.Lock()
	asBefore := k.begun && !before.ready
	k.mu.Unlock()
	k.start(Recorder, before, asBefore)
}

// isOver says whether the end of a recorder is that of all, and with which code. It is where the
// recorder ended by itself with 0, or before one had begun, or as it was asked to, and where it had
// said that all is done. tries counts its crashes while it stops.
func (k *keeper) isOver(c *child, tries *int) (code int, over bool) {
	code, crashed, what := c.outcome()
	k.mu.Lock()
	begun := k.begun
	k.mu.Unlock()
	return k.isOverBy(code, crashed, what, begun, tries)
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

// ends is what the journal is told of the ends of a role's processes: one, and then how many there
// were since, each minute.
type ends struct {
	at   time.Time // of the one that was told
	more int       // since then
}

// isTold counts an end, and says whether the journal is to be told of it.
func (e *ends) isTold(now time.Time) bool {
	if !e.at.IsZero() && now.Sub(e.at) < tellEach {
		e.more++
		return false
	}
	e.at = now
	return true
}

// tellEnd tells the journal of an end, or has more tell of it.
func (k *keeper) tellEnd(c *child, wait time.Duration, more *time.Timer) {
	now := time.Now()
	if _, _, what := c.outcome(); k.ends[c.Role].isTold(now) {
		k.Log.Error("a process of the recorder has ended, and is started again", "role", c.Role, "state", what, "in",
			wait)
	}
	k.tellMore(now, more)
}

// tellMore tells of the ends that were counted, once a minute is over, and sets the timer for the
// next.
func (k *keeper) tellMore(now time.Time, next *time.Timer) {
	for role, e := range k.ends {
		if e.more > 0 && now.Sub(e.at) >= tellEach {
			k.Log.Error("a process of the recorder has ended again, and was started again", "role", role,
				"times", e.more, "since", e.at)
			*e = ends{at: now}
		}
	}
	for _, e := range k.ends {
		if e.more > 0 {
			next.Reset(e.at.Add(tellEach).Sub(now)) // of two roles, the other's line may come up to a minute later
		}
	}
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
// ready yet hears of it once it is: it might not hear signals yet. One that another is about to
// replace hears of no reload: the other may have read the file before.
func (k *keeper) signal(s syscall.Signal) (stops bool) {
	if s == syscall.SIGUSR2 {
		k.want(Renewal{Upgrade: true, Why: "upgrade"}, nil)
		return false
	}
	if s != syscall.SIGHUP {
		k.giveUpSwap()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s != syscall.SIGHUP {
		if k.stopping {
			return true
		}
		k.stopping, s = true, syscall.SIGTERM
		k.leaves = k.store != nil
		k.Notify("STOPPING=1")
	}
	if k.leaves {
		k.leaveOff()
	} else if c := k.children[Recorder]; c.PID != 0 && c.ready && (k.stopping || !k.replaces(Recorder)) {
		_ = c.process.Signal(s)
	} else {
		k.owed = s
	}
	return k.stopping
}

// place puts an entry on the shelf, or takes it off. mu is held.
func (k *keeper) place(m message, fds []int) {
	before := k.entry(m.Name).fds
	k.keepInStore(m, fds, before)
	Entry{FDs: before}.CloseFDs()
	k.shelf = placed(k.shelf, m, fds)
}

// amend takes in how a lane is to be read from now on, where its spool could not be taken again: it
// is the one that is on the shelf, for a lane has one spool. nil: there is none, or the entry is
// another. mu is held.
func (k *keeper) amend(m message) (fds []int) {
	i := slices.IndexFunc(k.shelf, func(e shelved) bool { return e.name == m.Name })
	if kind, _ := SourceOf(m.Name); kind != "lane" || i < 0 {
		return nil
	}
	k.shelf[i].data = m.Data
	return k.shelf[i].fds
}

// placed is the shelf behind a change.
func placed(shelf []shelved, m message, fds []int) []shelved {
	i := slices.IndexFunc(shelf, func(e shelved) bool { return e.name == m.Name })
	e := shelved{m.Name, m.Data, fds}
	switch {
	case m.Op == opDrop && i >= 0:
		shelf = slices.Delete(shelf, i, i+1)
	case m.Op == opDrop:
	case i >= 0:
		shelf[i] = e
	default:
		shelf = append(shelf, e)
	}
	return shelf
}

// accept takes a connection that waits at the listener of a source, and puts it on the shelf as an
// entry of that name, with the address that it comes from: so it is there before anybody may be
// killed who knows of it. mu is held.
func (k *keeper) accept(source, as string) (answer message, conn []int) {
	answer = message{Op: opAccept, Name: as}
	if e := k.entry(as); len(e.fds) > 0 { // it was taken for a process that has not heard of it
		answer.Data = e.data
		return answer, e.fds
	}
	err := error(syscall.EBADF)
	if e := k.entry(ListenerOf(source)); len(e.fds) > 0 {
		var fd int
		var peer netip.AddrPort
		if fd, peer, err = sys.Accept(e.fds[0]); err == nil {
			answer.Data, _ = json.Marshal(sys.PeerName(fd, peer))
			k.place(message{Op: opPut, Name: as, Data: answer.Data}, []int{fd})
			return answer, []int{fd}
		}
	}
	if !sys.PassingAccept(err) { // else there was one, which is gone
		answer.Data, _ = json.Marshal(err.Error())
	}
	return answer, nil
}

// waits is how many bytes the kernel holds of a source that nobody will read: of its device, of the
// connection that waits to become that, and of those that wait at its listener; or of the one that
// has that name, and that nobody reads yet. mu is held.
func (k *keeper) waits(source string) (n uint64) {
	var lane Lane
	_ = json.Unmarshal(k.entry(LaneOf(source)).data, &lane) // none: it has no device either
	for _, fd := range k.devices(source, k.entry("guest/"+source).fds...) {
		if lane.Kind == Datagrams {
			n += sockets.Discard(fd)
		} else {
			n += sockets.Waiting(fd)
		}
	}
	for _, fd := range k.entry(ListenerOf(source)).fds {
		for range sys.Backlog() + 1 {
			conn, _, err := sys.Accept(fd)
			if err != nil && !sys.PassingAccept(err) || sys.Pending(err) {
				break
			}
			if err == nil {
				n += sockets.Waiting(conn)
				_ = sys.CloseFD(conn)
			}
		}
	}
	return n
}

// devices are the descriptors of a source's device, of the connection that waits to become that,
// and some others, each file once. mu is held.
func (k *keeper) devices(source string, others ...int) []int {
	port := k.entry(PortOf(source)).fds
	// one that was taken, and is not yet off the shelf
	isPort := func(fd int) bool { return len(port) > 0 && sys.SameFile(port[0], fd) }
	return slices.Concat(port, slices.DeleteFunc(slices.Concat(k.entry(NextOf(source)).fds, others), isPort))
}

// entry is the one of that name; zero: there is none. mu is held.
func (k *keeper) entry(name string) shelved {
	if i := slices.IndexFunc(k.shelf, func(e shelved) bool { return e.name == name }); i >= 0 {
		return k.shelf[i]
	}
	return shelved{}
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

// wake has the main loop look what there is.
func (k *keeper) wake() {
	select {
	case k.news <- struct{}{}:
	default:
	}
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
	if k.swap != nil {
		k.endSwap(errStops)
	}
	k.mu.Lock()
	c := k.children[Reader]
	conn := c.conn
	if conn != nil {
		_ = conn.Close()
	}
	k.doorAt = ""
	if k.door != nil {
		_ = k.door.Close()
	}
	k.closeStore()
	k.mu.Unlock()
	if conn == nil {
		return code
	}
	late := time.NewTimer(readerEnds)
	defer late.Stop()
	for {
		select {
		case e := <-k.ended:
			if e == c {
				return code
			}
		case <-late.C:
			k.Log.Error("the reader does not end, and is killed", "pid", c.PID)
			_ = c.process.Kill()
			return code
		}
	}
}
