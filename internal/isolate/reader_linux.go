package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
)

// giveUpWithin is how long a reader whose keeper has ended reads what there is.
const giveUpWithin = 5 * time.Second

// ports is the reader's process: the lines that it reads. The goroutine that follows the link owns
// it.
type ports struct {
	link  *Link
	log   *slog.Logger
	bell  *Bell
	read  reader.Reader
	cell  bool // this process keeps time
	kept  bool // what it leaves outlives the keeper, too
	lines map[string]*line
	ends  map[string]*line    // were dropped, and may not have ended yet
	known map[string]adoption // devices that the reader before has left, until their lines begin
}

// adoption is a device that another process has opened, or has lost. Descriptors are -1 where there
// is none.
type adoption struct {
	Port
	fd       int
	listener int
	next     int   // a connection that waits to become the device, or is about to be made
	spill    []int // the near spool, and the file; none: there is no near one
}

// close closes what no line has taken.
func (a adoption) close() {
	for _, fd := range append([]int{a.fd, a.listener, a.next}, a.spill...) {
		if fd >= 0 {
			_ = sys.CloseFD(fd)
		}
	}
}

var nothingLeft = adoption{fd: -1, listener: -1, next: -1}

// ReadPorts is all that a reader's process does, until the keeper has ended, or another reader goes
// on in its place.
func ReadPorts(link *Link, log *slog.Logger) error {
	recorders, _, err := link.Prepare() // there is nothing to prepare
	for _, e := range recorders {
		e.CloseFDs() // the socket of the API, above all: who held it would keep it open
	}
	if err == nil {
		err = link.Prepared()
	}
	var shelf []Entry
	if err == nil {
		shelf, err = link.Shelf()
	}
	switch {
	case isEnd(err):
		return nil // there is nothing to read yet, and the keeper says why it has ended
	case err != nil:
		return fmt.Errorf("the link to the keeper: %w", err)
	}
	r := &ports{link: link, log: log, lines: map[string]*line{}, ends: map[string]*line{}, known: map[string]adoption{}}
	for _, e := range shelf {
		switch kind, source := SourceOf(e.Name); kind {
		case "port", "next", "listener", "spill":
			r.know(kind, source, e)
		case "guest": // the recorder's
			e.CloseFDs()
		}
	}
	for _, e := range shelf {
		if kind, _ := SourceOf(e.Name); kind == "" || kind == "lane" {
			_ = r.entry(e) // it has its descriptors
		}
	}
	for source, a := range r.known { // the listeners of sources whose connections the recorder takes
		a.close()
		delete(r.known, source)
	}
	if err := link.Ready(); err != nil {
		log.Warn("the keeper has ended", "error", err) // which Follow notices
	}
	yields, lacks := r.follow()
	yields = yields || lacks != nil || r.kept
	by := time.Now().Add(giveUpWithin)
	var all sync.WaitGroup
	for _, l := range r.lines {
		all.Go(func() {
			if yields {
				l.leave(by)
			} else {
				l.orphan(by)
			}
		})
	}
	all.Wait()
	if r.bell != nil {
		r.bell.Lives(time.Now())
	}
	if r.read != nil {
		lacks = errors.Join(lacks, r.read.Close())
	}
	return lacks
}

// follow does what the keeper says until this process is to end.
func (r *ports) follow() (yields bool, lacks error) {
	yields, lacks = r.link.Follow(r.entry, func([]Process) {})
	if lacks != nil || !r.link.Leaves() {
		return yields, lacks
	}
	go catchUp(r.link, slices.Collect(maps.Values(r.lines)), r.log)
	return r.link.Follow(r.entry, func([]Process) {})
}

// How long a reader goes on where all three end, until what lags has come into the spools that are
// recorded, and how often it looks whether it has.
const (
	catchesUpIn   = 10 * time.Second
	catchesUpLook = 20 * time.Millisecond
)

// catchUp has the reader end once each line has been seen to have caught up, or when it has waited
// long enough: a stop of the service loses what waits then.
func catchUp(link *Link, lines []*line, log *slog.Logger) {
	defer link.yield()
	lines = slices.DeleteFunc(lines, func(l *line) bool { return !l.over.holds() && !l.isStuck() })
	if len(lines) == 0 {
		return
	}
	log.Info("what waits for room in memory is read before the reader ends", "sources", len(lines),
		"at_most", catchesUpIn)
	look := time.NewTicker(catchesUpLook)
	defer look.Stop()
	for end := time.Now().Add(catchesUpIn); len(lines) > 0 && time.Now().Before(end); <-look.C {
		lines = slices.DeleteFunc(lines, (*line).hasCaughtUp)
	}
}

// isEnd reports whether an error of the link says that the other side has ended.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// know notes what the reader before had of a device.
func (r *ports) know(kind, source string, e Entry) {
	a := r.left(source)
	fd := -1
	if len(e.FDs) > 0 {
		fd = e.FDs[0]
	}
	switch kind {
	case "listener":
		a.listener = fd
	case "next":
		a.next = fd
	case "spill":
		a.spill = e.FDs
	default:
		a.fd = fd
		if err := json.Unmarshal(e.Data, &a.Port); err != nil {
			r.log.Error("a device on the shelf cannot be read", "source", source, "error", err)
		}
	}
	r.known[source] = a
}

// left is what the reader before had of the device of a source.
func (r *ports) left(source string) adoption {
	if a, ok := r.known[source]; ok {
		return a
	}
	return nothingLeft
}

// entry does what the recorder asks for. An error is that this process cannot go on.
func (r *ports) entry(e Entry) error {
	if e.Untaken { // it reads what is not on the shelf as long as it lives
		return nil
	}
	if e.Bare && r.needs(e) {
		r.log.Error("the reader could not take what it was sent", "entry", e.Name, "error", errBare)
		return errBare
	}
	err := r.take(e)
	if kind, source := SourceOf(e.Name); err != nil && kind == "lane" { // nobody else would tell
		err = errors.Join(err, r.link.Put(PortOf(source), Port{Why: err.Error(), Refused: true}))
	}
	if err != nil {
		r.log.Error("the reader cannot do what the recorder asks for", "entry", e.Name, "error", err)
	}
	return nil
}

// needs reports whether an entry is of no use without its descriptors: a line that is to begin, or
// a connection that is to be read. The acceptor asks again for one that it has asked for.
func (r *ports) needs(e Entry) bool {
	switch kind, source := SourceOf(e.Name); kind {
	case "lane", "next":
		return !e.Answer && (kind == "lane") == (r.lines[source] == nil)
	}
	return e.Name == BellEntry && r.bell == nil
}

func (r *ports) take(e Entry) (err error) {
	kind, source := SourceOf(e.Name)
	switch {
	case e.Name == StoreEntry:
		r.kept = !e.Dropped
	case e.Name == BellEntry && r.bell == nil:
		f, err := e.File()
		if err == nil {
			if r.bell, err = OpenBell(f); err != nil {
				_ = f.Close()
			}
		}
		if err == nil {
			r.bell.Lives(time.Now())
		}
		return err
	case e.Name == ReadEntry && r.read == nil:
		var how Reading
		if err := json.Unmarshal(e.Data, &how); err != nil {
			return err
		}
		switch r.read, err = reader.New(how.Config); {
		case err != nil:
		case how.Cell.Priority > 0:
			err = r.keepTime(how.Cell)
		default:
			reader.Alone(r.read)
		}
		return err
	case kind == "lane" && e.Dropped:
		if l := r.lines[source]; l != nil {
			delete(r.lines, source)
			r.ends[source] = l
			l.drop()
		}
		return nil
	case kind == "lane":
		return r.lane(source, e)
	case e.Waits:
		if l := r.asks(e.Name); l != nil {
			l.wire.heard(e)
		}
		return nil
	case kind == "next" && e.Answer:
		if l := r.asks(source); l != nil {
			l.wire.heard(e)
			return nil
		}
	case kind == "next" && !e.Dropped && r.lines[source] != nil:
		r.lines[source].wire.heard(e)
		return nil
	}
	e.CloseFDs()
	return nil
}

// asks is the line that an answer of the keeper is for: of those of a source, the first that has
// not ended. The next one asks once that has, and has had its answers. nil: there is none.
func (r *ports) asks(source string) *line {
	l := r.lines[source]
	if l == nil {
		l = r.ends[source]
	}
	for l != nil && l.before != nil && !l.before.hasEnded() {
		l = l.before
	}
	return l
}

// lane begins to read a source, or changes how it is read.
func (r *ports) lane(source string, e Entry) error {
	var lane Lane
	if err := json.Unmarshal(e.Data, &lane); err != nil {
		e.CloseFDs()
		return err
	}
	if l := r.lines[source]; l != nil {
		e.CloseFDs()
		l.over.change(lane.Spill)
		if lane.GiveUp != nil {
			go l.end(*lane.GiveUp)
		}
		return nil
	}
	if r.bell == nil || r.read == nil {
		e.CloseFDs()
		return errors.New("there is no bell yet, or it is not known how to read")
	}
	f, err := e.File()
	if err != nil {
		return err
	}
	s, err := spool.Open(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a := r.left(source)
	l, err := r.newLine(source, lane, s, a)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	if err := r.populate(); err != nil {
		// said at the beginning
		r.log.Debug("the spool of a source is mapped as it is used", "source", source, "error", err)
	}
	l.wire = l.newWire(a)
	delete(r.known, source)
	r.lines[source] = l
	if lane.GiveUp != nil { // it opens nothing, and reads what it was left
		l.giveUp = *lane.GiveUp
		l.stop()
	}
	before := r.ends[source]
	delete(r.ends, source)
	if before != nil && !before.hasEnded() {
		l.before = before
	}
	go func() {
		if before != nil { // it takes what it has off the shelf
			<-before.done
		}
		l.run(a)
		if err := s.Close(); err != nil { // peers come and go: their memory is given back here, too
			l.log.Warn("the memory of a source is not given back", "error", err)
		}
	}()
	return nil
}

// newLine makes a line that writes into a spool, or into one before it that may run over.
func (r *ports) newLine(source string, lane Lane, s *spool.Spool, a adoption) (*line, error) {
	far := s
	var over *runover
	if lane.Spill != nil {
		var err error
		if over, err = newRunover(source, *lane.Spill, s, a.spill); err != nil {
			return nil, err
		}
		s = over.near
	}
	p, err := s.ProducerOf(lane.Kind.most(), a.given(lane.Kind))
	if err != nil {
		over.close()
		return nil, err
	}
	l := newLine(r, source, lane, s, far, p)
	if over != nil {
		l.over = over
		over.line = l
	}
	return l, nil
}

// most is how many bytes are read at a time, at most; 0: as many as a tty gives.
func (k Kind) most() int {
	switch k {
	case Serial:
		return 0
	case Datagrams:
		return sockets.MaxDatagram
	}
	return 16 << 10
}

// given is how far on the wire a connection of the reader before has given its bytes.
func (a adoption) given(k Kind) spool.Given {
	if k == Serial || k == Datagrams || a.fd < 0 {
		return nil
	}
	return func() (uint64, bool) {
		n, ok := sys.Taken(a.fd)
		return a.Begin + n, ok
	}
}
