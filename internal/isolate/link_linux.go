package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// linkFD is the descriptor of the link in a process that a keeper has started.
const linkFD = 3

// What a message is about.
const (
	opPut       = "put"       // an entry: its name, data and descriptors
	opDrop      = "drop"      // … is gone
	opReady     = "ready"     // keeper: all that is on the shelf was told. child: it does its work
	opProcesses = "processes" // keeper: the three, as they are now
	opPrepare   = "prepare"   // keeper: what a child needs to prepare itself was told: a Beginning
	opPrepared  = "prepared"  // child: it could begin
	opRefuse    = "refuse"    // child: it cannot begin, and why, in place of a name
	opYield     = "yield"     // keeper: another goes on, once the child has ended
	opRenew     = "renew"     // recorder: a Renewal
	// keeper, to the reader: read what you lag behind, and end. To the recorder: nothing more
	// comes; record all, for a process that goes on, or nobody
	opLeave = "leave"
	// recorder: what of a source waits that the reader has not read. keeper: so many bytes
	opWaits   = "waits"
	opEcho    = "echo"    // child: say this once all is done that was said before. keeper: it is
	opUntaken = "untaken" // keeper: an entry that was put is not on the shelf, for want of descriptors
	opAccept  = "accept"  // child: take a connection for that source. keeper: that one, or why there is none
)

// Beginning is how a child is to begin.
type Beginning struct {
	// another does its work: it prepares itself, and waits until that has ended
	Waits   bool `json:"waits,omitempty"`
	Upgrade bool `json:"upgrade,omitempty"` // … which may be of another program
	// with the configuration on the shelf: with the one in the file it did not go
	AsBefore bool `json:"as_before,omitempty"`
	// the recorder is to stop as soon as it is ready: with the configuration on the shelf, too
	Stops bool `json:"stops,omitempty"`
	Quiet bool `json:"quiet,omitempty"` // the journal was told of another beginning a moment ago
}

func (b Beginning) encode() json.RawMessage {
	out, err := json.Marshal(b)
	if err != nil {
		panic(err) // it has nothing that JSON lacks
	}
	return out
}

// message is what goes over a link, beside descriptors.
type message struct {
	Op   string          `json:"op"`
	Name string          `json:"name,omitempty"`
	As   string          `json:"as,omitempty"` // of accept: the entry that the connection becomes
	Data json.RawMessage `json:"data,omitempty"`
	// Died is when the one before was seen dead, of ready from the keeper; ns since 1970, 0: there
	// was none.
	Died  int64 `json:"died,omitempty"`
	Form  int   `json:"form,omitempty"`  // of prepared: of what a keeper of the child's program takes over; 0: nothing
	Store int   `json:"store,omitempty"` // … and in which form it has a store
}

// Entry is one on the shelf, as a link brings it. Whoever gets it has its descriptors to close.
type Entry struct {
	Name    string
	Data    json.RawMessage
	FDs     []int
	Dropped bool
	Answer  bool // of the keeper, to Accept
	Waits   bool // of the keeper, to Waits: Data is how many bytes, of the source of that name
	Echo    bool // of the keeper, to Echo
	Untaken bool // of the keeper: the entry was put, and is not on the shelf, for want of descriptors
	Bare    bool // its descriptors are missing: this process could open no more for takesWithin
}

// errBare is of an entry that is of no use without its descriptors.
var errBare = errors.New("this process may open no more descriptors, and ends: the next one finds on the keeper's shelf what this one could not take")

// Link is the connection of reader or recorder to the keeper. Any goroutine may put; one calls
// Prepare, Shelf and Follow, and may put, too: from Shelf on, what comes is received beside it.
type Link struct {
	conn  *ipc.Conn
	died  int64
	over  chan struct{} // closed once the keeper has ended, as Follow sees it
	inbox *inbox
	fills sync.Once // … has begun to be filled

	processes []Process   // as Shelf has heard
	stops     bool        // this process is to stop as soon as it is ready, as Prepare has heard
	leaves    atomic.Bool // nothing more comes, as Follow has heard
	left      Left        // … and what the reader has left
}

func newLink(conn *ipc.Conn) *Link {
	return &Link{conn: conn, over: make(chan struct{}), inbox: newInbox()}
}

// NewLink is a link over a connection, with bare descriptors, to somebody who acts as the keeper: a
// test of what is put and dropped, and when.
func NewLink(conn *ipc.Conn) *Link { return newLink(conn) }

// Inherit is the link of this process, which the keeper has started.
func Inherit() (*Link, error) {
	conn, err := ipc.Inherit(os.NewFile(linkFD, "keeper"), linkConfig)
	if err != nil {
		return nil, fmt.Errorf("the link to the keeper: %w", err)
	}
	return newLink(conn), nil
}

// linkConfig bounds messages: a source's configuration is the largest part of one. Descriptors are
// bare: the runtime's poller would wake for every byte that comes to a port.
var linkConfig = ipc.ConnConfig{MaxData: 128 << 10, MaxFiles: 4, Bare: true, Patience: takesWithin}

const (
	// sendWithin is how long a message may wait for the other side to take some.
	sendWithin = 5 * time.Second
	// putWithin is sendWithin to the keeper, which may be waiting itself, for another child or for
	// systemd.
	putWithin = sendWithin + starvesIn
	// takesWithin is how long a message waits in the link for descriptors that it brings, where who
	// is to have it may open no more for a while. From then on it is a message without them.
	takesWithin = 3 * time.Second
	// sendRest is how long a message waits for what it lacks, before it is sent again.
	sendRest = 10 * time.Millisecond
)

// send sends to the keeper.
func (l *Link) send(m message, fds []int) error { return sendIn(putWithin, l.conn, m, fds) }

// Put puts an entry on the shelf, in the place of one of that name. Descriptors stay the caller's.
// Once Put has returned, the entry is kept, also if the caller is killed.
func (l *Link) Put(name string, data any, fds ...int) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return l.send(message{Op: opPut, Name: name, Data: b}, fds)
}

// Drop takes an entry off the shelf.
func (l *Link) Drop(name string) error { return l.send(message{Op: opDrop, Name: name}, nil) }

// Forget takes all that a source has off the shelf.
func (l *Link) Forget(source string) (err error) {
	for _, name := range Of(source) {
		err = errors.Join(err, l.Drop(name))
	}
	return err
}

// Accept asks the keeper to take a connection that waits at the listener of a source, and to put it
// on the shelf. It answers by that entry, which Follow brings: whoever is killed meanwhile, the
// connection stays open.
func (l *Link) Accept(source, as string) error {
	return l.send(message{Op: opAccept, Name: source, As: as}, nil)
}

// Echo has the keeper say a name once it has done all that was put and dropped before: whoever
// comes after a kill of the keeper finds that as it is then. Follow brings the answer. A keeper of
// an older program gives none.
func (l *Link) Echo(name string) error { return l.send(message{Op: opEcho, Name: name}, nil) }

// Waits asks the keeper how many bytes of a source wait that its reader, which stands still, has
// not read, or of a connection that nobody reads yet, by what SourceOf says of its entry. Follow
// brings the answer. Connections in the kernel's queue, and datagrams, are gone then.
func (l *Link) Waits(source string) error { return l.send(message{Op: opWaits, Name: source}, nil) }

// Ready tells the keeper that this process does its work.
func (l *Link) Ready() error { return l.send(message{Op: opReady}, nil) }

// Prepare receives what this process needs to prepare itself. Prepared or Refuse is to follow, and
// then Shelf.
func (l *Link) Prepare() (some []Entry, b Beginning, err error) {
	for {
		m, fds, err := receive(l.conn)
		switch {
		case err != nil:
			return some, b, err
		case m.Op == opPrepare:
			err = json.Unmarshal(m.Data, &b)
			l.stops = b.Stops
			return some, b, err
		case m.Op == opPut:
			some = append(some, Entry{Name: m.Name, Data: m.Data, FDs: fds})
		}
	}
}

// Stops reports whether this process is to stop as soon as it is ready: the one before was killed
// while it stopped.
func (l *Link) Stops() bool { return l.stops }

// Processes are the three as they were when this one was given the shelf, itself among them. Follow
// tells how they are later.
func (l *Link) Processes() []Process { return l.processes }

// Prepared tells the keeper that this process can begin.
func (l *Link) Prepared() error {
	return l.send(message{Op: opPrepared, Form: handoverForm, Store: storeForm}, nil)
}

// Refuse tells the keeper why this process cannot begin: it ends.
func (l *Link) Refuse(why error) error {
	return l.send(message{Op: opRefuse, Name: why.Error()}, nil)
}

// Renew asks the keeper to have processes replaced.
func (l *Link) Renew(r Renewal) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return l.send(message{Op: opRenew, Data: b}, nil)
}

// Shelf receives all that is there at the beginning. It waits until this process is to begin.
func (l *Link) Shelf() (all []Entry, err error) {
	for {
		m, fds, err := receive(l.conn)
		switch {
		case err != nil:
			return all, err
		case m.Op == opReady:
			l.died = m.Died
			l.fill() // this process may put much before it follows
			return all, nil
		case m.Op == opPut:
			all = append(all, Entry{Name: m.Name, Data: m.Data, FDs: fds})
		case m.Op == opProcesses:
			_ = json.Unmarshal(m.Data, &l.processes) // what cannot be read Follow hears again
		}
	}
}

// fill begins to fill the inbox, once.
func (l *Link) fill() { l.fills.Do(func() { go l.inbox.fill(l.conn) }) }

// Died is when the process was seen dead in whose place this one is; zero: there was none. It is
// known behind Shelf.
func (l *Link) Died() time.Time {
	if l.died == 0 {
		return time.Time{}
	}
	return time.Unix(0, l.died)
}

// Follow tells what the other puts and drops, and how the processes are, until the keeper has
// ended, or has told this process to yield. A want of descriptors is not the end of the keeper: an
// entry comes late then, or at last [Entry.Bare]. An error is that of entry, which may put: what
// comes meanwhile waits in this process. Descriptors of ports, spills and listeners do not come.
func (l *Link) Follow(entry func(Entry) error, processes func([]Process)) (yields bool, err error) {
	l.fill()
	for {
		got := l.inbox.take()
		m, isBare := got.message, errors.Is(got.err, ipc.ErrFiles)
		if got.err != nil && !isBare {
			close(l.over)
			return false, nil
		}
		switch m.Op {
		case opLeave:
			if json.Unmarshal(m.Data, &l.left) != nil {
				l.left = Left{} // an older keeper does not say
			}
			l.leaves.Store(true)
			return true, nil
		case opYield:
			return true, nil
		case opPut, opDrop, opAccept, opWaits, opUntaken, opEcho:
			if err := entry(Entry{
				Name: m.Name, Data: m.Data, FDs: got.fds, Bare: isBare,
				Dropped: m.Op == opDrop, Answer: m.Op == opAccept, Waits: m.Op == opWaits,
				Untaken: m.Op == opUntaken, Echo: m.Op == opEcho,
			}); err != nil {
				return false, err
			}
		case opProcesses:
			var all []Process
			if json.Unmarshal(m.Data, &all) == nil {
				processes(all)
			}
		}
	}
}

// Leaves says, once Follow has returned, whether all three processes end, so that another three may
// go on. For the recorder the reader has ended then, and what it has written is all there is.
func (l *Link) Leaves() bool { return l.leaves.Load() }

// Left is what a reader leaves that has ended so that another three processes may go on.
type Left struct {
	Waited time.Duration     // so long it has waited for room
	Unread map[string]uint64 // bytes that the kernel holds of connections, by source, and nobody has read
}

// Left is what the reader has left, as Follow has heard before it returned; zero: nobody leaves.
func (l *Link) Left() Left { return l.left }

// yield has Follow return as if the keeper had told this process to yield.
func (l *Link) yield() { l.inbox.put(received{message: message{Op: opYield}}) }

// CloseFDs closes the descriptors of an entry.
func (e Entry) CloseFDs() {
	for _, fd := range e.FDs {
		_ = sys.CloseFD(fd)
	}
}

// PutText puts an entry on the shelf that is a text of any length, in memory of its own.
func (l *Link) PutText(name string, text []byte) error {
	fd, err := sys.SealedMemory("tallywheel-"+name, int64(len(text)))
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return l.Put(name, nil, fd)
}

// Text is what PutText has put, and closes it.
func (e Entry) Text() ([]byte, error) {
	f, err := e.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := sys.SealedSize(e.FDs[0])
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	return b, err
}

// Peer is the address that a connection comes from, as the keeper has accepted it; "": it is not
// known.
func (e Entry) Peer() (addr string) {
	_ = json.Unmarshal(e.Data, &addr) // one of an older program has none
	return addr
}

// File is the first descriptor of an entry as a file, of memory; the others are closed.
func (e Entry) File() (*os.File, error) {
	if len(e.FDs) == 0 {
		return nil, fmt.Errorf("entry %s has no descriptor", e.Name)
	}
	Entry{FDs: e.FDs[1:]}.CloseFDs()
	return os.NewFile(uintptr(e.FDs[0]), e.Name), nil
}

// send sends a message with descriptors, which stay the caller's.
func send(conn *ipc.Conn, m message, fds []int) error { return sendIn(sendWithin, conn, m, fds) }

// sendIn is send within another time.
func sendIn(within time.Duration, conn *ipc.Conn, m message, fds []int) error {
	for deadline := time.Now().Add(within); ; time.Sleep(sendRest) {
		if err := sendBy(deadline, conn, m, fds); !passes(err) || !time.Now().Before(deadline) {
			return err
		}
	}
}

// passes reports whether a message was not sent for want of what there may be a moment later:
// descriptors, memory, or room for descriptors that the other side has not taken yet.
func passes(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ETOOMANYREFS,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// HasEnded reports whether a message was not sent, or not answered, because the keeper has ended.
func HasEnded(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, errKeeperEnded)
}

func sendBy(deadline time.Time, conn *ipc.Conn, m message, fds []int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(deadline)
	if err := conn.Send(ipc.Message{Data: b, FDs: fds}); err != nil {
		return fmt.Errorf("%s %s: %w", m.Op, m.Name, err)
	}
	return nil
}

// receive receives a message. ipc.ErrFiles is of one that came without its descriptors.
func receive(conn *ipc.Conn) (m message, fds []int, err error) {
	in, err := conn.Receive()
	if err != nil && !errors.Is(err, ipc.ErrFiles) {
		return m, nil, err
	}
	if textErr := json.Unmarshal(in.Data, &m); textErr != nil {
		_ = in.Close()
		return m, nil, fmt.Errorf("a message that cannot be read: %w", textErr)
	}
	return m, in.FDs, err
}
