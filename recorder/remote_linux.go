package recorder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
)

// remote is a source that the reader's process reads.
type remote struct {
	iso   *isolation
	lane  *lane
	spool *spool.Spool
	play  *spooled
	after []*port       // had the source, or its device, before: it begins once those have departed; see heed
	ends  *time.Time    // of a spool that was left: the reader was told to end it by then; nil: it was not
	told  atomic.Bool   // it is on the shelf
	room  atomic.Bool   // it is of a peer that makes room, and its source stays
	ended chan struct{} // closed once the spool has been shown to its end, or err says why not
	err   error
	spent chan struct{} // closed once nothing more of the spool will be shown
	// the reader has read the source to its end, and said so on the shelf, for the spool has no
	// room to; nil: it has not
	early  atomic.Pointer[isolate.Port]
	untold atomic.Bool // the reader has not heard what it was told last: the keeper could not take that

	heeding sync.Mutex // held while the port learns from after, which it guards once the port is listed
	heeded  bool       // it has; heeding guards it

	telling sync.Mutex // held while the keeper is told of the source: what was told last stands
	giveUp  *time.Time // the reader was told to end the spool by then; it is not told otherwise. telling guards it
}

// adopt gives a lane the spool that the recorder before has left of its source: its books go on. It
// is nil where there is none, and where it cannot be gone on with: then the account of the source
// is closed as that of one that has died, and it begins anew.
func (r *Recorder) adopt(l *lane) *remote {
	if r.iso == nil {
		return nil
	}
	i, id, own := r.iso, l.cfg.ID, l.number
	old := i.left[id]
	if old != nil {
		l.wasReadTo(old.lane.ReadTo)
	}
	l.wasReadTo(int64(i.readTo[id]))
	if old == nil {
		return nil
	}
	l.number = old.book
	rm, err := r.attach(l, old.spool)
	if err == nil {
		rm.ends, rm.giveUp = old.lane.GiveUp, old.lane.GiveUp
		rm.room.Store(old.lane.MakesRoom)
		i.named = append(i.named, rm.play.founded)
		if lost := rm.play.gone; lost.frames > 0 || lost.waste > 0 {
			i.log.Error("what the log had stored of a source is gone with the end of the log, and no longer in memory: bring the file back from a copy, with the recorder stopped, or accept the gap",
				"source", id, "frames", lost.frames, "quarantined_bytes", lost.waste)
		}
		delete(i.left, id)
		return rm
	}
	l.number = own
	i.log.Error("what waited in memory of a source cannot be gone on with: its books begin anew, and what the log does not have is missing",
		"source", id, "error", err)
	i.giveUp(id)
	died := *i.last
	died.Missed = nil // they were taken in
	died.Sheet.Leaving, died.Positions = nil, map[string][]ledger.Position{id: i.last.Positions[id]}
	died.Sheet.Ports = slices.DeleteFunc(slices.Clone(i.last.Sheet.Ports),
		func(p ledger.Port) bool { return p.Book != old.book })
	others := slices.DeleteFunc(r.streams.Sources(), func(source string) bool { // which go on, or were closed before
		return archive.AddressOf(source) == archive.AddressOf(id) && (source == id || i.left[source] == nil)
	})
	r.closeDied(&died, nil, others)
	return nil
}

// newSpool gives a lane a spool of its own.
func (r *Recorder) newSpool(l *lane) (*remote, error) {
	s, err := spool.Create(spool.Config{Size: SpoolBytes(l.cfg, r.cfg.KeepsTime()), Room: spool.MaxRoom})
	if err != nil {
		return nil, err
	}
	rm, err := r.attach(l, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	rm.after = slices.DeleteFunc(r.departing(), func(p *port) bool { // a peer opens no device
		return l.hubNumber != 0 && !archive.Within(l.cfg.ID, p.lane.cfg.ID)
	})
	return rm, nil
}

// attach has a lane record a spool, from where it is, and shows it what waits.
func (r *Recorder) attach(l *lane, s *spool.Spool) (*remote, error) {
	return r.show(l, s, liveLog{r.log})
}

// show is attach for any log.
func (r *Recorder) show(l *lane, s *spool.Spool, to wireLog) (*remote, error) {
	i := r.iso
	play, err := newSpooled(l, s, to, spool.Steady)
	if err != nil {
		return nil, err
	}
	r.goOnAck(l) // before the books go on
	play.why = func() string { return i.port(l.cfg.ID).Why }
	play.rest = checkpointRest
	if log, ok := l.out.log.(*replay); ok {
		log.again = r.commits.again
	}
	l.describe(i.port(l.cfg.ID))
	for until := time.Now().Add(caughtUp); time.Now().Before(until); {
		if more, err := play.step(); err != nil || !more {
			break // an error shows again
		}
	}
	r.settleOne(l) // what the log has of that is no news, and nobody lists the lane yet
	rm := &remote{iso: i, lane: l, spool: s, play: play, ended: make(chan struct{}), spent: make(chan struct{})}
	rm.hearEnd(i.port(l.cfg.ID))
	return rm, nil
}

// hearEnd takes in that the reader has come to its end, if that is what it says.
func (rm *remote) hearEnd(p isolate.Port) {
	if p.Ended != 0 && p.Ended == rm.lane.number {
		rm.early.Store(&p)
	}
}

// put tells the reader, and whoever comes next, of the source; with giveUp nil, as before of when
// the spool is to end.
func (rm *remote) put(giveUp *time.Time) error {
	rm.telling.Lock()
	defer rm.telling.Unlock()
	if giveUp != nil {
		rm.giveUp = giveUp
	}
	l := rm.lane
	cfg := l.config()
	source, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	silence, most := l.waits()
	lane := isolate.Lane{
		Source: source, Book: l.number, Silence: silence, Patience: most, GiveUp: rm.giveUp,
		MakesRoom: rm.room.Load(), ReadTo: l.lastRead(),
	}
	lane.Kind, lane.Port = deviceOf(cfg)
	if cfg.Serial != nil {
		lane.Line = cfg.Serial.Line()
	}
	if over := cfg.Spill; over != nil {
		lane.Spill = &isolate.Spill{
			Dir: cmp.Or(over.Path, rm.iso.logDir), Max: int64(over.Max), Reserve: rm.iso.reserve,
		}
	}
	rm.untold.Store(false)
	return put(rm.iso.link, isolate.LaneOf(cfg.ID), lane, rm.spool)
}

// begin has the spool shown by pump from now on.
func (rm *remote) begin() {
	rm.iso.mu.Lock()
	rm.iso.remotes = append(rm.iso.remotes, rm)
	rm.iso.mu.Unlock()
	rm.iso.bell.Ring()
}

// cease has it shown no more. false: the next recorder shows it.
func (rm *remote) cease() bool {
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	if rm.iso.holds {
		return false
	}
	rm.iso.remotes = slices.DeleteFunc(rm.iso.remotes, func(o *remote) bool { return o == rm })
	return true
}

// unshown is how many bytes the reader has read that no lane was shown yet.
func (rm *remote) unshown() uint64 {
	if rm == nil {
		return 0
	}
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	unshown, inFront := rm.play.waits()
	return unshown + inFront
}

// isEnding reports whether the reader was told to end the spool, by a recorder before this one.
func (rm *remote) isEnding() bool { return rm != nil && rm.ends != nil }

// makesRoom reports whether the spool is of a peer that has begun to make room.
func (rm *remote) makesRoom() bool { return rm != nil && rm.room.Load() }

func (rm *remote) isOver() bool {
	select {
	case <-rm.ended:
		return true
	default:
		return false
	}
}

// isSpent reports whether the books of a port get nothing more from its spool, if it has one.
func (rm *remote) isSpent() bool {
	if rm == nil {
		return true
	}
	select {
	case <-rm.spent:
		return true
	default:
		return false
	}
}

// isShown reports whether all is shown that is in the spool now, if there is one, and the lane has
// taken it.
func (rm *remote) isShown() bool {
	if rm == nil {
		return true
	}
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	return rm.isOver() || !rm.play.player.Paused() && rm.play.from.IsAtEnd()
}

// keepRemote is keepOpen for a source that another process reads: it sees that one does, until ctx
// is done. A port that leaves by a reload has stopped, for whoever waits, once it is read no more:
// what the log does not take yet stays in the spool, and is shown when it does.
func (p *port) keepRemote(ctx context.Context) {
	rm := p.remote
	leaves := sync.OnceFunc(func() { // a lane of the same name may come behind it
		rm.iso.forget(p.lane.cfg.ID)
		close(p.done)
	})
	defer leaves()
	defer p.lane.stopped()
	if !p.founds(ctx) {
		p.unbegun()
		close(rm.spent)
		return
	}
	rm.begin()
	if err := rm.put(nil); err != nil {
		tellUntaken(p.log, err)
	}
	if s, ok := p.opener.(*seat); ok {
		s.begins()
	}
	select {
	case <-ctx.Done():
	case <-rm.ended:
		if rm.err != nil {
			p.log.Error("the spool of the source makes no sense: it is read no more until the recorder is started anew",
				"error", rm.err)
			p.lane.outage(time.Now().UnixNano(),
				"its spool makes no sense, and a restart of Tallywheel is needed: "+rm.err.Error())
		}
		<-ctx.Done()
	}
	deadline := p.finishBy()
	p.areGiven(deadline)
	p.lane.finishes(unreadStopped)
	if err := rm.put(&deadline); err != nil {
		p.log.Debug("the keeper has ended, which the reader sees, too", "error", err)
	}
	p.playToEnd(deadline, leaves)
}

// areGiven has the reader given the connections of a peer that stops, one behind the other, before
// it is told to come to an end: what it is given behind that it does not read. What it has not
// taken until the deadline is counted.
func (p *port) areGiven(deadline time.Time) {
	s, ok := p.opener.(*seat)
	if !ok {
		return
	}
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	for s.finish() {
		select {
		case <-s.moved:
			continue
		case <-p.remote.iso.leaves: // the next reader has them
			return
		case <-p.remote.iso.over: // all is counted once what was read is shown
			return
		case <-late.C:
		}
		p.lane.late()
		rest, _, _ := s.close(true)
		p.throwAway(rest)
		return
	}
}

// throwAway counts what connections hold that nobody will read, and closes them.
func (p *port) throwAway(rest []device) (all uint64) {
	for _, d := range rest {
		d.deafen()
		if n := d.discard(); n > 0 {
			all += n
			p.lane.throwsAway(d.fd(), n)
			p.log.Debug("bytes that had arrived are thrown away unread", "bytes", n, "cause", unreadStopped)
		}
	}
	if all > 0 {
		p.remote.keepsThrown()
	}
	for _, d := range rest {
		if err := d.close(); err != nil {
			p.log.Warn("close", "error", err)
		}
	}
	return all
}

// playToEnd sees that the spool of a source that has stopped is shown to its end, which the reader
// comes to by the deadline. Where the log does not take all of it soon, and the recording goes on,
// the port leaves. What is not to be shown any more is posted. Where all three processes end before
// that, nobody comes to the end of the spool now: who goes on does.
func (p *port) playToEnd(deadline time.Time, leaves func()) {
	rm := p.remote
	due := time.AfterFunc(time.Until(deadline), p.lane.late)
	defer due.Stop()
	late := time.NewTimer(time.Until(deadline) + time.Second)
	defer late.Stop()
	inTime := true
	select {
	case <-rm.ended:
	case <-rm.iso.over: // as where the keeper was killed before it told the reader of the source, or of its end
		p.playOut(late.C)
	case <-rm.iso.leaves:
	case <-late.C:
		if !rm.iso.isStopping() {
			leaves()
		}
		inTime = p.awaitsReader()
	}
	if rm.iso.hasLeft() || !rm.cease() {
		return
	}
	n, ended := rm.rest()
	if early := rm.early.Load(); early != nil && !ended && rm.err == nil {
		n, ended = n+early.Lost, true
	}
	if n > 0 {
		p.lane.untake(n)
		p.log.Debug("bytes that had arrived are thrown away unread", "bytes", n, "cause", unreadStopped)
	}
	isRead := inTime || ended
	if s, ok := p.opener.(*seat); ok && isRead {
		if p.throwAway(s.settle()) > 0 {
			p.lane.endsBadly(badKeeper)
		}
		for _, g := range s.clear() { // the reader has told of no end of it, and had counted it
			_ = g.close()
		}
	}
	if !isRead {
		p.leftUnread()
	}
	close(rm.spent)
}

// keeps saves what the lane was taught, where another process reads it; false: not yet, for the log
// has not stored all that the lane has given it.
func (rm *remote) keeps() bool {
	if rm == nil || rm.isOver() {
		return true
	}
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	if err := rm.play.saveBoth(); err != nil {
		return false // it shows again
	}
	return rm.play.due == nil && !rm.lane.isTouched()
}

// playLook is how often a source whose reader is gone looks whether all was shown that it has read.
const playLook = time.Millisecond

// playOut waits until all is shown that a reader has read which is gone, and did not come to its
// end, or until late.
func (p *port) playOut(late <-chan time.Time) {
	rm := p.remote
	for isLate := false; !isLate && !rm.isShown(); {
		rm.iso.bell.Ring()
		select {
		case <-late:
			isLate = true
		case <-time.After(playLook):
		}
	}
	if !rm.isOver() {
		p.unseated()
	}
}

// unseated counts what waits in a connection that a peer was given, and that its reader has not
// read to its end: it was killed, stands still, or has never heard of it.
func (p *port) unseated() (n uint64) {
	s, ok := p.opener.(*seat)
	if !ok {
		return 0
	}
	var rest []device
	for _, g := range s.clear() {
		rest = append(rest, g)
	}
	n = p.throwAway(rest)
	s.free()
	return n
}

// readerStands is for how long a source that has stopped waits for a reader that stands still, and
// for a log that does where the recording stops. Tests have less.
var readerStands = 10 * time.Second

// awaitsReader waits until the spool of a source that has stopped is shown to its end, which is
// late. A reader that stands still counts what it was late for once it goes on; where it does not,
// or has never heard of the source, it is given up. A log that stands still is waited for, unless
// the recording stops. false: the end was not shown.
func (p *port) awaitsReader() bool {
	rm := p.remote
	stopping := rm.iso.stopping
	var late <-chan time.Time // of the recording that stops; nil: it does not
	var shown time.Time       // since when the reader has brought nothing more; zero: the log is behind
	told, before := false, p.lane.sheet().Unread[unreadStopped]
	look := time.NewTicker(stallLook)
	defer look.Stop()
	for {
		select {
		case <-rm.ended:
			if !shown.IsZero() && p.lane.sheet().Unread[unreadStopped] > before {
				p.lane.endsBadly(badReader)
			}
			return true
		case <-rm.iso.over:
			p.playOut(late)
			return true
		case <-rm.iso.leaves:
			return false
		case <-stopping:
			stopping, late = nil, time.After(readerStands)
		case <-late:
			return false
		case now := <-look.C:
			switch isShown := rm.isShown(); {
			case isShown && rm.untold.Load():
				return false
			case isShown && shown.IsZero():
				shown = now
				p.log.Error("the reader has not come to its end, and the source that has stopped waits for it", "at_most",
					readerStands)
			case isShown && now.Sub(shown) > readerStands:
				return false
			case !isShown:
				if shown = (time.Time{}); !told {
					told = true
					p.log.Warn("the log stands still, or is behind: what was read of the source that has stopped waits in memory")
				}
			}
		}
	}
}

// unbegun counts what a peer was sent that had no time to begin: nothing of it was read.
func (p *port) unbegun() {
	s, ok := p.opener.(*seat)
	if !ok {
		return
	}
	rest, _, _ := s.close(true)
	p.throwAway(rest)
}

// rest is what was not shown when the recording stopped, in bytes; what is held is classified as it
// is, and what the reader has counted is posted. ended: the reader had come to its end. Nobody
// shows the spool any more.
func (rm *remote) rest() (n uint64, ended bool) {
	if rm.play.ended {
		return 0, true
	}
	if rm.err != nil {
		return 0, false // nobody knows
	}
	defer rm.play.missed()
	held, err := rm.play.from.Held()
	if err != nil {
		return 0, false
	}
	rm.lane.Closed(held, time.Now().UnixNano(), reader.ErrRemoved)
	<-rm.lane.closed
	rm.play.from.Done(len(held))
	for {
		at := rm.play.from.Point().Shown
		m, _, ok, err := rm.play.from.Next()
		if err != nil || !ok {
			_, front := rm.play.waits()
			if err == nil && !rm.play.from.IsAtEnd() { // the reader has moved some of it on
				continue
			}
			rm.lane.inFront.Store(0)
			return n + front, ended
		}
		n += m.At - at
		switch m.Kind {
		case spool.Lost, spool.Counted, spool.Unattended:
			rm.play.tell(m)
		case spool.Ended:
			ended = true
		}
	}
}
