// Package recorder opens the sources, has them read, framed and booked, and keeps the log.
//
// # Concepts
//
// Each source has a port, which opens the device and opens it again when it is gone, and a lane,
// which takes the bytes from the reader. A lane has two halves: the intake runs the framing and
// posts what the bytes are into the book; the outlet brings valid frames into the log. Commits of
// the log come back to the outlets, which post what has been stored, and what is durable. A sheet
// asks every lane what it holds, so it balances at any moment. The verdict says in one line what a
// sheet means. A source that reads every connection has a hub, which gives each peer a port and a
// lane like those of a source.
//
// # Guarantees
//
// A byte that was read is in the book before the next is looked at. Reading never waits for the
// log, nor for anybody who looks: locks are held for moments, and nobody outside takes them. A
// source that is changed while it records goes on with its numbers, and with its device where that
// stays the same.
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/beat"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/recorder/notify"
	"github.com/tallywheel/tallywheel/seglog"
)

// Recorder is a running recorder.
type Recorder struct {
	cfg   config.Config
	slog  *slog.Logger
	log   *seglog.Log
	files *reserve // of the log

	allotted *allotment

	iso       *isolation // nil: this process does all
	restarted bool       // it goes on with the start of one that was killed

	failed  chan error // has the error once the log has failed
	reader  reader.Reader
	watcher Watcher // nil: nobody watches
	streams *archive.Streams
	since   int64     // ns since 1970
	began   time.Time // the same, to take times from
	damage  damageWatch
	unnamed unnamedWatch
	found   *ledger.Recovered // what the log had lost when it was opened; nil: nothing
	// records that recorders before this one removed for want of room, in the same start
	evicted uint64
	oldest  uint64                  // see archive.StartSheet.LogOldest
	ever    *uint64                 // see archive.StartSheet.LogEvicted
	folder  os.FileInfo             // of the log, as it was opened; nil: not known
	missing []ledger.MissingRecords // what the log said then, also what earlier sheets have named
	lastEnd LastEnd
	// sheets of the start before, as long as they could not be kept; of whoever writes sheets
	owed []*archive.StartSheet
	// what is stored of sources that have left, while a power cut can take it; of whoever draws up
	// start sheets
	parted map[string]archive.Span

	changing sync.Mutex // held while sources are added and taken out; taken before all others
	// of sources that wait for room on the disk, to have a number in the log; written under
	// changing and mu
	postponedLanes []*lane
	waiting        atomic.Int32           // how many they are; 0 once the recorder stops
	unsaved        atomic.Pointer[string] // why the sheet on disk could not be renewed last; nil: it was
	// since when the tick does what is due each second, in ns since the start; 0: it waits
	ticks atomic.Int64

	places map[string]place // where sources that are not read now go on, by source
	// books of peers that have made room, and of sources that have left, whose spools may still be
	// on the keeper's shelf
	dismissed []uint64
	missed    missed // who was there when their sources were left

	chains  asyncfile.ChainStats
	syncs   *hist.Histogram
	history *history
	losses  lossWatch
	past    pastLosses
	herald  *herald           // guarded by saving
	open    []archive.Trouble // … and what it has told and not ended; guarded by mu
	unsent  notify.Unsent     // what those who are notified had not got yet at the last look; guarded by mu
	teller  *notify.Teller
	acks    acks
	clock   clockWatch
	commits commits

	// settling is held while a commit is brought to the lanes, and while a sheet asks them for
	// their accounts: those know of the log up to the same record. It is taken after absorbing, and
	// before mu.
	settling sync.Mutex

	// absorbing is locked while the counts of a peer go from its book to that of its source, or are
	// acknowledged; read-locked while a place becomes a lane, and while a sheet is drawn up. It is
	// taken before mu.
	absorbing sync.RWMutex

	mu      sync.Mutex // guards ports, leaving, postponedLanes, places, dismissed and missed, and peers
	ports   []*port
	leaving []*port // stopped by a reload; the log has not settled all of their frames yet

	saving    sync.Mutex // of the sheet on disk, or of an acknowledgement; guards what follows; taken before absorbing
	saved     savedSheet
	unkept    bool // the folder has the mark that the sheet could not be renewed
	inHistory bool // the history has the last sheet of this start
	forward   forwarding

	parts uint64  // sheets of sources that have left, in the history
	tried []*port // sources whose sheets could not be kept there: they come next

	marked   *archive.HistoryMark // the history as this start has left it; nil: it is not known
	lookedAt time.Time            // when it was looked at last

	quit chan struct{}
	done sync.WaitGroup
}

// Start opens the log and the sources. A source that cannot be opened yet is tried again and again;
// only a configuration or a log that cannot work is an error.
func Start(cfg config.Config, logger *slog.Logger) (*Recorder, error) {
	return StartWatched(cfg, logger, nil)
}

// StartWatched is Start with somebody who watches from the first moment on; nil: nobody does.
func StartWatched(cfg config.Config, logger *slog.Logger, w Watcher) (*Recorder, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return startWith(cfg, logger, w, nil, nil)
}

// StartOn is Start with the log's files in a folder of the caller's making, such as one whose disk
// is slow. The sheets and what else lies beside the log are in log.dir.
func StartOn(cfg config.Config, files seglog.FS, logger *slog.Logger) (*Recorder, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return startWith(cfg, logger, nil, nil, files)
}

// startWith is Start with a configuration that was checked; files nil: those that it names.
func startWith(cfg config.Config, logger *slog.Logger, w Watcher, iso *isolation, files seglog.FS,
) (*Recorder, error) {
	now := time.Now()
	r := &Recorder{
		cfg: cfg, slog: logger, since: now.UnixNano(), began: now, syncs: hist.New(), history: newHistory(),
		commits: commits{news: make(chan struct{}, 1)}, quit: make(chan struct{}), places: map[string]place{},
		missed: missed{}, parted: map[string]archive.Span{},
		failed: make(chan error, 1), watcher: w, iso: iso,
	}
	r.damage.log = logger
	r.forward.wait = len(cfg.Forward) > 0 && cfg.Log.Keep.Holds()
	limit, open := measure()
	var err error
	if r.allotted, err = newAllotment(cfg, limit, open); err != nil {
		return nil, err
	}
	if err := r.openLog(files); err != nil {
		return nil, advised(err)
	}
	r.folder, _ = os.Stat(cfg.Log.Dir) // an error: nothing is compared
	if r.reader, err = openReader(cfg.Read.Reader()); err != nil {
		return nil, errors.Join(err, r.closeLog())
	}
	r.clock.look(r.slog)
	r.teller = notify.New(notify.Config{
		Webhook: cfg.Notify.Webhook, Command: cfg.Notify.Command, Timeout: cfg.Notify.Timeout, Queue: cfg.Notify.Queue,
		Log:    r.slog,
		Unsent: r.unsent,
	})
	r.herald = newHerald(r.slog, r.teller.Tell)
	r.herald.adopt(r.open, r.since)
	r.done.Go(r.settle)
	r.prepare(cfg)
	err = r.beginIsolated()
	if err == nil {
		err = r.begin(cfg.Sources)
	}
	if err != nil {
		_, stopErr := r.Stop("could not start")
		return nil, errors.Join(err, stopErr)
	}
	if iso != nil {
		r.done.Go(r.pump)
		go iso.follow() // until the keeper ends
	}
	r.done.Go(r.tick)
	r.done.Go(r.overlook)
	r.slog.Info("recording", "sources", len(cfg.Sources), "log", cfg.Log.Dir)
	return r, nil
}

// begin begins the sources of a start. The first sheet of the start has all of them, and is on disk
// before a byte is read: whenever the start is killed, the next one knows whom nobody has read
// since.
func (r *Recorder) begin(sources []config.Source) error {
	r.areTakenOut(sources)
	var lanes []*lane
	for _, s := range sources {
		l, err := r.lane(s)
		switch {
		case err == nil:
			lanes = append(lanes, l)
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			r.slog.Warn("the disk is full: a source that is new to the log waits for room", "source", s.ID, "error",
				err)
			if err := r.postpone(s); err != nil {
				return err
			}
		default:
			return err
		}
	}
	var runs []func()
	for _, l := range lanes {
		runs = append(runs, r.list(l, nil))
	}
	r.closeLeft()
	r.nameGone()
	r.saveFirst()
	for _, run := range runs {
		go run()
	}
	return nil
}

// Failed brings the error once the log has failed: it takes nothing more until it is opened again,
// so whoever runs the recorder should stop it and start another, whose log recovers.
func (r *Recorder) Failed() <-chan error { return r.failed }

// register gives numbers to the streams of many sources by one durable write. An error shows when
// each is opened.
func (r *Recorder) register(sources []config.Source) {
	var wants []archive.Stream
	for _, s := range sources {
		wants = append(wants, archive.Stream{Source: s.ID, Frame: s.Frame.Kind})
		if s.Quarantine {
			wants = append(wants, archive.Stream{Source: s.ID, Frame: s.Frame.Kind, Quarantine: true})
		}
	}
	_, _ = r.streams.Numbers(wants)
}

// prepare does what is to be done once for all sources. It tells of those that are one device: the
// first to open it has it, and the others say so in their outage.
func (r *Recorder) prepare(cfg config.Config) {
	for _, p := range cfg.Aliases() {
		r.slog.Error("two sources are one device, and only one of them can read it", "why", p.Error())
	}
	r.register(cfg.Sources)
	go r.lookAtSpills(cfg)
}

// lookAtSpills tells of folders in which no file can be made for frames to run over into. It is no
// error: as long as the log keeps up nothing does, and the folder may come.
func (r *Recorder) lookAtSpills(cfg config.Config) {
	for _, s := range cfg.Sources {
		if s.Overflow != config.OverflowSpill {
			continue
		}
		dir := cmp.Or(s.Spill.Path, cfg.Log.Dir)
		f, err := openSpill(dir)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			r.slog.Warn("no file can be made for frames that run over: make the folder, mount its disk, or name another one by spill.path",
				"source", s.ID, "path", dir, "error", err)
		}
	}
}

// lane makes the lane of a source, whose stream numbers are durable when it returns.
func (r *Recorder) lane(s config.Source) (*lane, error) {
	stream, err := r.streams.Number(archive.Stream{Source: s.ID, Frame: s.Frame.Kind})
	if err != nil {
		return nil, err
	}
	waste, err := r.wasteStream(s)
	if err != nil {
		return nil, err
	}
	l, err := newLane(s, r.log, stream, waste)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", s.ID, err)
	}
	if over := l.out.backlog.over; over != nil {
		over.dir = cmp.Or(over.dir, r.cfg.Log.Dir)
		over.log, over.reserve = r.slog.With("source", s.ID), int64(r.cfg.Log.Reserve)
	}
	l.in.watcher = r.watcher
	if r.distrusts() {
		l.in.book.Distrust()
	}
	return l, nil
}

// wasteStream is the stream number of a source's quarantined bytes, 0 if they are not kept.
func (r *Recorder) wasteStream(s config.Source) (uint32, error) {
	if !s.Quarantine {
		return 0, nil
	}
	return r.streams.Number(archive.Stream{Source: s.ID, Frame: s.Frame.Kind, Quarantine: true})
}

// add starts a source, as list has it.
func (r *Recorder) add(l *lane, open *handover) {
	go r.list(l, open)() // not before it is listed: every commit and every sheet knows the frames that it brings
}

// list makes the port of a source, from where it was left, and returns what reads it, for a
// goroutine of its own. open is what an earlier port of it had open; nil: nothing.
func (r *Recorder) list(l *lane, open *handover) (run func()) {
	peers := r.lanesOfMissed(l.cfg)
	r.absorbing.RLock() // an acknowledgement finds its gaps in its place, or in its lane
	rm := r.adopt(l)
	if rm == nil { // else its books go on
		r.resume(l)
		if l.former != nil {
			l.succeeds(l.former)
			l.former = nil
		}
	}
	switch {
	case rm != nil || open != nil:
	case l.cfg.TCP.All() && r.iso != nil:
		open = &handover{opener: r.iso.newGate(l.cfg, r.departing())}
	default:
		rm = r.apart(l)
	}
	var p *port
	var ctx context.Context
	if rm != nil {
		p, ctx = newRemotePort(l, rm, r.slog)
		run = func() { p.keepRemote(ctx) }
	} else {
		p, ctx = newPort(l, open, r.read, r.slog)
		run = func() { p.keepOpen(ctx, open) }
	}
	if l.cfg.TCP.All() {
		h := r.newHub(p)
		h.goOn()
		h.await(peers)
		run = func() { h.run(ctx) }
	}
	r.mu.Lock()
	r.ports = append(r.ports, p)
	r.mu.Unlock()
	r.absorbing.RUnlock()
	if p.hub != nil && open != nil && len(open.devices) > 0 { // at once: each sheet has the peers that were there
		p.hub.takes(open.devices)
	}
	return run
}

// resume makes the books of a source, or of a peer, go on where it was left, and its records come
// behind those of that time.
func (r *Recorder) resume(l *lane) {
	r.mu.Lock()
	at, ok := r.places[l.cfg.ID]
	delete(r.places, l.cfg.ID)
	for _, p := range families(r.leaving) { // of two, the one that left last follows the other
		if p.lane.cfg.ID == l.cfg.ID {
			l.follows(p.lane)
		}
	}
	r.mu.Unlock()
	if ok {
		if at.why == outageRestarted && l.cfg.TCP.All() && r.iso != nil { // who connected meanwhile waits
			at.why = ""
		}
		l.resume(at)
	}
	if l.cfg.TCP.All() { // the hub tells its peers what they need
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, at := range r.places { // it had peers, whose devices may come now
		if archive.Within(name, l.cfg.ID) {
			l.learn(at.seen)
			l.takeFrom(&at)
			r.places[name] = at
		}
	}
}

// read has a device read into its lane. before is what was read of it and is not classified yet.
func (r *Recorder) read(l *lane, d device, before []byte) (reader.Handle, error) {
	var h reader.Handler = l
	silence, most := l.waits()
	hold := 0
	if l.cfg.UDP != nil {
		hold = 128 << 10 // a datagram has up to 64 KiB and must fit as a whole
	}
	if r.cfg.Read.Strategy == config.Pipeline {
		h = newPipeline(l)
	}
	return r.reader.Add(reader.Port{
		FD: d.fd(), Handler: h, Silence: silence, Patience: most, Messages: l.cfg.UDP != nil, Hold: hold,
		Before: before,
	})
}

// settle brings commits back to the lanes.
func (r *Recorder) settle() {
	for {
		select {
		case <-r.quit:
			return
		case <-r.commits.news:
		}
		r.settling.Lock()
		c := r.settleAll()
		r.settling.Unlock()
		if r.iso != nil {
			r.iso.bell.Ring() // checkpoints wait for that, and lanes that are blocked
		}
		if c.Err != nil {
			select {
			case r.failed <- c.Err:
			default: // it has been said
			}
		}
	}
}

// settleAll brings the newest commit to all lanes. Recorder.settling is held.
func (r *Recorder) settleAll() seglog.Commit {
	c, now := r.commits.get(), time.Now().UnixNano()
	for _, p := range r.all() {
		p.lane.settle(c, now)
	}
	return c
}

// all is the sources and their peers, behind those that are leaving: what those hold goes into the
// log first.
func (r *Recorder) all() []*port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return families(slices.Concat(r.leaving, r.ports))
}

// snapshot is the sources, each with its peers behind it.
func (r *Recorder) snapshot() []*port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return families(r.ports)
}

func (r *Recorder) sources() []*port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ports)
}

// families is sources, each with its peers behind it. Recorder.mu is held, or they have stopped.
func families(sources []*port) (all []*port) {
	for _, p := range sources {
		all = append(all, p.family()...)
	}
	return all
}

// family is a source and its peers. Recorder.mu is held, or it has stopped.
func (p *port) family() []*port { return append([]*port{p}, p.peers...) }

func accounts(ports []*port) []ledger.Port {
	all := make([]ledger.Port, len(ports))
	for i, p := range ports {
		all[i] = p.lane.sheet()
	}
	return all
}

// tick does what is due every second: samples for the charts, and the sheet on disk.
func (r *Recorder) tick() {
	next := time.NewTimer(beat.Next(time.Second))
	defer next.Stop()
	for ; ; next.Reset(beat.Next(time.Second)) {
		select {
		case <-r.quit:
			return
		case <-next.C:
		}
		r.ticks.Store(int64(time.Since(r.began)))
		err := r.second()
		r.ticks.Store(0)
		if err != nil {
			why := err.Error()
			r.unsaved.Store(&why)
		} else {
			r.unsaved.Store(nil)
		}
	}
}

// second does what is due each second. One sheet serves all of it: drawing one locks each lane in
// turn. The error is that of bringing it to disk.
func (r *Recorder) second() error {
	r.lookAtClock()
	r.files.restock()
	r.addPostponed()
	return r.saveAnd(func(s *archive.StartSheet) {
		r.lookAtHistory(false)
		r.sample(s.Sheet.Ports)
		r.proclaim(s, false)                                      // it is saved with what was just told
		if gone, err := r.streams.Restore(); gone && err == nil { // else the log's folder is gone, which the log tells
			r.slog.Warn("somebody removed the table of streams, or its copy, or put something else there: it was written again, and no name is lost")
		}
		r.tellAside(r.streams) // also of a new name's write
	})
}

// Sheet draws up the balance sheet of this moment.
func (r *Recorder) Sheet() ledger.Sheet {
	r.iso.gather()
	r.absorbing.RLock()
	defer r.absorbing.RUnlock()
	ports := r.snapshot()
	return r.draw(ports, accounts(ports))
}

// draw makes a sheet of this moment from the accounts of the ports, and of sources that wait for
// room. What sources have lost that left since this start began is in the past.
// Recorder.absorbing is held.
func (r *Recorder) draw(ports []*port, accounts []ledger.Port) ledger.Sheet {
	for _, l := range r.postponed() {
		accounts = append(accounts, l.sheet())
	}
	s := ledger.NewSheet(time.Now().UnixNano(), r.since, accounts)
	s.Clock, s.Recovered, s.Log = r.clock.account(), r.found, r.inTheWay()
	s.StreamsUnknown = r.unnamed.account()
	r.accountForwards(&s)
	s.LogDamage = r.damage.account(r.log.Position().First)
	r.mu.Lock()
	leaving, past := slices.Clone(r.leaving), r.acks.earlier()
	r.mu.Unlock()
	for _, p := range leaving {
		if !slices.Contains(ports, p) {
			left := r.lastSheet(p)
			past = with(past, left)
			s.Leaving, s.Balanced = append(s.Leaving, left.Ports...), s.Balanced && left.Balanced
		}
	}
	r.acks.mark(&s)
	s.Past = without(past, &s)
	v := s.Judge()
	s.Verdict = &v
	return s
}

// proclaim has the herald look at a sheet, which gets the troubles that it has told and not ended,
// and the events that nobody has got yet.
func (r *Recorder) proclaim(s *archive.StartSheet, last bool) {
	r.herald.look(&s.Sheet, time.Since(r.began), last)
	s.Troubles, s.Unsent = r.herald.open(r.since), r.teller.Unsent()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.unsent = s.Troubles, s.Unsent
}
