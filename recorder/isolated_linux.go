package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/ledger"
)

// isolation is the recorder's side of `isolate: process`: the spools that another process fills,
// and the shelf on which the next recorder finds them.
//
// Spools are shown to their lanes by round, which holds mu: see pump_linux.go. Whoever takes a
// spool in or out holds mu, too.
type isolation struct {
	link     *isolate.Link
	bell     *isolate.Bell
	log      *slog.Logger
	logDir   string        // where files that run over are, where nothing else is said
	reserve  int64         // of a disk, that those leave free
	gone     chan struct{} // closed once the keeper has ended
	over     chan struct{} // … and the reader, too: nothing more comes. It stays open where the reader is not known
	yields   chan struct{} // closed once another recorder is to go on
	leaves   chan struct{} // … which has no reader now: all three end, or the keeper has
	stopping chan struct{} // closed once the recording stops: then what the log does not take in time is given up
	// nil, or closed once what is on the shelf would not outlive the keeper any more; told guards
	// it
	outlives chan struct{}

	read  isolate.Reading       // of the reader that is there
	start isolate.Start         // of which this process is to go on; zero: it begins one
	left  map[string]*leftSpool // spools of the recorder before that no lane has taken yet, by source
	last  *archive.StartSheet   // the sheet that the recorder before has left, if this one goes on
	// connections of sources that read all of them, as the recorder before has left them
	connections leftConnections
	gated       map[string]config.Source // sources that had a gate, as they were recorded
	between     []config.Source          // … since what waits in spools of the same name was read
	// sources with peers that are played to their ends before that: nobody connects to them any
	// more
	ends  map[string]bool
	stops bool // the recorder before was killed while it stopped, and this one is to end that
	// … and up to when each source was read by then, as the sheet of a second before knows, for the
	// lanes that this one begins with
	readTo map[string]ledger.Time
	// what the configuration says, where spools of other sources have to be played first; nil:
	// nothing else
	file []config.Source

	mu      sync.Mutex
	remotes []*remote
	holds   bool // nothing more is shown: the next recorder gets it
	lost    bool // a spool was given up
	died    bool // an account has left, or died, that had something in the log
	// what the log had when each spool was made that goes on: its source names what is gone of it
	// behind that
	named []uint64

	closed closedBooks // what the log was given of spools that were given back

	told      sync.Mutex // guards what follows, held for moments
	ports     map[string]isolate.Port
	gates     map[string]*gate       // by source
	seating   map[string]*seat       // by peer
	forgotten []uint64               // books of peers that the keeper knows no more, and sheets still name
	asked     map[string]chan uint64 // by source: who asks the keeper what waits
	processes []isolate.Process
	kept      isolate.Kept // how a reader keeps time, which may have ended
	alone     *time.Timer  // runs while there is no reader
}

// leftSpool is a spool that the recorder before has left.
type leftSpool struct {
	spool  *spool.Spool
	source config.Source // as it was recorded
	lane   isolate.Lane
	book   uint64 // number of its books; 0: an older program has not told
}

// checkpointRest is how much may be shown again behind a kill, in time.
const checkpointRest = 250 * time.Millisecond

// caughtUp is how long a recorder that goes on shows what waits, before it has a sheet of its own
// and says that it records.
const caughtUp = 2 * time.Second

// StartIsolated is Start in a process that a keeper has started, which has what a recorder before
// this one has left.
func StartIsolated(cfg config.Config, logger *slog.Logger, link *isolate.Link) (*Recorder, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	iso, err := isolated(link, cfg, logger)
	if err != nil {
		return nil, err
	}
	r, err := startWith(iso.before(cfg), logger, nil, iso, nil)
	if err != nil {
		return nil, err
	}
	if iso.file == nil {
		return r, nil
	}
	if len(iso.between) > 0 {
		if err := r.Reload(iso.then(r.Config())); err != nil {
			logger.Error("connections that have come since a source was changed may be lost, for it cannot be recorded as it was then", "error", err)
		}
	}
	if err := r.Reload(cfg); err != nil {
		logger.Error("the configuration has changed, and cannot be taken: it is recorded as before", "error", err)
	}
	for _, p := range r.sources() {
		iso.connections.laned[p.lane.cfg.ID] = true
	}
	iso.connections.close(iso)
	return r, nil
}

// isolated takes in what is on the shelf, and puts there what a first recorder brings.
func isolated(link *isolate.Link, cfg config.Config, log *slog.Logger) (*isolation, error) {
	i := &isolation{
		link: link, stops: link.Stops(), log: log, logDir: cfg.Log.Dir, reserve: int64(cfg.Log.Reserve),
		alone: time.NewTimer(0), gone: make(chan struct{}), over: make(chan struct{}),
		yields:   make(chan struct{}),
		leaves:   make(chan struct{}),
		stopping: make(chan struct{}),
		left:     map[string]*leftSpool{}, ports: map[string]isolate.Port{}, gates: map[string]*gate{},
		seating:     map[string]*seat{},
		asked:       map[string]chan uint64{},
		gated:       map[string]config.Source{},
		connections: leftConnections{listeners: map[string]leftConnection{}, laned: map[string]bool{}},
	}
	shelf, err := link.Shelf()
	if err != nil {
		return nil, fmt.Errorf("the shelf of the keeper: %w", err)
	}
	i.processes = link.Processes() // whoever asks is answered before the link is followed
	for _, e := range shelf {
		if err := i.take(e); err != nil {
			return nil, fmt.Errorf("%s on the shelf of the keeper: %w", e.Name, err)
		}
	}
	if i.bell == nil {
		if i.bell, err = isolate.NewBell(); err != nil {
			return nil, err
		}
		if err := put(link, isolate.BellEntry, nil, i.bell); err != nil {
			return nil, err
		}
	}
	if read := reading(cfg); i.read != read { // a reader that is there goes on as it began
		if err := link.Put(isolate.ReadEntry, read); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// put puts an entry on the shelf with memory that has a file.
func put(link *isolate.Link, name string, data any, of interface{ File() *os.File }) error {
	raw, err := of.File().SyscallConn()
	if err != nil {
		return err
	}
	var putErr error
	err = raw.Control(func(fd uintptr) { putErr = link.Put(name, data, int(fd)) })
	return errors.Join(err, putErr)
}

// take takes in an entry of the shelf.
func (i *isolation) take(e isolate.Entry) error {
	kind, source := isolate.SourceOf(e.Name)
	switch {
	case e.Name == isolate.BellEntry:
		f, err := e.File()
		if err == nil {
			i.bell, err = isolate.OpenBell(f)
		}
		return err
	case e.Name == isolate.StartEntry:
		return json.Unmarshal(e.Data, &i.start)
	case e.Name == isolate.ReadEntry:
		return json.Unmarshal(e.Data, &i.read)
	case kind == "lane":
		l := &leftSpool{}
		err := json.Unmarshal(e.Data, &l.lane)
		if err == nil {
			err = json.Unmarshal(l.lane.Source, &l.source)
		}
		if err != nil {
			return err
		}
		f, err := e.File()
		if err != nil {
			return err
		}
		if l.spool, err = spool.Open(f); err != nil {
			return err
		}
		l.book = l.lane.Book
		i.left[source] = l
		i.connections.laned[source] = true
		return nil
	case kind == "gate":
		var s config.Source
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return err
		}
		i.gated[source] = s
	case kind == "closed":
		return i.closed.take(source, e)
	case kind == "port":
		i.tell(source, e)
	case e.Name == isolate.CellEntry:
		i.keeps(e)
	case e.Name == isolate.StoreEntry:
		i.hearStore(e)
	}
	if i.connections.take(kind, source, e) {
		return nil
	}
	e.CloseFDs() // the devices are the reader's
	return nil
}

// tell keeps what the reader says of a device.
func (i *isolation) tell(source string, e isolate.Entry) {
	var p isolate.Port
	if err := json.Unmarshal(e.Data, &p); err != nil {
		i.log.Error("what the reader says of a device cannot be read", "source", source, "error", err)
		return
	}
	i.told.Lock()
	i.ports[source] = p
	seat := i.seating[source]
	i.told.Unlock()
	if seat != nil && p.Why != "" && !p.Refused && p.Ended == 0 && p.Unmarked == 0 { // it was read to its end
		seat.vacate()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.remotes {
		if r.lane.cfg.ID == source {
			r.lane.describe(p)
			r.hearEnd(p)
			if p.Refused {
				r.lane.outage(time.Now().UnixNano(),
					"the reader cannot take it, and a restart of Tallywheel is needed: "+p.Why)
			}
		}
	}
}

// port is what the reader says of a device.
func (i *isolation) port(source string) isolate.Port {
	i.told.Lock()
	defer i.told.Unlock()
	return i.ports[source]
}

// describe takes in where a device was opened, or why it cannot be: the mark that says it may have
// come before the words.
func (l *lane) describe(p isolate.Port) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wordless && p.Why != "" && l.state == ledger.StateWaiting {
		l.why, l.wordless, l.touched = p.Why, false, true
		l.in.book.OutageGoesOn(p.Why)
	}
	if p.Path != "" {
		l.path, l.accepted = p.Path, p.Accepted
	}
}

// follow hears what the keeper tells, until that has ended.
func (i *isolation) follow() {
	defer close(i.gone)
	processes := func(all []isolate.Process) {
		i.told.Lock()
		defer i.told.Unlock()
		i.processes = all
		i.missReader()
	}
	for first := true; ; first = false {
		if yields, _ := i.link.Follow(i.heard, processes); !yields { // heard has no error
			break
		}
		if first {
			if i.link.Leaves() {
				close(i.leaves)
			}
			close(i.yields)
		}
	}
	i.told.Lock()
	defer i.told.Unlock()
	if i.outlives != nil && !i.hasLeft() { // the next keeper has what is on the shelf
		close(i.leaves)
	}
	i.alone.Stop()
	go i.awaitReader(i.processes)
}

// awaitReader closes over, once the keeper has ended. It is told of a reader before that reads, so
// there is none where it knows of none.
func (i *isolation) awaitReader(processes []isolate.Process) {
	at := slices.IndexFunc(processes, func(p isolate.Process) bool { return p.Role == isolate.Reader })
	switch {
	case len(processes) == 0:
		return // nothing was told yet
	case at >= 0 && processes[at].PID != 0:
		p, err := ipc.OpenProcess(processes[at].PID)
		if err == nil {
			<-p.Done()
			_ = p.Close()
		} else if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return
		}
	}
	close(i.over)
}

// stop says that the recording stops.
func (i *isolation) stop() {
	if i != nil && !i.isStopping() {
		close(i.stopping)
	}
}

func (i *isolation) isStopping() bool {
	select {
	case <-i.stopping:
		return true
	default:
		return false
	}
}

// heard takes in what the keeper tells. Of descriptors it needs those of guests alone, for which
// the acceptor asks again.
func (i *isolation) heard(e isolate.Entry) error {
	kind, source := isolate.SourceOf(e.Name)
	switch {
	case e.Waits:
		i.hearWaits(e)
		return nil
	case e.Echo:
		i.hearForgotten(e)
		return nil
	case e.Name == isolate.StoreEntry:
		i.hearStore(e)
	case (e.Dropped || e.Untaken) && kind == "next":
		i.told.Lock()
		s := i.seating[source]
		i.told.Unlock()
		switch {
		case s == nil:
		case e.Dropped: // a peer's connection is its device now
			s.took()
		default:
			s.missed()
		}
	case e.Untaken && kind == "lane":
		i.lacks(source)
	case e.Dropped, e.Untaken:
	case kind == "port":
		i.tell(source, e)
	case e.Name == isolate.CellEntry:
		i.keeps(e)
	}
	if root, _ := isolate.GuestIn(source); kind == "guest" {
		i.told.Lock()
		g := i.gates[root]
		i.told.Unlock()
		if g != nil {
			g.accepting.Heard(e)
			return nil
		}
	}
	e.CloseFDs()
	return nil
}

// hearStore takes in whether what is on the shelf outlives the keeper.
func (i *isolation) hearStore(e isolate.Entry) {
	i.told.Lock()
	defer i.told.Unlock()
	switch {
	case !e.Dropped && i.outlives == nil:
		i.outlives = make(chan struct{})
	case e.Dropped && i.outlives != nil:
		close(i.outlives)
		i.outlives = nil
	}
}

// Kept is nil, or closed once what this recorder works on would end with its keeper. Until then a
// stop is the keeper's to tell, by Yields: it has the reader end first; and where the keeper has
// ended, another recorder goes on.
func (r *Recorder) Kept() <-chan struct{} {
	if r.iso == nil {
		return nil
	}
	r.iso.told.Lock()
	defer r.iso.told.Unlock()
	return r.iso.outlives
}

// readerMay is how long a reader may be gone until that is an outage of its own: the next one
// writes down how long it was, once it is there.
const readerMay = 2 * time.Second

// missReader sees to it that a reader which does not come back shows. told is held.
func (i *isolation) missReader() {
	at := slices.IndexFunc(i.processes, func(p isolate.Process) bool { return p.Role == isolate.Reader })
	i.alone.Stop()
	if at < 0 || i.processes[at].PID != 0 {
		return
	}
	since := i.processes[at].Since
	i.alone = time.AfterFunc(readerMay, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, rm := range i.remotes {
			rm.lane.unattended(since.UnixNano(), outageReader+", and is not there yet")
		}
	})
}

// unattended posts that nobody reads a device that is open.
func (l *lane) unattended(at int64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == ledger.StateOpen || l.state == ledger.StateBlocked {
		l.isOut(at, why)
	}
}

// KeeperEnded is closed once the keeper has ended, and with it the reader: the recorder is to stop.
// It is nil where there is none.
func (r *Recorder) KeeperEnded() <-chan struct{} {
	if r.iso == nil {
		return nil
	}
	return r.iso.gone
}

// isEnding reports whether the reader was told to end a spool of a source, and not for a peer that
// makes room.
func (i *isolation) isEnding(source string) bool {
	for id, l := range i.left {
		if archive.Within(id, source) && l.lane.GiveUp != nil && !l.lane.MakesRoom {
			return true
		}
	}
	return false
}

// root is the source of a spool, also of a peer's.
func (l *leftSpool) root(id string) config.Source {
	s := l.source
	s.ID, _, _ = strings.Cut(id, "/")
	return s
}

// giveUp forgets a spool with what is in it.
func (i *isolation) giveUp(source string) {
	i.drop(source)
	i.lost = true
}

// drop forgets a spool, for the reader, too.
func (i *isolation) drop(source string) {
	l := i.left[source]
	delete(i.left, source)
	_ = errors.Join(i.link.Forget(source), l.spool.Close())
}

// hold has nothing shown any more.
func (i *isolation) hold() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.holds = true
}

// saveAll saves how far all spools are, as far as the log has stored that. Nothing is shown any
// more.
func (i *isolation) saveAll() (err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, rm := range i.remotes {
		rm.play.rest = 0
		for range 2 { // what was taken before, and what is
			err = errors.Join(err, rm.play.save())
		}
	}
	return err
}
