package recorder

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// place is where a source goes on.
type place struct {
	seen   []ledger.Position // the highest numbers that were seen: those before are in an account that is closed
	stored []ledger.Position // … of which so much is in the log
	at     int64             // when nobody read it any more, ns since 1970
	why    string            // the outage since then; "": there was none, for its device stayed open
	isSet  bool              // the clock was set since

	succeeds archive.Succession // what of that it has got from who had its device before
}

// Outages of sources that were not read.
const (
	outageNotRunning = "the recorder was not running"
	outageChanged    = "the source was changed"
	outageTakenOut   = "the source was not in the configuration"
	outageNoRoom     = "no room on the disk for a source that is new to the log"

	outageRestarted = "the recorder was restarted"
	outageReader    = "the reader was restarted"
	outageAll       = "Tallywheel was restarted, and the device stayed open"
	// … with isolate: process
	outageSpillFull   = "no room in the file that overflow: spill has: it has its size, or its disk is full"
	outageSpillFailed = "the file that overflow: spill has cannot be written"
	outageNoMemory    = "no room in memory for what waits: the recorder was restarted, or the log is slow"

	outageNotConnected = "not connected"
	outageConnecting   = "connecting to " // … the address
	outageReplaced     = "a newer connection took over"

	outageThen = "; then: " // between the cause that an outage began for and the one that it lasts for
)

// ErrNotConnected says to a watcher that nobody has connected yet.
var ErrNotConnected = errors.New(outageNotConnected)

// errLeaves ends a reload in its midst. What it has stopped goes on as behind a kill.
var errLeaves = errors.New("the recorder ends: the next one takes up the configuration")

// Reload starts, stops and changes sources as the new configuration has them. Sources that stay the
// same are not touched, nor is the log. A source of which only overflow (but to or from spill),
// buffer or quarantine change goes on with its books; another whose device stays the same goes on
// with that, open as it is. A change of log, api, server, read, notify or forward needs a restart,
// and is an error that changes nothing; where the recorder is isolated it is ErrRenews.
func (r *Recorder) Reload(cfg config.Config) error {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.mayChange(cfg); err != nil {
		return err
	}
	before := map[string]*port{}
	for _, p := range r.sources() {
		before[p.lane.cfg.ID] = p
	}
	r.prepare(cfg)
	keep := map[*port]bool{}
	var lanes []*lane    // to be started
	var changes []func() // of lanes that go on
	for _, s := range cfg.Sources {
		p := before[s.ID]
		if p != nil && sameBooks(p.lane.cfg, s) && !r.isEnding(p) {
			waste, err := r.wasteStream(s)
			if err != nil {
				return fmt.Errorf("source %s: %w; nothing was changed", s.ID, err)
			}
			keep[p] = true
			changes = append(changes, func() { r.reconfigure(p, s, waste) })
			continue
		}
		l, err := r.lane(s)
		if err != nil {
			return fmt.Errorf("%w; nothing was changed", err)
		}
		lanes = append(lanes, l)
	}
	for _, change := range changes {
		change()
	}
	handovers, stopped, err := r.releaseAll(before, keep, lanes)
	if err != nil {
		return err
	}
	r.allotted.fit(cfg)
	r.mu.Lock()
	r.cfg.Sources = cfg.Sources
	r.waiting.Store(0)
	r.postponedLanes = nil // each has another lane, or is not configured
	r.mu.Unlock()
	for _, l := range lanes {
		l.former = r.former(l.cfg, stopped)
		r.add(l, handovers[l.cfg.ID])
	}
	for id := range handovers {
		r.slog.Info("stopped", "source", id)
	}
	r.empty(families(r.departing()), leavePatience)
	if err := r.save(); err != nil {
		r.slog.Warn("sheet on disk", "error", err)
	}
	return nil
}

// releaseAll stops the ports that are not kept. lanes are those that are to begin.
func (r *Recorder) releaseAll(before map[string]*port, keep map[*port]bool, lanes []*lane) (
	handovers map[string]*handover, stopped []*port, err error,
) {
	handovers = map[string]*handover{}
	for id, p := range before {
		if keep[p] {
			continue
		}
		why, how := outageTakenOut, closeAll
		if i := slices.IndexFunc(lanes, func(l *lane) bool { return l.cfg.ID == id }); i >= 0 {
			why, how = outageChanged, howToPart(p, lanes[i].cfg)
		}
		handovers[id], stopped = r.release(p, why, how), append(stopped, p)
		if r.iso.hasLeft() { // another lane would take the place of one that nobody has read to its end
			return nil, nil, errLeaves
		}
	}
	return handovers, stopped, nil
}

// mayChange is an error where this recorder cannot take up a configuration, or another one is to.
func (r *Recorder) mayChange(cfg config.Config) error {
	changed := needsRestart(r.cfg, cfg)
	if len(changed) > 0 && r.iso != nil {
		if cfg.Isolated() {
			return r.iso.renew(haveChanged(changed), r.cfg, cfg)
		}
		changed = []string{"isolate"} // without it another recorder would take up the rest
	}
	if len(changed) > 0 {
		return fmt.Errorf("%s: that needs a restart; nothing was changed", haveChanged(changed))
	}
	if err := r.allotted.check(cfg); err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	return nil
}

// haveChanged says that of sections.
func haveChanged(sections []string) string {
	if len(sections) == 1 {
		return sections[0] + " has changed"
	}
	return strings.Join(sections, ", ") + " have changed"
}

// needsRestart names the sections that differ and that cannot change while the recorder runs.
func needsRestart(a, b config.Config) (sections []string) {
	for _, part := range []struct {
		name     string
		old, now any
	}{
		{"log", a.Log, b.Log},
		{"api", a.API, b.API},
		{"server", a.Server, b.Server},
		{"read", a.Read, b.Read},
		{"notify", a.Notify, b.Notify},
		{"forward", a.Forward, b.Forward},
		{"isolate", a.Isolate, b.Isolate},
		{"cell", a.Cell, b.Cell},
	} {
		if !reflect.DeepEqual(part.old, part.now) {
			sections = append(sections, part.name)
		}
	}
	return sections
}

// reconfigure changes a source that goes on with its books, and its peers.
func (r *Recorder) reconfigure(p *port, s config.Source, waste uint32) {
	if p.hub != nil {
		p.hub.making.Lock() // a peer that comes is made either before or after
		defer p.hub.making.Unlock()
	}
	p.lane.reconfigure(s, waste)
	p.tellKeeper(r.slog)
	r.mu.Lock()
	peers := slices.Clone(p.peers)
	r.mu.Unlock()
	for _, q := range peers {
		s.ID = q.lane.cfg.ID
		waste, err := r.wasteStream(s)
		if err != nil {
			q.log.Warn("bytes in no frame are not kept", "error", err)
		}
		q.lane.reconfigure(s, waste)
		q.tellKeeper(r.slog)
	}
}

// sameBooks reports whether a source may go on with its books, its decoder and its device. Only a
// source whose frames run over into a file has Spill: to and from that is no such change.
func sameBooks(a, b config.Source) bool {
	a.Overflow, a.Buffer, a.Quarantine = b.Overflow, b.Buffer, b.Quarantine
	return reflect.DeepEqual(a, b)
}

// howToPart is how a port stops for that of b. That of another process goes with its spool.
func howToPart(p *port, b config.Source) parting {
	a := p.lane.cfg
	switch {
	case p.remote != nil, p.isGated(), !sameDevice(a, b):
		return closeAll
	case a.Frame.Kind != b.Frame.Kind:
		return leaveOpen
	}
	return leaveHalf
}

// release stops a port, notes where its source goes on, and lets it leave.
func (r *Recorder) release(p *port, why string, how parting) *handover {
	h := p.stop(how)
	read, now := readTo([]*port{p}), time.Now().UnixNano()
	at := place{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range p.family() {
		at.at, at.why, at.isSet = cmp.Or(int64(read[q.lane.cfg.ID]), now), why, false
		if h != nil { // it stays open: there is no outage, but one that goes on
			at.why = ""
			if out := q.lane.openOutage(); out != nil {
				at.why, at.isSet = out.Why(), out.SaysClockWasSet()
			}
		}
		q.lane.wasReadTo(at.at)
		at.seen, at.stored, at.succeeds = q.lane.seen(), q.lane.positions(), q.lane.succession()
		r.places[q.lane.cfg.ID] = at
	}
	r.missed.leave(p, h, cmp.Or(p.lane.lastRead(), now))
	r.ports = slices.DeleteFunc(r.ports, func(q *port) bool { return q == p })
	r.leaving = append(r.leaving, p)
	return h
}

// lastSheet is that of a source that has left, and its peers. Recorder.absorbing is held.
func (r *Recorder) lastSheet(p *port) ledger.Sheet {
	s := ledger.NewSheet(time.Now().UnixNano(), r.since, accounts(p.family()))
	endOutages(&s, readTo([]*port{p}), s.At)
	r.acks.mark(&s)
	return s
}

func (r *Recorder) departing() []*port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.leaving)
}

// leavePatience is how long a reload waits for the log to settle the frames of a source that
// leaves: it goes on leaving after that.
const leavePatience = time.Second
